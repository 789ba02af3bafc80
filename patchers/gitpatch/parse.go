package gitpatch

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// Parse reads a mailbox or a plain git patch. Text between the file diffs, such
// as mail headers and signatures, is skipped. The error is a [*SyntaxError]; a
// text without any file diff is one, too.
func Parse(data []byte) (*Series, error) {
	p := &parser{lines: strings.SplitAfter(string(data), "\n")}
	s, reason := p.series()
	if reason != "" {
		return nil, &SyntaxError{Line: min(p.at+1, len(p.lines)), Reason: reason}
	}
	return s, nil
}

// A parser reads a patch line by line. Its methods return the reason why the
// line at which it stands is wrong, or "".
type parser struct {
	lines []string // with their newlines
	at    int      // index of the next line
}

// peek returns the next line, or "" at the end.
func (p *parser) peek() string {
	if p.at == len(p.lines) {
		return ""
	}
	return p.lines[p.at]
}

// The date in the first line of a mail is the same in all mails that git
// format-patch writes, which tells them from text that begins with "From".
var mailStart = regexp.MustCompile(`^From ([0-9a-f]{40,64}) Mon Sep 17 00:00:00 2001\r?\n`)

var (
	hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)
	blobIDs    = regexp.MustCompile(`^([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]+))?$`)
	mailTag    = regexp.MustCompile(`^\[[^\]]*\] *`)
)

func (p *parser) series() (*Series, string) {
	s := &Series{}
	c := Commit{}
	end := func() {
		if len(c.Files) > 0 {
			s.Commits = append(s.Commits, c)
		}
	}
	inHeader := false
	for ; p.at < len(p.lines); p.at++ {
		line := p.lines[p.at]
		switch {
		case mailStart.MatchString(line):
			end()
			c = Commit{ID: mailStart.FindStringSubmatch(line)[1]}
			inHeader = true
		case inHeader && strings.TrimRight(line, "\r\n") == "":
			inHeader = false
		case inHeader && strings.HasPrefix(line, "Subject: "):
			c.Subject = p.subject()
		case strings.HasPrefix(line, "diff --git "):
			d, reason := p.fileDiff()
			if reason != "" {
				return nil, reason
			}
			c.Files = append(c.Files, *d)
			p.at-- // the next line is not read yet
		case hunkHeader.MatchString(line):
			return nil, "a hunk without a file header"
		case p.traditional():
			return nil, `a diff without a "diff --git" line`
		}
	}
	end()
	if len(s.Commits) == 0 {
		return nil, "no diff in it"
	}
	return s, ""
}

// subject reads the Subject field of a mail, which may be folded, and leaves the
// parser at its last line.
func (p *parser) subject() string {
	text := strings.TrimSpace(strings.TrimPrefix(p.lines[p.at], "Subject: "))
	for p.at+1 < len(p.lines) && strings.HasPrefix(p.lines[p.at+1], " ") {
		p.at++
		text += " " + strings.TrimSpace(p.lines[p.at])
	}
	return mailTag.ReplaceAllString(text, "")
}

// traditional reports whether the parser stands at a file header as diff -u
// writes it.
func (p *parser) traditional() bool {
	return strings.HasPrefix(p.lines[p.at], "--- ") && p.at+2 < len(p.lines) &&
		strings.HasPrefix(p.lines[p.at+1], "+++ ") && hunkHeader.MatchString(p.lines[p.at+2])
}

// fileDiff reads a file diff, from "diff --git" to the line behind it.
func (p *parser) fileDiff() (*FileDiff, string) {
	d := &FileDiff{Line: p.at + 1}
	h := header{d: d}
	h.both = headerName(trimEOL(strings.TrimPrefix(p.peek(), "diff --git ")))
	for p.at++; p.at < len(p.lines); p.at++ {
		known, reason := h.read(trimEOL(p.peek()))
		if reason != "" {
			return nil, reason
		}
		if !known {
			break
		}
	}
	line := trimEOL(p.peek())
	if line == "GIT binary patch" || strings.HasPrefix(line, "Binary files ") && strings.HasSuffix(line, " differ") {
		return nil, "binary files are not patched"
	}
	if reason := h.finish(); reason != "" {
		p.at = d.Line - 1
		return nil, reason
	}
	for strings.HasPrefix(p.peek(), "@@ -") {
		hunk, reason := p.hunk()
		if reason != "" {
			return nil, reason
		}
		switch {
		case d.Old == "" && hunk.OldLines > 0:
			return nil, "a new file depends on old contents"
		case d.New == "" && hunk.NewLines > 0:
			return nil, "a deleted file still has contents"
		}
		d.Hunks = append(d.Hunks, *hunk)
	}
	if len(d.Hunks) == 0 && d.Old == d.New && d.NewMode == 0 {
		p.at = d.Line - 1
		return nil, "a file header without a change"
	}
	return d, ""
}

