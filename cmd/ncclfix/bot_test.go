package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// leaking is a script that leaves its process group open.
const leaking = `import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    print(dist.get_rank())


if __name__ == "__main__":
    main()
`

// A botRun is one run of the bot.
type botRun struct {
	status    int
	out, errs string
}

// runBot runs the bot in a checkout, twice as isolated as a workflow: with no
// configuration of git, and an environment of its own.
func runBot(t *testing.T, f *forge, dir string, number int, args ...string) botRun {
	t.Helper()
	t.Chdir(dir)
	a := newApp()
	var out, errs bytes.Buffer
	a.stdin, a.stdout, a.stderr = strings.NewReader(""), &out, &errs
	a.getenv = f.env(number)
	a.isTerminal = func(any) bool { return false }
	status := a.run(context.Background(), append([]string{"bot"}, args...))
	if text := out.String() + errs.String(); strings.Contains(text, testToken) {
		t.Errorf("the token is printed:\n%s", text)
	}
	return botRun{status, out.String(), errs.String()}
}

func (r botRun) want(t *testing.T, status int, parts ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("exit status %d, want %d\n%s%s", r.status, status, r.out, r.errs)
	}
	wantText(t, "the output", r.out+r.errs, parts...)
}

func wantWrites(t *testing.T, f *forge, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, f.changes(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("requests that change something (-want +got):\n%s", d)
	}
}

func isolateGit(t *testing.T) {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, role := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+role+"_NAME", "Ada")
		t.Setenv("GIT_"+role+"_EMAIL", "ada@example.org")
	}
}

// newPull makes a forge with pull request 7, whose branch has the files, and returns
// a checkout of it. The patch is what the pull request shows of train.py.
func newPull(t *testing.T, files map[string]string, patch string) (*forge, string) {
	t.Helper()
	isolateGit(t)
	f := newForge(t)
	f.create("o/r", map[string]string{"README": "r\n"})
	sha := f.commit("o/r", "main", "topic", files)
	f.pulls = append(f.pulls, f.pull(7, "o/r", "topic", sha))
	f.files = []map[string]any{{"filename": "train.py", "status": "added", "patch": patch}}
	return f, f.clone("o/r", "topic")
}

// allLines is a hunk that shows all of a new file.
func allLines(text string) string {
	lines := strings.Count(text, "\n")
	return fmt.Sprintf("@@ -0,0 +1,%d @@\n+%s", lines, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n+"))
}

func TestBotReviewSuggests(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1, "1 fix")
	wantWrites(t, f, "POST /repos/o/r/pulls/7/reviews")
	wantText(t, "the comment", f.review[0]["body"].(string), "```suggestion\n    print(dist.get_rank())\n    if dist.is_initialized():\n        dist.destroy_process_group()\n```\n")
	// What is posted is not posted again, also if others wrote much in between.
	for range 250 {
		c := f.comment("me too")
		c["user"] = map[string]any{"login": "grace"}
		f.review = append([]map[string]any{c}, f.review...)
	}
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f)
	// A mark in the comment of somebody else hides nothing.
	for _, c := range f.review {
		c["user"] = map[string]any{"login": "mallory"}
	}
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f, "POST /repos/o/r/pulls/7/reviews")
}

func TestBotReviewSummarizes(t *testing.T) {
	// The pull request shows the first lines only.
	f, dir := newPull(t, map[string]string{"train.py": leaking}, "@@ -1,2 +1,3 @@\n import torch.distributed as dist\n+\n \n")
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f, "POST /repos/o/r/issues/7/comments")
	wantText(t, "the summary", f.issue[0]["body"].(string), "<!-- ncclfix:v1 summary -->", "+        dist.destroy_process_group()")
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f)
	// Repaired by hand: the comment says so.
	sha := f.commit("o/r", "topic", "topic", map[string]string{"train.py": "print()\n"})
	f.pulls[0]["head"].(map[string]any)["sha"] = sha
	dir = f.clone("o/r", "topic")
	runBot(t, f, dir, 7, "--mode", "review").want(t, 0)
	wantWrites(t, f, fmt.Sprintf("PATCH /repos/o/r/issues/comments/%d", f.issue[0]["id"]))
	wantText(t, "the summary", f.issue[0]["body"].(string), "nothing is left")
}

