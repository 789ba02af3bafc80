package gitpatch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
)

// A git runs the real git in a folder, without anybody's configuration.
type git struct {
	t   testing.TB
	dir string
}

func (g git) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(),
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(g.dir), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g git) run(stdin string, args ...string) string {
	g.t.Helper()
	out, err := g.try(stdin, args...)
	if err != nil {
		g.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return out
}

// fill makes the folder hold exactly files, in the form that treeOf takes, but
// for .git.
func (g git) fill(files map[string]string) {
	g.t.Helper()
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".git" {
			os.RemoveAll(filepath.Join(g.dir, e.Name()))
		}
	}
	for path, text := range files {
		mode := fs.FileMode(0o644)
		if p, ok := strings.CutSuffix(path, "*"); ok {
			path, mode = p, 0o755
		}
		full := filepath.Join(g.dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			g.t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), mode); err != nil {
			g.t.Fatal(err)
		}
	}
}

var failedAt = regexp.MustCompile(`error: patch failed: (.*):(\d+)\n`)

// judge compares what git apply and this package say about a patch and a tree,
// what they make of it, and whether they could take it back.
func (g git) judge(patch string, files map[string]string, s *Series) {
	g.t.Helper()
	g.fill(files)
	tree := treeOf(files)
	set, _, err := s.Apply(tree)
	out, gitErr := g.try(patch, "apply", "--whitespace=nowarn", "-")
	show := func() string { return fmt.Sprintf("%s\n%s\ntree %q", out, patch, files) }
	switch {
	case (err == nil) != (gitErr == nil):
		g.t.Fatalf("we say %v, git says %v: %s", err, gitErr, show())
	case err == nil:
		got := after(g.t, os.DirFS(g.dir), &patchers.ChangeSet{})
		if d := cmp.Diff(got, after(g.t, tree, set)); d != "" {
			g.t.Fatalf("files (-git +we):\n%s\n%s", d, show())
		}
	default:
		var c *Conflict
		if !errors.As(err, &c) {
			g.t.Fatalf("%v: %s", err, show())
		}
		if m := failedAt.FindStringSubmatch(out); c.Hunk > 0 && m != nil && fmt.Sprint(c.Path, c.Line) != fmt.Sprint(m[1], m[2]) {
			g.t.Fatalf("we say %v, git says %s: %s", c, m[0], show())
		}
	}

	if strings.Contains(patch, "\ncopy from ") {
		return // git cannot take copies back
	}
	g.fill(files)
	_, _, err = s.Reverse().Apply(tree)
	out, gitErr = g.try(patch, "apply", "--check", "-R", "-")
	if (err == nil) != (gitErr == nil) {
		g.t.Fatalf("reversed: we say %v, git says %v: %s", err, gitErr, show())
	}
}

// mutate changes some lines of text. Few different lines make many places that
// look alike.
func mutate(r *rand.Rand, text string, times int) string {
	lines := strings.SplitAfter(text, "\n")
	for range times {
		at := r.IntN(len(lines))
		switch r.IntN(3) {
		case 0:
			lines = slices.Insert(lines, at, randomLine(r))
		case 1:
			lines[at] = randomLine(r)
		default:
			lines = slices.Delete(lines, at, at+1)
			if len(lines) == 0 {
				lines = []string{""}
			}
		}
	}
	text = strings.Join(lines, "")
	if r.IntN(8) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	return text
}

func randomLine(r *rand.Rand) string {
	return []string{"a\n", "b\n", "c\n", "\n", "}\n", "\treturn\n", "d\r\n", "e \n"}[r.IntN(8)]
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(40) {
		b.WriteString(randomLine(r))
	}
	return b.String()
}

// Random changes, as plain patches in which files recur, on trees that have
// moved on meanwhile: the verdict, the conflict's place and the bytes are those
// of git apply.
func TestAgainstGitApply(t *testing.T) {
	g := git{t, t.TempDir()}
	r := rand.New(rand.NewPCG(1, 2))
	fits, misfits := 0, 0
	for range 120 {
		base := map[string]string{"f": randomText(r), "d/g": randomText(r)}
		now := map[string]string{"f": base["f"], "d/g": base["d/g"]}
		var patch strings.Builder
		for range 1 + r.IntN(3) {
			path := []string{"f", "d/g"}[r.IntN(2)]
			next := mutate(r, now[path], 1+r.IntN(3))
			text, err := diff.Unified(diff.File{Path: path, OldMode: 0o644, NewMode: 0o644, Old: []byte(now[path]), New: []byte(next)})
			if err != nil {
				t.Fatal(err)
			}
			now[path] = next
			patch.WriteString(text)
		}
		if patch.Len() == 0 {
			continue
		}
		p := patch.String()
		if r.IntN(2) == 0 {
			p = strings.ReplaceAll(p, "\n \n", "\n\n")
		}
		s := parse(t, p)
		drifted := map[string]string{"f": mutate(r, base["f"], r.IntN(3)), "d/g": mutate(r, base["d/g"], r.IntN(3))}
		for _, files := range []map[string]string{base, drifted, now} {
			g.judge(p, files, s)
			if _, _, err := s.Apply(treeOf(files)); err == nil {
				fits++
			} else {
				misfits++
			}
		}
		v, err := s.Judge(treeOf(now))
		if err != nil || v.State != Applied {
			t.Fatalf("patched tree: %+v, %v\n%s\n%q", v, err, p, now)
		}
	}
	if fits < 40 || misfits < 40 {
		t.Errorf("%d fit and %d do not: too few of one kind", fits, misfits)
	}
}

