package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ncclfix/patchers"
)

// Write makes the changes of set and returns the id that Undo takes. On error
// nothing has changed, unless the error says that the tree is half written:
// then Recover has to put it right. An empty set is written without an id.
//
// Write refuses if another process is writing to the tree, if a file is not as
// its Old has it, and if a file is read-only, not regular, behind a symlink or
// part of the repository itself (.git). A file is read-only if its mode says so,
// also to root, or if it cannot be opened for writing. A program that changes a
// file in the moment of its renaming can lose that change.
//
// If ctx is done before the write counts, Write takes it back.
func (c *Checkout) Write(ctx context.Context, set *patchers.ChangeSet) (id string, err error) {
	if len(set.Files) == 0 {
		return "", nil
	}
	j, err := c.openJournal()
	if err != nil {
		return "", err
	}
	defer j.Close()
	if err := c.settle(j); err != nil {
		return "", err
	}
	m := new(manifest)
	if err := c.apply(ctx, j, m, set.Files); err != nil {
		return "", err
	}
	return m.ID, nil
}

// settle recovers, and refuses to go on if there was something to recover:
// what the caller knows of the tree is from before.
func (c *Checkout) settle(j *journal) error {
	r, err := c.recover(j)
	if err == nil && r.ID != "" {
		err = fmt.Errorf("refusing to write to %s: an interrupted write was put back just now; run again", c.dir)
	}
	return err
}

// A target is one file of a write.
type target struct {
	change patchers.FileChange
	entry  entry
	info   fs.FileInfo // what is at the path, nil if nothing is
}

// apply writes files and completes m. If they take a write back, m has its id
// and its folders already.
func (c *Checkout) apply(ctx context.Context, j *journal, m *manifest, files []patchers.FileChange) error {
	ids, err := j.ids()
	if err != nil {
		return err
	}
	m.ID, m.Root = newID(ids), c.dir
	targets, err := c.examine(m, files)
	if err != nil {
		return err
	}
	if err := j.prune(); err != nil {
		return fmt.Errorf("pruning the journal %s: %w", j.Name(), cause(err))
	}
	if err := j.begin(m, targets); err != nil {
		err = fmt.Errorf("writing the journal %s: %w", j.Name(), cause(err))
		if e := j.drop(); e != nil {
			err = fmt.Errorf("%w; removing it: %w", err, cause(e))
		}
		return err
	}
	err = c.change(ctx, m, targets)
	if err == nil {
		if err = j.commit(m.ID); err == nil {
			return nil
		}
		err = fmt.Errorf("writing the journal %s: %w", j.Name(), cause(err))
	}
	r, e := c.rollback(j, m)
	switch {
	case e != nil:
		err = fmt.Errorf("%w; the tree is half written: %w", err, e)
	case len(r.Left) > 0:
		err = fmt.Errorf("%w; %s changed meanwhile and was left as it is", err, r.Left[0].Path)
	}
	return err
}

// examine says what a write of files does, and fills m with it. It refuses what
// Write refuses.
func (c *Checkout) examine(m *manifest, files []patchers.FileChange) ([]target, error) {
	var targets []target
	var stale []string
	for i, change := range files {
		if slices.ContainsFunc(files[:i], func(f patchers.FileChange) bool { return f.Path == change.Path }) {
			return nil, fmt.Errorf("refusing to write %s: it occurs twice", change.Path)
		}
		t, fresh, err := c.target(change)
		if err != nil {
			return nil, err
		}
		if !fresh {
			stale = append(stale, change.Path)
		}
		t.entry.Stage = path.Join(path.Dir(change.Path), fmt.Sprintf("%s%s-%d", stagePrefix, m.ID, i))
		targets = append(targets, t)
		m.Files = append(m.Files, t.entry)
		if change.Op != patchers.Create {
			continue
		}
		for dir := path.Dir(change.Path); !slices.Contains(m.Dirs, dir); dir = path.Dir(dir) {
			if info, err := c.tree.lstat(dir); err != nil || info != nil {
				break
			}
			m.Dirs = append(m.Dirs, dir)
		}
	}
	for _, e := range m.Files {
		if slices.Contains(m.Dirs, e.Path) {
			return nil, fmt.Errorf("refusing to write %s: it would be a folder at once", e.Path)
		}
	}
	if len(stale) > 0 {
		return nil, fmt.Errorf("refusing to write %s: changed since it was read", and(stale))
	}
	slices.Sort(m.Dirs)
	return targets, nil
}

// and names the first of paths and counts the others.
func and(paths []string) string {
	if len(paths) == 1 {
		return paths[0]
	}
	return fmt.Sprintf("%s (and %d more)", paths[0], len(paths)-1)
}