func TestBotReviewStaleLines(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	f.answers["POST /repos/o/r/pulls/7/reviews"] = []answer{{422, nil, `{"message": "Unprocessable Entity", "errors": ["Line could not be resolved"]}`}}
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1, "Line could not be resolved")
	wantWrites(t, f, "POST /repos/o/r/issues/7/comments")
}

func TestBotReviewManyFiles(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	for i := range 150 {
		f.files = append([]map[string]any{{"filename": fmt.Sprintf("f%d", i), "patch": "@@ -1 +1 @@\n-a\n+b"}}, f.files...)
	}
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f, "POST /repos/o/r/pulls/7/reviews")
}

func TestBotRetries(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	f.answers["GET /repos/o/r/pulls/7"] = []answer{{502, nil, "<html>"}}
	f.answers["POST /repos/o/r/pulls/7/reviews"] = []answer{
		{403, map[string]string{"Retry-After": "0"}, `{"message": "You have exceeded a secondary rate limit"}`},
		{429, map[string]string{"Retry-After": "0"}, `{"message": "slow down"}`},
	}
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f, "POST /repos/o/r/pulls/7/reviews")
}

func TestBotReadOnlyToken(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	f.answers["POST /repos/o/r/pulls/7/reviews"] = []answer{{403, nil, `{"message": "Resource not accessible by integration"}`}}
	r := runBot(t, f, dir, 7, "--mode", "review")
	r.want(t, 2, "POST /repos/o/r/pulls/7/reviews: 403 Forbidden: Resource not accessible by integration; the token needs pull-requests: write")
	if strings.Count(strings.TrimSpace(r.errs), "\n") != 0 {
		t.Errorf("more than one line: %s", r.errs)
	}
	wantWrites(t, f)
}

// The base branch decides what is reported, not the pull request.
func TestBotSettings(t *testing.T) {
	off := "[tool.ncclfix]\nignore = [\"teardown\", \"pytest\"]\n"
	f, dir := newPull(t, map[string]string{"train.py": leaking, "pyproject.toml": off, "ncclfix.toml": "exclude = [\"**\"]\n"}, allLines(leaking))
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f, "POST /repos/o/r/pulls/7/reviews")
	f.base["pyproject.toml"] = off
	runBot(t, f, dir, 7, "--mode", "review").want(t, 0)
	wantWrites(t, f)
	f.base["pyproject.toml"] = "[tool.ncclfix]\nselekt = []\n"
	runBot(t, f, dir, 7, "--mode", "review").want(t, 2, "selekt")
}

// Without a token the settings of a pull request count for nothing either.
func TestBotAnnotates(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking, "ncclfix.toml": "exclude = [\"**\"]\n"}, "")
	summary := filepath.Join(t.TempDir(), "summary")
	with := func(token string) (int, string) {
		t.Chdir(dir)
		a := newApp()
		var out, errs bytes.Buffer
		env := f.env(7)
		a.stdin, a.stdout, a.stderr = strings.NewReader(""), &out, &errs
		a.isTerminal = func(any) bool { return false }
		a.getenv = func(name string) string {
			switch name {
			case "GITHUB_TOKEN":
				return token
			case "GITHUB_STEP_SUMMARY":
				return summary
			}
			return env(name)
		}
		return a.run(context.Background(), []string{"bot"}), out.String() + errs.String()
	}
	for _, token := range []string{"", testToken} {
		status, out := with(token)
		if status != 1 {
			t.Errorf("exit status %d", status)
		}
		wantText(t, "the output", out, "::warning file=train.py,line=5,col=5,title=teardown/script::init_process_group opens")
	}
	data, err := os.ReadFile(summary)
	if err != nil || strings.Count(string(data), "### ncclfix: 1 fix") != 2 {
		t.Errorf("the summary is %q, %v", data, err)
	}
}

