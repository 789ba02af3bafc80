package checkout

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ncclfix/patchers"
)

func TestWriteAndUndo(t *testing.T) {
	dir := newTree(t, map[string]string{
		"a.py": "old", "run.sh": "#!", "tool": "t", "gone/x": "1", "empty": "", "crlf": "\ufeffa\r\nb", "binary": "\x00\xff", "untouched": "u",
	})
	for name, mode := range map[string]fs.FileMode{
		"run.sh": 0o750, "tool": 0o755 | fs.ModeSetgid, "gone/x": 0o666, "crlf": 0o600, "a.py": 0o664,
	} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	old := snapshot(t, dir)
	executable := modify("empty", "", "")
	executable.Mode = 0o755
	set := setOf(
		modify("a.py", "old", "newer"),
		modify("binary", "\x00\xff", "\x00\xfe\xff"),
		modify("crlf", "\ufeffa\r\nb", "\ufeffa\r\nb\r\nc"),
		executable,
		remove("gone/x", "1"),
		create("made/in/here.py", "1"),
		create("made/in/too.py", ""),
		modify("run.sh", "#!", "#!/bin/sh\n"),
		modify("tool", "t", ""),
	)
	c := open(t, dir)
	ctx := context.Background()
	id, err := c.Write(ctx, set)
	if err != nil {
		t.Fatal(err)
	}
	if !idPattern.MatchString(id) {
		t.Errorf("id %q", id)
	}
	want := map[string]string{
		"":                 old[""],
		"/a.py":            "-rw-rw-r-- newer",
		"/binary":          "-rw-r--r-- \x00\xfe\xff",
		"/crlf":            "-rw------- \ufeffa\r\nb\r\nc",
		"/empty":           "-rwxr-xr-x ",
		"/gone":            "drwxr-xr-x",
		"/made":            "drwxr-xr-x",
		"/made/in":         "drwxr-xr-x",
		"/made/in/here.py": "-rw-r--r-- 1",
		"/made/in/too.py":  "-rw-r--r-- ",
		"/run.sh":          "-rwxr-x--- #!/bin/sh\n",
		"/tool":            "g" + "rwxr-xr-x ",
		"/untouched":       "-rw-r--r-- u",
	}
	wantTree(t, dir, want)

	undone, err := c.Undo(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	wantTree(t, dir, old)
	if len(undone.Files) != len(set.Files) {
		t.Errorf("undid %d files, want %d", len(undone.Files), len(set.Files))
	}
	for i, f := range undone.Files {
		g := set.Files[i]
		if f.Path != g.Path || !bytes.Equal(f.Old, g.New) || !bytes.Equal(f.New, g.Old) {
			t.Errorf("undid %+v, want the reverse of %+v", f, g)
		}
	}
}

func TestWriteNothing(t *testing.T) {
	dir := newTree(t, nil)
	if id, err := open(t, dir).Write(context.Background(), setOf()); id != "" || err != nil {
		t.Errorf("Write = %q, %v", id, err)
	}
	if _, err := os.Lstat(os.Getenv("XDG_STATE_HOME")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a journal was made: %v", err)
	}
}

// A refused write changes nothing, whatever else is in the set.
func TestWriteRefuses(t *testing.T) {
	dir := newTree(t, map[string]string{
		"a.py": "a", "b.py": "b", "readonly.py": "r", "d/x.py": "x", ".git/config": "c", "sub/.GIT/hooks/h": "h",
	})
	outside := newTree(t, map[string]string{"o.py": "o"})
	for link, target := range map[string]string{
		"link.py": "b.py", "out.py": outside + "/o.py", "outdir": outside, "in": "d", "dangling.py": "new.py", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.py"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "readonly.py"), 0o444); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		files []patchers.FileChange
		err   string
	}{
		{"changed", []patchers.FileChange{modify("b.py", "B", "x")}, "refusing to write b.py: changed since it was read"},
		{"changed, several", []patchers.FileChange{modify("b.py", "B", "x"), modify("d/x.py", "", "x")}, "refusing to write b.py (and 1 more): changed since"},
		{"grown", []patchers.FileChange{modify("b.py", "", "x")}, "refusing to write b.py: changed since it was read"},
		{"gone", []patchers.FileChange{modify("c.py", "c", "x")}, "refusing to write c.py: changed since it was read"},
		{"gone with its folder", []patchers.FileChange{remove("q/c.py", "c")}, "refusing to write q/c.py: changed since it was read"},
		{"there now", []patchers.FileChange{create("b.py", "x")}, "refusing to write b.py: changed since it was read"},
		{"delete changed", []patchers.FileChange{remove("b.py", "B")}, "refusing to write b.py: changed since it was read"},
		{"read-only", []patchers.FileChange{modify("readonly.py", "r", "x")}, "refusing to write readonly.py: it is read-only"},
		{"delete read-only", []patchers.FileChange{remove("readonly.py", "r")}, "refusing to write readonly.py: it is read-only"},
		{"symlink", []patchers.FileChange{modify("link.py", "b", "x")}, "refusing to write link.py: it is a symlink"},
		{"symlink out", []patchers.FileChange{modify("out.py", "o", "x")}, "refusing to write out.py: it is a symlink"},
		{"delete symlink", []patchers.FileChange{remove("out.py", "o")}, "refusing to write out.py: it is a symlink"},
		{"dangling symlink", []patchers.FileChange{create("dangling.py", "x")}, "refusing to write dangling.py: it is a symlink"},
		{"behind a symlink", []patchers.FileChange{modify("in/x.py", "x", "y")}, "refusing to write in/x.py: in is not a folder"},
		{"behind a symlink out", []patchers.FileChange{modify("outdir/o.py", "o", "x")}, "refusing to write outdir/o.py: outdir is not a folder"},
		{"new behind a symlink out", []patchers.FileChange{create("outdir/n.py", "n")}, "refusing to write outdir/n.py: outdir is not a folder"},
		{"loop", []patchers.FileChange{create("loop/n.py", "n")}, "refusing to write loop/n.py: loop is not a folder"},
		{"behind a file", []patchers.FileChange{create("b.py/n.py", "n")}, "refusing to write b.py/n.py: b.py is not a folder"},
		{"pipe", []patchers.FileChange{modify("fifo.py", "", "x")}, "refusing to write fifo.py: it is not a regular file"},
		{"folder", []patchers.FileChange{modify("d", "", "x")}, "refusing to write d: it is a folder"},
		{"root", []patchers.FileChange{modify(".", "", "x")}, "refusing to write .: it is a folder"},
		{"out", []patchers.FileChange{create("../x", "x")}, `refusing to write ../x: "../x" is no path of the tree`},
		{"absolute", []patchers.FileChange{create("/x", "x")}, `refusing to write /x: "/x" is no path of the tree`},
		{"twice", []patchers.FileChange{modify("b.py", "b", "x"), modify("b.py", "b", "y")}, "refusing to write b.py: it occurs twice"},
		{"git's own", []patchers.FileChange{modify(".git/config", "c", "x")}, "refusing to write .git/config: it is part of the repository itself"},
		{"git's own, nested", []patchers.FileChange{modify("sub/.GIT/hooks/h", "h", "x")}, "it is part of the repository itself"},
		{"file and folder", []patchers.FileChange{create("n", "x"), create("n/n", "y")}, "refusing to write n: it would be a folder at once"},
		{"name too long", []patchers.FileChange{create(strings.Repeat("n", 300), "x")}, "file name too long"},
	}
	old := snapshot(t, dir)
	oldOutside := snapshot(t, outside)
	c := open(t, dir)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			good := []patchers.FileChange{modify("a.py", "a", "A"), create("new/y.py", "y")}
			id, err := c.Write(context.Background(), setOf(append(good, tt.files...)...))
			wantError(t, err, tt.err)
			if id != "" {
				t.Errorf("id %q", id)
			}
			wantTree(t, dir, old)
			wantTree(t, outside, oldOutside)
			if _, err := c.Undo(context.Background(), ""); err == nil {
				t.Error("there is something to undo")
			}
			if r, err := c.Recover(); r.ID != "" || err != nil {
				t.Errorf("there is something to recover: %v, %v", r, err)
			}
		})
	}
}

