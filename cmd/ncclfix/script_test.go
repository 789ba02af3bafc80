package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"ncclfix/cmd/internal/report"
)

var update = flag.Bool("u", false, "write what the scripts' cmp finds, and the table of codes, into the files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ncclfix": main})
}

// TestScript runs testdata/script/*.txtar with the real ncclfix, each in a folder
// of its own that is no git work tree. Beside what testscript brings, and with
// its exec written out, scripts have two commands.
//
//	exits STATUS COMMAND...
//
// runs the command as exec does and wants that exit status. (! exec cannot tell
// 1 from 2.)
//
//	repairs [FLAG...]
//
// takes the files of the script for a tree, without findings and want/, and
// checks in copies of it all that holds of every repair. The flags go to check,
// diff and fix.
//
//   - check finds what the file findings says, if there is one: a line "PATH CODE"
//     for each finding that is not suppressed, in any order; empty for none.
//   - diff leaves the tree as it is.
//   - fix makes of each file what stands under want/, or leaves it alone if
//     nothing does.
//   - git apply makes of diff's output what fix makes.
//   - fix shows the diff that diff shows; run again, it shows none and changes
//     nothing.
//   - undo gives back every byte.
//   - the exit status says whether something is left.
//
// Beside testscript's conditions there is [torch].
//
// go test ./cmd/ncclfix -run Script/NAME -u writes what cmp finds into a script;
// findings and want/ are written by hand, since they say what is right.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "..", "testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".tmp", "state"))
			env.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // or each command takes a second under -race
			env.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(env.WorkDir))
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"repairs": repairs,
		},
	})
}

// condition knows torch: whether Debian's Python has PyTorch, which it must where
// everything has to be there.
func condition(name string) (bool, error) {
	if name != "torch" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	err := exec.Command("/usr/bin/python3", "-c", "import torch.distributed").Run()
	if err != nil && os.Getenv("CI") != "" {
		return false, fmt.Errorf("/usr/bin/python3 has no PyTorch: %w", err)
	}
	return err == nil, nil
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := status(ts, ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func status(ts *testscript.TestScript, err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	ts.Fatalf("%v", err)
	return -1
}

func repairs(ts *testscript.TestScript, neg bool, flags []string) {
	if neg {
		ts.Fatalf("unsupported: ! repairs")
	}
	tree, want := map[string]string{}, map[string]string{}
	for name, data := range readTree(ts, ts.MkAbs(".")) {
		if fixed, ok := strings.CutPrefix(name, "want/"); ok {
			want[fixed] = data
		} else if name != "findings" {
			tree[name] = data
		}
	}
	for name, data := range tree {
		if _, ok := want[name]; !ok {
			want[name] = data
		}
	}
	scratch, err := os.MkdirTemp(ts.MkAbs(".tmp"), "repairs-")
	ts.Check(err)
	looked, applied, fixed := filepath.Join(scratch, "looked"), filepath.Join(scratch, "applied"), filepath.Join(scratch, "fixed")
	for _, dir := range []string{looked, applied, fixed} {
		writeTree(ts, dir, tree)
	}
	run := func(dir string, stdin []byte, name string, args ...string) (stdout, stderr string, code int) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Stdin = bytes.NewReader(stdin)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		for _, key := range []string{"PATH", "HOME", "TMPDIR", "XDG_STATE_HOME", "GORACE", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES", "GOCOVERDIR"} {
			cmd.Env = append(cmd.Env, key+"="+ts.Getenv(key))
		}
		code = status(ts, cmd.Run())
		ts.Logf("%s %s: exit status %d\n%s", name, strings.Join(args, " "), code, errs.String())
		return out.String(), errs.String(), code
	}
	ncclfix := func(dir string, args ...string) (string, int) {
		stdout, _, code := run(dir, nil, "ncclfix", args...)
		return stdout, code
	}

	out, code := ncclfix(looked, append([]string{"check", "--format", "json"}, flags...)...)
	var doc report.Document
	ts.Check(json.Unmarshal([]byte(out), &doc))
	found := []string{}
	left := 0
	for _, f := range doc.Findings {
		found = append(found, f.Path+" "+f.Code)
		if f.Outcome != "planned" {
			left = 1
		}
	}
	if list, err := os.ReadFile(ts.MkAbs("findings")); err == nil {
		wantFound := strings.FieldsFunc(string(list), func(r rune) bool { return r == '\n' })
		slices.Sort(wantFound)
		slices.Sort(found)
		equal(ts, "findings", wantFound, found)
	}
	equal(ts, "exit status of check", min(1, len(found)), code)

	patch, code := ncclfix(looked, append([]string{"diff"}, flags...)...)
	equal(ts, "exit status of diff", min(1, len(found)), code)
	equal(ts, "tree after check and diff", tree, readTree(ts, looked))

	shown, code := ncclfix(fixed, append([]string{"fix", "--yes"}, flags...)...)
	equal(ts, "exit status of fix", left, code)
	equal(ts, "diff that fix shows", patch, shown)
	equal(ts, "tree after fix", want, readTree(ts, fixed))

	if patch != "" {
		if _, errs, code := run(applied, []byte(patch), "git", "apply"); code != 0 {
			ts.Fatalf("git apply: %s\n%s", errs, patch)
		}
	}
	equal(ts, "tree after git apply", want, readTree(ts, applied))

	again, code := ncclfix(fixed, append([]string{"fix", "--yes"}, flags...)...)
	equal(ts, "exit status of a second fix", left, code)
	equal(ts, "diff of a second fix", "", again)
	equal(ts, "tree after a second fix", want, readTree(ts, fixed))

	if patch != "" {
		_, code = ncclfix(fixed, "undo", "--yes")
		equal(ts, "exit status of undo", 0, code)
		equal(ts, "tree after undo", tree, readTree(ts, fixed))
	}
}

func equal(ts *testscript.TestScript, what string, want, got any) {
	if d := cmp.Diff(want, got); d != "" {
		ts.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// readTree returns the bytes of all files below dir, by slash-separated path,
// but for testscript's own.
func readTree(ts *testscript.TestScript, dir string) map[string]string {
	tree := map[string]string{}
	ts.Check(fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".tmp":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		tree[name] = string(data)
		return err
	}))
	return tree
}

func writeTree(ts *testscript.TestScript, dir string, tree map[string]string) {
	for name, data := range tree {
		file := filepath.Join(dir, name)
		ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
		ts.Check(os.WriteFile(file, []byte(data), 0o644))
	}
}
