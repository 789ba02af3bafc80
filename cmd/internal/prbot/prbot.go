// Package prbot brings findings and repairs into a pull request, as a workflow of
// GitHub Actions (or of Gitea or Forgejo) runs it.
//
// It runs no code of the checkout, nor does what it imports: the repair comes from
// package patchers, which only reads, and commits are made of objects by package
// gitrepo. What comes from the tree (names, lines, messages) stands in code blocks
// and code spans, is made visible where it could steer a log, and decides nothing:
// the settings come from the base branch, see [Bot.BaseFile].
package prbot

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"ncclfix/cmd/internal/gitrepo"
	"ncclfix/cmd/internal/report"
)

// Options say how a bot works.
type Options struct {
	Event   *Event
	Dir     string    // the top of the work tree
	Version string    // of ncclfix
	Out     io.Writer // takes annotations, and what a dry run would send
	Say     func(string)
	DryRun  bool // print requests that change something instead of sending them

	Login     string           // the account that the token belongs to; "" asks the API
	Author    gitrepo.Identity // of commits
	Message   string           // of commits: the subject
	Branch    string           // of mode pr
	AllowFork bool             // push to the branch of a fork whose owner allows it
}

// A Bot works on one repository. Make it with New.
type Bot struct {
	Options
	api  *client
	repo *gitrepo.Repo
	pull *pull // of the event; nil if it is about none
}

// A pull is a pull request, as far as it matters.
type pull struct {
	Number int    `json:"number"`
	State  string `json:"state"`
	Title  string `json:"title"`
	Body   string `json:"body"`
	URL    string `json:"html_url"`
	Head   branch `json:"head"`
	Base   branch `json:"base"`

	MaintainersMayPush      bool `json:"maintainer_can_modify"`
	MaintainersMayPushGitea bool `json:"allow_maintainer_edit"`
}

type branch struct {
	Ref  string      `json:"ref"`
	SHA  string      `json:"sha"`
	Repo *repository `json:"repo"` // nil if it was deleted
}

type repository struct {
	FullName      string `json:"full_name"`
	CloneURL      string `json:"clone_url"`
	DefaultBranch string `json:"default_branch"`
}

// New opens the checkout and asks for the pull request of the event.
func New(ctx context.Context, o Options) (*Bot, error) {
	b := &Bot{Options: o}
	if o.Event.Number == 0 && o.Event.Token == "" {
		return b, nil // annotations need no API
	}
	if err := o.Event.check(); err != nil {
		return nil, err
	}
	var dry io.Writer
	if o.DryRun {
		dry = o.Out
	}
	b.api = newClient(o.Event, o.Version, dry)
	if o.Event.Number == 0 && o.Event.Run != nil {
		if err := b.findPull(ctx, o.Event.Run); err != nil {
			return nil, err
		}
	}
	if o.Event.Number == 0 {
		return b, nil
	}
	b.pull = new(pull)
	return b, b.api.get(ctx, b.path("/pulls/%d", o.Event.Number), b.pull)
}

// findPull looks for the pull request that a workflow run was for. GitHub does not
// say which it is if it comes from a fork.
func (b *Bot) findPull(ctx context.Context, r *Run) error {
	query := "state=open&head=" + url.QueryEscape(r.Owner+":"+r.Branch)
	err := list(ctx, b.api, b.path("/pulls"), query, maxPages, func(p pull) {
		if p.Head.SHA == r.Commit && p.Head.Ref == r.Branch {
			b.Event.Number = p.Number
		}
	})
	if err == nil && b.Event.Number == 0 {
		err = fmt.Errorf("no open pull request has the head %.12s of the workflow run: it has moved, or was closed", report.Visible(r.Commit))
	}
	return err
}

// path returns the path of something in the event's repository.
func (b *Bot) path(format string, args ...any) string {
	return "/repos/" + b.Event.Repository + fmt.Sprintf(format, args...)
}

// HasBase reports whether the event is about a pull request, whose base branch then
// decides on the settings.
func (b *Bot) HasBase() bool { return b.pull != nil }

// BaseFile returns a file at the top of the base branch, or nil if there is none.
func (b *Bot) BaseFile(ctx context.Context, name string) ([]byte, error) {
	var file struct {
		Type     string `json:"type"`
		Encoding string `json:"encoding"`
		Content  string `json:"content"`
	}
	err := b.api.get(ctx, b.path("/contents/%s?ref=%s", url.PathEscape(name), url.QueryEscape(b.pull.Base.Ref)), &file)
	switch {
	case isStatus(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case file.Type != "file":
		return nil, fmt.Errorf("%s is no file in %s", name, report.Visible(b.pull.Base.Ref))
	case file.Encoding != "base64": // "none", if it is larger than 1 MiB
		return nil, fmt.Errorf("%s in %s is too large to be read", name, report.Visible(b.pull.Base.Ref))
	}
	return base64.StdEncoding.DecodeString(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, file.Content))
}

// open opens the repository, and makes sure that the head of the pull request is
// what is checked out: repairs fit no other text.
func (b *Bot) open(ctx context.Context) (head string, err error) {
	if b.repo, err = gitrepo.Open(ctx, b.Dir); err != nil {
		return "", err
	}
	head, err = b.repo.Resolve(ctx, "HEAD")
	if err != nil {
		return "", errors.New("the checkout has no commit")
	}
	if b.pull != nil && head != b.pull.Head.SHA {
		return "", fmt.Errorf("checked out is %.12s, but the head of pull request %d is %.12s; check out its head (with: ref: ${{ github.event.pull_request.head.sha }}), or run again if it has moved", head, b.pull.Number, b.pull.Head.SHA)
	}
	return head, nil
}

// needPull returns an error if the event is about no pull request.
func (b *Bot) needPull() error {
	if b.pull == nil {
		return errors.New("the event is about no pull request: run this in a workflow on pull_request, or name one with --pull")
	}
	if b.pull.Head.Repo == nil {
		return fmt.Errorf("the repository of pull request %d is gone", b.pull.Number)
	}
	return nil
}

// Annotate prints annotations and writes the summary of the step.
func (b *Bot) Annotate(r *report.Report) error {
	if err := report.GitHub(b.Out, r); err != nil {
		return err
	}
	if b.Event.Summary == "" {
		return nil
	}
	const limit = 1 << 20 // GitHub drops what is larger
	f, err := os.OpenFile(b.Event.Summary, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing the step summary: %w", err)
	}
	err = report.Markdown(f, r, limit)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("writing the step summary: %w", err)
	}
	return nil
}