// A header collects the lines of a file diff's header.
type header struct {
	d        *FileDiff
	both     string // the path in "diff --git", "" if there are two or it is unclear
	old, new *string
	created  bool
	deleted  bool
	renamed  bool
}

// read takes one line of the header. known says whether it is one.
func (h *header) read(line string) (known bool, reason string) {
	key, rest := line, ""
	for _, k := range []string{
		"--- ", "+++ ", "old mode ", "new mode ", "new file mode ", "deleted file mode ",
		"rename from ", "rename to ", "copy from ", "copy to ",
		"index ", "similarity index ", "dissimilarity index ",
	} {
		if r, ok := strings.CutPrefix(line, k); ok {
			key, rest = strings.TrimSpace(k), r
			break
		}
	}
	switch key {
	case "---":
		return true, set(&h.old, sidePath(rest))
	case "+++":
		return true, set(&h.new, sidePath(rest))
	case "rename from", "copy from":
		h.renamed, h.d.Copy = true, key == "copy from"
		return true, set(&h.old, unquote(rest))
	case "rename to", "copy to":
		h.renamed, h.d.Copy = true, key == "copy to"
		return true, set(&h.new, unquote(rest))
	case "old mode":
		return true, parseMode(rest, &h.d.OldMode)
	case "new mode":
		return true, parseMode(rest, &h.d.NewMode)
	case "new file mode":
		h.created = true
		return true, parseMode(rest, &h.d.NewMode)
	case "deleted file mode":
		h.deleted = true
		return true, parseMode(rest, &h.d.OldMode)
	case "index":
		m := blobIDs.FindStringSubmatch(rest)
		if m == nil {
			return true, ""
		}
		h.d.OldBlob, h.d.NewBlob = m[1], m[2]
		if m[3] == "" {
			return true, ""
		}
		var both fs.FileMode // said of a file that keeps its mode
		return true, parseMode(m[3], &both)
	case "similarity index", "dissimilarity index":
		return true, ""
	}
	return false, ""
}

// set takes a path that the header may give twice, the same each time.
func set(to **string, path string) string {
	if *to != nil && **to != path {
		return fmt.Sprintf("the header names %q and %q", **to, path)
	}
	*to = &path
	return ""
}

const devNull = "/dev/null"

// finish sets the paths when all of the header is read.
func (h *header) finish() string {
	if h.created && h.deleted || (h.created || h.deleted) && h.renamed {
		return "the header contradicts itself"
	}
	path := func(given *string, absent bool) (string, string) {
		switch {
		case given == nil && absent, given != nil && *given == devNull && absent:
			return "", ""
		case given != nil && absent:
			return "", fmt.Sprintf("the header has %q where it says there is no file", *given)
		case given == nil && h.both == "":
			return "", "the header does not say which file it is about"
		case given == nil:
			return h.both, checkPath(h.both)
		}
		return *given, checkPath(*given)
	}
	var reason string
	if h.d.Old, reason = path(h.old, h.created); reason != "" {
		return reason
	}
	h.d.New, reason = path(h.new, h.deleted)
	return reason
}

// checkPath returns why path cannot be one of the tree.
func checkPath(path string) string {
	if path == "" {
		return "the header does not say which file it is about"
	}
	if !fs.ValidPath(path) || path == "." {
		return fmt.Sprintf("%q leads out of the tree", path)
	}
	for name := range strings.SplitSeq(path, "/") {
		if strings.EqualFold(name, ".git") {
			return fmt.Sprintf("%q is part of a repository itself", path)
		}
	}
	return ""
}

