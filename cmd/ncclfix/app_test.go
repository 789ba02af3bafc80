package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
)

// A testApp is an app in a tree of its own, with what it printed.
type testApp struct {
	*app
	dir       string
	out, errs bytes.Buffer
}

// newTestApp makes the files and goes to their folder. The findings are all that
// is found in them.
func newTestApp(t *testing.T, files map[string]string, check func(string, []byte, []byte) error, findings ...patchers.Finding) *testApp {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	a := &testApp{dir: t.TempDir()}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(a.dir)
	a.app = &app{
		stdin: strings.NewReader(""), stdout: &a.out, stderr: &a.errs,
		getenv:     func(string) string { return "" },
		getwd:      os.Getwd,
		isTerminal: func(any) bool { return false },
		patchers: []*patchers.Patcher{{
			Name:  "t",
			Codes: []patchers.Code{{ID: "t/on", Default: true, Fixable: true, Doc: "On."}, {ID: "t/named", Doc: "Named."}},
			Run: func(pass *patchers.Pass) error {
				for _, f := range findings {
					pass.Report(f)
				}
				return nil
			},
			Check: check,
		}},
	}
	return a
}

func (a *testApp) want(t *testing.T, status int, args ...string) {
	t.Helper()
	if got := a.run(context.Background(), args); got != status {
		t.Errorf("%q: exit status %d, want %d\n%s", args, got, status, &a.errs)
	}
}

func wantText(t *testing.T, what, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("%s lacks %q:\n%s", what, p, got)
		}
	}
}

func wantFile(t *testing.T, name, want string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// on returns a finding in a file, whose fix makes the edits.
func on(path, base string, edits ...diff.Edit) patchers.Finding {
	return patchers.Finding{
		Code: "t/on", Pos: patchers.Position{Path: path, Line: 1, Column: 1}, Message: "is wrong",
		Fix: &patchers.Fix{Message: "mend it", Files: []patchers.FileEdits{{Path: path, Base: []byte(base), Edits: edits}}},
	}
}

// A repair that would damage a file is our bug: it is dropped and said, the
// others are written, and the status is 2 whatever was asked for.
func TestBrokenFix(t *testing.T) {
	check := func(_ string, _, new []byte) error {
		if bytes.Contains(new, []byte("damage")) {
			return errors.New("bad syntax")
		}
		return nil
	}
	a := newTestApp(t, map[string]string{"a.py": "a\n", "b.py": "b\n"}, check,
		on("a.py", "a\n", diff.Insert(0, "damage\n")), on("b.py", "b\n", diff.Insert(0, "good\n")))
	a.want(t, 2, "fix", "--yes", "--exit-zero")
	wantText(t, "stderr", a.errs.String(),
		"a.py:1:1: is wrong [t/on]\n    broken: the repair would damage a.py: bad syntax",
		"left: 1 broken\n", "ncclfix: dropping 1 fix: ")
	wantFile(t, "a.py", "a\n")
	wantFile(t, "b.py", "good\nb\n")
}

func conflicting() []patchers.Finding {
	return []patchers.Finding{
		on("a.py", "abc\n", diff.Edit{Start: 0, End: 2, New: "x"}),
		on("a.py", "abc\n", diff.Edit{Start: 1, End: 3, New: "y"}),
	}
}

func TestConflict(t *testing.T) {
	a := newTestApp(t, map[string]string{"a.py": "abc\n"}, nil, conflicting()...)
	a.want(t, 1, "fix", "--yes")
	wantText(t, "stderr", a.errs.String(), "    conflicted: its edits of a.py overlap", "left: 1 conflicted\n")
	wantFile(t, "a.py", "xc\n")
}

// A fix that conflicts with a declined one is offered.
func TestConflictDeclined(t *testing.T) {
	a := newTestApp(t, map[string]string{"a.py": "abc\n"}, nil, conflicting()...)
	a.isTerminal = func(stream any) bool { return stream == a.stdin }
	a.stdin = strings.NewReader("n\ny\n")
	a.want(t, 1, "fix", "-i")
	wantText(t, "stderr", a.errs.String(), "left: 1 declined\n")
	wantFile(t, "a.py", "ay\n")
}

// Who goes away while being asked has not said yes.
func TestInterrupted(t *testing.T) {
	a := newTestApp(t, map[string]string{"a.py": "a\n"}, nil, on("a.py", "a\n", diff.Insert(0, "x\n")))
	a.isTerminal = func(stream any) bool { _, ok := stream.(readerFunc); return ok }
	ctx, cancel := context.WithCancel(context.Background())
	a.stdin = readerFunc(func([]byte) (int, error) {
		cancel()
		select {} // nobody types
	})
	if got := a.run(ctx, []string{"fix"}); got != 2 {
		t.Errorf("exit status %d, want 2", got)
	}
	wantText(t, "stderr", a.errs.String(), "ncclfix: interrupted\n")
	wantFile(t, "a.py", "a\n")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// What a file holds reaches git as it is, and a terminal only with all that
// could steer it made visible.
func TestDiffOnTerminal(t *testing.T) {
	text := "\x1b[2J\r\nb\u202e\n"
	files := map[string]string{"a.py": text}
	found := on("a.py", text, diff.Insert(0, "x\n"))
	raw := "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n+x\n \x1b[2J\r\n b\u202e\n"
	shown := "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n+x\n ^[[2J^M\n b<U+202E>\n"
	colored := "\x1b[1mdiff --git a/a.py b/a.py\x1b[0m\n\x1b[1m--- a/a.py\x1b[0m\n\x1b[1m+++ b/a.py\x1b[0m\n" +
		"\x1b[36m@@ -1,2 +1,3 @@\x1b[0m\n\x1b[32m+x\x1b[0m\n ^[[2J^M\n b<U+202E>\n"
	for _, c := range []struct {
		name     string
		terminal bool
		env      map[string]string
		args     []string
		want     string
	}{
		{name: "pipe", want: raw},
		{name: "terminal", terminal: true, want: colored},
		{name: "dumb terminal", terminal: true, env: map[string]string{"TERM": "dumb"}, want: shown},
		{name: "NO_COLOR", terminal: true, env: map[string]string{"NO_COLOR": "1", "FORCE_COLOR": "1"}, want: shown},
		{name: "FORCE_COLOR", env: map[string]string{"FORCE_COLOR": "1"}, want: colored},
		{name: "never", terminal: true, args: []string{"--color", "never"}, want: shown},
		{name: "always", env: map[string]string{"NO_COLOR": "1"}, args: []string{"--color=always"}, want: colored},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTestApp(t, files, nil, found)
			a.isTerminal = func(any) bool { return c.terminal }
			a.getenv = func(key string) string { return c.env[key] }
			a.want(t, 1, append(c.args, "diff")...)
			if d := cmp.Diff(c.want, a.out.String()); d != "" {
				t.Errorf("stdout (-want +got):\n%s", d)
			}
		})
	}
}

