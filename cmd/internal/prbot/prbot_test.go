package prbot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers/diff"
)

// newTestClient returns a client of a server whose waits are recorded instead of
// slept.
func newTestClient(t *testing.T, h http.HandlerFunc) (*client, *[]time.Duration) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	api, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(&Event{API: api, Token: "secret"}, "test", nil)
	var waits []time.Duration
	c.sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	c.now = func() time.Time { return time.Unix(1000, 0) }
	return c, &waits
}

func TestClientWaits(t *testing.T) {
	type answer struct {
		status int
		header string // "Name: value"
		body   string
	}
	tests := []struct {
		name    string
		method  string
		answers []answer // then 200
		want    []time.Duration
		err     string // "" wants success
	}{
		{"server errors", "GET", []answer{{502, "", ""}, {503, "", ""}}, []time.Duration{time.Second, 2 * time.Second}, ""},
		{"a server error of what may have been done", "POST", []answer{{502, "", ""}}, nil, "502 Bad Gateway"},
		{"retry after", "POST", []answer{{403, "Retry-After: 7", `{"message": "secondary rate limit"}`}}, []time.Duration{7 * time.Second}, ""},
		{"the primary limit", "GET", []answer{{403, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1042", ""}}, []time.Duration{42 * time.Second}, ""},
		{"the primary limit, long", "GET", []answer{{429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 4600", ""}}, nil, "the limit ends in 1h0m0s"},
		{"a secondary limit without a time", "PATCH", []answer{{403, "", `{"message": "You have exceeded a secondary rate limit."}`}}, []time.Duration{time.Minute}, ""},
		{"no rights", "PATCH", []answer{{403, "X-RateLimit-Remaining: 59", `{"message": "Resource not accessible by integration"}`}}, nil, "403 Forbidden: Resource not accessible by integration; the token needs pull-requests: write"},
		{"not there", "POST", []answer{{404, "", `{"message": "Not Found"}`}}, nil, "404 Not Found: Not Found; the token needs"},
		{"five times", "GET", []answer{{500, "", ""}, {500, "", ""}, {500, "", ""}, {500, "", ""}, {500, "", ""}}, []time.Duration{1e9, 2e9, 4e9, 8e9}, "500"},
		{"what is no JSON", "GET", []answer{{200, "", "<html>"}}, nil, "the answer cannot be read"},
		{"a message that steers", "GET", []answer{{422, "", `{"message": "a\n::set-output name=x::\u001b[31m"}`}}, nil, "a^J::set-output name=x::^[[31m"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			c, waits := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				if n++; n > len(tt.answers) {
					w.Write([]byte("{}"))
					return
				}
				a := tt.answers[n-1]
				for line := range strings.Lines(a.header) {
					name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
					w.Header().Set(name, value)
				}
				w.WriteHeader(a.status)
				w.Write([]byte(a.body))
			})
			var out map[string]any
			_, err := c.send(t.Context(), tt.method, "/repos/o/r/pulls/1", map[string]string{"body": "x"}, &out)
			if d := cmp.Diff(tt.want, *waits); d != "" {
				t.Errorf("waits (-want +got):\n%s", d)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("the error is more than one line, or steers a terminal: %q", err)
			}
		})
	}
}

// The token does not follow a redirect to another host.
func TestClientRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other host is asked, with %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/renamed":
			http.Redirect(w, r, "/repositories/1", http.StatusMovedPermanently)
		case "/repositories/1":
			if r.Header.Get("Authorization") != "token secret" {
				t.Error("the token is lost on the way")
			}
			w.Write([]byte(`{"name": "new"}`))
		case "/list":
			w.Header().Set("Link", fmt.Sprintf(`<%s/steal>; rel="next"`, other.URL))
			w.Write([]byte("[]"))
		default:
			http.Redirect(w, r, other.URL, http.StatusFound)
		}
	})
	var out struct{ Name string }
	if err := c.get(t.Context(), "/renamed", &out); err != nil || out.Name != "new" {
		t.Errorf("%q, %v", out.Name, err)
	}
	if err := c.get(t.Context(), "/away", &out); err == nil || !strings.Contains(err.Error(), "where the token does not belong") {
		t.Errorf("error %v", err)
	}
	if err := list(t.Context(), c, "/list", "", 5, func(int) {}); err == nil || !strings.Contains(err.Error(), "the next page") {
		t.Errorf("error %v", err)
	}
}

