// Package gitpatch reads patches as git makes them and applies them in memory,
// with git apply's judgement of where a hunk fits.
//
// A patch file is a [Series] of commits: the mails of a mailbox that git
// format-patch wrote, or one commit without a name for the output of git diff.
// Files may recur, so order counts, and a series is no map by path.
// [Series.Apply] makes the commits one after the other, as git am does;
// [Series.Judge] also says whether the tree has them already, all or some.
// Both only read the tree: what they would do to it is a change set.
//
// # Where a hunk fits
//
// As in git apply without options: lines are compared byte by byte, no context
// is dropped, and if the hunk is not where its header says, the nearest place
// counts, further down first. A hunk for line 1 fits only at the beginning of
// the file, one without trailing context only at its end, and none where an
// earlier hunk of the same file diff has been. GNU patch judges otherwise: it
// drops context, and its dry run forgets each file diff before the next.
//
// Within one commit, renames and copies read their source as the commit found
// it. Given a whole mailbox, git apply has them read it as the mailbox found
// it, and then fails on or loses what an earlier commit did to the source; that
// is the one difference.
//
// # What is refused
//
// Binary hunks, symlinks and submodules, paths that leave the tree or lead into
// .git, and diffs without a "diff --git" line.
//
// # Why not a library
//
// bluekeyes/go-gitdiff reads these files, but keeps only the first mail's
// header, so that it cannot say which commits are in a tree, and it applies a
// hunk at its recorded line or not at all. What would be left of it is less
// than what would have to be written around it.
package gitpatch

import (
	"fmt"
	"io/fs"
	"slices"
)

// A Series is the content of a patch file.
type Series struct {
	Commits []Commit // at least one; in the order in which they are made
}

// A Commit is one mail of a mailbox, or a whole plain patch.
type Commit struct {
	ID      string // "" in a plain patch
	Subject string // without "[PATCH 1/5]"; "" in a plain patch
	Files   []FileDiff
}

// A FileDiff is what a commit does to one file.
type FileDiff struct {
	Old, New string      // paths in the tree; Old is "" for a new file, New for a deleted one
	Copy     bool        // New is made from Old, which stays
	OldMode  fs.FileMode // permission bits, 0 if the patch does not say
	NewMode  fs.FileMode // permission bits, 0 if the file keeps its own
	OldBlob  string      // git's id of the old bytes, mostly abbreviated; "" if not recorded
	NewBlob  string
	Hunks    []Hunk
	Line     int // line of the patch file with "diff --git", from 1
}

// path returns the path that messages name.
func (d *FileDiff) path() string {
	if d.Old != "" {
		return d.Old
	}
	return d.New
}

// A Hunk replaces some lines of a file.
type Hunk struct {
	OldStart, OldLines int // as the header has them
	NewStart, NewLines int
	Lines              []Line
	Line               int // line of the patch file with "@@", from 1
}

// A Line is one line of a hunk.
type Line struct {
	Op   byte   // ' ', '-' or '+'
	Text string // with its newline, unless the file ends without one here
}

// without returns the text of the lines whose Op is not op.
func (h *Hunk) without(op byte) []string {
	var text []string
	for _, l := range h.Lines {
		if l.Op != op {
			text = append(text, l.Text)
		}
	}
	return text
}

// Reverse returns the series that takes s back. Copies are not taken back: their
// source is still there, so that the reversed series does not fit, as in git.
func (s *Series) Reverse() *Series {
	r := &Series{}
	for _, c := range slices.Backward(s.Commits) {
		r.Commits = append(r.Commits, c.reverse())
	}
	return r
}

func (c Commit) reverse() Commit {
	files := make([]FileDiff, 0, len(c.Files))
	for _, d := range slices.Backward(c.Files) {
		d.Old, d.New = d.New, d.Old
		d.OldMode, d.NewMode = d.NewMode, d.OldMode
		d.OldBlob, d.NewBlob = d.NewBlob, d.OldBlob
		d.Hunks = slices.Clone(d.Hunks)
		for i := range d.Hunks {
			d.Hunks[i] = d.Hunks[i].reverse()
		}
		files = append(files, d)
	}
	c.Files = files
	return c
}

func (h Hunk) reverse() Hunk {
	h.OldStart, h.NewStart = h.NewStart, h.OldStart
	h.OldLines, h.NewLines = h.NewLines, h.OldLines
	h.Lines = slices.Clone(h.Lines)
	for i := range h.Lines {
		switch l := &h.Lines[i]; l.Op {
		case '-':
			l.Op = '+'
		case '+':
			l.Op = '-'
		}
	}
	return h
}

// Paths returns the files that must be in a tree for the series to fit: the old
// paths, but for those that an earlier part of the series makes. They are sorted.
func (s *Series) Paths() []string {
	made := map[string]bool{}
	var paths []string
	for _, c := range s.Commits {
		for _, d := range c.Files {
			if d.Old != "" && !made[d.Old] && !slices.Contains(paths, d.Old) {
				paths = append(paths, d.Old)
			}
			if d.New != "" {
				made[d.New] = true
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// A SyntaxError is why a text is not a patch that [Parse] reads.
type SyntaxError struct {
	Line   int // from 1
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("patch line %d: %s", e.Line, e.Reason) }
