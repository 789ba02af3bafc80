package gitpatch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"ncclfix/patchers"
)

// An Offset is a hunk that fits, but not at the line where its header says.
type Offset struct {
	Commit int    `json:"commit"` // from 1
	Path   string `json:"path"`
	Hunk   int    `json:"hunk"` // from 1, within the file diff
	Line   int    `json:"line"` // where it fits, from 1, in the file as the hunks before it left it
	By     int    `json:"by"`   // lines further down than recorded; negative: further up
}

// A Conflict is the first place where a series does not fit a tree.
type Conflict struct {
	Commit  int    `json:"commit"`  // from 1
	Subject string `json:"subject"` // of the commit; may be ""
	Path    string `json:"path"`    // in the tree
	Hunk    int    `json:"hunk"`    // from 1, within the file diff; 0: the file as a whole
	Line    int    `json:"line"`    // where the hunk's header has it in the old file, from 1; 0 without Hunk
	Patch   int    `json:"patch"`   // line of the patch file, from 1
	Reason  string `json:"reason"`

	// Expected are the lines that the hunk looks for, with their newlines.
	Expected []string `json:"expected"`

	// Near says where the most of them are found, counted from the first one: the
	// line, from 1, at which the next one, Expected[Matched], should be but is not.
	// It is 0 if not even the first one is there.
	Near    int `json:"near"`
	Matched int `json:"matched"`
}

func (c *Conflict) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "applying commit %d", c.Commit)
	if c.Subject != "" {
		fmt.Fprintf(&b, " (%q)", c.Subject)
	}
	fmt.Fprintf(&b, ", patch line %d: %s: ", c.Patch, c.Path)
	if c.Hunk > 0 {
		fmt.Fprintf(&b, "hunk %d, line %d: ", c.Hunk, c.Line)
	}
	b.WriteString(c.Reason)
	return b.String()
}

// Apply makes all commits, in memory, and returns what that does to the tree.
// If a part of the series does not fit, the error is a [*Conflict]; any other
// error means that the tree could not be read. Either way nothing is returned.
func (s *Series) Apply(tree fs.FS) (*patchers.ChangeSet, []Offset, error) {
	im := &image{tree: tree}
	offsets, err := im.apply(s.Commits)
	if err != nil {
		return nil, nil, err
	}
	set, err := im.changes()
	if err != nil {
		return nil, nil, err
	}
	return set, offsets, nil
}

// An image is a tree with some files changed in memory.
type image struct {
	tree  fs.FS
	files map[string]*file // what was read or changed; nil is no file
}

// A file is never changed, but replaced.
type file struct {
	lines []string // with their newlines
	mode  fs.FileMode
}

