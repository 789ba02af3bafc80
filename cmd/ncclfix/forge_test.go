package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const testToken = "ghs_secret"

// A forge behaves as GitHub's REST API is documented to, as far as the bot uses it,
// and serves git over HTTP. A request that is not right fails the test.
type forge struct {
	t      *testing.T
	server *httptest.Server
	root   string // of bare repositories, by full name

	mu       sync.Mutex
	pulls    []map[string]any
	files    []map[string]any // of the pull request of the event
	base     map[string]string
	review   []map[string]any // comments of reviews
	issue    []map[string]any // comments of the pull request
	writes   []string         // "METHOD path", of what changes something
	bodies   []string
	answers  map[string][]answer // of "METHOD path", before the usual one
	nextID   int
	pageSize int
}

type answer struct {
	status int
	header map[string]string
	body   string
}

func newForge(t *testing.T) *forge {
	t.Helper()
	f := &forge{t: t, root: t.TempDir(), base: map[string]string{}, answers: map[string][]answer{}, nextID: 100, pageSize: 100}
	f.server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.server.Close)
	return f
}

// env is the environment of a workflow run. The event is about pull request 7 if
// number is 7, and about none if it is 0.
func (f *forge) env(number int) func(string) string {
	event := "{}"
	if number != 0 {
		event = fmt.Sprintf(`{"pull_request": {"number": %d}}`, number)
	}
	file := filepath.Join(f.t.TempDir(), "event.json")
	if err := os.WriteFile(file, []byte(event), 0o600); err != nil {
		f.t.Fatal(err)
	}
	env := map[string]string{
		"GITHUB_API_URL": f.server.URL + "/api/v3", "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": testToken,
		"GITHUB_EVENT_PATH": file, "GITHUB_SERVER_URL": f.server.URL,
	}
	return func(name string) string { return env[name] }
}

func (f *forge) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/git/") {
		f.git(w, r)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v3")
	for name, want := range map[string]string{
		"Accept": "application/vnd.github+json", "X-Github-Api-Version": "2022-11-28", "Authorization": "token " + testToken,
	} {
		if got := r.Header.Get(name); got != want || !ok {
			f.t.Errorf("%s %s: header %s is %q", r.Method, r.URL, name, got)
		}
	}
	if !strings.HasPrefix(r.Header.Get("User-Agent"), "ncclfix/") {
		f.t.Errorf("%s %s: User-Agent is %q", r.Method, r.URL, r.Header.Get("User-Agent"))
	}
	body, _ := io.ReadAll(r.Body)
	key := r.Method + " " + path
	if list := f.answers[key]; len(list) > 0 {
		f.answers[key] = list[1:]
		for k, v := range list[0].header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(list[0].status)
		io.WriteString(w, list[0].body)
		return
	}
	if r.Method != http.MethodGet {
		f.writes = append(f.writes, key)
		f.bodies = append(f.bodies, string(body))
		f.record(r.Method, path, body)
		if r.Header.Get("Content-Type") != "application/json" {
			f.t.Errorf("%s: Content-Type is %q", key, r.Header.Get("Content-Type"))
		}
	}
	f.api(w, r, key, path, body)
}

// record hands requests on to testdata/openapi/check.py.
func (f *forge) record(method, path string, body []byte) {
	name := os.Getenv("NCCLFIX_REQUESTS")
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	json.NewEncoder(file).Encode(map[string]any{"method": method, "path": path, "body": json.RawMessage(body)})
}

var (
	issueComment = regexp.MustCompile(`^/repos/o/r/issues/comments/(\d+)$`)
	pullPath     = regexp.MustCompile(`^/repos/o/r/pulls/(\d+)$`)
	contentsPath = regexp.MustCompile(`^/repos/o/r/contents/(.+)$`)
)

