package patchers

import "testing"

func TestSilencedAt(t *testing.T) {
	for _, c := range []struct {
		src  string
		line int
		want bool
	}{
		{"a # ncclfix: ignore", 1, true},
		{"a #ncclfix:ignore [ pytest/setup-show , x ]", 1, true},
		{"a # ncclfix: ignore[pytest]", 1, true},
		{"a # ncclfix: ignore[teardown, pytest/minversion]", 1, false},
		{"a # ncclfix: ignore[]", 1, false},
		{"a # ncclfix: ignored", 1, false},
		{"  # ncclfix: ignore\na", 2, true},
		{"b # ncclfix: ignore\na", 2, false},
		{"# ncclfix: ignore\n\na", 3, false},
		{"# ncclfix: ignore", 0, false},
		{"# ncclfix: ignore", 9, false},
	} {
		if got := SilencedAt([]byte(c.src), c.line, "pytest/setup-show"); got != c.want {
			t.Errorf("%q, line %d: %v", c.src, c.line, got)
		}
	}
}
