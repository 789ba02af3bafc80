package checkout

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
)

// newTree makes a folder with files and an empty place for journals. The names
// of folders end in a slash.
func newTree(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", filepath.Join(t.TempDir(), "state"))
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, files)
	return dir
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		err := error(nil)
		if strings.HasSuffix(name, "/") {
			err = os.Mkdir(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, dir string) *Checkout {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// snapshot returns all that is in dir: modes, and the bytes of files.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += " " + string(data)
		}
		all[strings.TrimPrefix(p, dir)] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantTree(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	if d := cmp.Diff(want, snapshot(t, dir)); d != "" {
		t.Errorf("tree (-want +got):\n%s", d)
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with %q", err, want)
	}
}

// modify is a change of a file that newTree made.
func modify(path, old, new string) patchers.FileChange {
	return patchers.FileChange{Path: path, OldMode: 0o644, Mode: 0o644, Old: []byte(old), New: []byte(new)}
}

func create(path, new string) patchers.FileChange {
	return patchers.FileChange{Path: path, Op: patchers.Create, Mode: 0o644, New: []byte(new)}
}

func remove(path, old string) patchers.FileChange {
	return patchers.FileChange{Path: path, Op: patchers.Delete, OldMode: 0o644, Old: []byte(old)}
}

func setOf(files ...patchers.FileChange) *patchers.ChangeSet {
	return &patchers.ChangeSet{Files: files}
}

func TestOpen(t *testing.T) {
	dir := newTree(t, map[string]string{"f": ""})
	for name, want := range map[string]string{
		"absent": "no such file or directory",
		"f":      "not a directory",
	} {
		c, err := Open(filepath.Join(dir, name))
		if err == nil {
			c.Close()
		}
		wantError(t, err, fmt.Sprintf("opening %s: %s", filepath.Join(dir, name), want))
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if got := open(t, filepath.Join(dir, "link")).Root(); got != dir {
		t.Errorf("Root() = %s, want %s", got, dir)
	}
}

// What FS opens is in the tree, and a regular file or a folder.
func TestTreeFS(t *testing.T) {
	dir := newTree(t, map[string]string{"d/a.py": "a"})
	outside := newTree(t, map[string]string{"secret": "s"})
	for name, target := range map[string]string{
		"inside": "d/a.py", "out": outside + "/secret", "outdir": outside, "loop": "loop", "up": "..", "absolute": dir + "/d/a.py",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := open(t, dir).Tree(context.Background(), []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/a.py", "inside"} {
		if data, err := fs.ReadFile(tree.FS, name); err != nil || string(data) != "a" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if info, err := fs.Stat(tree.FS, name); err != nil || info.Size() != 1 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for _, name := range []string{"out", "outdir/secret", "loop", "up", "absolute", "fifo", "../x", "/etc/passwd", "absent"} {
		if data, err := fs.ReadFile(tree.FS, name); err == nil {
			t.Errorf("%s: read %q", name, data)
		}
		if f, err := tree.FS.Open(name); err == nil {
			t.Errorf("%s: opened", name)
			f.Close()
		}
	}
	if entries, err := fs.ReadDir(tree.FS, "d"); err != nil || len(entries) != 1 {
		t.Errorf("d: %v, %v", entries, err)
	}
}

// More folders than are kept open are read at once, and symlinks lead from one of
// them to another.
func TestTreeFSFolders(t *testing.T) {
	const n = 3 * maxFolders
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("d%d/e/a.py", i)] = strconv.Itoa(i)
	}
	dir := newTree(t, files)
	for i := range n {
		if err := os.Symlink(fmt.Sprintf("../../d%d/e/a.py", (i+1)%n), filepath.Join(dir, fmt.Sprintf("d%d/e/next.py", i))); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := open(t, dir).Tree(context.Background(), []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range n {
		for name, want := range map[string]int{"a.py": i, "next.py": (i + 1) % n} {
			wg.Go(func() {
				p := fmt.Sprintf("d%d/e/%s", i, name)
				if data, err := fs.ReadFile(tree.FS, p); err != nil || string(data) != strconv.Itoa(want) {
					t.Errorf("%s: %q, %v; want %d", p, data, err, want)
				}
			})
		}
	}
	wg.Wait()
}
