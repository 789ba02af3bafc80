package prbot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ncclfix/cmd/internal/report"
)

// A client talks to the REST API of GitHub, or to what Gitea has of it.
//
// Requests that change something are printed instead of sent if dry is set; those
// that only ask are always sent.
type client struct {
	api   *url.URL
	token string
	agent string // User-Agent
	gitea bool
	dry   io.Writer // nil: not a dry run
	http  *http.Client
	sleep func(context.Context, time.Duration) error
	now   func() time.Time
}

const (
	maxTries    = 5
	maxWait     = 10 * time.Minute // for a rate limit; a job that waits longer is better run again
	maxResponse = 64 << 20         // bytes
	pageSize    = 100
)

func newClient(e *Event, version string, dry io.Writer) *client {
	c := &client{api: e.API, token: e.Token, agent: "ncclfix/" + version, gitea: e.Gitea, dry: dry, sleep: sleep, now: time.Now}
	c.http = &http.Client{
		Timeout: time.Minute,
		// A renamed repository redirects, on the same host. The token goes nowhere else.
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Host != e.API.Host || req.URL.Scheme != e.API.Scheme || len(via) > 3 {
				return fmt.Errorf("redirected to %s, where the token does not belong", req.URL.Host)
			}
			if req.Method != via[0].Method { // as net/http does for 301 and 302
				return fmt.Errorf("redirected to %s, which a %s does not follow: the repository may have been renamed", req.URL.Path, via[0].Method)
			}
			return nil
		},
	}
	return c
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// A statusError is an answer of the API that is no success.
type statusError struct {
	method, path string
	status       int
	message      string // of the API, made visible
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s %s: %d %s", e.method, e.path, e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	if need := permission(e.method, e.path); need != "" && (e.status == http.StatusForbidden || e.status == http.StatusNotFound) {
		text += "; the token needs " + need
	}
	return text
}

// permission returns what a token must be allowed for a request, as the keys of a
// workflow's permissions have it.
func permission(method, path string) string {
	if method == http.MethodGet {
		return ""
	}
	switch {
	case strings.Contains(path, "/pulls"), strings.Contains(path, "/issues/"):
		return "pull-requests: write (a pull request from a fork never gets it; see the README)"
	case strings.Contains(path, "/git/"):
		return "contents: write"
	}
	return ""
}

// isStatus reports whether err is an answer with one of the codes.
func isStatus(err error, codes ...int) bool {
	serr := (*statusError)(nil)
	if !errors.As(err, &serr) {
		return false
	}
	for _, code := range codes {
		if serr.status == code {
			return true
		}
	}
	return false
}

// get asks for one thing and decodes it into out.
func (c *client) get(ctx context.Context, path string, out any) error {
	_, err := c.send(ctx, http.MethodGet, path, nil, out)
	return err
}

// list asks for all pages of a list, at most maxPages, and calls f for each element.
// The path has no query.
func list[T any](ctx context.Context, c *client, path, query string, maxPages int, f func(T)) error {
	next := fmt.Sprintf("%s?per_page=%d&limit=%d", path, pageSize, pageSize) // GitHub's name, and Gitea's
	if query != "" {
		next += "&" + query
	}
	for range maxPages {
		var page []T
		header, err := c.send(ctx, http.MethodGet, next, nil, &page)
		if err != nil {
			return err
		}
		for _, v := range page {
			f(v)
		}
		link := nextPage(header.Get("Link"))
		if link == "" {
			return nil
		}
		u, err := url.Parse(link)
		if err != nil || u.Host != c.api.Host {
			return fmt.Errorf("GET %s: the next page is said to be at %s", path, report.Visible(link))
		}
		next = strings.TrimPrefix(u.RequestURI(), c.api.Path)
	}
	return nil
}

// nextPage returns the address of the next page out of a Link header (RFC 8288).
func nextPage(header string) string {
	for _, part := range strings.Split(header, ",") {
		target, params, _ := strings.Cut(part, ";")
		for _, p := range strings.Split(params, ";") {
			if p = strings.TrimSpace(p); p == `rel="next"` || p == "rel=next" {
				return strings.Trim(strings.TrimSpace(target), "<>")
			}
		}
	}
	return ""
}

