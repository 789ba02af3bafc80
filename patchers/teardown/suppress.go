package teardown

import (
	"regexp"
	"strings"

	"ncclfix/patchers/pysyntax"
)

var directive = regexp.MustCompile(`#\s*ncclfix:\s*(skip-file|ignore)\b(?:\s*\[([^\]]*)\])?`)

// suppresses reports whether a comment of the file asks for silence about a
// finding: "# ncclfix: ignore" or "# ncclfix: ignore[CODE, …]" on the finding's
// line or directly above or on the def that contains it, or "# ncclfix:
// skip-file" anywhere. A code may be a prefix, such as "teardown".
func (m *module) suppresses(f *function, code string, line int) bool {
	for _, c := range m.file.Comments {
		d := directive.FindSubmatch(m.src()[c.Start:c.End])
		if d == nil {
			continue
		}
		at := m.line(c.Start)
		switch {
		case string(d[1]) == "skip-file", at == line && matches(string(d[2]), code):
			return true
		case f.stmt != nil && matches(string(d[2]), code) && m.atDef(f.stmt, c, at):
			return true
		}
	}
	return false
}

// atDef reports whether a comment stands between the line above a def (with its
// decorators) and the line of its header.
func (m *module) atDef(s *pysyntax.Stmt, comment pysyntax.Span, line int) bool {
	first := m.line(s.Start)
	header := m.line(s.Header)
	return line >= first-1 && line <= header &&
		(line >= first || strings.TrimSpace(string(m.src()[pysyntax.LineStart(m.src(), comment.Start):comment.Start])) == "")
}

func matches(list, code string) bool {
	if list == "" {
		return true
	}
	for _, want := range strings.Split(list, ",") {
		want = strings.TrimSpace(want)
		if want == code || want != "" && strings.HasPrefix(code, want+"/") {
			return true
		}
	}
	return false
}
