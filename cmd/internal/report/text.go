package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"ncclfix/patchers"
)

// Visible returns s with every character made visible that could steer a
// terminal or hide in a log: control characters as ^[ and the like, other
// characters without a shape of their own (such as those that change the
// direction of text) as <U+202E>, bytes that are not UTF-8 as <FF>. Tabs stay.
func Visible(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "<%02X>", s[i])
		case !hidden(r), r == utf8.RuneError:
			b.WriteRune(r)
		case r < 0x80:
			b.WriteByte('^')
			b.WriteByte(byte(r) ^ 0x40)
		default:
			fmt.Fprintf(&b, "<U+%04X>", r)
		}
		i += n
	}
	return b.String()
}

// hidden reports whether Visible replaces r; of utf8.RuneError it replaces what
// stands for a byte that is not UTF-8.
func hidden(r rune) bool {
	return r != '\t' && (r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp))
}

// Text is how findings and diffs are printed for people.
type Text struct {
	Color   bool
	Verbose bool // with the way that leads to each finding, and what becomes of it

	// Path returns what is printed for a path of the tree; nil prints it as it is.
	Path func(string) string
}

// The sequences of ECMA-48 that are used here; every terminal knows them.
const (
	bold  = "1"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (t Text) paint(code, s string) string {
	if !t.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t Text) position(p patchers.Position) string {
	if t.Path != nil {
		p.Path = t.Path(p.Path)
	}
	return LogLine(p.String())
}

// Findings prints each result that is not suppressed on a line of its own:
// path:line:column: message [code].
func (t Text) Findings(w io.Writer, results []patchers.Result) error {
	b := bufio.NewWriter(w)
	for _, r := range results {
		if r.Suppressed {
			continue
		}
		fmt.Fprintf(b, "%s: %s %s\n", t.paint(bold, t.position(r.Pos)), LogLine(r.Message), t.paint(cyan, "["+r.Code+"]"))
		if t.Verbose {
			for _, s := range r.Why {
				fmt.Fprintf(b, "    %s: %s\n", t.position(s.Pos), LogLine(s.Message))
			}
		}
		switch {
		case r.Reason != "":
			fmt.Fprintf(b, "    %s: %s\n", r.Outcome, LogLine(r.Reason))
		case t.Verbose && r.Fix != nil:
			fmt.Fprintf(b, "    fix: %s\n", LogLine(r.Fix.Message))
		}
	}
	return b.Flush()
}

// Diff prints a unified diff for a person to read: coloured if t says so, and
// with all that is hidden in it made visible. The result is nothing for git.
func (t Text) Diff(w io.Writer, diff string) error {
	b := bufio.NewWriter(w)
	var hunk hunkLines
	for l := range strings.Lines(diff) {
		color := hunk.color(l)
		l = Visible(strings.TrimSuffix(l, "\n"))
		if color != "" {
			l = t.paint(color, l)
		}
		b.WriteString(l + "\n")
	}
	return b.Flush()
}

// hunkLines follows a unified diff and knows how many lines of the hunk are to
// come: only that tells the header "--- a/x" from the line "-- a/x" taken away.
type hunkLines struct{ old, new int }

func (h *hunkLines) color(l string) string {
	switch {
	case h.old <= 0 && h.new <= 0:
		switch {
		case strings.HasPrefix(l, "@@ "):
			h.old, h.new = hunkSizes(l)
			return cyan
		case strings.HasPrefix(l, `\`):
			return ""
		}
		return bold
	case l[0] == '+':
		h.new--
		return green
	case l[0] == '-':
		h.old--
		return red
	case l[0] == ' ':
		h.old--
		h.new--
	}
	return ""
}

// hunkSizes returns the numbers of lines in a header such as "@@ -1,7 +1,9 @@".
func hunkSizes(header string) (before, after int) {
	sizes := [2]int{}
	for i, f := range strings.Fields(header)[1:3] {
		if _, size, ok := strings.Cut(f, ","); ok {
			fmt.Sscan(size, &sizes[i])
		} else {
			sizes[i] = 1
		}
	}
	return sizes[0], sizes[1]
}