// change sends a request that changes something, or prints it in a dry run, in which
// out stays as it is.
func (c *client) change(ctx context.Context, method, path string, body, out any) error {
	if c.dry != nil {
		return c.print(method, path, body)
	}
	_, err := c.send(ctx, method, path, body, out)
	return err
}

// print shows a request that is not sent. JSON escapes what could end a line.
func (c *client) print(method, path string, body any) error {
	text := fmt.Sprintf("%s %s%s\n", method, c.api, path)
	if body != nil {
		data, err := json.MarshalIndent(body, "", "  ")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data) + "\n") {
			text += report.LogLine(strings.TrimSuffix(line, "\n")) + "\n"
		}
	}
	_, err := io.WriteString(c.dry, text)
	return err
}

// send sends a request until it is answered. It waits for rate limits, and tries
// again what can be sent twice without harm.
func (c *client) send(ctx context.Context, method, path string, body, out any) (http.Header, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		header, err := c.try(ctx, method, path, data, out)
		if err == nil || ctx.Err() != nil {
			return header, cmp.Or(ctx.Err(), err)
		}
		wait := c.wait(method, header, err, try)
		if wait < 0 || try == maxTries {
			return header, err
		}
		if wait > maxWait {
			return header, fmt.Errorf("%w; the limit ends in %s", err, wait.Round(time.Second))
		}
		if err := c.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// errAnswer is part of the error for an answer that makes no sense: asking again does
// not help.
var errAnswer = errors.New("the answer cannot be read")

// wait returns how long to wait before a failed request is sent again, or less than
// 0 if it is not. It follows GitHub's documentation: Retry-After first, then
// x-ratelimit-reset if nothing remains, else a minute for a secondary limit.
func (c *client) wait(method string, header http.Header, err error, try int) time.Duration {
	backoff := time.Second << (try - 1)
	serr := (*statusError)(nil)
	if !errors.As(err, &serr) {
		if errors.Is(err, errAnswer) || method == http.MethodPost { // it may have arrived
			return -1
		}
		return backoff
	}
	if serr.status == http.StatusForbidden || serr.status == http.StatusTooManyRequests {
		if s, err := strconv.Atoi(header.Get("Retry-After")); err == nil && s >= 0 {
			return time.Duration(s) * time.Second
		}
		if header.Get("X-Ratelimit-Remaining") == "0" {
			if at, err := strconv.ParseInt(header.Get("X-Ratelimit-Reset"), 10, 64); err == nil {
				return max(time.Second, time.Unix(at, 0).Sub(c.now()))
			}
		}
		if serr.status == http.StatusTooManyRequests || strings.Contains(serr.message, "secondary rate limit") {
			return time.Minute * time.Duration(try)
		}
		return -1
	}
	if serr.status >= 500 && method != http.MethodPost {
		return backoff
	}
	return -1
}

func (c *client) try(ctx context.Context, method, path string, data []byte, out any) (http.Header, error) {
	var body io.Reader
	if data != nil {
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.api.String()+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Authorization", "token "+c.token) // the form that GitHub and Gitea both know
	if data != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, report.Visible(path), urlCause(err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", method, report.Visible(path), err)
	case len(answer) > maxResponse:
		return resp.Header, fmt.Errorf("%s %s: %w: it is larger than %d bytes", method, report.Visible(path), errAnswer, maxResponse)
	case resp.StatusCode/100 != 2:
		var said struct {
			Message string            `json:"message"`
			Errors  []json.RawMessage `json:"errors"`
		}
		json.Unmarshal(answer, &said) // what is no JSON has no message
		for _, e := range said.Errors {
			said.Message += " " + string(e)
		}
		return resp.Header, &statusError{method, report.Visible(path), resp.StatusCode, report.Visible(said.Message)}
	case out == nil || len(answer) == 0:
		return resp.Header, nil
	}
	if text, ok := out.(*string); ok {
		*text = string(answer)
		return resp.Header, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return resp.Header, fmt.Errorf("%s %s: %w: %w", method, report.Visible(path), errAnswer, err)
	}
	return resp.Header, nil
}

// urlCause returns the error below a *url.Error, whose text repeats the address.
func urlCause(err error) error {
	if uerr := (*url.Error)(nil); errors.As(err, &uerr) {
		return uerr.Err
	}
	return err
}
