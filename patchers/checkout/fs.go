package checkout

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// A treeFS reads a tree. It opens regular files and folders only, so that a pipe
// or a device in a file's place cannot block the reader, and nothing to which a
// symlink leads out of the tree.
type treeFS struct{ root *os.Root }

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
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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
