package diff

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// contextLines is how many unchanged lines surround a change, as in git.
const contextLines = 3

// maxLines bounds the lines of both sides of one file together. go-diff
// represents each distinct line by one rune and panics when the runes run out;
// measured with v1.4.0, that is at 1,112,060 distinct lines.
const maxLines = 1_000_000

// ErrTooManyLines is returned by [Unified] for a file that is too long to be
// compared line by line.
var ErrTooManyLines = errors.New("too many lines to compare")

// A File is one file before and after a change. A side whose mode is 0 does not
// exist: OldMode 0 creates the file, NewMode 0 deletes it. Of a mode, only the
// owner's executable bit is shown, as git does.
type File struct {
	Path             string // slash-separated, relative to the root of the tree
	OldMode, NewMode fs.FileMode
	Old, New         []byte
}

// Unified returns the change as a unified diff with git's headers, 3 lines of
// context and names quoted as git quotes them, so that git apply makes New of
// Old. It returns "" if nothing changes, and [ErrTooManyLines], wrapped, for a
// file of more than a million lines. The text is a function of the File alone:
// matching lines has no time limit.
//
// The bytes of the file stand in the diff as they are. Whoever prints it on a
// terminal must make control characters harmless first.
func Unified(f File) (string, error) {
	sameBytes := bytes.Equal(f.Old, f.New)
	if sameBytes && gitMode(f.OldMode) == gitMode(f.NewMode) {
		return "", nil
	}
	var b strings.Builder
	oldName, newName := quote("a/"+f.Path), quote("b/"+f.Path)
	fmt.Fprintf(&b, "diff --git %s %s\n", oldName, newName)
	switch {
	case f.OldMode == 0:
		fmt.Fprintf(&b, "new file mode %s\n", gitMode(f.NewMode))
		oldName = "/dev/null"
	case f.NewMode == 0:
		fmt.Fprintf(&b, "deleted file mode %s\n", gitMode(f.OldMode))
		newName = "/dev/null"
	case gitMode(f.OldMode) != gitMode(f.NewMode):
		fmt.Fprintf(&b, "old mode %s\nnew mode %s\n", gitMode(f.OldMode), gitMode(f.NewMode))
	}
	if sameBytes {
		return b.String(), nil
	}
	lines, err := match(f.Old, f.New)
	if err != nil {
		return "", fmt.Errorf("comparing %q: %w", f.Path, err)
	}
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", endName(oldName), endName(newName))
	writeHunks(&b, lines)
	return b.String(), nil
}

// gitMode is the mode as git records it for a regular file.
func gitMode(m fs.FileMode) string {
	switch {
	case m == 0:
		return "000000"
	case m.Perm()&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// endName ends a name that holds a blank with a tab, without which GNU patch
// would take the rest of the line for a time stamp.
func endName(name string) string {
	if strings.Contains(name, " ") && !strings.HasPrefix(name, `"`) {
		return name + "\t"
	}
	return name
}

// quote returns name as git prints it: unchanged, or in double quotes with C
// escapes if it holds a control character, a quote, a backslash or a byte that
// is not ASCII (git's core.quotePath, which is on by default).
func quote(name string) string {
	var b strings.Builder
	plain := true
	for i := range len(name) {
		c := name[i]
		if esc := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); esc >= 0 {
			b.WriteByte('\\')
			b.WriteByte(`abtnvfr"\`[esc])
			plain = false
		} else if c < ' ' || c >= 0x7f {
			fmt.Fprintf(&b, `\%03o`, c)
			plain = false
		} else {
			b.WriteByte(c)
		}
	}
	if plain {
		return name
	}
	return `"` + b.String() + `"`
}

// A line is one line of a diff: op is ' ', '-' or '+', and text keeps its
// newline, so that a missing one at the end of a file can be told.
type line struct {
	op   byte
	text string
}

// match aligns the lines of two files.
func match(a, b []byte) ([]line, error) {
	if bytes.Count(a, []byte{'\n'})+bytes.Count(b, []byte{'\n'}) > maxLines {
		return nil, ErrTooManyLines
	}
	dmp := diffmatchpatch.New()
	dmp.DiffTimeout = 0 // the default of 1 s makes the result depend on the machine
	ra, rb, texts := dmp.DiffLinesToRunes(string(a), string(b))
	var out []line
	for _, d := range dmp.DiffCharsToLines(dmp.DiffMainRunes(ra, rb, false), texts) {
		op := byte(' ')
		switch d.Type {
		case diffmatchpatch.DiffDelete:
			op = '-'
		case diffmatchpatch.DiffInsert:
			op = '+'
		}
		for text := range strings.Lines(d.Text) {
			out = append(out, line{op, text})
		}
	}
	return deletionsFirst(out), nil
}

// deletionsFirst orders each run of changed lines as diffs are read: what goes,
// then what comes.
func deletionsFirst(lines []line) []line {
	out := make([]line, 0, len(lines))
	for i := 0; i < len(lines); {
		if lines[i].op == ' ' {
			out = append(out, lines[i])
			i++
			continue
		}
		end := i
		for end < len(lines) && lines[end].op != ' ' {
			end++
		}
		for _, op := range []byte{'-', '+'} {
			for _, l := range lines[i:end] {
				if l.op == op {
					out = append(out, l)
				}
			}
		}
		i = end
	}
	return out
}

// writeHunks groups the changed lines with their context and prints them.
func writeHunks(b *strings.Builder, lines []line) {
	oldLine, newLine := 1, 1 // of lines[at]
	at := 0
	advance := func(to int) {
		for ; at < to; at++ {
			if lines[at].op != '+' {
				oldLine++
			}
			if lines[at].op != '-' {
				newLine++
			}
		}
	}
	for {
		first := at
		for first < len(lines) && lines[first].op == ' ' {
			first++
		}
		if first == len(lines) {
			return
		}
		last := first // the last changed line of the hunk
		for i := first; i < len(lines) && i-last <= 2*contextLines+1; i++ {
			if lines[i].op != ' ' {
				last = i
			}
		}
		start, end := max(at, first-contextLines), min(len(lines), last+1+contextLines)
		advance(start)
		writeHunk(b, lines[start:end], oldLine, newLine)
		advance(end)
	}
}

func writeHunk(b *strings.Builder, lines []line, oldLine, newLine int) {
	var oldCount, newCount int
	for _, l := range lines {
		if l.op != '+' {
			oldCount++
		}
		if l.op != '-' {
			newCount++
		}
	}
	fmt.Fprintf(b, "@@ -%s +%s @@\n", hunkRange(oldLine, oldCount), hunkRange(newLine, newCount))
	for _, l := range lines {
		b.WriteByte(l.op)
		b.WriteString(l.text)
		if !strings.HasSuffix(l.text, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// hunkRange prints one side of a hunk header. A side without lines names the
// line before it, as the format wants.
func hunkRange(start, count int) string {
	switch count {
	case 0:
		return fmt.Sprintf("%d,0", start-1)
	case 1:
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d,%d", start, count)
}
