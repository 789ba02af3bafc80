package checkout

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFind(t *testing.T) {
	dir := newTree(t, map[string]string{
		"repo/.git/HEAD":                "ref: refs/heads/main\n",
		"repo/a.py":                     "",
		"repo/tests/b.py":               "",
		"repo/sub/.git":                 "gitdir: ../.git/modules/sub\n",
		"repo/sub/c.py":                 "",
		"repo/empty/.git/":              "",
		"plain/x/d.py":                  "",
		"plain/x/y/e.py":                "",
		"plain/z/f.py":                  "",
		"plain/notgit/.git":             "nonsense\n",
		"plain/bad\xff.py":              "",
		"plain/-dash":                   "",
		"plain/x/deep/er/than/this.txt": "",
	})
	for link, target := range map[string]string{
		"repo/alias.py":    "tests/b.py",
		"repo/outside.py":  "../plain/x/d.py",
		"repo/outside":     "../plain/x",
		"repo/into":        "sub",
		"repo/loop/self":   "self",
		"plain/x/out.py":   "../z/f.py",
		"plain/x/far":      "../../repo",
		"plain/x/dangling": "nowhere",
		"torepo":           "repo",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "plain/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		cwd, paths string
		root       string // below dir
		scope      string
		err        string
	}{
		{cwd: "repo", root: "repo", scope: "."},
		{cwd: "repo", paths: "a.py", root: "repo", scope: "a.py"},
		{cwd: "repo/tests", root: "repo", scope: "tests"},
		{cwd: "repo/tests", paths: "b.py ../a.py ..", root: "repo", scope: "tests/b.py a.py ."},
		{cwd: "plain", paths: "../repo/tests", root: "repo", scope: "tests"},
		{cwd: "repo", paths: "sub", root: "repo/sub", scope: "."},
		{cwd: "repo/sub", paths: "c.py", root: "repo/sub", scope: "c.py"},
		{cwd: "repo", paths: "empty", root: "repo", scope: "empty"},
		{cwd: "repo", paths: "alias.py", root: "repo", scope: "tests/b.py"},
		{cwd: "repo", paths: "into/c.py", root: "repo/sub", scope: "c.py"},
		{cwd: ".", paths: "torepo", root: "repo", scope: "."},
		{cwd: "plain", paths: "x/y/e.py z", root: "plain", scope: "x/y/e.py z"},
		{cwd: "plain", paths: "notgit -dash", root: "plain", scope: "notgit -dash"},
		{cwd: "plain/z", paths: "../x/y/e.py", root: "plain/x/y", scope: "e.py"},
		{cwd: "plain/z", paths: "../x/y/e.py ../x/d.py", root: "plain/x", scope: "y/e.py d.py"},
		{cwd: "plain/z", paths: "../x/deep/er/than/this.txt ../x/y", root: "plain/x", scope: "deep/er/than/this.txt y"},
		{cwd: "plain/z", paths: "../x/far/a.py", root: "repo", scope: "a.py"},

		{cwd: "repo", paths: "nope", err: "reading nope: no such file or directory"},
		{cwd: "repo", paths: "a.py/x", err: "reading a.py/x: not a directory"},
		{cwd: "plain", paths: "x/dangling", err: "reading x/dangling: no such file or directory"},
		{cwd: "repo", paths: "loop/self", err: "reading loop/self: too many levels of symbolic links"},
		{cwd: "plain", paths: "fifo", err: "reading fifo: neither a regular file nor a folder"},
		{cwd: "plain", paths: "bad\xff.py", err: `reading "bad\xff.py": its name is not valid UTF-8`},
		{cwd: "repo", paths: "a.py sub/c.py", err: "refusing to work on a.py and sub/c.py at once: they lie in different git work trees"},
		{cwd: ".", paths: "repo/a.py plain", err: "refusing to work on repo/a.py and plain at once"},
		{cwd: "repo", paths: "outside.py", err: "refusing to read outside.py: a symlink leads out of " + dir + "/repo"},
		{cwd: "repo", paths: "outside/d.py", err: "refusing to read outside/d.py: a symlink leads out of"},
		{cwd: ".", paths: "repo/outside", err: "refusing to read repo/outside: a symlink leads out of"},
		{cwd: "plain/x", paths: "out.py", err: "refusing to read out.py: a symlink leads out of " + dir + "/plain/x"},
	}
	for _, tt := range tests {
		t.Run(tt.cwd+" "+tt.paths, func(t *testing.T) {
			t.Chdir(filepath.Join(dir, tt.cwd))
			root, scope, err := Find(strings.Fields(tt.paths))
			if tt.err != "" {
				wantError(t, err, tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(dir, tt.root); root != want {
				t.Errorf("root %s, want %s", root, want)
			}
			if d := cmp.Diff(strings.Fields(tt.scope), scope); d != "" {
				t.Errorf("scope (-want +got):\n%s", d)
			}
		})
	}
}
