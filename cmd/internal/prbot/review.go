package prbot

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"ncclfix/cmd/internal/report"
	"ncclfix/patchers"
	"ncclfix/patchers/diff"
)

const (
	// summaryMark is in the one comment that a run updates.
	summaryMark = "<!-- ncclfix:v1 summary -->"

	maxBody     = 65536 // characters of a comment, for GitHub
	maxComments = 50    // in one review; the rest goes to the next one
	maxPages    = 30    // of 100 files: GitHub lists 3000
)

// mark is in a review comment: the fingerprint of its finding, and the number of
// the suggestion among those of the finding.
var mark = regexp.MustCompile(`<!-- ncclfix:v1 finding ([0-9a-f]+:\d+/\d+) -->`)

// A comment is one of a review.
type comment struct {
	Path      string `json:"path"`
	Body      string `json:"body"`
	Line      int    `json:"line,omitempty"`
	Side      string `json:"side,omitempty"`
	StartLine int    `json:"start_line,omitempty"`
	StartSide string `json:"start_side,omitempty"`

	NewPosition int `json:"new_position,omitempty"` // Gitea's name for the line

	id string
}

// A posted comment is what the API lists.
type posted struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	User struct {
		Login string `json:"login"`
	} `json:"user"`
}

// Review posts suggestions on the lines that the pull request touches, and one
// comment with the rest, which later runs update. What was posted before is not
// posted again.
func (b *Bot) Review(ctx context.Context, r *report.Report) error {
	if err := b.needPull(); err != nil {
		return err
	}
	if _, err := b.open(ctx); err != nil {
		return err
	}
	login, err := b.login(ctx)
	if err != nil {
		return err
	}
	shown, err := b.shown(ctx)
	if err != nil {
		return err
	}
	done, err := b.posted(ctx, login)
	if err != nil {
		return err
	}
	var fresh []comment
	var rest []patchers.Finding
	prints := report.Fingerprints(r.Tree, r.Changes.Results)
	suggested := 0
	for i, res := range r.Changes.Results {
		if res.Suppressed {
			continue
		}
		comments, ok := b.suggestions(res, prints[i], shown)
		if !ok {
			rest = append(rest, res.Finding)
			continue
		}
		suggested++
		for _, c := range comments {
			if !done[c.id] {
				fresh = append(fresh, c)
			}
		}
	}
	if len(fresh) > 0 {
		err := b.review(ctx, fresh)
		if isStatus(err, http.StatusUnprocessableEntity, http.StatusInternalServerError) {
			// One line that is no longer there makes the forge refuse all.
			b.Say(fmt.Sprintf("the suggestions were refused, and go into the summary: %v", err))
			rest, suggested = nil, 0
			for _, res := range r.Changes.Results {
				if !res.Suppressed {
					rest = append(rest, res.Finding)
				}
			}
		} else if err != nil {
			return err
		}
	}
	return b.summarize(ctx, r, rest, suggested, login)
}

// login returns the name of the account that comments are made with. The token of
// a workflow may not ask, and belongs to the account of GitHub Actions.
func (b *Bot) login(ctx context.Context) (string, error) {
	if b.Login != "" {
		return b.Login, nil
	}
	var user struct {
		Login string `json:"login"`
	}
	err := b.api.get(ctx, "/user", &user)
	if isStatus(err, http.StatusForbidden, http.StatusNotFound, http.StatusUnauthorized) {
		if b.Event.Gitea {
			return "gitea-actions", nil
		}
		return "github-actions[bot]", nil
	}
	return user.Login, err
}

// posted returns the marks of our own review comments. Those of others do not
// count: anybody can write a mark.
func (b *Bot) posted(ctx context.Context, login string) (map[string]bool, error) {
	done := map[string]bool{}
	note := func(c posted) {
		if c.User.Login == login {
			for _, m := range mark.FindAllStringSubmatch(c.Body, -1) {
				done[m[1]] = true
			}
		}
	}
	if !b.Event.Gitea {
		return done, list(ctx, b.api, b.path("/pulls/%d/comments", b.pull.Number), "", maxPages, note)
	}
	var reviews []int64
	err := list(ctx, b.api, b.path("/pulls/%d/reviews", b.pull.Number), "", maxPages, func(r posted) { reviews = append(reviews, r.ID) })
	for _, id := range reviews {
		if err == nil {
			err = list(ctx, b.api, b.path("/pulls/%d/reviews/%d/comments", b.pull.Number, id), "", 1, note)
		}
	}
	return done, err
}

// suggestions returns the comments that suggest the repair of a result, if all of
// its lines are shown in the pull request.
func (b *Bot) suggestions(res patchers.Result, print string, shown map[string][]lineRange) ([]comment, bool) {
	if res.Outcome != patchers.Planned {
		return nil, false
	}
	var out []comment
	for _, fe := range res.Fix.Files {
		if fe.Base == nil {
			return nil, false
		}
		for _, s := range replacements(fe.Base, fe.Edits) {
			visible := slices.ContainsFunc(shown[fe.Path], func(r lineRange) bool { return r.first <= s.first && s.last <= r.last })
			if !visible || !isPlain(s.text) || b.Event.Gitea && s.first != s.last {
				return nil, false
			}
			c := comment{Path: fe.Path, id: fmt.Sprintf("%s/%d", print, len(out))}
			c.Body = fmt.Sprintf("%s %s: %s\n\n%s\n<!-- ncclfix:v1 finding %s -->\n", "ncclfix", report.Code(res.Code), report.Code(res.Message),
				report.Fence("suggestion", s.text+"\n"), c.id)
			switch {
			case b.Event.Gitea:
				c.NewPosition = s.last
			case s.first == s.last:
				c.Line, c.Side = s.last, "RIGHT"
			default:
				c.Line, c.Side, c.StartLine, c.StartSide = s.last, "RIGHT", s.first, "RIGHT"
			}
			if utf8.RuneCountInString(c.Body) > maxBody {
				return nil, false
			}
			out = append(out, c)
		}
	}
	return out, len(out) > 0
}

