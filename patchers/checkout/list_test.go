package checkout

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// git runs git in dir, without the settings of the user.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "protocol.file.allow=always", "-c", "user.name=T", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func list(t *testing.T, dir string, scope ...string) []string {
	t.Helper()
	tree, err := open(t, dir).Tree(context.Background(), scope)
	if err != nil {
		t.Fatal(err)
	}
	return tree.Files
}

func wantFiles(t *testing.T, got []string, want string) {
	t.Helper()
	if d := cmp.Diff(strings.Fields(want), got); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

// wild is a tree with everything that a listing has to cope with, but for git.
func wild(t *testing.T) string {
	dir := newTree(t, map[string]string{
		".gitignore":                           "*.log\n/build/\n",
		".github/x.yml":                        "",
		"a.py":                                 "",
		"a.log":                                "",
		"a\n b.py":                             "",
		"bad\xff.py":                           "",
		".ncclfix-20260101-000000-abcd-0":      "",
		"build/gen.py":                         "",
		"build/node_modules/x.py":              "",
		"tests/.gitignore":                     "secret.py\n",
		"tests/t.py":                           "",
		"tests/secret.py":                      "",
		"env/pyvenv.cfg":                       "",
		"env/lib/x.py":                         "",
		"a/node_modules/x.py":                  "",
		"a/site-packages/x.py":                 "",
		"a/__pycache__/x.py":                   "",
		"a/vendor/x.py":                        "",
		"a/vendors/x.py":                       "",
		"a/vendored/x.py":                      "",
		"a/_vendor/x.py":                       "",
		"third-party/x.py":                     "",
		"third-party/in/.git/HEAD":             "",
		"third-party/in/x.py":                  "",
		"third_party/x.py":                     "",
		"3rdparty/x.py":                        "",
		".tox/x.py":                            "",
		".nox/x.py":                            "",
		".hg/x.py":                             "",
		".svn/x.py":                            "",
		"nested/.git/HEAD":                     "",
		"nested/.git/objects/":                 "",
		"nested/.git/refs/":                    "",
		"nested/x.py":                          "",
		"submodule/.git":                       "gitdir: ../elsewhere\n",
		"submodule/x.py":                       "",
		"locked/x.py":                          "",
		"vendor.py":                            "",
		"deep/1/2/3/4/5/6/7/8/9/10/11/12/x.py": "",
	})
	for link, target := range map[string]string{
		"alias.py": "a.py", "out.py": "/etc/hostname", "dangling.py": "nowhere", "deep/loop": "..", "deep/self": "self", "aliasdir": "tests",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.py"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock.py"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(dir, "locked"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(filepath.Join(dir, "locked"), 0o755) })
	} else if err := os.RemoveAll(filepath.Join(dir, "locked")); err != nil {
		t.Fatal(err)
	}
	return dir
}

const (
	wildFiles = `.github/x.yml .gitignore a.py a/vendors/x.py deep/1/2/3/4/5/6/7/8/9/10/11/12/x.py tests/.gitignore tests/t.py vendor.py`
	ignored   = `a.log build/gen.py tests/secret.py`
)

// newlineName is listed too, but cannot be written in a list of words.
const newlineName = "a\n b.py"

func withoutNewline(t *testing.T, files []string) []string {
	t.Helper()
	var rest []string
	for _, f := range files {
		if f != newlineName {
			rest = append(rest, f)
		}
	}
	if len(rest) != len(files)-1 {
		t.Errorf("%q is not listed once", newlineName)
	}
	return rest
}