// target examines one file. It is fresh if it is what the change takes for old.
func (c *Checkout) target(change patchers.FileChange) (t target, fresh bool, err error) {
	for name := range strings.SplitSeq(change.Path, "/") {
		if slices.ContainsFunc([]string{".git", ".hg", ".svn"}, func(s string) bool { return strings.EqualFold(s, name) }) {
			return t, false, fmt.Errorf("refusing to write %s: it is part of the repository itself", change.Path)
		}
	}
	info, data, err := c.tree.read(change.Path, os.O_RDWR)
	switch {
	case errors.As(err, new(obstacle)):
		return t, false, fmt.Errorf("refusing to write %s: %w", change.Path, err)
	case err != nil:
		return t, false, fmt.Errorf("writing %s: %w", change.Path, cause(err))
	}
	t = target{change: change, info: info, entry: entry{Path: change.Path}}
	mode := change.Mode
	if info != nil {
		t.entry.Before = stateOf(data, info.Mode())
		if change.Mode == change.OldMode {
			mode = info.Mode()
		} else {
			mode = info.Mode()&^fs.ModePerm | change.Mode.Perm()
		}
	}
	if change.Op == patchers.Create {
		fresh = info == nil
	} else {
		fresh = info != nil && bytes.Equal(data, change.Old)
	}
	if change.Op != patchers.Delete {
		t.entry.After = stateOf(change.New, mode)
	}
	return t, fresh, nil
}

// change makes the changes of targets in the tree.
func (c *Checkout) change(ctx context.Context, m *manifest, targets []target) error {
	for _, dir := range m.Dirs {
		if err := c.tree.mkdir(dir, 0o777); err != nil {
			return fmt.Errorf("making the folder %s: %w", dir, cause(err))
		}
	}
	for _, t := range targets {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("writing %s: %w", t.entry.Path, err)
		}
		if t.entry.After == nil {
			continue
		}
		meta := meta{mode: t.entry.After.Mode, exact: t.info != nil || m.Undoes != "", like: t.info}
		if err := c.tree.create(t.entry.Stage, t.change.New, meta); err != nil {
			return fmt.Errorf("writing %s: %w", t.entry.Path, cause(err))
		}
	}
	for _, t := range targets {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("writing %s: %w", t.entry.Path, err)
		}
		info, err := c.tree.lstat(t.entry.Path)
		if err != nil || !same(t.info, info) {
			return fmt.Errorf("refusing to write %s: changed since it was read", t.entry.Path)
		}
		if t.entry.After == nil {
			err = c.tree.remove(t.entry.Path)
		} else {
			err = c.tree.rename(t.entry.Stage, t.entry.Path)
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", t.entry.Path, cause(err))
		}
	}
	if m.Undoes != "" {
		for _, dir := range slices.Backward(m.Dirs) {
			c.tree.remove(dir) // unless something else is in it
		}
	}
	return c.syncTree(m)
}

// same reports whether nobody wrote to the file or put another in its place
// between the two looks at it.
func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// syncTree makes the names of the files of m last.
func (c *Checkout) syncTree(m *manifest) error {
	var folders []string
	for _, e := range m.Files {
		folders = append(folders, path.Dir(e.Path))
	}
	for _, dir := range m.Dirs {
		folders = append(folders, path.Dir(dir))
	}
	slices.Sort(folders)
	if err := c.tree.syncDirs(slices.Compact(folders)...); err != nil {
		return fmt.Errorf("writing %s: %w", c.dir, cause(err))
	}
	return nil
}

// rollback puts the tree back to what it was before the pending write m.
func (c *Checkout) rollback(j *journal, m *manifest) (Recovery, error) {
	r := Recovery{ID: m.ID}
	for _, e := range m.Files { // first, to have their room on a full disk
		if info, err := c.tree.lstat(e.Stage); err == nil && info != nil {
			if err := c.tree.remove(e.Stage); err != nil {
				return r, fmt.Errorf("removing %s: %w", e.Stage, cause(err))
			}
		}
	}
	for i, e := range m.Files {
		info, data, err := c.tree.read(e.Path, os.O_RDONLY)
		var now *state
		if info != nil {
			now = stateOf(data, info.Mode())
		}
		switch {
		case err != nil && !errors.As(err, new(obstacle)):
			return r, fmt.Errorf("reading %s: %w", e.Path, cause(err))
		case err == nil && e.matches(e.Before, now):
		case err == nil && e.matches(e.After, now):
			if err := c.restore(j, m, i, info); err != nil {
				return r, fmt.Errorf("putting %s back: %w", e.Path, cause(err))
			}
			r.Files = append(r.Files, e.Path)
		default:
			r.Left = append(r.Left, Leftover{Path: e.Path})
			if e.Before != nil {
				r.Left[len(r.Left)-1].Old = filepath.Join(j.Name(), m.ID+leftover, oldFile(i))
			}
		}
	}
	for _, dir := range slices.Backward(m.Dirs) {
		c.tree.remove(dir) // unless something else is in it
	}
	if err := c.syncTree(m); err != nil {
		return r, err
	}
	if err := j.abandon(m.ID, len(r.Left) > 0); err != nil {
		return r, fmt.Errorf("writing the journal %s: %w", j.Name(), cause(err))
	}
	return r, nil
}

// restore gives the i-th file of m, which is now as the write left it, its old
// bytes.
func (c *Checkout) restore(j *journal, m *manifest, i int, now fs.FileInfo) error {
	e := m.Files[i]
	if e.Before == nil {
		return c.tree.remove(e.Path)
	}
	data, err := j.old(pending, m, i)
	if err != nil {
		return err
	}
	if now == nil {
		if err := c.tree.MkdirAll(path.Dir(e.Path), 0o777); err != nil {
			return err
		}
	}
	if err := c.tree.create(e.Stage, data, meta{mode: e.Before.Mode, exact: true, like: now}); err != nil {
		return err
	}
	return c.tree.rename(e.Stage, e.Path)
}