// isPlain reports whether a suggestion can be shown and taken as it is.
func isPlain(text string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if report.Visible(line) != line {
			return false
		}
	}
	return true
}

// A lineRange is lines of a file, from 1, both ends included.
type lineRange struct{ first, last int }

// A replacement is what whole lines become.
type replacement struct {
	lineRange
	text string // without the last newline
}

// replacements turns edits into replacements of whole lines, which is all that a
// suggestion can be. Edits of the same lines become one.
func replacements(base []byte, edits []diff.Edit) []replacement {
	edits = slices.Clone(edits)
	diff.Sort(edits)
	type span struct{ start, end int } // in base: whole lines
	var spans []span
	for _, e := range edits {
		at := min(e.Start, len(base)-1)
		if at < 0 {
			return nil // an empty file has no line to suggest anything on
		}
		start := at
		for start > 0 && base[start-1] != '\n' {
			start--
		}
		end := max(e.End, at)
		for end < len(base) && base[end] != '\n' {
			end++
		}
		end = min(end+1, len(base))
		if n := len(spans); n > 0 && start < spans[n-1].end {
			spans[n-1].end = max(end, spans[n-1].end)
		} else {
			spans = append(spans, span{start, end})
		}
	}
	var out []replacement
	for _, s := range spans {
		var text strings.Builder
		at := s.start
		for _, e := range edits {
			if e.Start >= s.start && (e.Start < s.end || e.Start == len(base) && s.end == len(base)) {
				text.Write(base[at:e.Start])
				text.WriteString(e.New)
				at = e.End
			}
		}
		text.Write(base[at:s.end])
		first := 1 + strings.Count(string(base[:s.start]), "\n")
		last := first + strings.Count(strings.TrimSuffix(string(base[s.start:s.end]), "\n"), "\n")
		out = append(out, replacement{lineRange{first, last}, strings.TrimSuffix(text.String(), "\n")})
	}
	return out
}

// review posts comments.
func (b *Bot) review(ctx context.Context, comments []comment) error {
	for chunk := range slices.Chunk(comments, maxComments) {
		body := struct {
			Commit   string    `json:"commit_id"`
			Event    string    `json:"event"`
			Body     string    `json:"body"`
			Comments []comment `json:"comments"`
		}{b.pull.Head.SHA, "COMMENT", "ncclfix: process groups that are opened and never destroyed. Each suggestion can be committed on its own.", chunk}
		if err := b.api.change(ctx, http.MethodPost, b.path("/pulls/%d/reviews", b.pull.Number), body, nil); err != nil {
			return err
		}
	}
	return nil
}

// summarize brings the summary comment up to date.
func (b *Bot) summarize(ctx context.Context, r *report.Report, rest []patchers.Finding, suggested int, login string) error {
	var old *posted
	err := list(ctx, b.api, b.path("/issues/%d/comments", b.pull.Number), "", maxPages, func(c posted) {
		if old == nil && c.User.Login == login && strings.Contains(c.Body, summaryMark) {
			old = &c
		}
	})
	if err != nil {
		return err
	}
	if old == nil && len(rest) == 0 {
		return nil
	}
	body, err := summary(r, rest, suggested)
	if err != nil {
		return err
	}
	text := struct {
		Body string `json:"body"`
	}{body}
	switch {
	case old == nil:
		return b.api.change(ctx, http.MethodPost, b.path("/issues/%d/comments", b.pull.Number), text, nil)
	case strings.TrimSpace(old.Body) != strings.TrimSpace(body):
		return b.api.change(ctx, http.MethodPatch, b.path("/issues/comments/%d", old.ID), text, nil)
	}
	return nil
}

// summary returns the text of the summary comment.
func summary(r *report.Report, rest []patchers.Finding, suggested int) (string, error) {
	var b strings.Builder
	b.WriteString(summaryMark + "\n")
	if len(rest) == 0 && suggested == 0 {
		b.WriteString("### ncclfix: nothing is left\n")
		return b.String(), nil
	}
	const reserve = 512 // for what stands around
	if len(rest) > 0 {
		set, err := patchers.Plan(patchers.Tree{FS: r.Tree}, nil, rest)
		if err != nil {
			return "", err
		}
		part := *r
		part.Changes = set
		if err := report.Markdown(&b, &part, maxBody-reserve); err != nil {
			return "", err
		}
	}
	if suggested > 0 {
		fmt.Fprintf(&b, "\n%s on the lines that this pull request changes.\n", report.Plural(suggested, "repair is suggested", "repairs are suggested"))
	}
	return b.String(), nil
}
