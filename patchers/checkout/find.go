package checkout

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Find returns the top folder of the tree that paths are in, as an absolute path
// without symlinks, and the same paths as slash-separated paths below it; "."
// is all of it. No paths are the current folder.
//
// The top folder is that of the git work tree which holds all paths. Outside of
// git, it is the current folder if that holds all paths, otherwise the deepest
// folder that does. Find refuses paths that do not exist, that are neither files
// nor folders, that lie in different git work trees, or that lead out of their
// tree by a symlink.
func Find(paths []string) (root string, scope []string, err error) {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	cwd, err := os.Getwd()
	if err == nil {
		cwd, err = filepath.EvalSymlinks(cwd)
	}
	if err != nil {
		return "", nil, fmt.Errorf("finding the current folder: %w", cause(err))
	}

	var reals []string
	common, top := "", ""
	for i, p := range paths {
		real, info, err := resolve(cwd, p)
		if err != nil {
			return "", nil, err
		}
		reals = append(reals, real)
		folder := real
		if !info.IsDir() {
			folder = filepath.Dir(real)
		}
		t := topOf(folder)
		if i == 0 {
			common, top = folder, t
		}
		if t != top {
			return "", nil, fmt.Errorf("refusing to work on %s and %s at once: they lie in different git work trees", paths[0], p)
		}
		for !within(common, folder) {
			common = filepath.Dir(common)
		}
	}
	switch {
	case top != "":
		root = top
	case within(cwd, common):
		root = cwd
	default:
		root = common
	}
	for i, real := range reals {
		rel, err := filepath.Rel(root, real)
		if err != nil {
			return "", nil, err
		}
		if rel = filepath.ToSlash(rel); !fs.ValidPath(rel) {
			return "", nil, fmt.Errorf("reading %q: its name is not valid UTF-8", paths[i])
		}
		scope = append(scope, rel)
	}
	return root, scope, nil
}

// resolve returns the absolute path of p without symlinks. It refuses symlinks
// that lead out of the git work tree that they are in, or, without git, out of
// cwd.
func resolve(cwd, p string) (string, fs.FileInfo, error) {
	abs := p
	if !filepath.IsAbs(p) {
		abs = filepath.Join(cwd, p)
	}
	real := string(filepath.Separator)
	for name := range strings.SplitSeq(filepath.Clean(abs), string(filepath.Separator)) {
		next := filepath.Join(real, name)
		_, err := os.Stat(next) // whose errors say more
		if err == nil {
			next, err = filepath.EvalSymlinks(next)
		}
		if err != nil {
			return "", nil, fmt.Errorf("reading %s: %w", p, cause(err))
		}
		if next != filepath.Join(real, name) {
			tree := topOf(real)
			if tree == "" && within(cwd, real) {
				tree = cwd
			}
			if tree != "" && !within(tree, next) {
				return "", nil, fmt.Errorf("refusing to read %s: a symlink leads out of %s", p, tree)
			}
		}
		real = next
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", nil, fmt.Errorf("reading %s: %w", p, cause(err))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return "", nil, fmt.Errorf("reading %s: neither a regular file nor a folder", p)
	}
	return real, info, nil
}

// topOf returns the top folder of the git work tree that holds dir, or "".
func topOf(dir string) string {
	for {
		if gitDir(dir) != "" {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// gitDir returns the git folder of the work tree whose top is dir, or "" if dir
// is no such top. Linked work trees and submodules have a file in its place that
// names it.
func gitDir(dir string) string {
	p := filepath.Join(dir, ".git")
	info, err := os.Stat(p)
	switch {
	case err != nil:
		return ""
	case info.Mode().IsRegular() && info.Size() < 1<<16:
		text, err := os.ReadFile(p)
		name, ok := bytes.CutPrefix(text, []byte("gitdir:"))
		if err != nil || !ok {
			return ""
		}
		if p = string(bytes.TrimSpace(name)); !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		return p
	case info.IsDir():
		if _, err := os.Lstat(filepath.Join(p, "HEAD")); err != nil {
			return ""
		}
		return p
	}
	return ""
}

// within reports whether path is dir or below it. Both are clean and absolute.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
