package checkout

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ncclfix/patchers"
)

// listTimeout is how long git may take to list a tree. Only a tree in which it
// hangs, such as one with a pipe named .gitignore, needs more than a second.
const listTimeout = time.Minute

// stagePrefix is how the names begin of files that are being written.
const stagePrefix = ".ncclfix-"

// Tree returns the files that scope names: slash-separated paths of files and
// folders below the root, without symlinks, as Find returns them. A path that
// does not exist, or is something else, is an error.
//
// A file in scope is listed whatever it is. Of a folder, Tree lists the regular
// files but for those that git ignores by .gitignore, the tree's info/exclude or
// the user's own settings, and those in folders below it that are
//
//   - .git, .hg, .svn, node_modules, site-packages, __pycache__, .tox, .nox,
//     vendor, vendored, _vendor, third_party, third-party, 3rdparty;
//   - virtual environments (folders with a pyvenv.cfg);
//   - work trees of their own, such as submodules;
//   - not readable.
//
// A folder other than the root in which git sees no file at all, because it is
// ignored, is listed without regard to git: who names it wants it. So is every
// folder if there is no git program. Symlinks are not followed; their targets
// are listed where they are. Names that are not valid UTF-8 are left out.
//
// The FS of the result reads the tree as it is at that time, and nothing outside
// of it.
func (c *Checkout) Tree(ctx context.Context, scope []string) (patchers.Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var files []string
	for _, p := range slices.Compact(slices.Sorted(slices.Values(scope))) {
		info, err := c.tree.lstat(p)
		switch {
		case err != nil:
			return patchers.Tree{}, fmt.Errorf("reading %s: %w", p, cause(err))
		case info == nil:
			return patchers.Tree{}, fmt.Errorf("reading %s: %w", p, fs.ErrNotExist)
		case info.IsDir():
			below, err := c.list(ctx, p)
			if err != nil {
				return patchers.Tree{}, fmt.Errorf("listing %s: %w", filepath.Join(c.dir, p), err)
			}
			files = append(files, below...)
		default:
			files = append(files, p)
		}
	}
	slices.Sort(files)
	return patchers.Tree{FS: treeFS{c.tree.Root, &c.folders}, Files: slices.Compact(files)}, nil
}

// list returns the files of the folder base.
func (c *Checkout) list(ctx context.Context, base string) ([]string, error) {
	l := &lister{dir: c.dir, base: base, folders: map[string]names{base: readNames(filepath.Join(c.dir, base))}}
	if state, err := stateDir(); err == nil {
		if rel, err := filepath.Rel(c.dir, state); err == nil {
			l.folders[filepath.ToSlash(rel)] = nil
		}
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return l.walk(ctx)
	}
	names, err := gitFiles(ctx, git, c.dir, base)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 && base != "." {
		return l.walk(ctx)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !l.lists(name) }), nil
}

// A lister decides what belongs to the listing of the folder base.
type lister struct {
	dir     string
	base    string
	folders map[string]names // what enter returned
}

// Names are the names in a folder, and the type bits of what they name.
type names map[string]fs.FileMode

// readNames reads a folder. One that cannot be read has no names.
func readNames(dir string) names {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := make(names, len(entries))
	for _, e := range entries {
		out[e.Name()] = e.Type()
	}
	return out
}

// lists reports whether the file is listed, given that git does not ignore it.
func (l *lister) lists(name string) bool {
	if !fs.ValidPath(name) || strings.HasPrefix(path.Base(name), stagePrefix) {
		return false
	}
	return l.typeOf(name).IsRegular()
}

// typeOf returns the type bits of what is at name, which is irregular if nothing
// is there or its folder is not entered. A file system can know a name in another
// spelling than git does, as those of macOS; it is asked about names that it did
// not list.
func (l *lister) typeOf(name string) fs.FileMode {
	in := l.enter(path.Dir(name))
	if in == nil {
		return fs.ModeIrregular
	}
	if mode, found := in[path.Base(name)]; found {
		return mode
	}
	info, err := os.Lstat(l.dir + "/" + name)
	if err != nil {
		return fs.ModeIrregular
	}
	return info.Mode().Type()
}

