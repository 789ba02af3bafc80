package checkout

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
)

// A treeFS reads a tree. It opens regular files and folders only, so that a pipe
// or a device in a file's place cannot block the reader, and nothing to which a
// symlink leads out of the tree.
type treeFS struct {
	root    *os.Root
	folders *folders
}

var (
	_ fs.StatFS     = treeFS{}
	_ fs.ReadFileFS = treeFS{}
)

func (t treeFS) Open(name string) (fs.File, error) {
	return t.open(name)
}

func (t treeFS) open(name string) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := t.folders.openFile(t.root, name, os.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("neither a regular file nor a folder")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (t treeFS) ReadFile(name string) ([]byte, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readAll(f, info.Size())
}

func (t treeFS) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	return t.root.Stat(name)
}

// maxFolders is how many folders are kept open. Files are read in the order of
// their paths, by a few goroutines, so few are in use at a time.
const maxFolders = 16

// A folders opens files by way of their folders, which it keeps open: os.Root opens
// each folder on the way to a file anew.
type folders struct {
	mu   sync.Mutex
	open [maxFolders]folder
	next int // the place of the folder that makes room for another
}

type folder struct {
	name string   // "" in a free place
	root *os.Root // nil there
}

// openFile opens the file name below root. What its folder alone cannot open is
// opened from the root: a symlink may lead to another folder of the tree.
func (o *folders) openFile(root *os.Root, name string, flag int) (*os.File, error) {
	dir, base := path.Split(name)
	if dir != "" {
		if r := o.folder(root, dir[:len(dir)-1]); r != nil {
			if f, err := r.OpenFile(base, flag, 0); err == nil {
				return f, nil
			}
		}
	}
	return root.OpenFile(name, flag, 0)
}

// folder returns the folder, or nil if it cannot be opened. It can be closed at
// any time.
func (o *folders) folder(root *os.Root, name string) *os.Root {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, have := range o.open {
		if have.name == name {
			return have.root
		}
	}
	r, err := root.OpenRoot(name)
	if err != nil {
		return nil
	}
	if old := o.open[o.next].root; old != nil {
		old.Close()
	}
	o.open[o.next] = folder{name, r}
	o.next = (o.next + 1) % maxFolders
	return r
}

// close closes all folders.
func (o *folders) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, f := range o.open {
		if f.root != nil {
			f.root.Close()
		}
		o.open[i] = folder{}
	}
}
