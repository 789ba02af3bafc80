package report

import (
	"bytes"
	"io"
	"net/url"
	"strings"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
)

// maxResults is how many results GitHub takes in one run; beyond it, it refuses
// the whole upload.
const maxResults = 25_000

// The part of SARIF 2.1.0 that is written here, named as in the standard.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		ColumnKind  string            `json:"columnKind"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		FullDescription  sarifText `json:"fullDescription"`
		Help             sarifText `json:"help"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool                `json:"executionSuccessful"`
		Notifications       []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifResult struct {
		RuleID              string            `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               string            `json:"level"`
		Message             sarifText         `json:"message"`
		Locations           []sarifLocation   `json:"locations"`
		CodeFlows           []sarifCodeFlow   `json:"codeFlows,omitempty"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
		Fixes               []sarifFix        `json:"fixes,omitempty"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPhysicalLocation `json:"physicalLocation"`
		Message          *sarifText            `json:"message,omitempty"`
	}
	sarifPhysicalLocation struct {
		ArtifactLocation sarifArtifactLocation `json:"artifactLocation"`
		Region           sarifRegion           `json:"region"`
	}
	sarifArtifactLocation struct {
		URI       string `json:"uri"`
		URIBaseID string `json:"uriBaseId"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
		EndLine     int `json:"endLine,omitempty"`
		EndColumn   int `json:"endColumn,omitempty"`
	}
	sarifCodeFlow struct {
		ThreadFlows []sarifThreadFlow `json:"threadFlows"`
	}
	sarifThreadFlow struct {
		Locations []sarifThreadFlowLocation `json:"locations"`
	}
	sarifThreadFlowLocation struct {
		Location sarifLocation `json:"location"`
	}
	sarifFix struct {
		Description     sarifText             `json:"description"`
		ArtifactChanges []sarifArtifactChange `json:"artifactChanges"`
	}
	sarifArtifactChange struct {
		ArtifactLocation sarifArtifactLocation `json:"artifactLocation"`
		Replacements     []sarifReplacement    `json:"replacements"`
	}
	sarifReplacement struct {
		DeletedRegion   sarifRegion `json:"deletedRegion"`
		InsertedContent sarifText   `json:"insertedContent"`
	}
)

// SARIF prints r as a log of SARIF 2.1.0 with one run, as GitHub's code scanning
// takes it. A broken fix is an error of the run as well as a result. Results
// beyond the number that GitHub takes are left out, which the run says.
func SARIF(w io.Writer, r *Report) error {
	run := sarifRun{
		Tool:        sarifTool{sarifDriver{Name: "ncclfix", Version: r.Version, Rules: []sarifRule{}}},
		Invocations: []sarifInvocation{{ExecutionSuccessful: true}},
		ColumnKind:  "utf16CodeUnits",
		Results:     []sarifResult{},
	}
	rules := map[string]int{}
	for i, c := range r.Codes {
		rules[c.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules,
			sarifRule{c.ID, sarifText{c.Summary}, sarifText{firstParagraph(c.Doc)}, sarifText{c.Doc}})
	}
	s := &sarifWriter{newLines(r.Tree)}
	invocation := &run.Invocations[0]
	results := r.shown()
	ids := Fingerprints(r.Tree, results)
	for i, res := range results {
		level := "warning"
		if res.Outcome == patchers.Broken {
			level = "error"
			invocation.ExecutionSuccessful = false
			invocation.Notifications = append(invocation.Notifications, sarifNotification{level, sarifText{Visible(res.Reason)}})
		}
		if i >= maxResults {
			continue
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: res.Code, RuleIndex: rules[res.Code], Level: level,
			Message:             sarifText{message(res)},
			Locations:           []sarifLocation{s.location(res.Pos)},
			CodeFlows:           s.codeFlows(res.Why),
			PartialFingerprints: map[string]string{"primaryLocationLineHash": ids[i]},
			Fixes:               s.fixes(res),
		})
	}
	if n := len(results) - maxResults; n > 0 {
		invocation.Notifications = append(invocation.Notifications,
			sarifNotification{"warning", sarifText{Plural(n, "finding", "findings") + " beyond the first 25000 left out"}})
	}
	return encode(w, sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// message returns what a machine's reader is told about a result: its message,
// and what stands against its fix.
func message(r patchers.Result) string {
	if r.Reason == "" {
		return Visible(r.Message)
	}
	return Visible(r.Message + " (" + r.Outcome.String() + ": " + r.Reason + ")")
}

func firstParagraph(doc string) string {
	first, _, _ := strings.Cut(doc, "\n\n")
	return strings.Join(strings.Fields(first), " ")
}

type sarifWriter struct{ lines *lines }

func (s *sarifWriter) location(p patchers.Position) sarifLocation {
	region := sarifRegion{StartLine: 1} // a file as a whole: GitHub wants a line
	if p.Line > 0 {
		region = sarifRegion{StartLine: p.Line, StartColumn: s.lines.column(p)}
	}
	return sarifLocation{PhysicalLocation: sarifPhysicalLocation{artifact(p.Path), region}}
}

// artifact names a file below %SRCROOT%, which GitHub takes for the top of the
// repository.
func artifact(path string) sarifArtifactLocation {
	return sarifArtifactLocation{(&url.URL{Path: path}).String(), "%SRCROOT%"}
}

func (s *sarifWriter) codeFlows(why []patchers.Step) []sarifCodeFlow {
	if len(why) == 0 {
		return nil
	}
	var flow sarifThreadFlow
	for _, step := range why {
		loc := s.location(step.Pos)
		loc.Message = &sarifText{Visible(step.Message)}
		flow.Locations = append(flow.Locations, sarifThreadFlowLocation{loc})
	}
	return []sarifCodeFlow{{[]sarifThreadFlow{flow}}}
}

// fixes returns the fix of a planned result: others are not to be made.
func (s *sarifWriter) fixes(r patchers.Result) []sarifFix {
	if r.Outcome != patchers.Planned {
		return nil
	}
	out := sarifFix{Description: sarifText{Visible(r.Fix.Message)}}
	for _, fe := range r.Fix.Files {
		change := sarifArtifactChange{ArtifactLocation: artifact(fe.Path)}
		edits := append([]diff.Edit{}, fe.Edits...)
		diff.Sort(edits)
		for _, e := range edits {
			var region sarifRegion
			region.StartLine, region.StartColumn = utf16Position(fe.Base, e.Start)
			region.EndLine, region.EndColumn = utf16Position(fe.Base, e.End)
			change.Replacements = append(change.Replacements, sarifReplacement{region, sarifText{e.New}})
		}
		out.ArtifactChanges = append(out.ArtifactChanges, change)
	}
	return []sarifFix{out}
}

// bytePosition returns the line and the column, in bytes, of an offset.
func bytePosition(src []byte, offset int) (line, column int) {
	line = bytes.Count(src[:offset], []byte{'\n'}) + 1
	return line, offset - bytes.LastIndexByte(src[:offset], '\n')
}

func utf16Position(src []byte, offset int) (line, column int) {
	line, column = bytePosition(src, offset)
	return line, utf16Column(string(src[offset-column+1:offset]), line, column)
}
