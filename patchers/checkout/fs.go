package checkout

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
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
	return t.folders.stat(t.root, name)
}

// maxFolders is how many folders are kept open. A system that lets a process open few
// files lets it open 256 (macOS).
const maxFolders = 64

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

// stat describes the file name below root, as openFile finds it.
func (o *folders) stat(root *os.Root, name string) (fs.FileInfo, error) {
	if dir, base := path.Split(name); dir != "" {
		if r := o.folder(root, dir[:len(dir)-1]); r != nil {
			if info, err := r.Stat(base); err == nil || errors.Is(err, fs.ErrNotExist) {
				return info, err
			}
		}
	}
	return root.Stat(name)
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
	if r := o.find(name); r != nil {
		return r
	}
	var r *os.Root
	var err error = fs.ErrNotExist
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		if above := o.find(name[:i]); above != nil {
			r, err = above.OpenRoot(name[i+1:])
		}
	}
	if err != nil {
		r, err = root.OpenRoot(name)
	}
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

// find returns a folder that is open, or nil.
func (o *folders) find(name string) *os.Root {
	for i := range o.open {
		if o.open[i].name == name {
			return o.open[i].root
		}
	}
	return nil
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