func TestClientCancelled(t *testing.T) {
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) })
	ctx, cancel := context.WithCancel(t.Context())
	c.sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	if err := c.get(ctx, "/x", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestReadEvent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "event.json")
	tests := []struct {
		name, event string
		env         map[string]string
		want        string // "API repository number gitea", or the error
	}{
		{"a pull request", `{"number": 3, "pull_request": {"number": 3}}`, map[string]string{"GITHUB_REPOSITORY": "o/r"}, "https://api.github.com o/r 3 false"},
		{"an issue is none", `{"issue": {"number": 3}}`, map[string]string{"GITHUB_REPOSITORY": "o/r"}, "https://api.github.com o/r 0 false"},
		{"Enterprise", `{}`, map[string]string{"GITHUB_REPOSITORY": "o/r", "GITHUB_API_URL": "https://git.example.org/api/v3/"}, "https://git.example.org/api/v3 o/r 0 false"},
		{"Gitea", `{}`, map[string]string{"GITHUB_REPOSITORY": "o/r", "GITHUB_API_URL": "http://127.0.0.1:3000/api/v1"}, "http://127.0.0.1:3000/api/v1 o/r 0 true"},
		{"no URL", `{}`, map[string]string{"GITHUB_API_URL": "file:///etc/passwd"}, `GITHUB_API_URL is "file:///etc/passwd", which is no URL of an API`},
		{"no name", `{}`, map[string]string{"GITHUB_REPOSITORY": "../x"}, `GITHUB_REPOSITORY is "../x", not owner/name`},
		{"no JSON", `{`, map[string]string{"GITHUB_REPOSITORY": "o/r"}, "reading the event in " + file + ": unexpected end of JSON input"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tt.event), 0o600); err != nil {
				t.Fatal(err)
			}
			tt.env["GITHUB_EVENT_PATH"] = file
			e, err := ReadEvent(func(name string) string { return tt.env[name] })
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprintf("%s %s %d %t", e.API, e.Repository, e.Number, e.Gitea)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReplacements(t *testing.T) {
	base := "one\ntwo\nthree\n"
	tests := []struct {
		name, base string
		edits      []diff.Edit
		want       string // "first-last:text", one a line
	}{
		{"behind a line", base, []diff.Edit{diff.Insert(3, "\nnew")}, "1-1:\"one\\nnew\""},
		{"in front of a line", base, []diff.Edit{diff.Insert(4, "new\n")}, "2-2:\"new\\ntwo\""},
		{"at the end", base, []diff.Edit{diff.Insert(len(base), "\nnew\n")}, "3-3:\"three\\n\\nnew\""},
		{"at the end without a newline", "one", []diff.Edit{diff.Insert(3, "\nnew")}, "1-1:\"one\\nnew\""},
		{"within a line", base, []diff.Edit{{Start: 5, End: 6, New: "WW"}}, "2-2:\"tWWo\""},
		{"two of one line", base, []diff.Edit{diff.Insert(7, "!"), diff.Insert(4, "<")}, "2-2:\"<two!\""},
		{"two lines", base, []diff.Edit{diff.Insert(3, "!"), diff.Insert(13, "!")}, "1-1:\"one!\"\n3-3:\"three!\""},
		{"over lines", base, []diff.Edit{{Start: 2, End: 5, New: ""}}, "1-2:\"onwo\""},
		{"nothing to stand on", "", []diff.Edit{diff.Insert(0, "new\n")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, r := range replacements([]byte(tt.base), tt.edits) {
				got = append(got, fmt.Sprintf("%d-%d:%q", r.first, r.last, r.text))
			}
			if d := cmp.Diff(tt.want, strings.Join(got, "\n")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			// Taken line by line, they make what the edits make.
			want, err := diff.Apply([]byte(tt.base), tt.edits)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(strings.TrimSuffix(tt.base, "\n"), "\n")
			rs := replacements([]byte(tt.base), tt.edits)
			for i := len(rs) - 1; i >= 0; i-- {
				lines = append(append(append([]string{}, lines[:rs[i].first-1]...), rs[i].text+"\n"), lines[rs[i].last:]...)
			}
			if tt.base != "" && strings.TrimSuffix(strings.Join(lines, ""), "\n") != strings.TrimSuffix(string(want), "\n") {
				t.Errorf("suggestions make %q, edits %q", strings.Join(lines, ""), want)
			}
		})
	}
}

func TestDryRunPrintsLines(t *testing.T) {
	var out bytes.Buffer
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) { t.Error("a request was sent") })
	c.dry = &out
	body := map[string]string{"body": "a\n::set-output name=x::y\x1b[0m ##[command] @octocat"}
	if err := c.change(t.Context(), "POST", "/x", body, nil); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") || strings.ContainsRune(line, '\x1b') {
			t.Errorf("a line that steers: %q", line)
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("the token is printed")
	}
}

// A redirect that would turn a change into a question is an error, not a success.
func TestClientRedirectedChange(t *testing.T) {
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/kept":
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		case r.URL.Path != "/there":
			http.Redirect(w, r, "/there", http.StatusMovedPermanently)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte("{}"))
		default:
			w.Write([]byte("[]"))
		}
	})
	body := map[string]string{"body": "x"}
	if err := c.change(t.Context(), http.MethodPost, "/renamed", body, nil); err == nil || !strings.Contains(err.Error(), "renamed") {
		t.Errorf("error %v", err)
	}
	if err := c.change(t.Context(), http.MethodPost, "/kept", body, nil); err != nil {
		t.Error(err)
	}
}

// Settings that the API leaves out are not taken for none.
func TestBaseFileTooLarge(t *testing.T) {
	answer := `{"type": "file", "encoding": "base64", "content": "YQ==\n"}`
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(answer)) })
	b := &Bot{Options: Options{Event: &Event{Repository: "o/r"}}, api: c, pull: &pull{Base: branch{Ref: "main"}}}
	if data, err := b.BaseFile(t.Context(), "pyproject.toml"); err != nil || string(data) != "a" {
		t.Errorf("%q, %v", data, err)
	}
	answer = `{"type": "file", "encoding": "none", "content": ""}`
	if data, err := b.BaseFile(t.Context(), "pyproject.toml"); err == nil {
		t.Errorf("%q", data)
	}
}
