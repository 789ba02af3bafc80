// Package checkout opens a work tree, lists it, writes a change set to it and
// takes it back.
//
// A write is whole or not at all: if the process dies or the disk is full, the
// tree is afterwards, at the latest after the next [Checkout.Recover], wholly
// old or wholly new. The package runs no code of the tree and reads none of its
// git configuration. It needs a Unix system.
package checkout

import (
	"context"
	"errors"

	"ncclfix/patchers"
)

// A Checkout is an open work tree. Its methods may be called one at a time only.
type Checkout struct{}

// Open opens the work tree whose top folder is dir. Nothing outside of it is
// ever read or written through the result, but for the journal, which is in
// $XDG_STATE_HOME/ncclfix or ~/.local/state/ncclfix. Open writes nothing.
func Open(dir string) (*Checkout, error) { return nil, errors.ErrUnsupported }

// Close closes the tree. Trees that Tree returned cannot be read afterwards.
func (c *Checkout) Close() error { return nil }

// Root returns the absolute path of the top folder, without symlinks.
func (c *Checkout) Root() string { return "" }

// Find returns the top folder of the tree that paths are in, as an absolute path
// without symlinks, and the same paths as slash-separated paths below it; "."
// is all of it. No paths are the current folder.
//
// The top folder is that of the git work tree which holds all paths. Outside of
// git, it is the current folder if that holds all paths, otherwise the deepest
// folder that does. Find refuses paths that do not exist, that lie in different
// git work trees, or that are symlinks out of the tree.
func Find(paths []string) (root string, scope []string, err error) {
	return "", nil, errors.ErrUnsupported
}

// Tree returns the files that scope names: slash-separated paths of files and
// folders below the root, as Find returns them. A named file is always listed.
func (c *Checkout) Tree(ctx context.Context, scope []string) (patchers.Tree, error) {
	return patchers.Tree{}, errors.ErrUnsupported
}

// Write makes the changes of set and returns the id that Undo takes. On error
// nothing has changed. An empty set is written without an id.
//
// Write refuses when another process is writing to the same tree, when a file is
// not as set.Files has it in Old, or when a file is read-only or not regular.
func (c *Checkout) Write(ctx context.Context, set *patchers.ChangeSet) (id string, err error) {
	return "", errors.ErrUnsupported
}

// Undo takes the write with the given id back; "" is the last one that was not
// taken back. It returns what it did: Files lead from what Write made to what was
// there before. On error nothing has changed. Undo refuses if any of the files
// is not as Write left it.
func (c *Checkout) Undo(ctx context.Context, id string) (*patchers.ChangeSet, error) {
	return nil, errors.ErrUnsupported
}

// A Recovery is what Recover did.
type Recovery struct {
	ID    string   // of the interrupted write or undo; "" if there was none
	Files []string // put back to what they were before, by path
	Left  []string // not put back: they changed after the interruption
	Old   string   // folder that keeps the old bytes of Left, under their paths; "" if Left is empty
}

// Recover puts the tree back to what it was before a Write or Undo that was
// interrupted. Every command calls it before it reads the tree. If there is
// nothing to recover it writes nothing, needs no lock and returns the zero
// Recovery. An error means that the tree may be half written.
func (c *Checkout) Recover() (Recovery, error) { return Recovery{}, errors.ErrUnsupported }
