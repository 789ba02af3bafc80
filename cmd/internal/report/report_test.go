package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
)

const source = "\ufeffdéf 😀 f():\r\n    init()\r\n    work()\r\n"

// sample returns a report with a result of each outcome.
func sample() *Report {
	tree := fstest.MapFS{
		"a.py":   {Data: []byte(source)},
		"é b.py": {Data: []byte("x = 1\n")},
	}
	planned := patchers.Finding{
		Code: "t/worker", Pos: patchers.Position{Path: "a.py", Line: 1, Column: 14}, Message: "left open",
		Why: []patchers.Step{{Pos: patchers.Position{Path: "é b.py", Line: 1, Column: 1}, Message: "f is started"}},
		Fix: &patchers.Fix{Message: "close it", Files: []patchers.FileEdits{{Path: "a.py", Base: []byte(source), Edits: []diff.Edit{
			diff.Insert(len(source), "    close()\r\n"),
			{Start: strings.Index(source, "init"), End: strings.Index(source, "init") + 4, New: "open"},
		}}}},
	}
	created := patchers.Finding{
		Code: "t/new", Pos: patchers.Position{Path: "new.ini"}, Message: "no settings",
		Fix: &patchers.Fix{Message: "make them", Files: []patchers.FileEdits{{Path: "new.ini", Edits: []diff.Edit{diff.Insert(0, "[x]\n")}}}},
	}
	results := []patchers.Result{
		{Finding: planned, Outcome: patchers.Planned},
		{Finding: patchers.Finding{Code: "t/rank", Pos: patchers.Position{Path: "a.py", Line: 3, Column: 5}, Message: "hangs"}},
		{Finding: patchers.Finding{Code: "t/rank", Pos: patchers.Position{Path: "a.py", Line: 2, Column: 5}, Message: "quiet", Suppressed: true}},
		{Finding: created, Outcome: patchers.Planned},
		{Finding: planned, Outcome: patchers.Conflicted, Reason: "overlaps"},
		{Finding: planned, Outcome: patchers.Broken, Reason: "damages a.py"},
	}
	return &Report{
		Changes: &patchers.ChangeSet{
			Results: results,
			Files:   []patchers.FileChange{{Path: "new.ini", Op: patchers.Create, Mode: 0o644, New: []byte("[x]\n")}},
		},
		Codes: []patchers.Code{
			{ID: "t/worker", Summary: "a worker leaves it open", Doc: "First\nparagraph.\n\nSecond."},
			{ID: "t/rank", Summary: "some ranks", Doc: "One."},
			{ID: "t/new", Summary: "none", Doc: "New."},
		},
		Tree:    tree,
		Version: "v1",
	}
}

