package checkout

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHistoryAndReverse(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a"})
	c := open(t, dir)
	if h, err := c.History(); err != nil || h != nil {
		t.Errorf("before any write: %v, %v", h, err)
	}
	_, _, err := c.Reverse("")
	wantError(t, err, "nothing to undo")

	ctx := context.Background()
	first, err := c.Write(ctx, setOf(modify("a.py", "a", "A"), create("n.py", "n")))
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Write(ctx, setOf(modify("a.py", "A", "AA")))
	if err != nil {
		t.Fatal(err)
	}
	written := snapshot(t, dir)
	id, set, err := c.Reverse("")
	if err != nil || id != second {
		t.Fatalf("Reverse: %s, %v; want %s", id, err, second)
	}
	wantTree(t, dir, written)
	if d := cmp.Diff(setOf(modify("a.py", "AA", "A")), set); d != "" {
		t.Errorf("Reverse (-want +got):\n%s", d)
	}
	_, _, err = c.Reverse(first)
	wantError(t, err, "a.py changed since it was written")

	if _, err := c.Undo(ctx, second); err != nil {
		t.Fatal(err)
	}
	got, err := c.History()
	if err != nil {
		t.Fatal(err)
	}
	want := []Written{
		{ID: first, Files: []string{"a.py", "n.py"}},
		{ID: second, Undone: true, Files: []string{"a.py"}},
		{ID: got[2].ID, Undoes: second, Files: []string{"a.py"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("History (-want +got):\n%s", d)
	}
}