func (f *forge) api(w http.ResponseWriter, r *http.Request, key, path string, body []byte) {
	switch {
	case key == "GET /user":
		f.json(w, 403, map[string]any{"message": "Resource not accessible by integration"})
	case key == "GET /repos/o/r":
		f.json(w, 200, map[string]any{"full_name": "o/r", "clone_url": f.cloneURL("o/r"), "default_branch": "main"})
	case key == "GET /repos/o/r/pulls/7/files":
		f.page(w, r, f.files)
	case key == "GET /repos/o/r/pulls/7/comments":
		f.page(w, r, f.review)
	case key == "GET /repos/o/r/issues/7/comments":
		f.page(w, r, f.issue)
	case key == "GET /repos/o/r/pulls":
		owner, ref, ok := strings.Cut(r.URL.Query().Get("head"), ":")
		if owner != "o" || !ok || r.URL.Query().Get("state") != "open" {
			f.t.Errorf("%s: query %s", key, r.URL.RawQuery)
		}
		var open []map[string]any
		for _, p := range f.pulls {
			if p["state"] == "open" && p["head"].(map[string]any)["ref"] == ref {
				open = append(open, p)
			}
		}
		f.page(w, r, open)
	case r.Method == "GET" && contentsPath.MatchString(path):
		name := contentsPath.FindStringSubmatch(path)[1]
		text, ok := f.base[name]
		if !ok || r.URL.Query().Get("ref") != "main" {
			f.json(w, 404, map[string]any{"message": "Not Found"})
			return
		}
		f.json(w, 200, map[string]any{"type": "file", "encoding": "base64", "content": base64.StdEncoding.EncodeToString([]byte(text)) + "\n"})
	case r.Method == "GET" && pullPath.MatchString(path):
		n, _ := strconv.Atoi(pullPath.FindStringSubmatch(path)[1])
		for _, p := range f.pulls {
			if p["number"] == n {
				f.json(w, 200, p)
				return
			}
		}
		f.json(w, 404, map[string]any{"message": "Not Found"})
	case key == "POST /repos/o/r/pulls/7/reviews":
		var in struct {
			Commit   string `json:"commit_id"`
			Event    string `json:"event"`
			Body     string `json:"body"`
			Comments []struct {
				Path      string `json:"path"`
				Body      string `json:"body"`
				Line      int    `json:"line"`
				Side      string `json:"side"`
				StartLine int    `json:"start_line"`
				StartSide string `json:"start_side"`
			} `json:"comments"`
		}
		f.decode(key, body, &in)
		if in.Event != "COMMENT" || in.Commit != f.pulls[0]["head"].(map[string]any)["sha"] || len(in.Comments) == 0 {
			f.t.Errorf("%s: %s", key, body)
		}
		for _, c := range in.Comments {
			if c.Side != "RIGHT" || c.Line == 0 || c.StartLine >= c.Line || (c.StartLine != 0) != (c.StartSide == "RIGHT") {
				f.t.Errorf("%s: comment %+v", key, c)
			}
			f.review = append(f.review, f.comment(c.Body))
		}
		f.json(w, 200, map[string]any{"id": 1})
	case key == "POST /repos/o/r/issues/7/comments" || strings.HasPrefix(key, "POST /repos/o/r/issues/"):
		var in struct {
			Body string `json:"body"`
		}
		f.decode(key, body, &in)
		f.issue = append(f.issue, f.comment(in.Body))
		f.json(w, 201, f.issue[len(f.issue)-1])
	case r.Method == "PATCH" && issueComment.MatchString(path):
		var in struct {
			Body string `json:"body"`
		}
		f.decode(key, body, &in)
		for _, c := range f.issue {
			if strconv.Itoa(c["id"].(int)) == issueComment.FindStringSubmatch(path)[1] {
				c["body"] = in.Body
				f.json(w, 200, c)
				return
			}
		}
		f.json(w, 404, map[string]any{"message": "Not Found"})
	case key == "POST /repos/o/r/pulls":
		var in struct{ Title, Body, Head, Base string }
		f.decode(key, body, &in)
		if in.Head != "ncclfix/teardown" || in.Base != "main" || in.Title == "" {
			f.t.Errorf("%s: %s", key, body)
		}
		f.nextID++
		p := f.pull(f.nextID, "o/r", in.Head, f.tip("o/r", in.Head))
		p["title"], p["body"] = in.Title, in.Body
		f.pulls = append(f.pulls, p)
		f.json(w, 201, p)
	case r.Method == "PATCH" && pullPath.MatchString(path):
		var in struct{ Title, Body, State string }
		f.decode(key, body, &in)
		n, _ := strconv.Atoi(pullPath.FindStringSubmatch(path)[1])
		for _, p := range f.pulls {
			if p["number"] == n {
				if in.State != "" {
					p["state"] = in.State
				}
				if in.Title != "" {
					p["title"], p["body"] = in.Title, in.Body
				}
				f.json(w, 200, p)
			}
		}
	default:
		f.t.Errorf("a request that is not right: %s %s", r.Method, r.URL)
		f.json(w, 404, map[string]any{"message": "Not Found"})
	}
}

func (f *forge) decode(key string, body []byte, into any) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		f.t.Errorf("%s: %v: %s", key, err, body)
	}
}

