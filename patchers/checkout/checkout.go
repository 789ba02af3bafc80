// Package checkout opens a work tree, lists it, writes a change set to it and
// takes it back.
//
// A write is whole or not at all. The old bytes of all files go to a journal
// outside of the tree, the new bytes to files beside their targets, and only
// when all of them are on the disk do the new files take the targets' places.
// The write counts from the moment when the journal's entry is renamed: before
// it, whatever goes wrong, [Checkout.Recover] puts the old bytes back; after it
// only [Checkout.Undo] does.
//
// The package runs no code of the tree and reads none of its git configuration.
// It needs a Unix system.
//
// # The journal
//
// The journal is $XDG_STATE_HOME/ncclfix, or ~/.local/state/ncclfix, and belongs
// to one user. It has a folder for each tree, named after the tree's path, so a
// tree that is moved loses its journal. In it, a folder for each write, named by
// the write's id, holds manifest.json and the old bytes. The last 50 are kept.
//
// # What a write keeps
//
// Written files keep their permission bits and, where the system allows it, their
// owner and group. They lose extended attributes and access control lists.
// A file that has several names (hard links) is split from the others, which keep
// the old bytes: they may be outside of the tree. New files obey the umask.
package checkout

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Checkout is an open work tree. Its methods must not be called at the same
// time; the trees that Tree returns may be read by many goroutines.
type Checkout struct {
	dir     string
	tree    disk
	folders folders // those from which the trees read
}

// Open opens the work tree whose top folder is dir. Nothing outside of it is
// read or written through the result, but for the journal. Open writes nothing.
func Open(dir string) (*Checkout, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, cause(err))
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, cause(err))
	}
	return &Checkout{dir: real, tree: disk{Root: root}}, nil
}

// Close closes the tree. Trees that Tree returned cannot be read afterwards.
func (c *Checkout) Close() error {
	c.folders.close()
	return c.tree.Close()
}

// Root returns the absolute path of the top folder, without symlinks.
func (c *Checkout) Root() string { return c.dir }

// cause returns err without the operation and the path that package os puts in
// front, because the messages of this package name both in their own way.
func cause(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	}
	return err
}
