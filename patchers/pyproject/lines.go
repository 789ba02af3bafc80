package pyproject

import (
	"bytes"
	"strings"

	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

// bom returns the byte order mark that src begins with, if any.
func bom(src []byte) []byte {
	mark := []byte("\ufeff")
	if bytes.HasPrefix(src, mark) {
		return mark
	}
	return nil
}

// eol returns the line ending of the line that holds offset. A last line without
// one gets that of the first.
func eol(src []byte, offset int) string {
	end := pysyntax.LineEnd(src, offset)
	if end == len(src) {
		end = pysyntax.LineEnd(src, 0)
	}
	if end < len(src) && src[end] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// insertLine adds a line below the one that holds offset. A missing last line
// ending stays missing.
func insertLine(src []byte, offset int, line string) diff.Edit {
	return diff.Insert(pysyntax.LineEnd(src, offset), eol(src, offset)+line)
}

// appendSection adds a section of one line at the end of a file. The header is an
// edit of its own, so that two fixes which need the section get one.
func appendSection(src []byte, header, line string) []diff.Edit {
	at, start := len(src), len(bom(src))
	if at == start {
		return []diff.Edit{diff.Insert(at, header+"\n"), diff.Insert(at, line+"\n")}
	}
	if src[at-1] == '\n' {
		if at--; at > start && src[at-1] == '\r' {
			at--
		}
	}
	end := eol(src, at)
	lead := end + end
	if lineStart := pysyntax.LineStart(src, at); strings.TrimSpace(string(src[lineStart:at])) == "" {
		lead = lead[:len(end)]
		if at == start {
			lead = ""
		}
	}
	return []diff.Edit{diff.Insert(at, lead+header), diff.Insert(at, end+line)}
}