// Mailboxes that git itself makes, with new, deleted, renamed and copied files,
// modes, odd names and missing newlines: mail by mail, the result is that of git
// apply, the whole leads to git's last tree, and back.
func TestAgainstFormatPatch(t *testing.T) {
	g, repo := git{t, t.TempDir()}, git{t, t.TempDir()}
	repo.run("", "init", "-q")
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{"f", "d/g", "d/e/h.c", "with blank", "quo\"te", "ü", "d/tab\t"}
	for round := range 12 {
		files := map[string]string{}
		for _, name := range names[:4] {
			files[name] = randomText(r)
		}
		trees := []map[string]string{files}
		commit := func(files map[string]string) {
			repo.fill(files)
			repo.run("", "add", "-A", ".")
			repo.run("", "commit", "-q", "--allow-empty", "-m", fmt.Sprintf("round %d, a subject that is so long that the mail's header has to fold it", round))
		}
		commit(files)
		for range 4 {
			next := maps.Clone(files)
			for range 2 {
				change(r, next, names)
			}
			commit(next)
			files = next
			trees = append(trees, files)
		}
		mbox := repo.run("", "format-patch", "--stdout", "-4", "-C", "--find-copies-harder")
		if !strings.Contains(mbox, "\ndiff --git ") {
			continue
		}
		if strings.Contains(mbox, "\nGIT binary patch\n") {
			t.Fatal("the texts must not look binary to git")
		}
		s := parse(t, mbox)
		mails := strings.SplitAfter(mbox, "\n-- \n")
		mail := 0
		for i, c := range s.Commits {
			for !strings.Contains(mails[mail], "\ndiff --git ") {
				mail++
			}
			if want := fmt.Sprintf("round %d, a subject that is so long that the mail's header has to fold it", round); c.Subject != want {
				t.Errorf("subject %q, want %q", c.Subject, want)
			}
			// It fits the tree that it was made from, and mostly no other.
			for _, files := range trees {
				one := &Series{Commits: []Commit{c}}
				g.judge(mails[mail], files, one)
				if i == 0 {
					g.judge(mails[mail], drift(r, files), one)
				}
			}
			mail++
		}
		set, _, err := s.Apply(treeOf(trees[0]))
		if err != nil {
			t.Fatalf("%v\n%s", err, mbox)
		}
		if d := cmp.Diff(trees[4], after(t, treeOf(trees[0]), set)); d != "" {
			t.Fatalf("after all mails (-want +got):\n%s\n%s", d, mbox)
		}
	}
}

// drift changes a line or two of each file.
func drift(r *rand.Rand, files map[string]string) map[string]string {
	next := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		next[name] = mutate(r, files[name], r.IntN(3))
	}
	return next
}

// change does something to a file that git knows a header line for.
func change(r *rand.Rand, files map[string]string, names []string) {
	have := slices.Sorted(maps.Keys(files))
	if len(have) == 0 {
		return
	}
	name := have[r.IntN(len(have))]
	text := files[name]
	free := ""
	for _, n := range names {
		_, plain := files[n]
		_, executable := files[n+"*"]
		if !plain && !executable {
			free = n
		}
	}
	switch r.IntN(6) {
	case 0:
		delete(files, name)
	case 1: // mode
		delete(files, name)
		if plain, ok := strings.CutSuffix(name, "*"); ok {
			files[plain] = text
		} else {
			files[name+"*"] = text
		}
	case 2:
		if free != "" {
			files[free] = randomText(r)
		}
	case 3: // rename
		if free != "" {
			delete(files, name)
			files[free] = mutate(r, text, r.IntN(2))
		}
	case 4: // copy
		if free != "" {
			files[free] = text
		}
	default:
		files[name] = mutate(r, text, 2)
	}
}

// The mailbox in testdata is what git makes of it.
func TestMailboxAgainstGit(t *testing.T) {
	patch, err := os.ReadFile("testdata/mailbox/series.patch")
	if err != nil {
		t.Fatal(err)
	}
	g := git{t, t.TempDir()}
	for _, dir := range []string{"old", "new"} {
		files := after(t, os.DirFS("testdata/mailbox/"+dir), &patchers.ChangeSet{})
		g.judge(string(patch), files, parse(t, string(patch)))
	}
	if !bytes.Contains(patch, []byte("\n\n-")) && !bytes.Contains(patch, []byte("\n\n ")) {
		t.Error("no empty context line has lost its blank")
	}
}