func printed(t *testing.T, print func(*bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCounts(t *testing.T) {
	c := Count(sample().Changes)
	if d := cmp.Diff(Counts{Fixes: 2, Files: 1, Conflicted: 1, Broken: 1, Manual: 1, Suppressed: 1}, c); d != "" {
		t.Errorf("Count (-want +got):\n%s", d)
	}
	for want, c := range map[string]Counts{
		"2 fixes in 1 file; 1 conflicted; 1 broken; 1 for a person; 1 suppressed": c,
		"1 fix in 2 files": {Fixes: 1, Files: 2},
		"3 for a person":   {Manual: 3},
		"":                 {Suppressed: 4},
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestText(t *testing.T) {
	r := sample()
	got := printed(t, func(b *bytes.Buffer) error {
		return Text{Verbose: true, Path: func(p string) string { return "../" + p }}.Findings(b, r.Changes.Results)
	})
	want := `../a.py:1:14: left open [t/worker]
    ../é b.py:1:1: f is started
    fix: close it
../a.py:3:5: hangs [t/rank]
../new.ini: no settings [t/new]
    fix: make them
../a.py:1:14: left open [t/worker]
    ../é b.py:1:1: f is started
    conflicted: overlaps
../a.py:1:14: left open [t/worker]
    ../é b.py:1:1: f is started
    broken: damages a.py
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestVisible(t *testing.T) {
	for s, want := range map[string]string{
		"plain é 😀\t":            "plain é 😀\t",
		"a\nb\r\x1b[31m\x00\x7f": "a^Jb^M^[[31m^@^?",
		"\u009b2J":               "<U+009B>2J",
		"x\u202ey\u200b\ufeff":   "x<U+202E>y<U+200B><U+FEFF>",
		"\u2028":                 "<U+2028>",
		"a\xff\xc3":              "a<FF><C3>",
		"\ufffd":                 "\ufffd",
	} {
		if got := Visible(s); got != want {
			t.Errorf("Visible(%q) = %q, want %q", s, got, want)
		}
	}
}

// Lines of a hunk are told from headers by their number.
func TestDiffColors(t *testing.T) {
	text := "--- a/x\n+++ b/x\n@@ -1,3 +1 @@\n--- a\n- b\n+++ c\n d\n\\ No newline at end of file\n--- a/y\n"
	got := printed(t, func(b *bytes.Buffer) error { return Text{Color: true}.Diff(b, text) })
	var colors []string
	for l := range strings.Lines(got) {
		code, _, _ := strings.Cut(strings.TrimPrefix(l, "\x1b["), "m")
		if !strings.HasPrefix(l, "\x1b[") {
			code = ""
		}
		colors = append(colors, code)
	}
	if d := cmp.Diff([]string{bold, bold, cyan, red, red, green, "", "", bold}, colors); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Ids outlive moves of the line and changes elsewhere, and tell like lines apart.
func TestFingerprints(t *testing.T) {
	at := func(line int) patchers.Result {
		return patchers.Result{Finding: patchers.Finding{Code: "t/x", Pos: patchers.Position{Path: "a.py", Line: line, Column: 1}}}
	}
	ids := func(text string, results ...patchers.Result) []string {
		return Fingerprints(fstest.MapFS{"a.py": {Data: []byte(text)}}, results)
	}
	before := ids("a\nreturn\nb\nreturn\n", at(2), at(4), at(1))
	after := ids("new\n\na\r\n    return\r\nb\r\nreturn\r\n", at(4), at(6), at(3))
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("moved lines (-before +after):\n%s", d)
	}
	seen := map[string]bool{}
	other := at(2)
	other.Code = "t/y"
	for _, id := range append(before, ids("a\nreturn 1\n", at(2), other, at(9))...) {
		if seen[id] {
			t.Errorf("%s occurs twice", id)
		}
		seen[id] = true
	}
}

func TestJSON(t *testing.T) {
	r := sample()
	got := printed(t, func(b *bytes.Buffer) error { return JSON(b, r) })
	var doc Document
	d := json.NewDecoder(strings.NewReader(got))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version != 1 || doc.Counts != Count(r.Changes) || len(doc.Findings) != 5 {
		t.Errorf("version %d, counts %+v, %d findings", doc.Version, doc.Counts, len(doc.Findings))
	}
	first := doc.Findings[0]
	if first.Fingerprint == "" {
		t.Error("no fingerprint")
	}
	first.Fingerprint = ""
	init := strings.Index(source, "init")
	want := Finding{
		Code: "t/worker", Path: "a.py", Line: 1, Column: 14, Message: "left open",
		Why: []Step{{"é b.py", 1, 1, "f is started"}}, Fixable: true, Outcome: "planned",
		Fix: &Fix{"close it", []FileEdits{{"a.py", false, []Edit{{init, init + 4, "open"}, {len(source), len(source), "    close()\r\n"}}}}},
	}
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("first finding (-want +got):\n%s", d)
	}
	wantChange := FileChange{"new.ini", "create", "diff --git a/new.ini b/new.ini\nnew file mode 100644\n--- /dev/null\n+++ b/new.ini\n@@ -0,0 +1 @@\n+[x]\n"}
	if d := cmp.Diff([]FileChange{wantChange}, doc.Changes); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	// Whatever is empty is a list, and not null.
	empty := printed(t, func(b *bytes.Buffer) error {
		return JSON(b, &Report{Changes: &patchers.ChangeSet{}, Tree: r.Tree})
	})
	if !strings.Contains(empty, `"findings": [],`) || !strings.Contains(empty, `"changes": [],`) {
		t.Errorf("empty document:\n%s", empty)
	}
}

// applySARIF makes the replacements of a fix by the standard's own terms: lines,
// and columns in UTF-16 code units.
func applySARIF(t *testing.T, text string, rs []sarifReplacement) string {
	t.Helper()
	offset := func(line, column int) int {
		lines := strings.SplitAfter(text, "\n")
		at := len(strings.Join(lines[:line-1], ""))
		l := lines[line-1]
		if line == 1 && strings.HasPrefix(l, "\ufeff") {
			at += len("\ufeff")
			l = l[len("\ufeff"):]
		}
		return at + len(string(utf16.Decode(utf16.Encode([]rune(l))[:column-1])))
	}
	var edits []diff.Edit
	for _, r := range rs {
		d := r.DeletedRegion
		edits = append(edits, diff.Edit{Start: offset(d.StartLine, d.StartColumn), End: offset(d.EndLine, d.EndColumn), New: r.InsertedContent.Text})
	}
	out, err := diff.Apply([]byte(text), edits)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestSARIF(t *testing.T) {
	r := sample()
	text := printed(t, func(b *bytes.Buffer) error { return SARIF(b, r) })
	var log sarifLog
	if err := json.Unmarshal([]byte(text), &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	// What GitHub wants of each rule.
	for _, rule := range run.Tool.Driver.Rules {
		if rule.FullDescription.Text == "" || rule.Help.Text == "" {
			t.Errorf("%s has no full description or no help", rule.ID)
		}
	}
	if got := run.Tool.Driver.Rules[0].FullDescription.Text; got != "First paragraph." {
		t.Errorf("full description %q", got)
	}
	if i := run.Invocations[0]; i.ExecutionSuccessful || len(i.Notifications) != 1 || i.Notifications[0].Message.Text != "damages a.py" {
		t.Errorf("invocation of a run with a broken fix: %+v", i)
	}
	for i, res := range run.Results {
		if run.Tool.Driver.Rules[res.RuleIndex].ID != res.RuleID {
			t.Errorf("result %d: rule %d is not %s", i, res.RuleIndex, res.RuleID)
		}
		if res.PartialFingerprints["primaryLocationLineHash"] == "" {
			t.Errorf("result %d has no fingerprint", i)
		}
		if planned := r.shown()[i].Outcome == patchers.Planned; planned != (len(res.Fixes) == 1) {
			t.Errorf("result %d: planned is %v, but it has %d fixes", i, planned, len(res.Fixes))
		}
	}
	// The column behind the text "déf 😀 ", of which the byte order mark is no part.
	first := run.Results[0]
	if got := first.Locations[0].PhysicalLocation.Region; got.StartLine != 1 || got.StartColumn != 8 {
		t.Errorf("region of the first result: %+v", got)
	}
	if got := first.CodeFlows[0].ThreadFlows[0].Locations[0].Location.PhysicalLocation.ArtifactLocation.URI; got != "%C3%A9%20b.py" {
		t.Errorf("URI %q", got)
	}
	if got := run.Results[2].Locations[0].PhysicalLocation.Region; got != (sarifRegion{StartLine: 1}) {
		t.Errorf("a finding about a whole file has the region %+v", got)
	}
	want := strings.Replace(source, "init", "open", 1) + "    close()\r\n"
	if got := applySARIF(t, source, first.Fixes[0].ArtifactChanges[0].Replacements); got != want {
		t.Errorf("the fix makes %q, want %q", got, want)
	}
	if got := applySARIF(t, "", run.Results[2].Fixes[0].ArtifactChanges[0].Replacements); got != "[x]\n" {
		t.Errorf("the fix that makes a file makes %q", got)
	}
}

// More results than GitHub takes would lose all of them.
func TestSARIFLimit(t *testing.T) {
	r := sample()
	r.Changes.Results = make([]patchers.Result, maxResults+2)
	for i := range r.Changes.Results {
		r.Changes.Results[i].Finding = patchers.Finding{Code: "t/rank", Message: "m", Pos: patchers.Position{Path: "a.py", Line: 1, Column: 1}}
	}
	text := printed(t, func(b *bytes.Buffer) error { return SARIF(b, r) })
	var log sarifLog
	if err := json.Unmarshal([]byte(text), &log); err != nil {
		t.Fatal(err)
	}
	if n := len(log.Runs[0].Results); n != maxResults {
		t.Errorf("%d results", n)
	}
	if n := log.Runs[0].Invocations[0].Notifications; len(n) != 1 || !strings.HasPrefix(n[0].Message.Text, "2 findings ") {
		t.Errorf("notifications: %+v", n)
	}
}

func TestGitHub(t *testing.T) {
	r := sample()
	r.Changes.Results = append(r.Changes.Results, patchers.Result{Finding: patchers.Finding{
		Code: "t/rank", Pos: patchers.Position{Path: "::a,b%\n::set-env:.py", Line: 1, Column: 1}, Message: "100%\r\n::error::x",
	}})
	got := printed(t, func(b *bytes.Buffer) error { return GitHub(b, r) })
	want := `::error file=a.py,line=1,col=8,title=t/worker::left open (broken: damages a.py)
::warning file=a.py,line=3,col=5,title=t/rank::hangs
::warning file=%3A%3Aa%2Cb%25%0A%3A%3Aset-env%3A.py,line=1,col=1,title=t/rank::100%25^M^J::error::x
::warning file=a.py,line=1,col=8,title=t/worker::left open (conflicted: overlaps)
::warning file=a.py,line=1,col=8,title=t/worker::left open
::warning file=new.ini,title=t/new::no settings
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Annotations beyond those that GitHub shows are lines of the log, and none of
// them is a command.
func TestGitHubLimit(t *testing.T) {
	r := sample()
	r.Changes.Results = nil
	for i := range maxAnnotations + 2 {
		r.Changes.Results = append(r.Changes.Results, patchers.Result{Finding: patchers.Finding{
			Code: "t/rank", Pos: patchers.Position{Path: "::error::x/##[error]y.py", Line: i + 1, Column: 1}, Message: "m",
		}})
	}
	got := printed(t, func(b *bytes.Buffer) error { return GitHub(b, r) })
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if n := strings.Count(got, "::warning "); n != maxAnnotations || len(lines) != maxAnnotations+2 {
		t.Errorf("%d annotations in %d lines", n, len(lines))
	}
	for _, l := range lines[maxAnnotations:] {
		if strings.HasPrefix(l, "::") || strings.Contains(l, "##[") || !strings.HasSuffix(l, ": m [t/rank]") {
			t.Errorf("line of the log: %q", l)
		}
	}
}

func TestRDJSON(t *testing.T) {
	r := sample()
	text := printed(t, func(b *bytes.Buffer) error { return RDJSON(b, r) })
	var out rdResult
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Diagnostics) != 5 {
		t.Fatalf("%d diagnostics", len(out.Diagnostics))
	}
	want := rdDiagnostic{
		Message:  "left open",
		Location: rdLocation{"a.py", &rdRange{Start: rdPosition{1, 14}}},
		Severity: "WARNING",
		Code:     rdCode{"t/worker"},
		Suggestions: []rdSuggestion{{
			Range: rdRange{rdPosition{2, 5}, &rdPosition{4, 1}},
			Text:  "open()\r\n    work()\r\n    close()\r\n",
		}},
	}
	if d := cmp.Diff(want, out.Diagnostics[0]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i, d := range out.Diagnostics[1:] {
		if len(d.Suggestions) != 0 {
			t.Errorf("diagnostic %d (%s) has a suggestion", i+1, d.Message)
		}
	}
	if got := out.Diagnostics[4].Severity; got != "ERROR" {
		t.Errorf("severity of a broken fix: %s", got)
	}
}

func TestMarkdown(t *testing.T) {
	r := sample()
	r.Changes.Results[1].Message = "```` <b>@you</b> ``"
	r.Changes.Files[0].New = []byte("```\n</details>\x1b[2J\n")
	got := printed(t, func(b *bytes.Buffer) error { return Markdown(b, r, 1<<20) })
	want := "### ncclfix: 2 fixes in 1 file; 1 conflicted; 1 broken; 1 for a person; 1 suppressed\n\n" +
		"`````text\n" +
		"a.py:1:14: left open [t/worker]\n" +
		"a.py:3:5: ```` <b>@you</b> `` [t/rank]\n" +
		"new.ini: no settings [t/new]\n" +
		"a.py:1:14: left open [t/worker]\n    conflicted: overlaps\n" +
		"a.py:1:14: left open [t/worker]\n    broken: damages a.py\n" +
		"`````\n\n" +
		"<details><summary>The repair</summary>\n\n" +
		"````diff\n" +
		"diff --git a/new.ini b/new.ini\nnew file mode 100644\n--- /dev/null\n+++ b/new.ini\n@@ -0,0 +1,2 @@\n+```\n+</details>^[[2J\n" +
		"````\n\n</details>\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	empty := printed(t, func(b *bytes.Buffer) error {
		return Markdown(b, &Report{Changes: &patchers.ChangeSet{}}, 1<<20)
	})
	if empty != "### ncclfix: nothing found\n" {
		t.Errorf("nothing found: %q", empty)
	}
}

func TestMarkdownLimit(t *testing.T) {
	r := sample()
	for i := range 1000 {
		r.Changes.Results = append(r.Changes.Results, patchers.Result{Finding: patchers.Finding{
			Code: "t/rank", Pos: patchers.Position{Path: fmt.Sprintf("%d.py", i)}, Message: "é`hangs",
		}})
	}
	r.Changes.Files[0].New = bytes.Repeat([]byte("x\n"), 5000)
	for _, limit := range []int{1 << 10, 4000, 30_000} {
		got := printed(t, func(b *bytes.Buffer) error { return Markdown(b, r, limit) })
		if len(got) > limit {
			t.Errorf("limit %d: %d bytes", limit, len(got))
		}
		if !strings.Contains(got, "The repair is too long") {
			t.Errorf("limit %d: nothing is said of the diff:\n%s", limit, got)
		}
		if cut := limit < 30_000; cut != strings.Contains(got, " more lines.\n") {
			t.Errorf("limit %d: findings are cut off is not %v:\n%s", limit, cut, got)
		}
	}
}