// A file that changes after the first look at it is found before it is replaced,
// and what was replaced already is put back.
func TestWriteSeesLateChanges(t *testing.T) {
	tests := map[string]func(dir string) error{
		"edited":   func(dir string) error { return os.WriteFile(dir+"/b.py", []byte("edited"), 0o644) },
		"deleted":  func(dir string) error { return os.Remove(dir + "/b.py") },
		"replaced": func(dir string) error { return errors.Join(os.Remove(dir+"/b.py"), os.Symlink("a.py", dir+"/b.py")) },
		"created":  func(dir string) error { return os.WriteFile(dir+"/c.py", []byte("created"), 0o644) },
	}
	for name, interfere := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newTree(t, map[string]string{"a.py": "a", "b.py": "b"})
			c := open(t, dir)
			var want map[string]string
			c.tree.before = func(op, path string) error {
				if op == "rename" && path == "a.py" && want == nil {
					if err := interfere(dir); err != nil {
						t.Fatal(err)
					}
					want = snapshot(t, dir)
					for p := range want {
						if strings.Contains(p, stagePrefix) {
							delete(want, p)
						}
					}
				}
				return nil
			}
			_, err := c.Write(context.Background(), setOf(modify("a.py", "a", "A"), modify("b.py", "b", "B"), create("c.py", "C")))
			wantError(t, err, ".py: changed since it was read")
			wantTree(t, dir, want)
		})
	}
}

