// Package gitrepo makes commits of a change set and pushes them, with git itself.
//
// It touches neither the work tree nor the index nor a branch of the checkout: a
// commit is built from objects alone. It runs no code that a checkout brings: hooks,
// the file system monitor and remote helpers are off, and no filter is applied, so
// a file is committed byte for byte. The configuration of the user and of the
// repository is trusted otherwise, since a pull request cannot change it.
//
// It needs git 2.31 or later, for configuration in the environment.
package gitrepo

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Repo is a git repository, or a work tree of one.
type Repo struct {
	dir string
	env []string
}

// Open opens the repository that the folder dir is in.
func Open(ctx context.Context, dir string) (*Repo, error) {
	r := &Repo{dir: dir, env: environ(os.Environ())}
	version, err := r.git(ctx, nil, "version")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("git is not installed")
	case err != nil:
		return nil, err
	case !isRecent(string(version)):
		return nil, fmt.Errorf("%s is too old: git 2.31 or later is needed", bytes.TrimSpace(version))
	}
	_, err = r.git(ctx, nil, "rev-parse", "--git-dir")
	return r, err
}

// isRecent reports whether a version, as "git version 2.39.5 (Apple Git-154)", is
// one that reads GIT_CONFIG_COUNT: an older git would go without the token.
func isRecent(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "git version %d.%d", &major, &minor)
	return n == 2 && (major > 2 || major == 2 && minor >= 31)
}

// environ returns the environment of git. Variables that point it at another
// repository, as git sets them for hooks, are left out.
func environ(outer []string) []string {
	env := slices.DeleteFunc(slices.Clone(outer), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
			"GIT_NAMESPACE", "GIT_PREFIX", "GIT_EXTERNAL_DIFF", "GIT_ASKPASS", "GITHUB_TOKEN":
			return true
		case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM": // where the user's settings are
			return false
		}
		return strings.HasPrefix(name, "GIT_TRACE") || strings.HasPrefix(name, "GIT_CONFIG_")
	})
	return append(env, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
}

// An Error is what git said when it failed.
type Error struct {
	Command string // the subcommand
	Message string // the last line that git printed
	Remote  string // what the server said, on one line; may be empty
}

func (e *Error) Error() string { return "git " + e.Command + ": " + e.Message }

// git runs git with what is off by default turned off, and returns its output.
func (r *Repo) git(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	return r.run(ctx, nil, stdin, args...)
}

func (r *Repo) run(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	safe := []string{
		"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=never",
		"-c", "credential.helper=", "-c", "commit.gpgSign=false", "-c", "push.gpgSign=false", "-c", "gc.auto=0",
	}
	cmd := exec.CommandContext(ctx, "git", append(safe, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, append(slices.Clip(r.env), env...), bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// git's helpers, such as git-remote-https, end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		if cmd.Process != nil {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what took no notice
		}
		return nil, ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return stdout.Bytes(), &Error{Command: args[0], Message: message(stderr.String(), exit), Remote: remote(stderr.String())}
	}
	return stdout.Bytes(), err
}

// remote returns what the server said.
func remote(stderr string) string {
	var said []string
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(line, "remote: "); ok && strings.TrimSpace(text) != "" {
			said = append(said, strings.TrimSpace(text))
		}
	}
	return strings.Join(said, " ")
}

// message returns what git said last, without its prefix and its hints.
func message(stderr string, exit *exec.ExitError) string {
	for _, l := range slices.Backward(strings.Split(strings.TrimSpace(stderr), "\n")) {
		if l != "" && !strings.HasPrefix(l, "hint:") && !strings.HasPrefix(l, "\t") {
			for _, prefix := range []string{"fatal: ", "error: "} {
				l = strings.TrimPrefix(l, prefix)
			}
			if strings.Contains(stderr, "dubious ownership") {
				return "the repository belongs to another user; git config --global --add safe.directory lets git read it"
			}
			return l
		}
	}
	return exit.String()
}

