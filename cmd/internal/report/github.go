package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"ncclfix/patchers"
)

// maxAnnotations is how many annotations of one kind GitHub shows of a step; it
// drops the rest.
const maxAnnotations = 10

// GitHub prints r as workflow commands, which GitHub Actions turns into
// annotations: those first that need a person most. What GitHub would drop is
// printed as lines of the log.
func GitHub(w io.Writer, r *Report) error {
	lines := newLines(r.Tree)
	results := r.shown()
	slices.SortStableFunc(results, func(a, b patchers.Result) int { return cmp.Compare(urgency(a), urgency(b)) })
	b := bufio.NewWriter(w)
	var rest []patchers.Result
	used := map[string]int{}
	for _, res := range results {
		kind := "warning"
		if res.Outcome == patchers.Broken {
			kind = "error"
		}
		if used[kind]++; used[kind] > maxAnnotations {
			rest = append(rest, res)
			continue
		}
		place := "file=" + property(res.Pos.Path)
		if res.Pos.Line > 0 {
			place += fmt.Sprintf(",line=%d,col=%d", res.Pos.Line, lines.column(res.Pos))
		}
		fmt.Fprintf(b, "::%s %s,title=%s::%s\n", kind, place, property(res.Code), data(message(res)))
	}
	for _, res := range rest {
		b.WriteString(LogLine(fmt.Sprintf("%s: %s [%s]", res.Pos, message(res), res.Code)) + "\n")
	}
	return b.Flush()
}

// urgency orders results: our own bugs, what a person has to do, what is ready.
func urgency(r patchers.Result) int {
	return slices.Index([]patchers.Outcome{patchers.Broken, patchers.Manual, patchers.Conflicted, patchers.Planned}, r.Outcome)
}

// data escapes the message of a workflow command. Line ends are all that could
// end it.
func data(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// property escapes a property of a workflow command.
func property(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// LogLine returns s as one line of a log that the runner of GitHub Actions does
// not take for a command: those begin with ::, or hold ##[ anywhere.
func LogLine(s string) string {
	s = strings.ReplaceAll(Visible(s), "##[", "## [")
	if strings.HasPrefix(strings.TrimSpace(s), "::") {
		s = "./" + strings.TrimSpace(s)
	}
	return s
}