// A run that follows the one of a fork finds the pull request by its head.
func TestBotFollowsRun(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	head := f.tip("o/r", "topic")
	event := func(sha string) func(string) string {
		env := f.env(0)
		file := filepath.Join(t.TempDir(), "event.json")
		text := fmt.Sprintf(`{"workflow_run": {"event": "pull_request", "head_branch": "topic", "head_sha": %q, "head_repository": {"owner": {"login": "o"}}}}`, sha)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return func(name string) string {
			if name == "GITHUB_EVENT_PATH" {
				return file
			}
			return env(name)
		}
	}
	run := func(sha string) (int, string) {
		t.Chdir(dir)
		a := newApp()
		var errs bytes.Buffer
		a.stdin, a.stdout, a.stderr, a.getenv = strings.NewReader(""), &errs, &errs, event(sha)
		a.isTerminal = func(any) bool { return false }
		return a.run(context.Background(), []string{"bot", "--mode", "review"}), errs.String()
	}
	if status, out := run(head); status != 1 {
		t.Errorf("exit status %d: %s", status, out)
	}
	wantWrites(t, f, "POST /repos/o/r/pulls/7/reviews")
	status, out := run(strings.Repeat("2", 40))
	if status != 2 {
		t.Errorf("exit status %d", status)
	}
	wantText(t, "the output", out, "no open pull request has the head 222222222222")
}

func TestBotChecksHead(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	f.pulls[0]["head"].(map[string]any)["sha"] = strings.Repeat("1", 40)
	runBot(t, f, dir, 7, "--mode", "review").want(t, 2, "the head of pull request 7 is 111111111111")
	runBot(t, f, dir, 0, "--mode", "review").want(t, 2, "about no pull request")
	wantWrites(t, f)
}

func TestBotDryRun(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, allLines(leaking))
	before := f.tip("o/r", "topic")
	runBot(t, f, dir, 7, "--mode", "review", "--dry-run").want(t, 1, "POST "+f.server.URL+"/api/v3/repos/o/r/pulls/7/reviews\n", `"commit_id": "`+before)
	runBot(t, f, dir, 7, "--mode", "push", "--dry-run").want(t, 0, "git push "+f.cloneURL("o/r"))
	runBot(t, f, f.clone("o/r", "main"), 0, "--mode", "pr", "--dry-run").want(t, 0)
	wantWrites(t, f)
	if after := f.tip("o/r", "topic"); after != before {
		t.Errorf("the branch moved from %s to %s", before, after)
	}
}

func TestBotPush(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking, "crlf.py": strings.ReplaceAll(leaking, "\n", "\r\n")}, "")
	head := f.tip("o/r", "topic")
	runBot(t, f, dir, 7, "--mode", "push", "--author", "Fix Bot <bot@example.org>", "--message", "Destroy groups").want(t, 0, "pushed ")
	wantWrites(t, f) // git alone
	wantText(t, "the repair", f.show("o/r", "topic", "train.py"), "    if dist.is_initialized():\n        dist.destroy_process_group()\n")
	wantText(t, "the repair", f.show("o/r", "topic", "crlf.py"), "    if dist.is_initialized():\r\n")
	log := runGit(t, filepath.Join(f.root, "o/r.git"), "log", "-1", "--format=%an <%ae> %cn %P%n%B", "topic")
	wantText(t, "the commit", log, "Fix Bot <bot@example.org> Fix Bot "+head+"\nDestroy groups\n\nNcclfix-Change: ")
	if out := runGit(t, dir, "status", "--porcelain"); out != "" {
		t.Errorf("the checkout changed: %s", out)
	}
	// On top of its own commit there is no second one, even if there is more to do.
	sha := f.tip("o/r", "topic")
	f.pulls[0]["head"].(map[string]any)["sha"] = sha
	dir = f.clone("o/r", "topic")
	runBot(t, f, dir, 7, "--mode", "push").want(t, 0)
	writeFiles(t, dir, map[string]string{"train.py": leaking})
	runBot(t, f, dir, 7, "--mode", "push").want(t, 2, "ncclfix's own")
	if f.tip("o/r", "topic") != sha {
		t.Error("a second commit")
	}
}

