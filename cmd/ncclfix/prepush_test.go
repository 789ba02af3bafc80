package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README's pre-push hook refuses a push of what leaks, and nothing else.
func TestReadmePrePush(t *testing.T) {
	data, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "## git pre-push hook\n")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	hook, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("the README has no pre-push hook")
	}
	top := t.TempDir()
	work, linked, remote, tmp := filepath.Join(top, "work"), filepath.Join(top, "linked"), filepath.Join(top, "remote.git"), filepath.Join(top, "tmp")
	if err := os.WriteFile(filepath.Join(top, "ident"), []byte("[user]\nname = A\nemail = a@example.com\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := top
	git := func(args ...string) (string, bool) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+filepath.Join(top, "ident"), "TMPDIR="+tmp, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		return string(out), err == nil
	}
	must := func(args ...string) string {
		t.Helper()
		out, ok := git(args...)
		if !ok {
			t.Fatalf("git %q in %s:\n%s", args, dir, out)
		}
		return out
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(args ...string) {
		t.Helper()
		out, ok := git(append([]string{"push", "-q", "origin"}, args...)...)
		if ok || !strings.Contains(out, "\ntrain.py:2:1: ") && !strings.HasPrefix(out, "train.py:2:1: ") {
			t.Errorf("git push %q: succeeded %v:\n%s", args, ok, out)
		}
	}

	const leaks = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
	must("init", "-q", "--bare", remote)
	must("init", "-q", "-b", "main", work)
	dir = work
	must("remote", "add", "origin", remote)
	write("train.py", leaks)
	write(".git/hooks/pre-push", hook)
	must("add", ".")
	must("commit", "-q", "-m", "leaks")
	refused("main")
	must("tag", "-a", "-m", "leaks", "v1")
	refused("v1")

	// What is not pushed does not matter, and neither does the way to the clean state.
	write("train.py", leaks+"dist.destroy_process_group()\n")
	refused("main")
	must("commit", "-q", "-a", "-m", "destroys")
	write("train.py", leaks)
	must("push", "-q", "origin", "main", "main:refs/heads/other")
	must("push", "-q", "origin", ":other")
	refused("main", "main~1:refs/heads/other")

	must("worktree", "add", "-q", "-b", "linked", linked)
	dir = linked
	must("push", "-q", "origin", "linked")
	write("train.py", leaks)
	must("commit", "-q", "-a", "-m", "leaks again")
	refused("linked")

	// Nothing is left of the folders that were checked.
	if got := strings.Count(must("worktree", "list"), "\n"); got != 2 {
		t.Errorf("%d worktrees are left", got)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
	refs := must("ls-remote", "--refs", remote)
	if got := strings.Count(refs, "refs/"); got != 2 {
		t.Errorf("the remote has:\n%s", refs)
	}
	dir = work
	if head := must("rev-parse", "main"); strings.Count(refs, strings.TrimSpace(head)) != 2 {
		t.Errorf("main is %s, the remote has:\n%s", head, refs)
	}
}