func (f *forge) json(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// page answers with one page, and says where the next one is.
func (f *forge) page(w http.ResponseWriter, r *http.Request, all []map[string]any) {
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	page = max(page, 1)
	if r.URL.Query().Get("per_page") != "100" {
		f.t.Errorf("%s: per_page is %q", r.URL, r.URL.Query().Get("per_page"))
	}
	from, to := min((page-1)*f.pageSize, len(all)), min(page*f.pageSize, len(all))
	if to < len(all) {
		q := r.URL.Query()
		q.Set("page", strconv.Itoa(page+1))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next", <%s/x>; rel="last"`, f.server.URL, r.URL.Path, q.Encode(), f.server.URL))
	}
	f.json(w, 200, append([]map[string]any{}, all[from:to]...))
}

func (f *forge) comment(body string) map[string]any {
	f.nextID++
	return map[string]any{"id": f.nextID, "body": body, "user": map[string]any{"login": "github-actions[bot]"}}
}

func (f *forge) pull(number int, fork, ref, sha string) map[string]any {
	repo := func(name string) map[string]any {
		return map[string]any{"full_name": name, "clone_url": f.cloneURL(name)}
	}
	return map[string]any{
		"number": number, "state": "open", "title": "", "body": "", "maintainer_can_modify": false,
		"head": map[string]any{"ref": ref, "sha": sha, "repo": repo(fork)},
		"base": map[string]any{"ref": "main", "sha": "", "repo": repo("o/r")},
	}
}

// changes takes the writes that were seen since the last call.
func (f *forge) changes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.writes
	f.writes = nil
	return out
}

func (f *forge) cloneURL(name string) string { return f.server.URL + "/git/" + name + ".git" }

// git serves a bare repository with git http-backend, to those who log in.
func (f *forge) git(w http.ResponseWriter, r *http.Request) {
	if user, password, ok := r.BasicAuth(); !ok || user != "x-access-token" || password != testToken {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(401)
		return
	}
	backend, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		f.t.Error(err)
	}
	h := cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + f.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=bot", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	h.ServeHTTP(w, r)
}

// create makes a bare repository with the files on the branch main.
func (f *forge) create(name string, files map[string]string) {
	f.t.Helper()
	bare := filepath.Join(f.root, name+".git")
	runGit(f.t, f.root, "init", "-q", "--bare", "-b", "main", bare)
	runGit(f.t, bare, "config", "http.receivepack", "true")
	runGit(f.t, bare, "config", "uploadpack.allowAnySHA1InWant", "true")
	f.commit(name, "main", "main", files)
}

// commit puts files on a branch that begins at another, and returns the commit. A
// nil map of files adds an empty commit.
func (f *forge) commit(name, from, branch string, files map[string]string) string {
	f.t.Helper()
	bare := filepath.Join(f.root, name+".git")
	dir := f.t.TempDir()
	runGit(f.t, dir, "init", "-q", "-b", branch)
	if f.tip(name, from) != "" {
		runGit(f.t, dir, "fetch", "-q", bare, from)
		runGit(f.t, dir, "reset", "-q", "--hard", "FETCH_HEAD")
	}
	writeFiles(f.t, dir, files)
	runGit(f.t, dir, "add", "-A")
	runGit(f.t, dir, "commit", "-q", "--allow-empty", "-m", "change")
	runGit(f.t, dir, "push", "-q", bare, "HEAD:refs/heads/"+branch)
	return f.tip(name, branch)
}

func (f *forge) tip(name, branch string) string {
	out, err := exec.Command("git", "-C", filepath.Join(f.root, name+".git"), "rev-parse", "--verify", "--quiet", "refs/heads/"+branch).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// show returns a file of a branch.
func (f *forge) show(name, branch, file string) string {
	f.t.Helper()
	return runGit(f.t, filepath.Join(f.root, name+".git"), "show", "refs/heads/"+branch+":"+file)
}

// clone returns a shallow checkout of a commit without a branch, as actions/checkout
// makes it, with the header that it leaves behind.
func (f *forge) clone(name, branch string) string {
	f.t.Helper()
	dir := f.t.TempDir()
	runGit(f.t, dir, "init", "-q")
	runGit(f.t, dir, "remote", "add", "origin", f.cloneURL(name))
	runGit(f.t, dir, "fetch", "-q", "--depth=1", "file://"+filepath.Join(f.root, name+".git"), branch)
	runGit(f.t, dir, "checkout", "-q", "--detach", "FETCH_HEAD")
	runGit(f.t, dir, "config", "http."+f.server.URL+"/.extraheader", "AUTHORIZATION: basic b2xkOm9sZA==")
	return dir
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}