func TestTree(t *testing.T) {
	dir := wild(t)
	t.Run("no git program", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		got := strings.Join(withoutNewline(t, list(t, dir, ".")), " ")
		want := `.github/x.yml .gitignore a.log a.py a/vendors/x.py build/gen.py deep/1/2/3/4/5/6/7/8/9/10/11/12/x.py tests/.gitignore tests/secret.py tests/t.py vendor.py`
		wantFiles(t, strings.Fields(got), want)
	})
	t.Run("no repository", func(t *testing.T) {
		wantFiles(t, withoutNewline(t, list(t, dir, ".")), wildFiles)
	})
	git(t, dir, "init", "-q")
	t.Run("no index", func(t *testing.T) {
		wantFiles(t, withoutNewline(t, list(t, dir, ".")), wildFiles)
	})
	git(t, dir, "add", "-f", "tests", "deep", "a.py", "alias.py", "build/gen.py", "third_party/x.py")
	t.Run("tracked", func(t *testing.T) {
		// What is tracked counts, also if it is ignored; vendored trees do not.
		wantFiles(t, withoutNewline(t, list(t, dir, ".")),
			`.github/x.yml .gitignore a.py a/vendors/x.py build/gen.py deep/1/2/3/4/5/6/7/8/9/10/11/12/x.py tests/.gitignore tests/secret.py tests/t.py vendor.py`)
	})
	t.Run("variables of a git hook", func(t *testing.T) {
		t.Setenv("GIT_INDEX_FILE", "/nonexistent")
		t.Setenv("GIT_DIR", "/nonexistent")
		t.Setenv("GIT_GLOB_PATHSPECS", "1")
		wantFiles(t, list(t, dir, "tests"), "tests/.gitignore tests/secret.py tests/t.py")
	})
	t.Run("deleted and replaced", func(t *testing.T) {
		for _, name := range []string{"tests/t.py", "deep"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		// The files that git tracks in deep are now behind a symlink.
		if err := os.Symlink("tests", filepath.Join(dir, "deep")); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, withoutNewline(t, list(t, dir, ".")),
			`.github/x.yml .gitignore a.py a/vendors/x.py build/gen.py tests/.gitignore tests/secret.py vendor.py`)
	})
	t.Run("damaged index", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, ".git/index"), []byte("DIRC nonsense"), 0o644); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, list(t, dir, "tests"), "tests/.gitignore")
	})
}

