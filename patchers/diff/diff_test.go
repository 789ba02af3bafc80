package diff

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApply(t *testing.T) {
	tests := []struct {
		name, src string
		edits     []Edit
		want      string
	}{
		{"nothing", "ab", nil, "ab"},
		{"insert at the front", "ab", []Edit{Insert(0, "x")}, "xab"},
		{"insert at the end", "ab", []Edit{Insert(2, "x")}, "abx"},
		{"into an empty file", "", []Edit{Insert(0, "x")}, "x"},
		{"replace", "abc", []Edit{{1, 2, "XY"}}, "aXYc"},
		{"delete", "abc", []Edit{{0, 3, ""}}, ""},
		{"any order", "abc", []Edit{Insert(3, "3"), Insert(0, "0")}, "0abc3"},
		{"one place, given order", "ab", []Edit{Insert(1, "1"), Insert(1, "2")}, "a12b"},
		{"insertion before replacement", "abc", []Edit{{1, 2, "B"}, Insert(1, "x")}, "axBc"},
		{"adjacent", "abc", []Edit{{0, 1, "A"}, {1, 2, "B"}}, "ABc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := []byte(tt.src)
			got, err := Apply(src, tt.edits)
			if err != nil || string(got) != tt.want {
				t.Errorf("Apply = %q, %v, want %q", got, err, tt.want)
			}
			if string(src) != tt.src {
				t.Errorf("Apply changed its input to %q", src)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	for name, edits := range map[string][]Edit{
		"negative start": {{-1, 0, ""}},
		"past the end":   {{0, 4, ""}},
		"backwards":      {{2, 1, ""}},
		"overlap":        {{0, 2, ""}, {1, 3, ""}},
		"insert inside":  {{0, 3, ""}, Insert(1, "x")},
	} {
		if got, err := Apply([]byte("abc"), edits); err == nil {
			t.Errorf("%s: Apply = %q, want an error", name, got)
		}
	}
}

func TestMerge(t *testing.T) {
	tests := []struct {
		name string
		x, y []Edit
		want string // of "abcdef"; "" is a conflict
	}{
		{"apart", []Edit{{0, 1, "A"}}, []Edit{{3, 4, "D"}}, "AbcDef"},
		{"the same edit twice", []Edit{Insert(2, "x")}, []Edit{Insert(2, "x")}, "abxcdef"},
		{"two insertions at one place", []Edit{Insert(2, "x")}, []Edit{Insert(2, "y")}, "abxycdef"},
		{"insertion at the start of a replacement", []Edit{{2, 3, "C"}}, []Edit{Insert(2, "y")}, "abyCdef"},
		{"insertion at the end of a replacement", []Edit{{2, 3, "C"}}, []Edit{Insert(3, "y")}, "abCydef"},
		{"insertion inside a replacement", []Edit{{2, 4, "C"}}, []Edit{Insert(3, "y")}, ""},
		{"overlap", []Edit{{0, 2, ""}}, []Edit{{1, 3, ""}}, ""},
		{"one place, two replacements", []Edit{{0, 2, "x"}}, []Edit{{0, 2, "y"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Merge(tt.x, tt.y)
			if ok != (tt.want != "") {
				t.Fatalf("Merge = %v, %v", got, ok)
			}
			if !ok {
				return
			}
			out, err := Apply([]byte("abcdef"), got)
			if err != nil || string(out) != tt.want {
				t.Errorf("merged: %q, %v, want %q", out, err, tt.want)
			}
		})
	}
}

func TestUnified(t *testing.T) {
	tests := []struct {
		name string
		file File
		want string
	}{
		{
			"no change", File{Path: "a", OldMode: 0o644, NewMode: 0o644, Old: []byte("x\n"), New: []byte("x\n")}, "",
		},
		{
			"change", File{Path: "a.py", OldMode: 0o644, NewMode: 0o600, Old: []byte("1\n2\n3\n4\n5\n"), New: []byte("1\n2\n3\n4\n5\n6\n")},
			"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -3,3 +3,4 @@\n 3\n 4\n 5\n+6\n",
		},
		{
			"no newline before and after", File{Path: "a", OldMode: 0o644, NewMode: 0o644, Old: []byte("1\n2"), New: []byte("1\n2\n3")},
			"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@\n 1\n-2\n\\ No newline at end of file\n+2\n+3\n\\ No newline at end of file\n",
		},
		{
			"new file", File{Path: "pytest.ini", NewMode: 0o644, New: []byte("[pytest]\n")},
			"diff --git a/pytest.ini b/pytest.ini\nnew file mode 100644\n--- /dev/null\n+++ b/pytest.ini\n@@ -0,0 +1 @@\n+[pytest]\n",
		},
		{
			"new empty file", File{Path: "e", NewMode: 0o755},
			"diff --git a/e b/e\nnew file mode 100755\n",
		},
		{
			"deleted file", File{Path: "a", OldMode: 0o644, Old: []byte("x\n")},
			"diff --git a/a b/a\ndeleted file mode 100644\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
		},
		{
			"mode only", File{Path: "a", OldMode: 0o644, NewMode: 0o755, Old: []byte("x\n"), New: []byte("x\n")},
			"diff --git a/a b/a\nold mode 100644\nnew mode 100755\n",
		},
		{
			"names", File{Path: "d d/ü\n\"", OldMode: 0o644, NewMode: 0o644, Old: []byte("x\n"), New: []byte("y\n")},
			"diff --git \"a/d d/\\303\\274\\n\\\"\" \"b/d d/\\303\\274\\n\\\"\"\n--- \"a/d d/\\303\\274\\n\\\"\"\n+++ \"b/d d/\\303\\274\\n\\\"\"\n@@ -1 +1 @@\n-x\n+y\n",
		},
		{
			"blank in a name", File{Path: "d d", OldMode: 0o644, NewMode: 0o644, Old: []byte("x\n"), New: []byte("y\n")},
			"diff --git a/d d b/d d\n--- a/d d\t\n+++ b/d d\t\n@@ -1 +1 @@\n-x\n+y\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Unified(tt.file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("Unified (-want +got):\n%s", d)
			}
		})
	}
}

// Hunks whose contexts touch are one hunk, as git has it.
func TestUnifiedJoinsHunks(t *testing.T) {
	var src strings.Builder
	for i := range 40 {
		fmt.Fprintln(&src, i)
	}
	for gap, want := range map[int]int{6: 1, 7: 2} {
		changed := strings.NewReplacer("\n10\n", "\nA\n", fmt.Sprintf("\n%d\n", 11+gap), "\nB\n").Replace(src.String())
		got, err := Unified(File{Path: "a", OldMode: 0o644, NewMode: 0o644, Old: []byte(src.String()), New: []byte(changed)})
		if n := strings.Count(got, "\n@@ "); err != nil || n != want {
			t.Errorf("%d lines between: %d hunks, %v, want %d", gap, n, err, want)
		}
	}
}

func TestUnifiedRefusesTooManyLines(t *testing.T) {
	long := bytes.Repeat([]byte("\n"), maxLines)
	_, err := Unified(File{Path: "a", OldMode: 0o644, NewMode: 0o644, Old: long, New: append(long, "x\n"...)})
	if !errors.Is(err, ErrTooManyLines) {
		t.Errorf("got %v, want ErrTooManyLines", err)
	}
}

// The diff of two files, given to the real git apply, makes the second of the
// first: random lines with every kind of line ending, odd names, new and
// deleted files.
func TestGitApply(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal("git is needed: ", err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a\n", "b\n", "\n", "c\r\n", "d\r", "\xff\n", "\x00\n", "    return\n", "-- \n", "é\n"}
	random := func() []byte {
		var b bytes.Buffer
		for range r.IntN(30) {
			b.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		if r.IntN(2) == 0 {
			b.WriteString("no newline")
		}
		return b.Bytes()
	}
	names := []string{"plain.py", "with blank.py", "quo\"te.py", "tab\t.py", "ünï.py", "deep/er/file.py", "back\\slash"}
	dir := t.TempDir()
	for i := range 150 {
		f := File{Path: names[i%len(names)], OldMode: 0o644, NewMode: 0o644, Old: random(), New: random()}
		if len(f.Old) > 0 && r.IntN(3) == 0 { // a small change of a common text
			f.New = append(bytes.Clone(f.Old[:len(f.Old)/2]), append([]byte("inserted\n"), f.Old[len(f.Old)/2:]...)...)
		}
		switch i % 10 {
		case 8:
			f.OldMode, f.Old = 0, nil
		case 9:
			f.NewMode, f.New = 0, nil
		}
		patch, err := Unified(f)
		if err != nil {
			t.Fatal(err)
		}
		if patch == "" {
			continue
		}
		path := filepath.Join(dir, f.Path)
		os.RemoveAll(path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if f.OldMode != 0 {
			if err := os.WriteFile(path, f.Old, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(git, "apply", "--whitespace=nowarn", "-")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		cmd.Stdin = strings.NewReader(patch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git apply: %v\n%s\n%s", err, out, patch)
		}
		got, err := os.ReadFile(path)
		if f.NewMode == 0 {
			if !os.IsNotExist(err) {
				t.Errorf("%q was not deleted", f.Path)
			}
			continue
		}
		if err != nil || !bytes.Equal(got, f.New) {
			t.Fatalf("git apply made %q, want %q (%v) of\n%s", got, f.New, err, patch)
		}
	}
}

func FuzzApply(f *testing.F) {
	f.Add("hello", 1, 3, "x", 4, 4, "y")
	f.Add("", 0, 0, "a", 0, 0, "b")
	f.Fuzz(func(t *testing.T, src string, s1, e1 int, n1 string, s2, e2 int, n2 string) {
		edits := []Edit{{s1, e1, n1}, {s2, e2, n2}}
		got, err := Apply([]byte(src), edits)
		if err != nil {
			return
		}
		// The oracle makes the later edit first, so that no offset moves.
		first, second := edits[0], edits[1]
		if compare(second, first) < 0 {
			first, second = second, first
		}
		want := src[:second.Start] + second.New + src[second.End:]
		want = want[:first.Start] + first.New + want[first.End:]
		if string(got) != want {
			t.Errorf("Apply(%q, %v) = %q, want %q", src, edits, got, want)
		}
	})
}
