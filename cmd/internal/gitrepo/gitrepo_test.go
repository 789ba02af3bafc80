package gitrepo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepo returns a repository with the files in one commit, executable if their
// name ends in .sh, and symlinks if their text begins with "->".
func newRepo(t *testing.T, format string, files map[string]string) (*Repo, string) {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	for _, role := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+role+"_NAME", "Ada")
		t.Setenv("GIT_"+role+"_EMAIL", "ada@example.org")
	}
	dir := t.TempDir()
	git(t, dir, "init", "-q", "--object-format="+format, "-b", "main")
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		target, isLink := strings.CutPrefix(text, "->")
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		var err error
		if isLink {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(text), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	r, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func TestCommit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			r, dir := newRepo(t, format, map[string]string{"a.py": "a\r\n", "run.sh": "x\n", "sub/b.py": "b\n", "c.py": "c\n"})
			git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+git(t, dir, "rev-parse", "HEAD")+",module")
			git(t, dir, "commit", "-q", "-m", "a submodule")
			os.Mkdir(filepath.Join(dir, "module"), 0o755)
			head, err := r.Resolve(t.Context(), "HEAD")
			if err != nil {
				t.Fatal(err)
			}
			change := Change{
				Parent: head,
				Files: []File{
					{"a.py", []byte("a\r\n"), []byte("a\r\nA\r\n")},
					{"run.sh", []byte("x\n"), []byte("y\n")},
					{"sub/new.ini", nil, []byte("n")},
					{"sub/Dieb\tä`.py", nil, []byte("odd\n")},
				},
				Author:  Identity{"Fix Bot", "bot@example.org"},
				Message: "Repair\n",
			}
			oid, err := r.Commit(t.Context(), change)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := r.Commit(t.Context(), change); err != nil || again != oid {
				t.Errorf("the same change makes %s, then %s (%v)", oid, again, err)
			}
			var got []string
			for entry := range strings.SplitSeq(strings.TrimSuffix(git(t, dir, "ls-tree", "-r", "-z", oid), "\x00"), "\x00") {
				meta, name, _ := strings.Cut(entry, "\t")
				got = append(got, meta[:6]+" "+name)
			}
			want := []string{"100644 a.py", "100644 c.py", "160000 module", "100755 run.sh", "100644 sub/Dieb\tä`.py", "100644 sub/b.py", "100644 sub/new.ini"}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("tree (-want +got):\n%s", d)
			}
			if got := git(t, dir, "show", oid+":a.py"); got != "a\r\nA" {
				t.Errorf("a.py is %q", got)
			}
			if got := git(t, dir, "status", "--porcelain") + git(t, dir, "rev-parse", "HEAD"); got != head {
				t.Errorf("the checkout changed: %s", got)
			}
		})
	}
}

func TestCommitRefuses(t *testing.T) {
	r, dir := newRepo(t, "sha1", map[string]string{"a.py": "a\n", "link.py": "->a.py", "away": "->/etc", "file": "x\n"})
	head := git(t, dir, "rev-parse", "HEAD")
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+head+",module")
	git(t, dir, "commit", "-q", "-m", "a submodule")
	head = git(t, dir, "rev-parse", "HEAD")
	tests := []struct {
		file File
		want string
	}{
		{File{"a.py", []byte("other\n"), []byte("b\n")}, "a.py is not the file of the commit"},
		{File{"a.py", nil, []byte("b\n")}, "a.py is not the file of the commit"},
		{File{"gone.py", []byte("a\n"), []byte("b\n")}, "gone.py is not the file of the commit"},
		{File{"link.py", []byte("a\n"), []byte("b\n")}, "link.py is not the file of the commit"},
		{File{"away/passwd", nil, []byte("b\n")}, "away is no folder of the commit"},
		{File{"file/b.py", nil, []byte("b\n")}, "file is no folder of the commit"},
		{File{"module/b.py", nil, []byte("b\n")}, "module is no folder of the commit"},
		{File{"../b.py", nil, []byte("b\n")}, "is no path of a tree"},
		{File{"/etc/passwd", nil, []byte("b\n")}, "is no path of a tree"},
		{File{".git/config", nil, []byte("b\n")}, "is no path of a tree"},
		{File{"sub/.GIT/config", nil, []byte("b\n")}, "is no path of a tree"},
	}
	for _, tt := range tests {
		_, err := r.Commit(t.Context(), Change{Parent: head, Files: []File{tt.file}, Author: Identity{"a", "b"}, Message: "m"})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.file.Path, err, tt.want)
		}
	}
}