func TestTreeScope(t *testing.T) {
	dir := wild(t)
	tests := []struct{ scope, want, err string }{
		{scope: "", want: ""},
		{scope: "tests a.py", want: "a.py tests/.gitignore tests/t.py"},
		{scope: "tests/t.py tests", want: "tests/.gitignore tests/t.py"},
		{scope: ignored, want: ignored},
		{scope: "third_party/x.py env/lib/x.py", want: "env/lib/x.py third_party/x.py"},
		{scope: "third-party", want: "third-party/x.py"},
		{scope: "a/site-packages", want: "a/site-packages/x.py"},
		{scope: "env/lib", want: "env/lib/x.py"},
		{scope: "build", want: "build/gen.py"},
		{scope: "absent", err: "reading absent: file does not exist"},
		{scope: "absent/x", err: "reading absent/x: file does not exist"},
		{scope: "fifo.py", err: "reading fifo.py: it is not a regular file"},
		{scope: "sock.py", err: "reading sock.py: it is not a regular file"},
		{scope: "alias.py", err: "reading alias.py: it is a symlink"},
		{scope: "out.py", err: "reading out.py: it is a symlink"},
		{scope: "aliasdir/t.py", err: "reading aliasdir/t.py: aliasdir is not a folder"},
		{scope: "deep/self/x", err: "reading deep/self/x: deep/self is not a folder"},
		{scope: "../x", err: `reading ../x: "../x" is no path of the tree`},
	}
	for _, tt := range tests {
		t.Run(tt.scope, func(t *testing.T) {
			tree, err := open(t, dir).Tree(context.Background(), strings.Fields(tt.scope))
			if tt.err != "" {
				wantError(t, err, tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(tt.want)
			if len(want) != len(tree.Files) || len(want) > 0 && !cmp.Equal(want, tree.Files) {
				t.Errorf("files %q, want %q", tree.Files, want)
			}
		})
	}
}

// What a linked work tree shares with its repository counts there, too.
func TestTreeOfLinkedWorkTree(t *testing.T) {
	dir := newTree(t, map[string]string{"main/a.py": "", "main/kept.log": ""})
	git(t, dir+"/main", "init", "-q")
	git(t, dir+"/main", "add", ".")
	git(t, dir+"/main", "commit", "-q", "-m", "x")
	git(t, dir+"/main", "worktree", "add", "-q", "../linked")
	writeFiles(t, dir, map[string]string{"main/.git/info/exclude": "*.log\n", "linked/b.log": "", "linked/c.py": ""})
	root, scope, err := Find([]string{dir + "/linked/c.py", dir + "/linked"})
	if err != nil || root != dir+"/linked" {
		t.Fatalf("Find = %s, %v", root, err)
	}
	wantFiles(t, list(t, root, scope...), "a.py c.py kept.log")
}

func TestTreeWithSubmodule(t *testing.T) {
	dir := newTree(t, map[string]string{"lib/x.py": "", "repo/a.py": ""})
	for _, d := range []string{"lib", "repo"} {
		git(t, dir+"/"+d, "init", "-q")
		git(t, dir+"/"+d, "add", ".")
		git(t, dir+"/"+d, "commit", "-q", "-m", "x")
	}
	git(t, dir+"/repo", "submodule", "--quiet", "add", "../lib", "sub")
	wantFiles(t, list(t, dir+"/repo", "."), ".gitmodules a.py")
	root, scope, err := Find([]string{dir + "/repo/sub"})
	if err != nil || root != dir+"/repo/sub" {
		t.Fatalf("Find = %s, %v", root, err)
	}
	wantFiles(t, list(t, root, scope...), "x.py")
}

// Nothing that a tree's git configuration names is run, nor a monitor that the
// user's own has for real work trees.
func TestTreeRunsNothing(t *testing.T) {
	dir := newTree(t, map[string]string{"repo/a.py": "1"})
	repo := dir + "/repo"
	git(t, repo, "init", "-q")
	git(t, repo, "add", ".")
	git(t, repo, "commit", "-q", "-m", "x")
	trap := dir + "/trap"
	if err := os.WriteFile(trap, []byte("#!/bin/sh\ntouch "+dir+"/sprung\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "filter.x.clean", "filter.x.process", "alias.ls-files"} {
		git(t, repo, "config", key, trap)
	}
	git(t, repo, "config", "core.hooksPath", dir)
	git(t, repo, "config", "core.worktree", "/etc")
	writeFiles(t, repo, map[string]string{".gitattributes": "* filter=x\n"})
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	git(t, repo, "config", "--file", dir+"/.gitconfig", "core.fsmonitor", trap)
	wantFiles(t, list(t, repo, "."), ".gitattributes a.py")
	if _, err := os.Lstat(dir + "/sprung"); err == nil {
		t.Error("the tree's configuration was run")
	}
}

// Git itself waits for ever for a pipe named .gitignore.
func TestTreeEnds(t *testing.T) {
	dir := newTree(t, map[string]string{"d/a.py": ""})
	if err := syscall.Mkfifo(dir+"/d/.gitignore", 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := open(t, dir).Tree(ctx, []string{"."})
	wantError(t, err, "listing "+dir+": waiting for git: context deadline exceeded")
}

// A tree may hold the folder of the journals, as a home folder does.
func TestTreeLeavesOutTheJournals(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "1"})
	t.Setenv("XDG_STATE_HOME", dir+"/.state")
	if _, err := open(t, dir).Write(context.Background(), setOf(modify("a.py", "1", "2"))); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, list(t, dir, "."), "a.py")
}

func BenchmarkTree(b *testing.B) {
	dir := b.TempDir()
	for i := range 11_000 {
		folder := fmt.Sprintf("%s/p%d/q%d", dir, i%20, i/20%40)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf("%s/f%d.py", folder, i), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	c, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		tree, err := c.Tree(context.Background(), []string{"."})
		if err != nil || len(tree.Files) != 11_000 {
			b.Fatal(len(tree.Files), err)
		}
	}
}
