package pysyntax

import "bytes"

// Position returns line and column of an offset in src, both from 1, the column
// in bytes. A byte order mark counts as no column.
func Position(src []byte, offset int) (line, column int) {
	offset = min(offset, len(src))
	return bytes.Count(src[:offset], []byte{'\n'}) + 1, offset - lineStart(src, offset) + 1
}

// LineStart returns the offset of the first byte of the line that holds offset.
// A byte order mark belongs to no line.
func LineStart(src []byte, offset int) int { return lineStart(src, offset) }

// LineEnd returns the offset behind the last byte of the line that holds offset:
// that of its line ending, or the end of the file.
func LineEnd(src []byte, offset int) int {
	end := len(src)
	if n := bytes.IndexByte(src[offset:], '\n'); n >= 0 {
		end = offset + n
	}
	if end > offset && src[end-1] == '\r' {
		end--
	}
	return end
}
