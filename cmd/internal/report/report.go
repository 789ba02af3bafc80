// Package report shows findings and change sets, to people and to machines.
//
// It only prints: what is selected, in scope or written is decided elsewhere.
// What comes from a tree (names, messages, lines) is other people's text; each
// format takes away its power over terminals, logs and comments in its own way.
// The one exception is a diff for a pipe, which git apply needs byte for byte.
package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"

	"ncclfix/patchers"
)

// A Report is what one run has to show.
type Report struct {
	Changes *patchers.ChangeSet
	Codes   []patchers.Code // all that the run could report
	Tree    fs.FS           // read for the text of lines
	Version string          // of ncclfix
}

// shown returns the results that are not suppressed, in their order.
func (r *Report) shown() []patchers.Result {
	var out []patchers.Result
	for _, res := range r.Changes.Results {
		if !res.Suppressed {
			out = append(out, res)
		}
	}
	return out
}

// Left returns the results that a person has to look at: all that are neither
// planned nor suppressed.
func Left(set *patchers.ChangeSet) []patchers.Result {
	var out []patchers.Result
	for _, r := range set.Results {
		if !r.Suppressed && r.Outcome != patchers.Planned {
			out = append(out, r)
		}
	}
	return out
}

// Counts are the figures of a change set.
type Counts struct {
	Fixes      int `json:"fixes"`
	Files      int `json:"files"` // that the fixes change
	Conflicted int `json:"conflicted"`
	Broken     int `json:"broken"`
	Manual     int `json:"manual"`
	Suppressed int `json:"suppressed"`
}

// Count counts the results of set. A suppressed result counts as nothing else.
func Count(set *patchers.ChangeSet) Counts {
	c := Counts{Files: len(set.Files)}
	for _, r := range set.Results {
		switch {
		case r.Suppressed:
			c.Suppressed++
		case r.Outcome == patchers.Planned:
			c.Fixes++
		case r.Outcome == patchers.Conflicted:
			c.Conflicted++
		case r.Outcome == patchers.Broken:
			c.Broken++
		default:
			c.Manual++
		}
	}
	return c
}

// String returns what was found, such as "3 fixes in 2 files; 1 for a person; 1
// suppressed". It is "" if that is nothing but what is suppressed.
func (c Counts) String() string {
	var parts []string
	if c.Fixes > 0 {
		parts = append(parts, c.Planned())
	}
	if left := c.Left(); left != "" {
		parts = append(parts, left)
	}
	if len(parts) > 0 && c.Suppressed > 0 {
		parts = append(parts, fmt.Sprintf("%d suppressed", c.Suppressed))
	}
	return strings.Join(parts, "; ")
}

// Left returns what the fixes do not settle, such as "1 conflicted; 1 for a
// person", or "".
func (c Counts) Left() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.Conflicted, "conflicted"}, {c.Broken, "broken"}, {c.Manual, "for a person"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, "; ")
}

// Planned returns what the planned fixes come to: "3 fixes in 2 files".
func (c Counts) Planned() string {
	return Plural(c.Fixes, "fix", "fixes") + " in " + Plural(c.Files, "file", "files")
}

// Plural returns the number with the word that goes with it.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Fingerprints returns one id for each result. It is made of the code, the path
// and the text of the line, so it stays the same while lines above come and go.
// Results that are alike in all of these are told apart by their order. A line
// that cannot be read counts as empty.
func Fingerprints(tree fs.FS, results []patchers.Result) []string {
	lines := newLines(tree)
	seen := map[string]int{}
	out := make([]string, len(results))
	for i, r := range results {
		text := strings.TrimSpace(lines.text(r.Pos))
		sum := sha256.Sum256([]byte(r.Code + "\x00" + r.Pos.Path + "\x00" + text))
		id := hex.EncodeToString(sum[:12])
		seen[id]++
		out[i] = fmt.Sprintf("%s:%d", id, seen[id])
	}
	return out
}

// lines gives the lines of the files of a tree.
type lines struct {
	tree  fs.FS
	files map[string][]string
}

func newLines(tree fs.FS) *lines { return &lines{tree, map[string][]string{}} }

// text returns the line of pos without its end, or "" if there is none.
func (l *lines) text(pos patchers.Position) string {
	all, known := l.files[pos.Path]
	if !known {
		if data, err := fs.ReadFile(l.tree, pos.Path); err == nil {
			all = strings.Split(string(data), "\n")
		}
		l.files[pos.Path] = all
	}
	if pos.Line < 1 || pos.Line > len(all) {
		return ""
	}
	return strings.TrimSuffix(all[pos.Line-1], "\r")
}

// column returns the column of pos in UTF-16 code units, from 1, which is how
// SARIF and GitHub count. A byte order mark counts as nothing.
func (l *lines) column(pos patchers.Position) int {
	return utf16Column(l.text(pos), pos.Line, pos.Column)
}

func utf16Column(line string, number, column int) int {
	text := line[:max(0, min(column-1, len(line)))]
	if number == 1 {
		text = strings.TrimPrefix(text, "\ufeff")
	}
	n := 1
	for _, c := range text {
		n++
		if c > 0xffff {
			n++
		}
	}
	return n
}