// headerName returns the path of which "diff --git" gives both sides, or "" if
// they differ or if it is unclear where the second begins.
func headerName(sides string) string {
	for i := range len(sides) {
		if sides[i] != ' ' {
			continue
		}
		old, new := strip(unquote(sides[:i])), strip(unquote(sides[i+1:]))
		if old != "" && old == new {
			return old
		}
	}
	return ""
}

// sidePath returns the path in a line that begins with "---" or "+++". Without a
// folder to strip it returns "".
func sidePath(s string) string {
	if !strings.HasPrefix(s, `"`) {
		s, _, _ = strings.Cut(s, "\t")
	}
	if s = unquote(s); s == devNull {
		return s
	}
	return strip(s)
}

// strip takes the first folder, "a" or "b", off a path.
func strip(path string) string {
	_, rest, _ := strings.Cut(path, "/")
	return rest
}

// unquote undoes git's quoting, which is that of C. A quoted path that is not
// well formed becomes "".
func unquote(s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	path, err := strconv.Unquote(s)
	if err != nil {
		return ""
	}
	return path
}

// parseMode reads a mode as git writes it. Only regular files have a place in a
// change set.
func parseMode(s string, to *fs.FileMode) string {
	mode, err := strconv.ParseUint(strings.TrimSpace(s), 8, 32)
	switch {
	case err != nil:
		return fmt.Sprintf("invalid mode %q", s)
	case mode&0o170000 != 0o100000:
		return fmt.Sprintf("mode %s is not that of a regular file", s)
	case mode&0o100 != 0:
		*to = 0o755
	default:
		*to = 0o644
	}
	return ""
}

// hunk reads a hunk, from "@@" to the line behind it.
func (p *parser) hunk() (*Hunk, string) {
	m := hunkHeader.FindStringSubmatch(p.peek())
	if m == nil {
		return nil, "malformed hunk header"
	}
	h := &Hunk{Line: p.at + 1}
	for i, to := range []*int{&h.OldStart, &h.OldLines, &h.NewStart, &h.NewLines} {
		if m[i+1] == "" {
			*to = 1
			continue
		}
		n, err := strconv.ParseInt(m[i+1], 10, 31)
		if err != nil {
			return nil, "malformed hunk header"
		}
		*to = int(n)
	}
	p.at++
	changes := 0
	for old, new := h.OldLines, h.NewLines; old > 0 || new > 0; p.at++ {
		line := p.peek()
		if !strings.HasSuffix(line, "\n") {
			return nil, "the hunk is cut off"
		}
		l := Line{Op: line[0], Text: line[1:]}
		switch line[0] {
		case '\n': // an empty line of context whose blank got lost
			l = Line{Op: ' ', Text: "\n"}
			old, new = old-1, new-1
		case ' ':
			old, new = old-1, new-1
		case '-':
			old, changes = old-1, changes+1
		case '+':
			new, changes = new-1, changes+1
		case '\\':
			if reason := h.noNewline(line); reason != "" {
				return nil, reason
			}
			continue
		default:
			return nil, "the hunk is shorter than its header says"
		}
		if old < 0 || new < 0 {
			return nil, "the hunk is not as long as its header says"
		}
		h.Lines = append(h.Lines, l)
	}
	if changes == 0 {
		return nil, "the hunk changes nothing"
	}
	if line := p.peek(); strings.HasPrefix(line, `\ `) {
		if reason := h.noNewline(line); reason != "" {
			return nil, reason
		}
		p.at++
	}
	return h, ""
}

// noNewline takes the line "\ No newline at end of file", in any language, which
// is about the line before it.
func (h *Hunk) noNewline(line string) string {
	if len(line) < 12 || !strings.HasPrefix(line, `\ `) || len(h.Lines) == 0 {
		return "malformed hunk"
	}
	last := &h.Lines[len(h.Lines)-1]
	if last.Text == "\n" && last.Op == ' ' || !strings.HasSuffix(last.Text, "\n") {
		return "malformed hunk"
	}
	last.Text = strings.TrimSuffix(last.Text, "\n")
	return ""
}

func trimEOL(line string) string {
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
}