// Resolve returns the commit that a revision means.
func (r *Repo) Resolve(ctx context.Context, revision string) (string, error) {
	out, err := r.git(ctx, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if gerr := (*Error)(nil); errors.As(err, &gerr) {
		return "", fmt.Errorf("%s is no commit here", revision)
	}
	return strings.TrimSpace(string(out)), err
}

// Message returns the message of a commit.
func (r *Repo) Message(ctx context.Context, commit string) (string, error) {
	out, err := r.git(ctx, nil, "show", "-s", "--format=%B", "--end-of-options", commit)
	return string(out), err
}

// Committer returns who made a commit, or amended it last.
func (r *Repo) Committer(ctx context.Context, commit string) (Identity, error) {
	out, err := r.git(ctx, nil, "show", "-s", "--format=%cn%x00%ce", "--end-of-options", commit)
	name, email, _ := strings.Cut(strings.TrimSuffix(string(out), "\n"), "\x00")
	return Identity{name, email}, err
}

// An Identity is the author of a commit.
type Identity struct{ Name, Email string }

// A File is one file of a change. Old is what the parent must have; nil creates
// the file.
type File struct {
	Path     string
	Old, New []byte
}

// A Change is what a commit is made of.
type Change struct {
	Parent  string // a commit
	Files   []File
	Author  Identity // also the committer
	Message string
}

// A DifferentError says that a file is not in the parent commit as it was read: it
// is changed in the work tree, or a filter changed it on its way there.
type DifferentError struct{ Path string }

func (e *DifferentError) Error() string {
	return fmt.Sprintf("%s is not the file of the commit: it is changed here, or git converts it (line ends, filters)", e.Path)
}

// Commit makes a commit object and returns its name. No branch has it yet. The
// time is that of the parent, so that the same change makes the same commit. Modes
// stay; new files are 100644.
func (r *Repo) Commit(ctx context.Context, c Change) (string, error) {
	var entries bytes.Buffer
	for _, f := range c.Files {
		mode, err := r.mode(ctx, c.Parent, f)
		if err != nil {
			return "", err
		}
		blob, err := r.git(ctx, f.New, "hash-object", "-w", "--no-filters", "--stdin")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&entries, "%s %s\t%s\x00", mode, bytes.TrimSpace(blob), f.Path)
	}
	dir, err := os.MkdirTemp("", "ncclfix-index-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	env := []string{"GIT_INDEX_FILE=" + path.Join(dir, "index")}
	if _, err := r.run(ctx, env, nil, "read-tree", "--end-of-options", c.Parent); err != nil {
		return "", err
	}
	if _, err := r.run(ctx, env, entries.Bytes(), "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	tree, err := r.run(ctx, env, nil, "write-tree", "--missing-ok") // a partial clone lacks what is not checked out
	if err != nil {
		return "", err
	}
	when, err := r.git(ctx, nil, "show", "-s", "--format=%cI", "--end-of-options", c.Parent)
	if err != nil {
		return "", err
	}
	for _, role := range []string{"AUTHOR", "COMMITTER"} {
		env = append(env, "GIT_"+role+"_NAME="+c.Author.Name, "GIT_"+role+"_EMAIL="+c.Author.Email,
			"GIT_"+role+"_DATE="+string(bytes.TrimSpace(when)))
	}
	oid, err := r.run(ctx, env, []byte(c.Message), "commit-tree", string(bytes.TrimSpace(tree)), "-p", c.Parent)
	return string(bytes.TrimSpace(oid)), err
}

// mode returns the mode that a file has in the parent, or shall get. The file must
// be there as it was read, and must not lie behind a symlink or in a submodule.
func (r *Repo) mode(ctx context.Context, parent string, f File) (string, error) {
	if !fs.ValidPath(f.Path) || f.Path == "." || slices.ContainsFunc(strings.Split(f.Path, "/"), func(part string) bool { return strings.EqualFold(part, ".git") }) {
		return "", fmt.Errorf("%q is no path of a tree", f.Path)
	}
	for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
		if mode, _, err := r.entry(ctx, parent, dir); err != nil {
			return "", err
		} else if mode != "" && mode != "040000" {
			return "", fmt.Errorf("%s is no folder of the commit, but a symlink, a file or a submodule", dir)
		}
	}
	mode, oid, err := r.entry(ctx, parent, f.Path)
	switch {
	case err != nil:
		return "", err
	case mode == "" && f.Old == nil:
		return "100644", nil
	case mode != "100644" && mode != "100755":
		return "", &DifferentError{f.Path}
	}
	have, err := r.git(ctx, nil, "cat-file", "blob", oid)
	if err == nil && (f.Old == nil || !bytes.Equal(have, f.Old)) {
		err = &DifferentError{f.Path}
	}
	return mode, err
}

// entry returns the mode and the object of a path in a commit; "" if there is none.
func (r *Repo) entry(ctx context.Context, commit, name string) (mode, oid string, err error) {
	out, err := r.git(ctx, nil, "--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", name)
	if err != nil || len(out) == 0 {
		return "", "", err
	}
	meta, _, _ := strings.Cut(string(out), "\t")
	fields := strings.Fields(meta)
	if len(fields) < 3 {
		return "", "", fmt.Errorf("git ls-tree printed %q", out)
	}
	return fields[0], fields[2], nil
}

// A Remote is a repository that is pushed to. The token, if there is one, is handed
// to git in its environment, for this URL alone; git follows no redirect with it.
type Remote struct {
	URL   string
	Token string
}

// env returns the configuration that logs in at the remote. It replaces the one that
// actions/checkout leaves in a repository: two headers would be one too many.
func (m Remote) env() []string {
	u, err := url.Parse(m.URL)
	if m.Token == "" || err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil
	}
	// The most specific address wins over all that the user has set.
	key := "http." + m.URL + "."
	login := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + m.Token))
	return []string{
		"GIT_CONFIG_COUNT=3",
		"GIT_CONFIG_KEY_0=" + key + "followRedirects", "GIT_CONFIG_VALUE_0=false", // the header would go along
		"GIT_CONFIG_KEY_1=" + key + "extraHeader", "GIT_CONFIG_VALUE_1=",
		"GIT_CONFIG_KEY_2=" + key + "extraHeader", "GIT_CONFIG_VALUE_2=AUTHORIZATION: basic " + login,
	}
}

