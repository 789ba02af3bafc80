package patchers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers/diff"
)

func fixOf(path, base string, edits ...diff.Edit) *Fix {
	fe := FileEdits{Path: path, Edits: edits}
	if base != "" {
		fe.Base = []byte(base)
	}
	return &Fix{Message: "repair", Files: []FileEdits{fe}}
}

func TestPlan(t *testing.T) {
	tree := Tree{FS: fstest.MapFS{"a.py": {Data: []byte("abc"), Mode: 0o755}}}
	set, err := Plan(tree, nil, []Finding{
		{Code: "t/1", Fix: fixOf("a.py", "abc", diff.Insert(0, "x"), diff.Insert(3, "z"))},
		{Code: "t/2", Fix: fixOf("a.py", "abc", diff.Edit{Start: 1, End: 2, New: "B"}, diff.Insert(0, "x"))},
		{Code: "t/3", Fix: fixOf("a.py", "abc", diff.Edit{Start: 0, End: 2, New: ""})},
		{Code: "t/4"},
		{Code: "t/5", Fix: fixOf("new.ini", "", diff.Insert(0, "n"))},
		{Code: "t/6", Fix: fixOf("a.py", "older", diff.Insert(0, "x"))},
		{Code: "t/7", Suppressed: true, Fix: fixOf("a.py", "abc", diff.Insert(1, "never"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range set.Results {
		got = append(got, r.Code+" "+r.Outcome.String())
	}
	want := []string{"t/1 planned", "t/2 planned", "t/3 conflicted", "t/4 manual", "t/5 planned", "t/6 conflicted", "t/7 manual"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("outcomes (-want +got):\n%s", d)
	}
	wantFiles := []FileChange{
		{Path: "a.py", OldMode: 0o755, Mode: 0o755, Old: []byte("abc"), New: []byte("xaBcz")},
		{Path: "new.ini", Op: Create, Mode: 0o644, New: []byte("n")},
	}
	if d := cmp.Diff(wantFiles, set.Files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

// A repair that damages a file is dropped with all others of that file, and so
// is what it would have done elsewhere.
func TestPlanDropsBrokenFiles(t *testing.T) {
	tree := Tree{FS: fstest.MapFS{"a.py": {Data: []byte("a")}, "b.py": {Data: []byte("b")}}}
	p := &Patcher{
		Name:  "t",
		Codes: []Code{{ID: "t/x"}},
		Check: func(path string, _, new []byte) error {
			if strings.Contains(string(new), "bad") {
				return errors.New("bad syntax")
			}
			return nil
		},
	}
	both := fixOf("a.py", "a", diff.Insert(0, "bad"))
	both.Files = append(both.Files, FileEdits{Path: "b.py", Base: []byte("b"), Edits: []diff.Edit{diff.Insert(0, "half")}})
	set, err := Plan(tree, []*Patcher{p}, []Finding{
		{Code: "t/x", Fix: both},
		{Code: "t/x", Fix: fixOf("a.py", "a", diff.Insert(1, "good"))},
		{Code: "t/x", Fix: fixOf("b.py", "b", diff.Insert(1, "good"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := set.Count(Broken); n != 2 {
		t.Errorf("%d broken, want 2: %v", n, set.Results)
	}
	if len(set.Files) != 1 || string(set.Files[0].New) != "bgood" {
		t.Errorf("files: %+v", set.Files)
	}
}

func TestAnalyzeOrdersAndValidates(t *testing.T) {
	p := &Patcher{Name: "t", Codes: []Code{{ID: "t/x"}}, Run: func(pass *Pass) error {
		pass.Report(Finding{Code: "t/x", Message: "m", Pos: Position{Path: "b", Line: 1}})
		pass.Report(Finding{Code: "t/x", Message: "m", Pos: Position{Path: "a", Line: 2}})
		pass.Report(Finding{Code: "t/x", Message: "m", Pos: Position{Path: "a", Line: 1}})
		return nil
	}}
	got, err := Analyze(context.Background(), Tree{}, Options{}, []*Patcher{p})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, f := range got {
		order = append(order, f.Pos.String())
	}
	if d := cmp.Diff([]string{"a:1:0", "a:2:0", "b:1:0"}, order); d != "" {
		t.Error(d)
	}

	for name, f := range map[string]Finding{
		"unlisted code": {Code: "t/y", Message: "m", Pos: Position{Path: "a"}},
		"no message":    {Code: "t/x", Pos: Position{Path: "a"}},
		"leaves the tree": {Code: "t/x", Message: "m", Pos: Position{Path: "a"},
			Fix: fixOf("../a", "a", diff.Insert(0, "x"))},
		"outside the file": {Code: "t/x", Message: "m", Pos: Position{Path: "a"},
			Fix: fixOf("a", "a", diff.Insert(2, "x"))},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Report did not panic", name)
				}
			}()
			bad := &Patcher{Name: "t", Codes: p.Codes, Run: func(pass *Pass) error { pass.Report(f); return nil }}
			Analyze(context.Background(), Tree{}, Options{}, []*Patcher{bad})
		}()
	}
}

func TestMustDoc(t *testing.T) {
	src := "// Package x does.\n//\n// # x/a\n//\n// A text.\n//\n//\tcode\n//\n// # x/b\n//\n// Other.\npackage x\n\n// # x/a\n"
	if got, want := MustDoc(src, "x/a"), "A text.\n\n\tcode"; got != want {
		t.Errorf("MustDoc = %q, want %q", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("MustDoc of a missing section did not panic")
		}
	}()
	MustDoc(src, "x/c")
}