// A fix is made only if all files that it touches are wanted.
func TestExcludedFiles(t *testing.T) {
	found := on("a.py", "a\n", diff.Insert(0, "x\n"))
	found.Fix.Files = append(found.Fix.Files, patchers.FileEdits{Path: "b.py", Base: []byte("b\n"), Edits: []diff.Edit{diff.Insert(0, "x\n")}})
	files := map[string]string{"a.py": "a\n", "b.py": "b\n", "ncclfix.toml": `exclude = ["b.py"]`}
	newTestApp(t, files, nil, found).want(t, 0, "check")
	files["ncclfix.toml"] = ""
	newTestApp(t, files, nil, found).want(t, 1, "check")
}

func TestExplain(t *testing.T) {
	a := newTestApp(t, nil, nil)
	a.want(t, 0, "explain", "t")
	wantText(t, "stdout", a.out.String(), "t/on: ", "\n\nOn.\n", "t/named: ", "reported if selected; repaired: no\n\nNamed.\n")
	a.want(t, 2, "explain", "t/onn")
	wantText(t, "stderr", a.errs.String(), `ncclfix: unknown code "t/onn"; did you mean "t/on"?`)
}

func TestCodesAreExplained(t *testing.T) {
	for _, c := range newApp().codes() {
		if c.Summary == "" || c.Doc == "" {
			t.Errorf("%s has no summary or no text", c.ID)
		}
	}
}

func TestDescribe(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	if got := describe(info); got != "v1.2.3" {
		t.Errorf("without a revision: %q", got)
	}
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-12-01T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}}
	if got, want := describe(info), "v1.2.3 (revision abc of 2026-12-01T00:00:00Z, modified)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDidYouMean(t *testing.T) {
	words := []string{"check", "diff", "teardown/worker", "teardown"}
	for given, want := range map[string]string{
		"chekc": "check", "difff": "diff", "teardown/workers": "teardown/worker", "teardwn": "teardown",
		"x": "", "frobnicate": "", "": "",
	} {
		if want != "" {
			want = `; did you mean "` + want + `"?`
		}
		if got := didYouMean(given, words); got != want {
			t.Errorf("didYouMean(%q) = %q, want %q", given, got, want)
		}
	}
}
