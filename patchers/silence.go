package patchers

import (
	"bytes"
	"regexp"
	"strings"
)

// SilencedAt reports whether a comment asks for silence about a finding in a line
// of src, counted from 1: "# ncclfix: ignore" or "# ncclfix: ignore[CODE, ...]" in
// that line, or alone in the line above. A code may be a prefix, such as "pytest".
// It looks at text only: a string that says the same counts as a comment.
func SilencedAt(src []byte, line int, code string) bool {
	lines := bytes.Split(src, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	if asksSilence(lines[line-1], code) {
		return true
	}
	return line > 1 && bytes.HasPrefix(bytes.TrimSpace(lines[line-2]), []byte("#")) && asksSilence(lines[line-2], code)
}

func asksSilence(line []byte, code string) bool {
	d := regexp.MustCompile(`#\s*ncclfix:\s*ignore\b(?:\s*\[([^\]]*)\])?`).FindSubmatch(line)
	if d == nil {
		return false
	}
	if d[1] == nil {
		return true
	}
	for want := range strings.SplitSeq(string(d[1]), ",") {
		if want = strings.TrimSpace(want); want == code || want != "" && strings.HasPrefix(code, want+"/") {
			return true
		}
	}
	return false
}
