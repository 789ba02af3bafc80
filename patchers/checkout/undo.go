package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ncclfix/patchers"
)

// Undo takes the write with the given id back; "" is the last one that was not
// taken back. It returns what it did: Files lead from what Write made to what was
// there before. Folders that Write made go too, unless something else is in them.
//
// On error nothing has changed, as with Write. Undo refuses if any of the files
// is not as Write left it, and whatever Write refuses. An undo cannot be undone.
func (c *Checkout) Undo(ctx context.Context, id string) (*patchers.ChangeSet, error) {
	j, err := c.openJournal()
	if err != nil {
		return nil, err
	}
	defer j.Close()
	if err := c.settle(j); err != nil {
		return nil, err
	}
	m, err := c.undoable(j, id)
	if err != nil {
		return nil, err
	}
	files, err := c.reverse(j, m)
	if err != nil {
		return nil, err
	}
	back := &manifest{Undoes: m.ID, Dirs: m.Dirs}
	if err := c.apply(ctx, j, back, files); err != nil {
		return nil, err
	}
	return &patchers.ChangeSet{Files: files}, nil
}

// undoable returns the write with the id, or the last one if that is "".
func (c *Checkout) undoable(j *journal, id string) (*manifest, error) {
	ids, err := j.ids()
	if err != nil {
		return nil, err
	}
	if id != "" && !slices.Contains(ids, id) {
		return nil, fmt.Errorf("undoing %q: no such write to %s", id, c.dir)
	}
	undone := map[string]bool{}
	for _, next := range slices.Backward(ids) {
		m, err := j.load(next)
		if err != nil {
			return nil, fmt.Errorf("reading the journal %s: %w", j.Name(), cause(err))
		}
		undone[m.Undoes] = true
		usable := m.Undoes == "" && !undone[next]
		switch {
		case usable && (id == "" || id == next):
			return m, nil
		case id == next && m.Undoes != "":
			return nil, fmt.Errorf("refusing to undo %s: it is the undo of %s", id, m.Undoes)
		case id == next:
			return nil, fmt.Errorf("refusing to undo %s: that was done already", id)
		}
	}
	return nil, fmt.Errorf("nothing to undo in %s", c.dir)
}

// reverse returns the changes that take m back.
func (c *Checkout) reverse(j *journal, m *manifest) ([]patchers.FileChange, error) {
	var files []patchers.FileChange
	var stale []string
	for i, e := range m.Files {
		info, data, err := c.tree.read(e.Path, os.O_RDONLY)
		if err != nil && !errors.As(err, new(obstacle)) {
			return nil, fmt.Errorf("reading %s: %w", e.Path, cause(err))
		}
		var now *state
		if info != nil {
			now = stateOf(data, info.Mode())
		}
		if err != nil || !e.matches(e.After, now) {
			stale = append(stale, e.Path)
			continue
		}
		f := patchers.FileChange{Path: e.Path, Old: data}
		if e.After != nil {
			f.OldMode = e.After.Mode.Perm()
		}
		switch {
		case e.Before == nil:
			f.Op = patchers.Delete
		case e.After == nil:
			f.Op = patchers.Create
		}
		if e.Before != nil {
			f.Mode = e.Before.Mode.Perm()
			if f.New, err = j.old(m.ID, m, i); err != nil {
				return nil, fmt.Errorf("reading the journal %s: %w", j.Name(), cause(err))
			}
		}
		files = append(files, f)
	}
	if len(stale) > 0 {
		return nil, fmt.Errorf("refusing to undo %s: %s changed since it was written", m.ID, and(stale))
	}
	return files, nil
}

// A Recovery is what Recover did.
type Recovery struct {
	ID    string     // of the interrupted write or undo; "" if there was none
	Files []string   // put back to what they were before, by path
	Left  []Leftover // not put back: they changed after the interruption
}

// A Leftover is a file that Recover left as it is.
type Leftover struct {
	Path string
	Old  string // file outside of the tree with the old bytes; "" if Path did not exist
}

// Recover puts the tree back to what it was before a Write or Undo that was
// interrupted. Every command calls it before it reads the tree. If there is
// nothing to recover it writes nothing, needs no lock and returns the zero
// Recovery. After an error the tree may be half written; Recover can be called
// again.
func (c *Checkout) Recover() (Recovery, error) {
	dir, err := c.journalDir()
	if err != nil {
		return Recovery{}, nil // without a place for journals nothing was written
	}
	switch _, err := os.Lstat(filepath.Join(dir, pending)); {
	case errors.Is(err, fs.ErrNotExist):
		return Recovery{}, nil
	case err != nil:
		return Recovery{}, fmt.Errorf("reading the journal %s: %w", dir, cause(err))
	}
	j, err := c.openJournal()
	if err != nil {
		return Recovery{}, err
	}
	defer j.Close()
	return c.recover(j)
}

// recover is Recover with the journal open.
func (c *Checkout) recover(j *journal) (Recovery, error) {
	m, err := j.load(pending)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = j.drop()
	case err == nil:
		return c.rollback(j, m)
	}
	if err != nil {
		err = fmt.Errorf("reading the journal %s: %w", j.Name(), cause(err))
	}
	return Recovery{}, err
}