// read returns the file at path as the tree has it, or nil.
func (im *image) read(path string) (*file, error) {
	info, err := fs.Stat(im.tree, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var data []byte
	if err == nil {
		data, err = fs.ReadFile(im.tree, path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return &file{lines: splitLines(string(data)), mode: info.Mode().Perm()}, nil
}

func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return lines
}

// get returns the file at path as it is now, or nil.
func (im *image) get(path string) (*file, error) {
	if f, ok := im.files[path]; ok {
		return f, nil
	}
	f, err := im.read(path)
	if err == nil {
		im.put(path, f)
	}
	return f, err
}

func (im *image) put(path string, f *file) {
	if im.files == nil {
		im.files = map[string]*file{}
	}
	im.files[path] = f
}

// clone returns an image that changes on its own.
func (im *image) clone() *image { return &image{im.tree, maps.Clone(im.files)} }

// apply makes commits. After an error the image is useless.
func (im *image) apply(commits []Commit) ([]Offset, error) {
	var all []Offset
	for i, c := range commits {
		offsets, err := im.commit(c)
		if conflict := (*Conflict)(nil); errors.As(err, &conflict) {
			conflict.Commit, conflict.Subject = i+1, c.Subject
		}
		if err != nil {
			return nil, err
		}
		for _, o := range offsets {
			o.Commit = i + 1
			all = append(all, o)
		}
	}
	return all, nil
}

// commit makes one commit.
func (im *image) commit(c Commit) ([]Offset, error) {
	found := im.clone() // what renames and copies read
	leaves := map[string]bool{}
	for _, d := range c.Files {
		if d.Old != "" && d.Old != d.New && !d.Copy {
			leaves[d.Old] = true
		}
	}
	made := map[string]bool{} // paths to which the commit has put a new file
	var all []Offset
	for _, d := range c.Files {
		conflict := func(reason string) error {
			return &Conflict{Path: d.path(), Patch: d.Line, Reason: reason}
		}
		old := &file{mode: d.NewMode}
		if d.Old != "" {
			source := im
			if d.New != "" && d.New != d.Old {
				source = found
			}
			var err error
			if old, err = source.get(d.Old); err != nil {
				return nil, err
			}
			if old == nil {
				return nil, conflict("there is no such file")
			}
		}
		if d.New != "" && d.New != d.Old {
			there, err := im.get(d.New)
			if err != nil {
				return nil, err
			}
			if there != nil && !leaves[d.New] {
				return nil, &Conflict{Path: d.New, Patch: d.Line, Reason: "the file is there already"}
			}
			made[d.New] = true
		}
		lines, offsets, err := d.apply(old.lines)
		if err != nil {
			return nil, err
		}
		if d.New == "" && len(lines) > 0 {
			return nil, conflict("the file to delete has more in it")
		}
		all = append(all, offsets...)
		if leaves[d.Old] && d.Old != d.New && !d.Copy && (d.New == "" || !made[d.Old]) {
			im.put(d.Old, nil)
		}
		if d.New != "" {
			im.put(d.New, &file{lines, newMode(old.mode, d.NewMode)})
		}
	}
	return all, nil
}

// newMode returns the mode of a file that had mode, after a patch that says
// patched, or 0. As git does, it only looks at the executable bits.
func newMode(mode, patched fs.FileMode) fs.FileMode {
	switch {
	case patched == 0:
		return mode
	case patched&0o100 == 0:
		return mode &^ 0o111
	}
	return mode | mode&0o444>>2
}

// apply returns what the hunks make of lines, which stay as they are. The error
// is a [*Conflict].
func (d *FileDiff) apply(lines []string) ([]string, []Offset, error) {
	t := &text{lines: slices.Clone(lines), used: make([]bool, len(lines))}
	var offsets []Offset
	for i, h := range d.Hunks {
		want, after := h.without('+'), h.without('-')
		// git begins at the new start, because the hunks before are made already.
		start := max(h.NewStart-1, 0)
		at, near, matched := t.find(&h, want, start)
		if at < 0 {
			return nil, nil, &Conflict{
				Path: d.path(), Hunk: i + 1, Line: h.OldStart, Patch: h.Line,
				Reason: "it does not fit", Expected: want, Near: near + 1, Matched: matched,
			}
		}
		if at != start {
			offsets = append(offsets, Offset{Path: d.path(), Hunk: i + 1, Line: at + 1, By: at - start})
		}
		t.replace(at, len(want), after)
	}
	return t.lines, offsets, nil
}

// A text is a file to which hunks are being applied.
type text struct {
	lines []string
	used  []bool // lines that a hunk has put there or looked at
}

func (t *text) replace(at, n int, after []string) {
	t.lines = slices.Replace(t.lines, at, at+n, after...)
	t.used = slices.Replace(t.used, at, at+n, slices.Repeat([]bool{true}, len(after))...)
}

// find returns where want, which is the old side of h, begins: at start or as
// near to it as possible, first looking down, then up. If it is nowhere, at is
// -1, and near is the index of the first line that differs where the most lines
// fit, or -1.
func (t *text) find(h *Hunk, want []string, start int) (at, near, matched int) {
	first := h.OldStart <= 1                  // must be at the beginning
	last := h.Lines[len(h.Lines)-1].Op != ' ' // must be at the end
	switch {
	case first:
		start = 0
	case last:
		start = len(t.lines) - len(want)
	}
	if start < 0 || start > len(t.lines) {
		start = len(t.lines)
	}
	near = -1
	for distance := 0; start-distance >= 0 || start+distance <= len(t.lines); distance++ {
		for _, at := range []int{start + distance, start - distance} {
			if at < 0 || at > len(t.lines) || at+len(want) > len(t.lines) {
				continue
			}
			n := t.matches(want, at, last)
			if n == len(want) && (!first || at == 0) && (!last || at+n == len(t.lines)) {
				return at, 0, 0
			}
			if n > matched {
				near, matched = at+n, n
			}
		}
	}
	return -1, near, matched
}

// matches returns how many lines of want, from the first one on, are at line at.
func (t *text) matches(want []string, at int, last bool) int {
	for i, w := range want {
		have := t.lines[at+i]
		equal := have == w
		if !equal && i == len(want)-1 && !last {
			// Where git does not ask for the end of the file, it takes a last line
			// without newline for one that has it.
			rest, found := strings.CutPrefix(have, w)
			equal = found && !strings.HasSuffix(w, "\n") && strings.Trim(rest, " \t\r\n") == ""
		}
		if !equal || t.used[at+i] {
			return i
		}
	}
	return len(want)
}

// changes returns how the image differs from the tree.
func (im *image) changes() (*patchers.ChangeSet, error) {
	set := &patchers.ChangeSet{}
	for path, new := range im.files {
		old, err := im.read(path)
		if err != nil {
			return nil, err
		}
		c := patchers.FileChange{Path: path}
		if old != nil {
			c.Old, c.OldMode = []byte(strings.Join(old.lines, "")), old.mode
		}
		if new != nil {
			c.New, c.Mode = []byte(strings.Join(new.lines, "")), new.mode
		}
		switch {
		case old == nil && new == nil:
			continue
		case old == nil:
			c.Op = patchers.Create
		case new == nil:
			c.Op = patchers.Delete
		case old.mode == new.mode && slices.Equal(old.lines, new.lines):
			continue
		}
		set.Files = append(set.Files, c)
	}
	slices.SortFunc(set.Files, func(a, b patchers.FileChange) int { return cmp.Compare(a.Path, b.Path) })
	return set, nil
}
