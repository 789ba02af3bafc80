package pyproject

import (
	"errors"
	"io/fs"
	"path"
)

// A ruler finds the configuration that pytest uses for the tests of a folder: it
// looks in the folder and then upward. A ruler looks in each folder once.
type ruler struct {
	fsys    fs.FS
	folders map[string]*folder
}

// A folder is what pytest finds when it looks for its settings in a folder.
type folder struct {
	rules    *config // has pytest's settings; nil if no file there has any
	outranks *config // the pyproject.toml with settings that rules outranks, or nil
	path     string  // the file that stops pytest, if err is not nil
	err      error   // why pytest, or this program, cannot read it
	plain    *config // pyproject.toml if it has no settings of pytest
}

// above returns the folder at or above dir that decides, or nil if none does.
func (r *ruler) above(dir string) *folder {
	for {
		if f := r.look(dir); f.rules != nil || f.err != nil {
			return f
		}
		if dir == "." {
			return nil
		}
		dir = path.Dir(dir)
	}
}

func (r *ruler) look(dir string) *folder {
	if f := r.folders[dir]; f != nil {
		return f
	}
	f := &folder{}
	r.folders[dir] = f
	for _, name := range configNames() {
		name = path.Join(dir, name)
		if f.rules != nil && path.Base(name) != "pyproject.toml" {
			continue
		}
		c, err := r.read(name)
		switch {
		case c == nil && err == nil:
		case f.rules != nil:
			if c != nil && c.rules {
				f.outranks = c
			}
		case err != nil:
			f.path, f.err = name, err
			return f
		case c.rules:
			f.rules = c
		case path.Base(name) == "pyproject.toml":
			f.plain = c
		}
	}
	return f
}

// read reads a file. It returns nil and no error if there is none.
func (r *ruler) read(name string) (*config, error) {
	info, err := fs.Stat(r.fsys, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	src, err := fs.ReadFile(r.fsys, name)
	if err != nil {
		return nil, err
	}
	return readConfig(name, src)
}