func TestBotPushRefused(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, "")
	// A file that is not as it was committed.
	writeFiles(t, dir, map[string]string{"train.py": "# mine\n" + leaking})
	runBot(t, f, dir, 7, "--mode", "push").want(t, 2, "train.py is not the file of the commit")
	writeFiles(t, dir, map[string]string{"train.py": leaking})
	// The branch moves between the question and the push.
	moved := f.commit("o/r", "topic", "topic", map[string]string{"other.py": "x = 1\n"})
	runBot(t, f, dir, 7, "--mode", "push").want(t, 2, "the branch has moved meanwhile", "nothing was changed")
	if f.tip("o/r", "topic") != moved {
		t.Error("what was pushed meanwhile is lost")
	}
	// A protected branch: what the server says is shown.
	f.pulls[0]["head"].(map[string]any)["sha"] = moved
	hook := filepath.Join(f.root, "o/r.git/hooks/pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho 'GH006: Protected branch update failed' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir = f.clone("o/r", "topic")
	runBot(t, f, dir, 7, "--mode", "push").want(t, 2, "refused", "GH006: Protected branch update failed")
	os.Remove(hook)
	// A closed one, and one that is gone.
	f.pulls[0]["state"] = "closed"
	runBot(t, f, dir, 7, "--mode", "push").want(t, 2, "is closed")
	wantWrites(t, f)
}

func TestBotPushFork(t *testing.T) {
	f, _ := newPull(t, map[string]string{"train.py": leaking}, "")
	f.create("mallory/r", map[string]string{"train.py": leaking})
	sha := f.tip("mallory/r", "main")
	f.pulls[0] = f.pull(7, "mallory/r", "main", sha)
	dir := f.clone("mallory/r", "main")
	runBot(t, f, dir, 7, "--mode", "push").want(t, 2, "--allow-fork")
	runBot(t, f, dir, 7, "--mode", "push", "--allow-fork").want(t, 2, "does not let maintainers push")
	if f.tip("mallory/r", "main") != sha {
		t.Error("pushed to a fork without permission")
	}
	f.pulls[0]["maintainer_can_modify"] = true
	runBot(t, f, dir, 7, "--mode", "push", "--allow-fork").want(t, 0)
	wantText(t, "the repair", f.show("mallory/r", "main", "train.py"), "destroy_process_group")
}

// The token goes to no other host, whatever the API says.
func TestBotPushElsewhere(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking}, "")
	for _, address := range []string{"https://evil.example.org/o/r.git", "ext::sh -c true", "file:///tmp/x"} {
		f.pulls[0]["head"].(map[string]any)["repo"].(map[string]any)["clone_url"] = address
		runBot(t, f, dir, 7, "--mode", "push").want(t, 2, "the repository is said to be at")
	}
}

// Hooks, filters and the monitor of a checkout are not run, from a work tree beside
// the repository and with a submodule in it.
func TestBotRunsNothing(t *testing.T) {
	f, dir := newPull(t, map[string]string{"train.py": leaking, ".gitattributes": "*.py filter=bad\n"}, "")
	trap := filepath.Join(t.TempDir(), "ran")
	script := "#!/bin/sh\ntouch " + trap + "\ncat\n"
	for _, hook := range []string{"pre-commit", "pre-push", "post-commit", "reference-transaction", "post-index-change", "post-checkout"} {
		if err := os.WriteFile(filepath.Join(dir, ".git/hooks", hook), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	runGit(t, dir, "config", "filter.bad.clean", "touch "+trap+"; cat")
	runGit(t, dir, "config", "core.fsmonitor", "touch "+trap)
	beside := filepath.Join(t.TempDir(), "beside")
	runGit(t, dir, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "worktree", "add", "-q", "--detach", beside, "HEAD")
	os.Remove(trap)
	runBot(t, f, beside, 7, "--mode", "push").want(t, 0)
	wantText(t, "the repair", f.show("o/r", "topic", "train.py"), "destroy_process_group")
	if _, err := os.Stat(trap); err == nil {
		t.Error("code of the checkout was run")
	}
}

func TestBotPR(t *testing.T) {
	isolateGit(t)
	f := newForge(t)
	f.create("o/r", map[string]string{"train.py": leaking})
	dir := f.clone("o/r", "main")
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 0, "opened pull request")
	wantWrites(t, f, "POST /repos/o/r/pulls")
	wantText(t, "the repair", f.show("o/r", "ncclfix/teardown", "train.py"), "destroy_process_group")
	wantText(t, "the pull request", f.pulls[0]["body"].(string), "1 fix", "teardown/script")
	first := f.tip("o/r", "ncclfix/teardown")
	// A second run changes nothing.
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 0)
	wantWrites(t, f)
	if f.tip("o/r", "ncclfix/teardown") != first {
		t.Error("a second run pushed again")
	}
	// The default branch moves on: the branch follows, the pull request stays.
	f.commit("o/r", "main", "main", map[string]string{"second.py": leaking})
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 2, "check out that branch, or run again")
	dir = f.clone("o/r", "main")
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 0)
	wantWrites(t, f, fmt.Sprintf("PATCH /repos/o/r/pulls/%d", f.pulls[0]["number"]))
	wantText(t, "the repair", f.show("o/r", "ncclfix/teardown", "second.py"), "destroy_process_group")
	// Somebody works on the branch: it is left alone.
	theirs := f.commit("o/r", "ncclfix/teardown", "ncclfix/teardown", map[string]string{"third.py": "x = 1\n"})
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 2, "a commit that is not ncclfix's")
	if f.tip("o/r", "ncclfix/teardown") != theirs {
		t.Error("the work of somebody else is lost")
	}
	// Merged: nothing is left.
	bare := filepath.Join(f.root, "o/r.git")
	runGit(t, bare, "update-ref", "refs/heads/ncclfix/teardown", theirs+"^")
	runGit(t, bare, "update-ref", "refs/heads/main", theirs+"^")
	dir = f.clone("o/r", "main")
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 0)
	number := f.pulls[0]["number"]
	wantWrites(t, f, fmt.Sprintf("POST /repos/o/r/issues/%d/comments", number), fmt.Sprintf("PATCH /repos/o/r/pulls/%d", number))
	if f.pulls[0]["state"] != "closed" || f.tip("o/r", "ncclfix/teardown") != "" {
		t.Errorf("pull request is %s, its branch at %q", f.pulls[0]["state"], f.tip("o/r", "ncclfix/teardown"))
	}
	runBot(t, f, dir, 0, "--mode", "pr").want(t, 0)
	wantWrites(t, f)
	runBot(t, f, dir, 0, "--mode", "pr", "--branch", "main").want(t, 2, "must begin with ncclfix/")
}