func TestPush(t *testing.T) {
	r, dir := newRepo(t, "sha1", map[string]string{"a.py": "a\n"})
	bare := filepath.Join(t.TempDir(), "bare.git")
	git(t, dir, "clone", "-q", "--bare", dir, bare)
	remote := Remote{URL: "file://" + bare}
	head := git(t, dir, "rev-parse", "HEAD")
	commit, err := r.Commit(t.Context(), Change{Parent: head, Files: []File{{"a.py", []byte("a\n"), []byte("b\n")}}, Author: Identity{"a", "b"}, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	tip := func() string {
		t.Helper()
		oid, err := r.Tip(t.Context(), remote, "ncclfix/x")
		if err != nil {
			t.Fatal(err)
		}
		return oid
	}
	steps := []struct {
		commit, expected string
		err              error
		tip              string
	}{
		{commit, head, ErrMoved, ""}, // the branch is not there
		{commit, "", nil, commit},
		{head, "", ErrMoved, commit}, // it is there
		{head, head, ErrMoved, commit},
		{head, commit, nil, head}, // back, as its owner may
		{"", commit, ErrMoved, head},
		{"", head, nil, ""},
	}
	for i, s := range steps {
		if err := r.Push(t.Context(), remote, s.commit, "ncclfix/x", s.expected); !errors.Is(err, s.err) {
			t.Errorf("step %d: error %v, want %v", i, err, s.err)
		}
		if got := tip(); got != s.tip {
			t.Errorf("step %d: the branch is at %q, not %q", i, got, s.tip)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Setenv("GIT_CEILING_DIRECTORIES", os.TempDir())
	if _, err := Open(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("error %v", err)
	}
	r, dir := newRepo(t, "sha1", nil)
	if _, err := r.Resolve(t.Context(), "--upload-pack=x"); err == nil {
		t.Error("an option is taken for a revision")
	}
	git(t, dir, "checkout", "-q", "--orphan", "empty")
	if _, err := r.Resolve(t.Context(), "HEAD"); err == nil || err.Error() != "HEAD is no commit here" {
		t.Errorf("error %v", err)
	}
}

// The credentials are in the environment of git, for one URL, and nowhere else.
func TestRemoteEnv(t *testing.T) {
	env := Remote{URL: "https://git.example.org:8443/o/r.git", Token: "secret"}.env()
	want := []string{
		"GIT_CONFIG_COUNT=3",
		"GIT_CONFIG_KEY_0=http.https://git.example.org:8443/o/r.git.followRedirects", "GIT_CONFIG_VALUE_0=false",
		"GIT_CONFIG_KEY_1=http.https://git.example.org:8443/o/r.git.extraHeader", "GIT_CONFIG_VALUE_1=",
		"GIT_CONFIG_KEY_2=http.https://git.example.org:8443/o/r.git.extraHeader", "GIT_CONFIG_VALUE_2=AUTHORIZATION: basic eC1hY2Nlc3MtdG9rZW46c2VjcmV0",
	}
	if d := cmp.Diff(want, env); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, url := range []string{"file:///x", "ssh://git@example.org/x", "ext::sh -c x"} {
		if env := (Remote{URL: url, Token: "secret"}).env(); env != nil {
			t.Errorf("%s: %q", url, env)
		}
	}
}
