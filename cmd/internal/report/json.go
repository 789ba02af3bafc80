package report

import (
	"encoding/json"
	"io"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
)

// JSONVersion is the version of what JSON prints. It grows when a field goes or
// changes its meaning, not when one is added.
const JSONVersion = 1

// A Document is what JSON prints. Paths are slash-separated and relative to the
// root of the tree, lines and columns count from 1, columns in bytes; line 0 is
// a file as a whole. Suppressed findings are counted only.
type Document struct {
	Version  int          `json:"version"`
	Findings []Finding    `json:"findings"` // by path, line, column and code
	Changes  []FileChange `json:"changes"`  // what the planned fixes do, by path
	Counts   Counts       `json:"counts"`
}

// A Finding is a patchers.Result.
type Finding struct {
	Code        string `json:"code"`
	Path        string `json:"path"`
	Line        int    `json:"line"`
	Column      int    `json:"column"`
	Message     string `json:"message"`
	Why         []Step `json:"why"`         // how it comes about, hop by hop
	Fixable     bool   `json:"fixable"`     // whether there is a fix
	Outcome     string `json:"outcome"`     // planned, manual, conflicted or broken
	Reason      string `json:"reason"`      // why it is conflicted or broken, or ""
	Fingerprint string `json:"fingerprint"` // see Fingerprints
	Fix         *Fix   `json:"fix"`
}

// A Step is one hop.
type Step struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// A Fix is one repair. Its edits refer to the files as they were read.
type Fix struct {
	Message string      `json:"message"`
	Files   []FileEdits `json:"files"`
}

// FileEdits are the edits of one file. A file that is created has one edit, of
// an empty file.
type FileEdits struct {
	Path   string `json:"path"`
	Create bool   `json:"create"`
	Edits  []Edit `json:"edits"`
}

// An Edit replaces the bytes from start to end, which is not included.
type Edit struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	New   string `json:"new"`
}

// A FileChange is a file that the planned fixes change.
type FileChange struct {
	Path string `json:"path"`
	Op   string `json:"op"`   // modify, create or delete
	Diff string `json:"diff"` // unified; bytes that are not UTF-8 are lost
}

// JSON prints r as one Document.
func JSON(w io.Writer, r *Report) error {
	doc := Document{Version: JSONVersion, Findings: []Finding{}, Changes: []FileChange{}, Counts: Count(r.Changes)}
	results := r.shown()
	ids := Fingerprints(r.Tree, results)
	for i, res := range results {
		doc.Findings = append(doc.Findings, Finding{
			Code: res.Code, Path: res.Pos.Path, Line: res.Pos.Line, Column: res.Pos.Column,
			Message: res.Message, Why: steps(res.Why), Fixable: res.Fix != nil,
			Outcome: res.Outcome.String(), Reason: res.Reason, Fingerprint: ids[i], Fix: fixOf(res.Fix),
		})
	}
	for _, c := range r.Changes.Files {
		text, err := c.Unified()
		if err != nil {
			return err
		}
		doc.Changes = append(doc.Changes, FileChange{c.Path, c.Op.String(), text})
	}
	return encode(w, doc)
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func steps(why []patchers.Step) []Step {
	out := []Step{}
	for _, s := range why {
		out = append(out, Step{s.Pos.Path, s.Pos.Line, s.Pos.Column, s.Message})
	}
	return out
}

func fixOf(f *patchers.Fix) *Fix {
	if f == nil {
		return nil
	}
	out := &Fix{Message: f.Message}
	for _, fe := range f.Files {
		edits := append([]diff.Edit{}, fe.Edits...)
		diff.Sort(edits)
		file := FileEdits{Path: fe.Path, Create: fe.Base == nil}
		for _, e := range edits {
			file.Edits = append(file.Edits, Edit(e))
		}
		out.Files = append(out.Files, file)
	}
	return out
}
