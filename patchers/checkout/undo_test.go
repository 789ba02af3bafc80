package checkout

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUndoRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(dir string) error
		err    string
	}{
		{"edited", func(dir string) error { return os.WriteFile(dir+"/a.py", []byte("mine"), 0o644) }, "a.py changed since it was written"},
		{"deleted", func(dir string) error { return os.Remove(dir + "/a.py") }, "a.py changed since it was written"},
		{"created file edited", func(dir string) error { return os.WriteFile(dir+"/d/new.py", []byte("mine"), 0o644) }, "d/new.py changed since it was written"},
		{"folder gone", func(dir string) error { return os.RemoveAll(dir + "/d") }, "d/new.py changed since it was written"},
		{"deleted file back", func(dir string) error { return os.WriteFile(dir+"/gone.py", []byte("mine"), 0o644) }, "gone.py changed since it was written"},
		{"several", func(dir string) error {
			os.WriteFile(dir+"/gone.py", []byte("mine"), 0o644)
			return os.Remove(dir + "/a.py")
		}, "a.py (and 1 more) changed since it was written"},
		{"symlink", func(dir string) error {
			os.Rename(dir+"/a.py", dir+"/real.py")
			return os.Symlink("real.py", dir+"/a.py")
		}, "a.py changed since it was written"},
		{"mode taken back", func(dir string) error { return os.Chmod(dir+"/x.sh", 0o644) }, "x.sh changed since it was written"},
		{"read-only", func(dir string) error { return os.Chmod(dir+"/a.py", 0o444) }, "refusing to write a.py: it is read-only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := newTree(t, map[string]string{"a.py": "a", "gone.py": "g", "x.sh": ""})
			c := open(t, dir)
			ctx := context.Background()
			executable := modify("x.sh", "", "")
			executable.Mode = 0o755
			id, err := c.Write(ctx, setOf(modify("a.py", "a", "A"), create("d/new.py", "n"), remove("gone.py", "g"), executable))
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.change(dir); err != nil {
				t.Fatal(err)
			}
			want := snapshot(t, dir)
			_, err = c.Undo(ctx, id)
			wantError(t, err, tt.err)
			wantTree(t, dir, want)
		})
	}
}

func TestUndoKeepsWhatIsNotItsOwn(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a"})
	c := open(t, dir)
	ctx := context.Background()
	if _, err := c.Write(ctx, setOf(modify("a.py", "a", "A"), create("d/e/new.py", "n"))); err != nil {
		t.Fatal(err)
	}
	// A mode that the write did not change is the user's, as is another file.
	if err := os.Chmod(dir+"/a.py", 0o700); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"d/mine.py": "m"})
	if _, err := c.Undo(ctx, ""); err != nil {
		t.Fatal(err)
	}
	got := snapshot(t, dir)
	delete(got, "")
	if want := "map[/a.py:-rwx------ a /d:drwxr-xr-x /d/mine.py:-rw-r--r-- m]"; fmt.Sprint(got) != want {
		t.Errorf("tree %v, want %s", got, want)
	}
}

func TestUndoOrder(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "0", "b.py": "0"})
	c := open(t, dir)
	ctx := context.Background()
	write := func(path, old, new string) string {
		t.Helper()
		id, err := c.Write(ctx, setOf(modify(path, old, new)))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	undo := func(id, want string) {
		t.Helper()
		_, err := c.Undo(ctx, id)
		if want == "" && err != nil {
			t.Errorf("undo %q: %v", id, err)
		}
		if want != "" {
			wantError(t, err, want)
		}
	}
	wantFiles := func(a, b string) {
		t.Helper()
		got := snapshot(t, dir)
		if !strings.HasSuffix(got["/a.py"], " "+a) || !strings.HasSuffix(got["/b.py"], " "+b) {
			t.Errorf("tree %v, want %s and %s", got, a, b)
		}
	}
	undo("", "nothing to undo in "+dir)
	first := write("a.py", "0", "1")
	second := write("b.py", "0", "1")
	third := write("a.py", "1", "2")
	if ids := []string{first, second, third}; !slices.IsSorted(ids) {
		t.Errorf("ids %v are not in order", ids)
	}
	undo("../"+first, "no such write")
	undo("pending", "no such write")
	undo("20200101-000000-abcd", `undoing "20200101-000000-abcd": no such write to `+dir)
	undo(first, "refusing to undo "+first+": a.py changed since it was written")
	undo(second, "")
	wantFiles("2", "0")
	undo(second, "refusing to undo "+second+": that was done already")
	undo("", "")
	wantFiles("1", "0")
	undo("", "")
	wantFiles("0", "0")
	undo("", "nothing to undo")
	fourth := write("b.py", "0", "3")
	undo("", "")
	wantFiles("0", "0")
	undo(fourth, "that was done already")

	j, err := c.openJournal()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := j.ids()
	j.Close()
	if err != nil {
		t.Fatal(err)
	}
	last := ids[len(ids)-1]
	undo(last, "refusing to undo "+last+": it is the undo of "+fourth)

	// Another tree knows nothing of this one's writes.
	other := open(t, t.TempDir())
	_, err = other.Undo(ctx, first)
	wantError(t, err, "no such write")
}

func TestUndoSeesADamagedJournal(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a"})
	c := open(t, dir)
	ctx := context.Background()
	id, err := c.Write(ctx, setOf(modify("a.py", "a", "A")))
	if err != nil {
		t.Fatal(err)
	}
	want := snapshot(t, dir)
	folder, err := c.journalDir()
	if err != nil {
		t.Fatal(err)
	}
	folder = filepath.Join(folder, id)
	if err := os.WriteFile(folder+"/old/0", []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = c.Undo(ctx, "")
	wantError(t, err, "old/0 is damaged")
	if err := os.WriteFile(folder+"/manifest.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = c.Undo(ctx, "")
	wantError(t, err, "manifest.json: unexpected end of JSON input")
	wantTree(t, dir, want)
}

// The journal forgets the oldest writes only.
func TestPrune(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "0"})
	c := open(t, dir)
	ctx := context.Background()
	for i := range kept + 5 {
		if _, err := c.Write(ctx, setOf(modify("a.py", fmt.Sprint(i), fmt.Sprint(i+1)))); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := c.journalDir()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != kept+1 { // and the lock
		t.Errorf("%d entries, %v", len(entries), err)
	}
	for i := range 3 {
		if _, err := c.Undo(ctx, ""); err != nil {
			t.Fatal(i, err)
		}
	}
	if got := snapshot(t, dir)["/a.py"]; !strings.HasSuffix(got, fmt.Sprint(" ", kept+2)) {
		t.Errorf("a.py %s", got)
	}
}
