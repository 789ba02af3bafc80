package main

import (
	"net/url"
	"path/filepath"
	"testing"
)

// Somebody has amended the bot's commit, which leaves its author and its trailer as
// they are: their work is not overwritten.
func TestBotPRAmended(t *testing.T) {
	isolateGit(t)
	f := newForge(t)
	f.create("o/r", map[string]string{"train.py": leaking})
	dir := f.clone("o/r", "main")
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 0, "opened pull request")
	theirs := f.clone("o/r", "ncclfix/teardown")
	writeFiles(t, theirs, map[string]string{"train.py": leaking + "# by hand\n"})
	runGit(t, theirs, "commit", "-q", "--all", "--amend", "--no-edit")
	runGit(t, theirs, "push", "-q", "--force", filepath.Join(f.root, "o/r.git"), "HEAD:ncclfix/teardown")
	want := f.tip("o/r", "ncclfix/teardown")
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 2, "a commit that is not ncclfix's")
	if f.tip("o/r", "ncclfix/teardown") != want {
		t.Error("the work of somebody else is lost")
	}
}

// In a folder of the repository, the files of that folder are repaired, not those of
// the same name at its top.
func TestBotPushFolder(t *testing.T) {
	for _, args := range [][]string{{"sub"}, {}} {
		f, dir := newPull(t, map[string]string{"train.py": leaking, "sub/train.py": leaking}, "")
		if len(args) == 0 {
			dir = filepath.Join(dir, "sub")
		}
		runBot(t, f, dir, 7, append([]string{"--mode", "push"}, args...)...).want(t, 0, "pushed ")
		got := runGit(t, filepath.Join(f.root, "o/r.git"), "diff-tree", "-r", "--no-commit-id", "--name-only", "topic")
		if got != "sub/train.py" && got != "sub/train.py\n" {
			t.Errorf("%q: changed %q", args, got)
		}
	}
}

// A branch of a partial clone that is checked out sparsely is repaired without the
// rest.
func TestBotPushSparse(t *testing.T) {
	f, _ := newPull(t, map[string]string{"train.py": leaking, "data/big": "x\n"}, "")
	dir := filepath.Join(t.TempDir(), "clone")
	bare := filepath.Join(f.root, "o/r.git")
	runGit(t, bare, "config", "uploadpack.allowFilter", "true")
	u := url.URL{Scheme: "file", Path: bare}
	runGit(t, f.root, "clone", "-q", "--filter=blob:none", "--sparse", "--branch=topic", u.String(), dir)
	runGit(t, dir, "config", "remote.origin.url", "file:///nowhere")
	runBot(t, f, dir, 7, "--mode", "push").want(t, 0, "pushed ")
}
