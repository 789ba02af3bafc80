package patchers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"ncclfix/patchers/diff"
)

// Analyze runs the patchers on tree, side by side, and returns what they report,
// ordered by path, line, column and code. The order does not depend on how many
// processors there are. On error the findings are nil; the error names the
// patcher.
func Analyze(ctx context.Context, tree Tree, options Options, patchers []*Patcher) ([]Finding, error) {
	found := make([][]Finding, len(patchers))
	failed := make([]error, len(patchers))
	var wg sync.WaitGroup
	for i, p := range patchers {
		wg.Go(func() {
			var mu sync.Mutex
			pass := &Pass{Context: ctx, Tree: tree, Options: options}
			pass.Report = func(f Finding) {
				mu.Lock()
				defer mu.Unlock()
				found[i] = append(found[i], f)
			}
			if err := p.Run(pass); err != nil {
				failed[i] = fmt.Errorf("%s: %w", p.Name, err)
			}
		})
	}
	wg.Wait()
	if err := cmp.Or(failed...); err != nil {
		return nil, err
	}
	for i, p := range patchers {
		for _, f := range found[i] {
			if err := f.validate(p); err != nil {
				panic(err)
			}
		}
	}
	all := slices.Concat(found...)
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Pos.Path, b.Pos.Path),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return all, nil
}

// An Outcome is what became of a finding.
type Outcome int

const (
	// Manual findings have no fix: a person is needed.
	Manual Outcome = iota
	// Planned findings are repaired by the change set.
	Planned
	// Conflicted findings have a fix that overlaps one planned before it.
	Conflicted
	// Broken findings have a fix that would have damaged the file. That is a bug
	// in ncclfix; the file is left alone.
	Broken
)

func (o Outcome) String() string {
	return [...]string{"manual", "planned", "conflicted", "broken"}[o]
}

// A Result is a finding and what became of it.
type Result struct {
	Finding
	Outcome Outcome
	Reason  string // why a fix is conflicted or broken; otherwise ""
}

// An Op is what happens to a file.
type Op int

const (
	Modify Op = iota
	Create
	Delete
)

func (o Op) String() string { return [...]string{"modify", "create", "delete"}[o] }

// A FileChange is one file before and after.
type FileChange struct {
	Path    string
	Op      Op
	OldMode fs.FileMode // permission bits; 0 if Op is Create
	Mode    fs.FileMode // permission bits; 0 if Op is Delete
	Old     []byte      // nil if Op is Create
	New     []byte      // nil if Op is Delete
}

// Unified shows the change as diff.Unified does.
func (c FileChange) Unified() (string, error) {
	return diff.Unified(diff.File{Path: c.Path, OldMode: c.OldMode, NewMode: c.Mode, Old: c.Old, New: c.New})
}

// A ChangeSet is all that a run would do to one tree. It alone is shown, posted
// and written, so what was shown is what is written.
type ChangeSet struct {
	Files   []FileChange // by path, each path once
	Results []Result     // in the order of the findings
}

