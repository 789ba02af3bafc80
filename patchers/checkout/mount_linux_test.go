package checkout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ncclfix/patchers"
)

// mount puts a small file system, in memory, at dir.
func mount(t *testing.T, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size="+size)
	if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
		t.Skip("this root cannot mount a file system")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill takes all room on the disk of dir but for free bytes.
func fill(t *testing.T, dir string, free int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	size, err := f.Seek(0, 2)
	if err == nil {
		err = f.Truncate(size - free)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A write to a full disk changes nothing, whether the tree is full, the journal
// or the disk of both, and however little room is left.
func TestFullDisk(t *testing.T) {
	const size = 6000 // two blocks; a written file has three
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("%4d\n", i), size/5) }
	files := map[string]string{}
	var changes []patchers.FileChange
	for i := range 10 {
		name := fmt.Sprintf("d/f%d.py", i)
		files[name] = text(i)
		changes = append(changes, modify(name, text(i), text(i)+text(i)))
	}
	changes = append(changes, create("new/n.py", text(0)))
	const block = 4096
	journal, stage := int64(10*2+1)*block, int64(10*3+2)*block

	tests := []struct {
		name        string
		tree, state string // which disk
		need        int64
	}{
		{"tree", "full", "roomy", stage},
		{"journal", "roomy", "full", journal},
		{"both", "full", "full", journal + stage},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			mount(t, base+"/full", "1m")
			t.Setenv("XDG_STATE_HOME", filepath.Join(base, tt.state, "state"))
			dir := filepath.Join(base, tt.tree, "tree")
			writeFiles(t, dir, files)
			old := snapshot(t, dir)
			c := open(t, dir)
			failed := 0
			for free := int64(0); ; free += block {
				fill(t, base+"/full", free)
				_, err := c.Write(context.Background(), setOf(changes...))
				if err == nil {
					break
				}
				failed++
				wantError(t, err, "no space left on device")
				wantTree(t, dir, old)
			}
			if want := int(tt.need / block); failed < want-2 || failed > want+4 {
				t.Errorf("%d blocks were too few, want about %d", failed, want)
			}
			// Undo needs room as well: for what it writes and for its journal.
			written := snapshot(t, dir)
			fill(t, base+"/full", 0)
			if _, err := c.Undo(context.Background(), ""); err == nil {
				t.Error("undone on a full disk")
			} else {
				wantError(t, err, "no space left on device")
				wantTree(t, dir, written)
			}
			if err := os.Remove(base + "/full/filler"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Undo(context.Background(), ""); err != nil {
				t.Fatal(err)
			}
			wantTree(t, dir, old)
		})
	}
}

// A write that was interrupted is put back even if the disk is full by then: what
// was staged and written gives its room to the old bytes.
func TestRecoverOnFullDisk(t *testing.T) {
	base := t.TempDir()
	mount(t, base+"/full", "1m")
	t.Setenv("XDG_STATE_HOME", base+"/full/state")
	dir := base + "/full/tree"
	files := map[string]string{}
	var changes []patchers.FileChange
	for i := range 10 {
		name := fmt.Sprintf("f%d.py", i)
		files[name] = strings.Repeat("o", 5000)
		changes = append(changes, modify(name, files[name], files[name]+"new"))
	}
	writeFiles(t, dir, files)
	old := snapshot(t, dir)
	for step := range 10 {
		c := open(t, dir)
		c.tree.before = func(op, name string) error {
			if op == "rename" && name == fmt.Sprintf("f%d.py", step) {
				panic(interrupted{})
			}
			return nil
		}
		func() {
			defer func() {
				if recover() != (interrupted{}) {
					t.Fatal("not interrupted")
				}
			}()
			c.Write(context.Background(), setOf(changes...))
		}()
		fill(t, base+"/full", 0)
		if r, err := open(t, dir).Recover(); err != nil || len(r.Files) != step {
			t.Fatalf("Recover = %v, %v", r, err)
		}
		wantTree(t, dir, old)
		if err := os.Remove(base + "/full/filler"); err != nil {
			t.Fatal(err)
		}
	}
}

// A folder that cannot be written fails the whole write. Root may write to any
// folder but one of a read-only file system.
func TestReadOnlyFolder(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a", "z.py": "z"})
	if os.Geteuid() == 0 {
		mount(t, dir+"/ro", "1m")
		writeFiles(t, dir, map[string]string{"ro/x.py": "x"})
		if err := syscall.Mount("", dir+"/ro", "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	} else {
		writeFiles(t, dir, map[string]string{"ro/x.py": "x"})
		if err := os.Chmod(dir+"/ro", 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir+"/ro", 0o755) })
	}
	old := snapshot(t, dir)
	for _, change := range []patchers.FileChange{
		modify("ro/x.py", "x", "X"), remove("ro/x.py", "x"), create("ro/y.py", "y"), create("ro/d/y.py", "y"),
	} {
		_, err := open(t, dir).Write(context.Background(), setOf(modify("a.py", "a", "A"), change, modify("z.py", "z", "Z")))
		wantError(t, err, "ro/")
		if !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("%s %s: %v", change.Op, change.Path, err)
		}
		wantTree(t, dir, old)
	}
}
