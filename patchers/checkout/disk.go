package checkout

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// modeBits are the parts of a file's mode that chmod sets.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// A disk is a folder in which files are changed. Every change that a write makes,
// to the tree or to the journal, goes through its methods.
type disk struct {
	*os.Root

	// before, if not nil, is called ahead of each change. If it returns an error,
	// the change fails with it. Tests stop a write there.
	before func(op, name string) error
}

func (d disk) step(op, name string) error {
	if d.before == nil {
		return nil
	}
	return d.before(op, name)
}

// meta is what a new file gets beside its bytes.
type meta struct {
	mode  fs.FileMode
	exact bool        // the umask does not count
	like  fs.FileInfo // if not nil, whose owner and group it gets if the system allows it
}

// create makes a new file that is on the disk for good, but for its name. On
// error it may leave a part.
func (d disk) create(name string, data []byte, m meta) (err error) {
	if err := d.step("create", name); err != nil {
		return err
	}
	perm := m.mode.Perm()
	if m.exact {
		perm &= 0o600 // until all of the mode is set
	}
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	if err := d.step("write", name); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if m.exact {
		if err := f.Chmod(m.own(f)); err != nil {
			return err
		}
	}
	if err := d.step("sync", name); err != nil {
		return err
	}
	return f.Sync()
}

// own gives f its owner and returns the mode it may have. A file that cannot get
// the owner must not run with the rights of another.
func (m meta) own(f *os.File) fs.FileMode {
	mode := m.mode & modeBits
	if m.like == nil {
		return mode
	}
	info, err := f.Stat()
	if err != nil {
		return mode.Perm()
	}
	is, want := info.Sys().(*syscall.Stat_t), m.like.Sys().(*syscall.Stat_t)
	if is.Uid == want.Uid && is.Gid == want.Gid {
		return mode
	}
	if f.Chown(int(want.Uid), int(want.Gid)) == nil {
		return mode
	}
	f.Chown(-1, int(want.Gid)) // the group alone is often allowed
	return mode.Perm()
}

func (d disk) rename(old, new string) error {
	if err := d.step("rename", new); err != nil {
		return err
	}
	return d.Rename(old, new)
}

func (d disk) remove(name string) error {
	if err := d.step("remove", name); err != nil {
		return err
	}
	return d.Remove(name)
}

// mkdir makes a folder unless it is there.
func (d disk) mkdir(name string, perm fs.FileMode) error {
	if err := d.step("mkdir", name); err != nil {
		return err
	}
	if err := d.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// syncDirs makes the names in folders last. Of a folder that is gone, it is the
// one above that matters.
func (d disk) syncDirs(folders ...string) error {
	for _, name := range folders {
		if err := d.step("sync", name); err != nil {
			return err
		}
		f, err := d.Open(name)
		for ; errors.Is(err, fs.ErrNotExist) && name != "."; f, err = d.Open(name) {
			name = path.Dir(name)
		}
		if err != nil {
			return err
		}
		err = f.Sync()
		f.Close()
		if err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems cannot sync folders
			return err
		}
	}
	return nil
}

// An obstacle is why a path of the tree cannot be written, whatever is in it.
type obstacle string

func (o obstacle) Error() string { return string(o) }

// lstat returns what is at name, without following symlinks, or nil if there is
// nothing. It returns an obstacle unless that is a regular file or a folder and
// all folders on the way are no symlinks.
func (d disk) lstat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, obstacle(fmt.Sprintf("%q is no path of the tree", name))
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		switch info, err := d.Lstat(name[:i]); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, err
		case !info.IsDir():
			return nil, obstacle(fmt.Sprintf("%s is not a folder", name[:i]))
		}
	}
	info, err := d.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, obstacle("it is a symlink")
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, obstacle("it is not a regular file")
	}
	return info, nil
}

// read returns the regular file at name and its bytes, or nil if there is
// nothing. If flag is os.O_RDWR, it must be writable: root, whom the mode does
// not stop, is stopped here.
func (d disk) read(name string, flag int) (fs.FileInfo, []byte, error) {
	info, err := d.lstat(name)
	if info == nil || err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, obstacle("it is a folder")
	}
	if flag != os.O_RDONLY && info.Mode()&0o222 == 0 {
		return nil, nil, obstacle("it is read-only")
	}
	f, err := d.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !os.SameFile(info, opened) {
		return nil, nil, obstacle("it changes while it is read")
	}
	data, err := readAll(f, opened.Size())
	return opened, data, err
}

// readAll reads what is left of f, which is about size bytes.
func readAll(f *os.File, size int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(size) + bytes.MinRead)
	_, err := b.ReadFrom(f)
	return b.Bytes(), err
}