// Tip returns the commit of a branch of the remote, or "" if there is no such branch.
func (r *Repo) Tip(ctx context.Context, m Remote, branch string) (string, error) {
	ref := "refs/heads/" + branch
	out, err := r.run(ctx, m.env(), nil, "ls-remote", "--quiet", m.URL, ref)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if oid, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == ref {
			return oid, nil
		}
	}
	return "", nil
}

// Fetch brings a commit of the remote's branch here, without what is before it.
func (r *Repo) Fetch(ctx context.Context, m Remote, branch string) (string, error) {
	if _, err := r.run(ctx, m.env(), nil, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", m.URL, "refs/heads/"+branch); err != nil {
		return "", err
	}
	return r.Tip(ctx, m, branch)
}

// ErrMoved is the error of a push to a branch that is not, or no longer, where it
// was expected. Nothing was changed there.
var ErrMoved = errors.New("the branch has moved meanwhile")

// A RefusedError is what the server said when it refused a push: the branch is
// protected, a hook declined it, or the token may not write.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return "the server refused the push: " + e.Message }

// Push makes a branch of the remote point to a commit, if it points to the commit
// expected; "" means that the branch must not exist. An empty commit deletes the
// branch. The error is ErrMoved or a *RefusedError if the server did not take it.
func (r *Repo) Push(ctx context.Context, m Remote, commit, branch, expected string) error {
	ref := "refs/heads/" + branch
	out, err := r.run(ctx, m.env(), nil, "push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no",
		"--force-with-lease="+ref+":"+expected, m.URL, commit+":"+ref)
	if gerr := (*Error)(nil); errors.As(err, &gerr) {
		err = refusal(string(out), gerr)
	}
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.isLost() {
		if tip, terr := r.Tip(ctx, m, branch); terr == nil && tip != expected {
			return ErrMoved
		}
	}
	return err
}

// isLost reports whether the server's words can mean that another push was faster.
func (e *RefusedError) isLost() bool {
	return strings.Contains(e.Message, "cannot lock ref") || strings.Contains(e.Message, "failed to update ref") || strings.Contains(e.Message, "incorrect old value")
}

// refusal tells from the porcelain output of git push why a branch was not taken.
func refusal(out string, err *Error) error {
	for line := range strings.Lines(out) {
		flag, rest, _ := strings.Cut(line, "\t")
		if flag != "!" {
			continue
		}
		_, summary, _ := strings.Cut(strings.TrimSpace(rest), "\t")
		switch {
		case strings.Contains(summary, "stale info"), strings.Contains(summary, "fetch first"), strings.Contains(summary, "non-fast-forward"):
			return ErrMoved
		}
		if i := strings.IndexByte(summary, '('); i >= 0 {
			summary = strings.Trim(summary[i:], "()")
		}
		if err.Remote != "" {
			summary += ": " + err.Remote
		}
		return &RefusedError{summary}
	}
	refused := slices.ContainsFunc([]string{"error: 401", "error: 403", "error: 404", "' not found", "Authentication failed", "terminal prompts disabled"}, func(part string) bool {
		return strings.Contains(err.Message, part)
	})
	if !refused {
		return err
	}
	if err.Remote != "" {
		return &RefusedError{err.Message + ": " + err.Remote}
	}
	return &RefusedError{err.Message}
}
