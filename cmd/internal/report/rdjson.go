package report

import (
	"io"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
)

// The part of the Reviewdog Diagnostic Format that is written here. Columns
// count bytes, from 1; the end of a range is not part of it.
type (
	rdResult struct {
		Source      rdSource       `json:"source"`
		Severity    string         `json:"severity"`
		Diagnostics []rdDiagnostic `json:"diagnostics"`
	}
	rdSource struct {
		Name string `json:"name"`
	}
	rdDiagnostic struct {
		Message     string         `json:"message"`
		Location    rdLocation     `json:"location"`
		Severity    string         `json:"severity"`
		Code        rdCode         `json:"code"`
		Suggestions []rdSuggestion `json:"suggestions,omitempty"`
	}
	rdLocation struct {
		Path  string   `json:"path"`
		Range *rdRange `json:"range,omitempty"`
	}
	rdCode struct {
		Value string `json:"value"`
	}
	rdSuggestion struct {
		Range rdRange `json:"range"`
		Text  string  `json:"text"`
	}
	rdRange struct {
		Start rdPosition  `json:"start"`
		End   *rdPosition `json:"end,omitempty"`
	}
	rdPosition struct {
		Line   int `json:"line"`
		Column int `json:"column,omitempty"`
	}
)

// RDJSON prints r in the Reviewdog Diagnostic Format.
//
// A suggestion belongs to the file of its diagnostic, so a fix that changes other
// files, or makes the file, has none; and since suggestions can be taken one by
// one, all edits of a fix are put together into one.
func RDJSON(w io.Writer, r *Report) error {
	out := rdResult{Source: rdSource{"ncclfix"}, Severity: "WARNING", Diagnostics: []rdDiagnostic{}}
	for _, res := range r.shown() {
		d := rdDiagnostic{
			Message:  message(res),
			Location: rdLocation{Path: res.Pos.Path},
			Severity: "WARNING",
			Code:     rdCode{res.Code},
		}
		if res.Outcome == patchers.Broken {
			d.Severity = "ERROR"
		}
		if res.Pos.Line > 0 {
			d.Location.Range = &rdRange{Start: rdPosition{res.Pos.Line, res.Pos.Column}}
		}
		s, ok, err := suggestion(res)
		if err != nil {
			return err
		}
		if ok {
			d.Suggestions = []rdSuggestion{s}
		}
		out.Diagnostics = append(out.Diagnostics, d)
	}
	return encode(w, out)
}

func suggestion(r patchers.Result) (s rdSuggestion, ok bool, err error) {
	if r.Outcome != patchers.Planned || len(r.Fix.Files) != 1 {
		return s, false, nil
	}
	fe := r.Fix.Files[0]
	if fe.Path != r.Pos.Path || fe.Base == nil {
		return s, false, nil
	}
	edits := append([]diff.Edit{}, fe.Edits...)
	diff.Sort(edits)
	first, last := edits[0].Start, edits[len(edits)-1].End
	for i := range edits {
		edits[i].Start -= first
		edits[i].End -= first
	}
	text, err := diff.Apply(fe.Base[first:last], edits)
	if err != nil {
		return s, false, err
	}
	var end rdPosition
	s.Range.Start.Line, s.Range.Start.Column = bytePosition(fe.Base, first)
	end.Line, end.Column = bytePosition(fe.Base, last)
	s.Range.End = &end
	s.Text = string(text)
	return s, true, nil
}