func TestWriteCancelled(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a", "b.py": "b"})
	old := snapshot(t, dir)
	for _, op := range []string{"create", "rename"} {
		c := open(t, dir)
		ctx, cancel := context.WithCancel(context.Background())
		c.tree.before = func(o, path string) error {
			if o == op && strings.HasPrefix(path, "a.py") || o == op && strings.HasPrefix(path, stagePrefix) {
				cancel()
			}
			return nil
		}
		_, err := c.Write(ctx, setOf(modify("a.py", "a", "A"), modify("b.py", "b", "B")))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", op, err)
		}
		wantTree(t, dir, old)
	}
}

// A hard link may lead out of the tree, so its other names keep the old bytes.
func TestWriteSplitsHardLinks(t *testing.T) {
	dir := newTree(t, map[string]string{"in/a.py": "a", "out/": ""})
	if err := os.Link(dir+"/in/a.py", dir+"/out/a.py"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir+"/in").Write(context.Background(), setOf(modify("a.py", "a", "A"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"in/a.py": "A", "out/a.py": "a"} {
		if got, err := os.ReadFile(dir + "/" + name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestWriteKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := newTree(t, map[string]string{"a.py": "a"})
	if err := errors.Join(os.Chown(dir+"/a.py", 1234, 5678), os.Chmod(dir+"/a.py", 0o750|fs.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir)
	wantOwner := func() {
		t.Helper()
		info, err := os.Stat(dir + "/a.py")
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != 1234 || s.Gid != 5678 || info.Mode() != 0o750|fs.ModeSetuid {
			t.Errorf("owner %d:%d, mode %v", s.Uid, s.Gid, info.Mode())
		}
	}
	if _, err := c.Write(context.Background(), setOf(modify("a.py", "a", "A"))); err != nil {
		t.Fatal(err)
	}
	wantOwner()
	if _, err := c.Undo(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	wantOwner()
}

// What others may not read they cannot read while it is written either.
func TestWriteStagesPrivately(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a"})
	if err := os.Chmod(dir+"/a.py", 0o640); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir)
	looked := false
	c.tree.before = func(op, name string) error {
		if op != "write" || !strings.HasPrefix(name, stagePrefix) {
			return nil
		}
		looked = true
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.Mode() != 0o600 {
			t.Errorf("staged with mode %v", info.Mode())
		}
		return err
	}
	if _, err := c.Write(context.Background(), setOf(modify("a.py", "a", "A"))); err != nil || !looked {
		t.Fatal(looked, err)
	}
}

func TestWriteObeysTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	dir := newTree(t, map[string]string{"a.py": "a"})
	if err := os.Chmod(dir+"/a.py", 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir).Write(context.Background(), setOf(modify("a.py", "a", "A"), create("d/b.py", "b"))); err != nil {
		t.Fatal(err)
	}
	got := snapshot(t, dir)
	for name, want := range map[string]string{"/a.py": "-rw-rw-r-- A", "/d": "drwxr-x---", "/d/b.py": "-rw-r----- b"} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

func TestWriteLocks(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a", "b/b.py": "b"})
	busy := "refusing to work on " + dir + ": another ncclfix is writing to it"
	first, second, other := open(t, dir), open(t, dir), open(t, dir+"/b")
	ctx := context.Background()
	tried := false
	first.tree.before = func(op, path string) error {
		if op != "rename" || path != "a.py" {
			return nil
		}
		tried = true
		_, err := second.Write(ctx, setOf(modify("a.py", "a", "second")))
		wantError(t, err, busy)
		_, err = second.Undo(ctx, "")
		wantError(t, err, busy)
		_, err = second.Recover()
		wantError(t, err, busy)
		// Another tree is free, also one inside.
		if _, err := other.Write(ctx, setOf(modify("b.py", "b", "B"))); err != nil {
			t.Error(err)
		}
		if _, err := other.Recover(); err != nil {
			t.Error(err)
		}
		return nil
	}
	if _, err := first.Write(ctx, setOf(modify("a.py", "a", "first"))); err != nil || !tried {
		t.Fatal(tried, err)
	}
	if _, err := second.Write(ctx, setOf(modify("a.py", "first", "second"))); err != nil {
		t.Errorf("the lock outlives the write: %v", err)
	}
}

// A place for journals that cannot be used is an error before anything is
// written, and none to who does not write.
func TestWriteWithoutJournal(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a", "file": ""})
	old := snapshot(t, dir)
	c := open(t, dir)
	set := setOf(modify("a.py", "a", "A"))

	t.Setenv("XDG_STATE_HOME", dir+"/file")
	_, err := c.Write(context.Background(), set)
	wantError(t, err, "making the journal's folder: ")

	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "")
	_, err = c.Write(context.Background(), set)
	wantError(t, err, "making the journal's folder: $HOME is not defined")
	if r, err := c.Recover(); r.ID != "" || err != nil {
		t.Errorf("Recover = %v, %v", r, err)
	}
	wantTree(t, dir, old)

	home := t.TempDir()
	t.Setenv("HOME", home)
	if _, err := c.Write(context.Background(), set); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home + "/.local/state/ncclfix"); err != nil {
		t.Error(err)
	}
}