// Names, strings and settings of a hostile pull request show up as text, and decide
// nothing.
func TestBotHostile(t *testing.T) {
	text := "import torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group(\"gloo\")\n" +
		"    print(\"```\\n</details><img src=x onerror=alert(1)> @octocat ::set-output name=a::b \x1b[31m\u202e\")\n\n\nif __name__ == \"__main__\":\n    main()\n"
	name := "a\n::set-output name=x::y\n`.py"
	files := map[string]string{
		name: text, "@octocat<b>``.py": text,
		"ncclfix.toml": "exclude = [\"**\"]\n",
		"big.py":       "x = 1\n" + strings.Repeat("# filler\n", 50<<20/9),
		"deep.py":      "import torch.distributed as dist\ndist.init_process_group(" + strings.Repeat("(", 5000) + strings.Repeat(")", 5000) + ")\n",
	}
	f, dir := newPull(t, files, "")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "passwd.py")); err != nil {
		t.Fatal(err)
	}
	f.files = []map[string]any{{"filename": name, "patch": allLines(text)}}
	runBot(t, f, dir, 7, "--mode", "review").want(t, 1)
	wantWrites(t, f, "POST /repos/o/r/issues/7/comments")
	body := f.issue[0]["body"].(string)
	for _, bad := range []string{"\x1b", "\u202e", "root:"} {
		if strings.Contains(body, bad) {
			t.Errorf("the summary holds %q", bad)
		}
	}
	// All of it is inside of fences that it cannot end.
	fence := ""
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = line[:len(line)-len(strings.TrimLeft(line, "`"))]
		case fence != "" && line == fence:
			fence = ""
		case fence == "" && (strings.Contains(line, "octocat") || strings.Contains(line, "<img") || strings.Contains(line, "::set-output")):
			t.Errorf("outside of a fence: %s", line)
		}
	}
	r := runBot(t, f, dir, 7, "--mode", "annotate")
	for line := range strings.Lines(r.out + r.errs) {
		if strings.HasPrefix(line, "::") && !strings.HasPrefix(line, "::warning file=") {
			t.Errorf("a command: %s", line)
		}
	}
	r = runBot(t, f, dir, 7, "--mode", "review", "--dry-run")
	for line := range strings.Lines(r.out + r.errs) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") {
			t.Errorf("a command: %s", line)
		}
	}
}
