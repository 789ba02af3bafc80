package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newServed returns a repository, a bare clone of it, and a commit on top of head
// that is not pushed yet.
func newServed(t *testing.T) (r *Repo, dir, bare, head, commit string) {
	t.Helper()
	r, dir = newRepo(t, "sha1", map[string]string{"a.py": "a\n", "b.py": "b\n"})
	bare = filepath.Join(t.TempDir(), "bare.git")
	git(t, dir, "clone", "-q", "--bare", dir, bare)
	git(t, bare, "config", "http.receivepack", "true")
	head = git(t, dir, "rev-parse", "HEAD")
	return r, dir, bare, head, newCommit(t, r, head)
}

func newCommit(t *testing.T, r *Repo, parent string) string {
	t.Helper()
	commit, err := r.Commit(t.Context(), Change{Parent: parent, Files: []File{{"a.py", []byte("a\n"), []byte("repaired\n")}}, Author: Identity{"a", "b"}, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

// serve serves the folder over HTTP, as git does, to those who send the token once.
func serve(t *testing.T, root, token string) *httptest.Server {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=bot"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "x-access-token" || password != token || len(req.Header.Values("Authorization")) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestPushHTTP(t *testing.T) {
	r, dir, bare, head, commit := newServed(t)
	server := serve(t, filepath.Dir(bare), "secret")
	// As actions/checkout leaves it.
	git(t, dir, "config", "http."+server.URL+"/.extraheader", "AUTHORIZATION: basic b3RoZXI6eA==")
	remote := Remote{URL: server.URL + "/bare.git", Token: "secret"}
	if err := r.Push(t.Context(), remote, commit, "main", head); err != nil {
		t.Fatal(err)
	}
	if got := git(t, bare, "rev-parse", "main"); got != commit {
		t.Errorf("main is at %s", got)
	}
	var refused *RefusedError
	remote.Token = "other"
	if err := r.Push(t.Context(), remote, head, "main", commit); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}

// A redirect does not take the token to another server, whatever the user allows.
// This one lets everybody in, so that it is asked more than once.
func TestRedirect(t *testing.T) {
	r, dir, bare, _, commit := newServed(t)
	inner := serve(t, filepath.Dir(bare), "secret")
	asked, told := 0, 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked++
		if req.Header.Get("Authorization") != "" {
			told++
		}
		req.SetBasicAuth("x-access-token", "secret")
		inner.Config.Handler.ServeHTTP(w, req)
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other.URL+"/bare.git"+strings.TrimPrefix(req.URL.Path, "/old.git")+"?"+req.URL.RawQuery, http.StatusMovedPermanently)
	}))
	defer server.Close()
	git(t, dir, "config", "http.followRedirects", "true")
	git(t, dir, "config", "http."+server.URL+".followRedirects", "true")
	err := r.Push(t.Context(), Remote{URL: server.URL + "/old.git", Token: "secret"}, commit, "new", "")
	if err == nil || !strings.Contains(err.Error(), "301") || asked != 0 {
		t.Errorf("the other server was asked %d times, %d times with the token; error %v", asked, told, err)
	}
}

// What the server says is shown.
func TestServerRefuses(t *testing.T) {
	r, _, _, head, commit := newServed(t)
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(status)
			fmt.Fprintln(w, "Permission to o/r.git denied to github-actions[bot].")
		}))
		defer server.Close()
		var refused *RefusedError
		err := r.Push(t.Context(), Remote{URL: server.URL + "/o/r.git", Token: "secret"}, commit, "main", head)
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "Permission to o/r.git denied to github-actions[bot].") {
			t.Errorf("%d: error %v", status, err)
		}
	}
}

// A branch that moves while a push is under way is not the server's refusal.
func TestPushRace(t *testing.T) {
	r, _, bare, head, commit := newServed(t)
	// The hook stands for somebody who pushes in between.
	hook := filepath.Join(bare, "hooks", "pre-receive")
	for branch, expected := range map[string]string{"main": head, "new": ""} {
		script := "#!/bin/sh\nenv -u GIT_QUARANTINE_PATH git update-ref refs/heads/" + branch + " $(git commit-tree -p " + head + " -m x " + head + "^{tree})\n"
		os.MkdirAll(filepath.Dir(hook), 0o755)
		if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := r.Push(t.Context(), Remote{URL: "file://" + bare}, commit, branch, expected); !errors.Is(err, ErrMoved) {
			t.Errorf("%s: error %v", branch, err)
		}
		if got := git(t, bare, "rev-parse", branch); got == commit || got == head {
			t.Errorf("%s is at %s", branch, got)
		}
	}
	os.Remove(hook)
	// A branch in the way is.
	var refused *RefusedError
	if err := r.Push(t.Context(), Remote{URL: "file://" + bare}, commit, "main/x", ""); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}

// A clone may lack history, or the files that are not checked out.
func TestPushFromPartOfARepository(t *testing.T) {
	for _, args := range [][]string{{"--depth=1"}, {"--filter=blob:none", "--sparse"}} {
		t.Run(args[0], func(t *testing.T) {
			_, _, bare, _, _ := newServed(t)
			git(t, bare, "config", "uploadpack.allowFilter", "true")
			dir := filepath.Join(t.TempDir(), "clone")
			git(t, filepath.Dir(bare), append(append([]string{"clone", "-q", "--no-checkout"}, args...), "file://"+bare, dir)...)
			git(t, dir, "cat-file", "blob", "HEAD:a.py") // what is repaired is there
			git(t, dir, "config", "remote.origin.url", "file:///nowhere")
			r, err := Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			head := git(t, dir, "rev-parse", "HEAD")
			commit := newCommit(t, r, head)
			if err := r.Push(t.Context(), Remote{URL: "file://" + bare}, commit, "main", head); err != nil {
				t.Fatal(err)
			}
			if got := git(t, bare, "rev-parse", "main"); got != commit {
				t.Errorf("main is at %s", got)
			}
			git(t, bare, "fsck", "--strict")
		})
	}
}

// The user's own settings are found where the environment says.
func TestSettingsOfTheUser(t *testing.T) {
	_, dir := newRepo(t, "sha1", map[string]string{"a.py": "a\n"})
	file := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(file, []byte("[alias]\n\tmine = x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", file)
	r, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.git(t.Context(), nil, "config", "--get", "alias.mine"); err != nil || string(out) != "x\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestOldGit(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.31.0": true, "2.39.5 (Apple Git-154)": true, "2.52.0.windows.1": true, "2.100.rc1": true, "3.0.0": true,
		"2.30.9": false, "1.99.0": false, "x": false,
	} {
		if got := isRecent("git version " + version + "\n"); got != ok {
			t.Errorf("%q: %t", version, got)
		}
	}
}

// When the context ends, so does all that git has started.
func TestPushCancelled(t *testing.T) {
	r, _, bare, head, commit := newServed(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	os.MkdirAll(filepath.Join(bare, "hooks"), 0o755)
	script := "#!/bin/sh\ntrap '' TERM\necho $$ >" + pidFile + ".new\nmv " + pidFile + ".new " + pidFile + "\nwhile :; do sleep 0.1; done\n"
	if err := os.WriteFile(filepath.Join(bare, "hooks", "pre-receive"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Push(ctx, Remote{URL: "file://" + bare}, commit, "main", head) }()
	var pid []byte
	for deadline := time.Now().Add(time.Minute); pid == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pid, _ = os.ReadFile(pidFile)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(n, syscall.SIGKILL)
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(n, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n)); err == nil && strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d goes on", n)
		}
	}
}