// Unified shows all changes as one unified diff, which git apply takes from the
// root of the tree. Nothing to change is "".
func (s *ChangeSet) Unified() (string, error) {
	var b bytes.Buffer
	for _, f := range s.Files {
		text, err := f.Unified()
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Count returns how many results have the outcome.
func (s *ChangeSet) Count(o Outcome) int {
	n := 0
	for _, r := range s.Results {
		if r.Outcome == o {
			n++
		}
	}
	return n
}

// Plan merges the fixes of findings, in their order, into a change set. A fix
// that overlaps an earlier one is dropped whole and marked Conflicted; if a
// patcher's Check rejects the file that its fixes made, all fixes that touch the
// file are dropped and marked Broken, or Manual if the file was broken before. An error means that the tree could not be
// read; findings alone never cause one.
func Plan(tree Tree, patchers []*Patcher, findings []Finding) (*ChangeSet, error) {
	set := &ChangeSet{Results: make([]Result, len(findings))}
	for i, f := range findings {
		set.Results[i] = Result{Finding: f}
		if f.Fix != nil && !f.Suppressed {
			set.Results[i].Outcome = Planned
		}
	}
	// A broken file drops fixes that also touch other files, so plan again
	// without them. Each round drops at least one fix.
	for {
		files, err := set.merge(tree)
		if err != nil {
			return nil, err
		}
		if set.dropBroken(patchers, files) {
			continue
		}
		set.Files = files
		return set, nil
	}
}

// merge makes the file changes of the results that are still planned.
func (s *ChangeSet) merge(tree Tree) ([]FileChange, error) {
	type file struct {
		base  []byte
		edits []diff.Edit
	}
	merged := map[string]*file{}
	for i := range s.Results {
		r := &s.Results[i]
		if r.Outcome != Planned {
			continue
		}
		next := map[string]*file{}
		for _, fe := range r.Fix.Files {
			have := merged[fe.Path]
			if have == nil {
				next[fe.Path] = &file{fe.Base, fe.Edits}
				continue
			}
			edits, ok := diff.Merge(have.edits, fe.Edits)
			if !ok || !bytes.Equal(have.base, fe.Base) {
				r.Outcome, r.Reason = Conflicted, fmt.Sprintf("its edits of %s overlap those of another repair; run again after that one is made", fe.Path)
				break
			}
			next[fe.Path] = &file{have.base, edits}
		}
		if r.Outcome == Planned {
			for path, f := range next {
				merged[path] = f
			}
		}
	}
	var changes []FileChange
	for path, f := range merged {
		after, err := diff.Apply(f.base, f.edits)
		if err != nil {
			return nil, fmt.Errorf("editing %s: %w", path, err)
		}
		c := FileChange{Path: path, Op: Modify, Old: f.base, New: after}
		switch info, err := fs.Stat(tree.FS, path); {
		case err == nil:
			c.OldMode, c.Mode = info.Mode().Perm(), info.Mode().Perm()
		case errors.Is(err, fs.ErrNotExist) && f.base == nil:
			c.Op, c.Mode = Create, 0o644
		default:
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if !bytes.Equal(c.Old, c.New) || c.Op == Create {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b FileChange) int { return cmp.Compare(a.Path, b.Path) })
	return changes, nil
}

// dropBroken marks the fixes of files that a patcher's Check rejects, and
// reports whether there were any. Files are checked side by side.
func (s *ChangeSet) dropBroken(patchers []*Patcher, files []FileChange) bool {
	type verdict struct {
		patcher *Patcher
		err     error
	}
	verdicts := make([][]verdict, len(files))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(files); i = int(next.Add(1)) - 1 {
				for _, p := range patchers {
					if p.Check != nil && s.changes(p, files[i].Path) {
						if err := p.Check(files[i].Path, files[i].Old, files[i].New); err != nil {
							verdicts[i] = append(verdicts[i], verdict{p, err})
						}
					}
				}
			}
		})
	}
	wg.Wait()
	dropped := false
	for i, list := range verdicts {
		for _, v := range list {
			for j := range s.Results {
				if r := &s.Results[j]; r.Outcome == Planned && touches(r.Fix, files[i].Path) && v.patcher.lists(r.Code) {
					dropped = true
					if before := (*BrokenBeforeError)(nil); errors.As(v.err, &before) {
						r.Outcome, r.Fix = Manual, nil
						r.Message += "; not repaired: " + before.Reason
						continue
					}
					r.Outcome, r.Reason = Broken, fmt.Sprintf("the repair would damage %s: %v; this is a bug in ncclfix", files[i].Path, v.err)
				}
			}
		}
	}
	return dropped
}

// changes reports whether a planned fix of the patcher touches the file.
func (s *ChangeSet) changes(p *Patcher, path string) bool {
	return slices.ContainsFunc(s.Results, func(r Result) bool {
		return r.Outcome == Planned && p.lists(r.Code) && touches(r.Fix, path)
	})
}

func (p *Patcher) lists(code string) bool {
	return slices.ContainsFunc(p.Codes, func(c Code) bool { return c.ID == code })
}

func touches(f *Fix, path string) bool {
	return slices.ContainsFunc(f.Files, func(fe FileEdits) bool { return fe.Path == path })
}