// enter returns the names in the folder, or nil if none of its files is listed.
func (l *lister) enter(folder string) names {
	in, known := l.folders[folder]
	if !known {
		if folder != "." && !leftOut(path.Base(folder)) && l.typeOf(folder).IsDir() {
			in = l.plain(folder)
		}
		l.folders[folder] = in
	}
	return in
}

// plain returns the names in a folder that is neither a virtual environment nor a
// work tree of its own, or nil.
func (l *lister) plain(folder string) names {
	p := l.dir + "/" + folder
	in := readNames(p)
	_, venv := in["pyvenv.cfg"]
	_, git := in[".git"]
	if venv || git && gitDir(p) != "" {
		return nil
	}
	return in
}

func leftOut(name string) bool {
	switch name {
	case ".git", ".hg", ".svn", "node_modules", "site-packages", "__pycache__", ".tox", ".nox",
		"vendor", "vendored", "_vendor", "third_party", "third-party", "3rdparty":
		return true
	}
	return false
}

// walk lists without git.
func (l *lister) walk(ctx context.Context) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(l.dir), l.base, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fs.SkipDir
		case d.IsDir() && l.enter(name) == nil:
			return fs.SkipDir
		case d.Type().IsRegular() && l.lists(name):
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// gitFiles returns what git tracks or would track below base. Names may be
// missing on the disk, and may be those of symlinks and folders.
//
// Git gets an empty git folder, and of the tree's own only the index and
// info/exclude. A git configuration can name programs to run, and a tree that
// belongs to somebody else is one that git refuses.
func gitFiles(ctx context.Context, git, dir, base string) ([]string, error) {
	empty, err := os.MkdirTemp("", "ncclfix-git-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(empty)
	for _, name := range []string{"objects", "refs"} {
		if err := os.Mkdir(filepath.Join(empty, name), 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(empty, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600); err != nil {
		return nil, err
	}

	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	env = append(env, "GIT_DIR="+empty, "GIT_WORK_TREE="+dir, "GIT_LITERAL_PATHSPECS=1", "LC_ALL=C")
	args := []string{"-C", dir, "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard"}
	own := gitDir(dir)
	if exclude := filepath.Join(commonDir(own), "info", "exclude"); own != "" && isFile(exclude) {
		args = append(args, "--exclude-from="+exclude)
	}
	args = append(args, "--", base)

	run := func(env []string) ([]string, error) {
		cmd := exec.CommandContext(ctx, git, args...)
		cmd.Env = env
		cmd.WaitDelay = time.Second
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("waiting for git: %w", ctx.Err())
			}
			line, _, _ := strings.Cut(stderr.String(), "\n")
			return nil, fmt.Errorf("git: %s", cmp.Or(line, err.Error()))
		}
		return strings.FieldsFunc(stdout.String(), func(r rune) bool { return r == 0 }), nil
	}
	if index := filepath.Join(own, "index"); own != "" && isFile(index) {
		// An index that git cannot read apart from its git folder, or that is
		// damaged, costs only the files that are tracked and ignored at once.
		if names, err := run(append(slices.Clip(env), "GIT_INDEX_FILE="+index)); err == nil || ctx.Err() != nil {
			return names, err
		}
	}
	return run(env)
}

// commonDir returns the git folder that holds what all work trees of the
// repository share, given that of one of them.
func commonDir(gitDir string) string {
	file := filepath.Join(gitDir, "commondir")
	if !isFile(file) {
		return gitDir
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return gitDir
	}
	p := strings.TrimSpace(string(text))
	if !filepath.IsAbs(p) {
		p = filepath.Join(gitDir, p)
	}
	return p
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
