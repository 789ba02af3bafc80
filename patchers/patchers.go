// Package patchers says what a repair is.
//
// A [Patcher] reads one tree and reports [Finding]s, some with a [Fix]. [Analyze]
// runs patchers, [Plan] merges the fixes that go together into a [ChangeSet], and
// that alone is shown, posted and written: what was shown is what is written.
// Nothing in this package or below it writes to a tree or runs its code, except
// the subpackage checkout, which writes change sets.
package patchers

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"ncclfix/patchers/diff"
)

// A Patcher is one kind of repair. It is data: a package variable that
// cmd/ncclfix lists and that nothing changes.
type Patcher struct {
	// Name is one lower-case word. It prefixes the codes of all findings.
	Name string

	// Codes are the findings that Run can report.
	Codes []Code

	// Run examines the tree and calls pass.Report. An error means that the tree
	// could not be examined; findings about single files are no errors.
	Run func(pass *Pass) error

	// Check, if not nil, judges a file that this patcher's fixes made of old. On an
	// error, the fixes of that file are dropped. It is a bug in the patcher, unless
	// it is a *BrokenBeforeError.
	Check func(path string, old, new []byte) error
}

// A BrokenBeforeError says that a file is damaged, and was so before its repair.
type BrokenBeforeError struct{ Reason string }

func (e *BrokenBeforeError) Error() string { return e.Reason }

// A Code is one kind of finding.
type Code struct {
	ID      string // "teardown/worker"
	Default bool   // reported unless ignored; otherwise only if selected by name
	Fixable bool   // at least some findings of this code carry a fix
	Summary string // one line, for tables
	Doc     string // what it means, why, and how the repair looks; plain text
}

// A Tree is a checkout as planning sees it.
type Tree struct {
	// FS holds the files. Planning only reads it.
	FS fs.FS

	// Files are the paths to look at: slash-separated, sorted, without ignored
	// and vendored files. Patchers do not list FS on their own.
	Files []string
}

// Options say what is asked for, and what repairs look like.
type Options struct {
	// Barrier puts a barrier in front of each inserted destroy. Off by default:
	// on PyTorch 2.11 a barrier without device_ids warns on its own.
	Barrier bool

	// Wants says which codes are asked for; nil is all of them. What costs much
	// and is not asked for can be left out; reporting it does no harm.
	Wants func(code string) bool
}

// A Pass is one patcher at work on one tree.
type Pass struct {
	Context context.Context
	Tree    Tree
	Options Options

	// Report takes a finding. Analyze panics if one is malformed: a code that the
	// patcher does not list, or a fix whose edits do not fit their base.
	Report func(Finding)
}

// Wants reports whether findings of the code are asked for.
func (p *Pass) Wants(code string) bool { return p.Options.Wants == nil || p.Options.Wants(code) }

// A Position is a place in a file of the tree. Line and Column count from 1,
// columns in bytes. Line 0 means the file as a whole.
type Position struct {
	Path         string
	Line, Column int
}

// String returns path:line:column, or the path alone for a whole file.
func (p Position) String() string {
	if p.Line == 0 {
		return p.Path
	}
	return fmt.Sprintf("%s:%d:%d", p.Path, p.Line, p.Column)
}

// A Finding is a place that needs a repair, or that a person must look at.
type Finding struct {
	Code    string // stable: "teardown/worker"
	Pos     Position
	Message string // what is wrong, without a full stop
	Why     []Step // how it comes about, hop by hop; may be empty
	Fix     *Fix   // nil: no safe repair is known, and Message says why

	// Suppressed is set where the tree itself asks for silence, by a comment
	// such as "# ncclfix: ignore". Such findings are counted, not shown.
	Suppressed bool
}

// A Step is one hop of the way that leads to a finding.
type Step struct {
	Pos     Position
	Message string // "test_loop is started as a process by torch.multiprocessing.spawn"
}

// A Fix is one repair, made whole or not at all. Its edits refer to the tree as
// planning found it, never to the result of another fix.
type Fix struct {
	Message string // verb phrase: "destroy the process group on exit"
	Files   []FileEdits
}

// FileEdits are the edits of one file.
type FileEdits struct {
	Path  string
	Base  []byte // the file's bytes as the patcher read them; nil creates the file
	Edits []diff.Edit
}

// validate returns why a patcher must not report f.
func (f *Finding) validate(p *Patcher) error {
	known := false
	for _, c := range p.Codes {
		known = known || c.ID == f.Code
	}
	switch {
	case !known:
		return fmt.Errorf("patcher %s reports %q, which it does not list", p.Name, f.Code)
	case !strings.HasPrefix(f.Code, p.Name+"/"):
		return fmt.Errorf("code %q lacks the prefix %s/", f.Code, p.Name)
	case !fs.ValidPath(f.Pos.Path):
		return fmt.Errorf("%s: invalid path %q", f.Code, f.Pos.Path)
	case f.Message == "":
		return fmt.Errorf("%s at %s: no message", f.Code, f.Pos)
	}
	if f.Fix == nil {
		return nil
	}
	if f.Fix.Message == "" || len(f.Fix.Files) == 0 {
		return fmt.Errorf("%s at %s: empty fix", f.Code, f.Pos)
	}
	seen := map[string]bool{}
	for _, fe := range f.Fix.Files {
		if !fs.ValidPath(fe.Path) || path.Clean(fe.Path) == "." || seen[fe.Path] {
			return fmt.Errorf("%s at %s: invalid or repeated path %q in the fix", f.Code, f.Pos, fe.Path)
		}
		seen[fe.Path] = true
		if len(fe.Edits) == 0 {
			return fmt.Errorf("%s at %s: no edits for %s", f.Code, f.Pos, fe.Path)
		}
		if err := diff.Validate(fe.Edits, len(fe.Base)); err != nil {
			return fmt.Errorf("%s at %s: %s: %w", f.Code, f.Pos, fe.Path, err)
		}
	}
	return nil
}

// MustDoc returns the section of a doc.go that explains code: the text of its
// package comment under the heading "# code", up to the next heading. It panics
// if there is none, so that a code cannot go without an explanation.
func MustDoc(docGo, code string) string {
	comment, _, _ := strings.Cut(docGo, "\npackage ")
	var text []string
	in := false
	for l := range strings.Lines(comment) {
		l = strings.TrimPrefix(strings.TrimPrefix(strings.TrimRight(l, "\n"), "//"), " ")
		if heading, ok := strings.CutPrefix(l, "# "); ok {
			in = heading == code
			continue
		}
		if in {
			text = append(text, l)
		}
	}
	doc := strings.TrimSpace(strings.Join(text, "\n"))
	if doc == "" {
		panic(fmt.Sprintf("doc.go has no section %q", code))
	}
	return doc
}
