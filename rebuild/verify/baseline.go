package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ncclfix/patchers"
	"ncclfix/rebuild/ncclog"
)

// A Baseline is what the checkout is compared with: a log, or a tree to run the
// same command in.
type Baseline struct {
	Name string // what the user called it

	Log *ncclog.Report // nil for a tree
	Dir string         // where the command runs; "" for a log

	temp string
}

// Close removes what was laid out.
func (b *Baseline) Close() error {
	if b.temp == "" {
		return nil
	}
	return os.RemoveAll(b.temp)
}

// command is the run's command with the checkout's own paths led to the baseline.
func (b *Baseline) command(cfg Config) []string {
	argv := make([]string, len(cfg.Command))
	for i, a := range cfg.Command {
		argv[i] = a
		if rest, ok := strings.CutPrefix(a, cfg.Dir); ok && cfg.Dir != "" && (rest == "" || rest[0] == filepath.Separator) {
			argv[i] = b.Dir + rest
		}
	}
	return argv
}

// LogBaseline reads a baseline from a log of an earlier run.
func LogBaseline(name string) (*Baseline, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the baseline %s: %w", name, cause(err))
	}
	defer f.Close()
	report, err := ncclog.Read(f)
	if err != nil {
		return nil, fmt.Errorf("reading the baseline %s: %w", name, cause(err))
	}
	if len(report.Measurements) == 0 {
		return nil, fmt.Errorf("reading the baseline %s: it holds no figure in GB/s", name)
	}
	return &Baseline{Name: name, Log: report}, nil
}

// RevisionBaseline lays a git revision out beside the checkout. root is the top of
// the work tree and dir a folder in it, which the command runs in. The tree holds
// what git keeps: nothing built, no submodules. The repository is not changed.
func RevisionBaseline(ctx context.Context, root, dir, revision string) (*Baseline, error) {
	git := func(env []string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
		cmd.Env = append(os.Environ(), env...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, ncclog.Quote(line))
		}
		return strings.TrimSpace(string(out)), nil
	}
	commit, err := git(nil, "rev-parse", "--verify", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("laying out the baseline %q: it is no file, no id of a fix and no git revision", revision)
	}
	return layOut(root, dir, revision, func(tree string) error {
		temp, err := os.MkdirTemp("", "ncclfix-index-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		index := []string{"GIT_INDEX_FILE=" + filepath.Join(temp, "index")}
		if _, err := git(index, "read-tree", commit); err != nil {
			return err
		}
		_, err = git(index, "checkout-index", "--all", "--prefix="+tree+string(filepath.Separator))
		return err
	})
}

// ChangedBaseline lays the work tree out beside the checkout, with changes made to
// the copy: those that take a fix back, say.
func ChangedBaseline(root, dir, name string, changes []patchers.FileChange) (*Baseline, error) {
	return layOut(root, dir, name, func(tree string) error {
		if err := copyTree(tree, root); err != nil {
			return err
		}
		to, err := os.OpenRoot(tree)
		if err != nil {
			return err
		}
		defer to.Close()
		for _, c := range changes {
			if c.Op == patchers.Delete {
				err = to.Remove(c.Path)
			} else if err = to.MkdirAll(filepath.Dir(c.Path), 0o755); err == nil {
				err = to.WriteFile(c.Path, c.New, c.Mode)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// layOut makes a folder beside root, so that paths which lead out of the tree lead
// to the same place, or among the temporary ones if that cannot be. It has a tree
// made in it and returns the baseline that runs there.
func layOut(root, dir, name string, fill func(tree string) error) (b *Baseline, err error) {
	below, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, err
	}
	tree, err := os.MkdirTemp(filepath.Dir(root), ".ncclfix-baseline-")
	if err != nil {
		if tree, err = os.MkdirTemp("", "ncclfix-baseline-"); err != nil {
			return nil, err
		}
	}
	b = &Baseline{Name: name, Dir: filepath.Join(tree, below), temp: tree}
	err = fill(tree)
	if err == nil {
		if info, serr := os.Stat(b.Dir); serr != nil || !info.IsDir() {
			err = fmt.Errorf("it has no folder %s", below)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("laying out the baseline %q: %w", name, err), b.Close())
	}
	return b, nil
}

// copyTree copies the files, folders and symlinks of from, but for git's own.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case rel == ".":
			return nil
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.Mkdir(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case d.Type().IsRegular():
			return copyFile(target, name)
		}
		return nil // sockets and the like are nobody's sources
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
