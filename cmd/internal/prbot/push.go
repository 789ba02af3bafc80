package prbot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"ncclfix/cmd/internal/gitrepo"
	"ncclfix/cmd/internal/report"
	"ncclfix/patchers"
)

// A trailer marks the bot's own commits.
const trailer = "Ncclfix-Change: "

var ownCommit = regexp.MustCompile(`(?m)^` + trailer + `[0-9a-f]{12,}\s*$`)

// commit makes the commit of a change set on top of a parent.
func (b *Bot) commit(ctx context.Context, parent string, set *patchers.ChangeSet) (string, error) {
	c := gitrepo.Change{Parent: parent, Author: b.Author}
	sum := sha256.New()
	for _, f := range set.Files {
		if f.Op == patchers.Delete {
			return "", fmt.Errorf("%s would be deleted, which no repair does", f.Path)
		}
		fmt.Fprintf(sum, "%s\x00%d\x00%s", f.Path, len(f.New), f.New)
		c.Files = append(c.Files, gitrepo.File{Path: f.Path, Old: f.Old, New: f.New})
	}
	c.Message = fmt.Sprintf("%s\n\n%s%s\n", b.Message, trailer, hex.EncodeToString(sum.Sum(nil)[:12]))
	return b.repo.Commit(ctx, c)
}

// remote returns the repository at an address that the API gave. The token goes to
// the forge alone.
func (b *Bot) remote(address string) (gitrepo.Remote, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http":
		return gitrepo.Remote{}, fmt.Errorf("the repository is said to be at %s", report.Visible(address))
	case b.Event.Server != "" && b.Event.Server != u.Scheme+"://"+u.Host && !strings.HasPrefix(b.Event.Server, u.Scheme+"://"+u.Host+"/"):
		return gitrepo.Remote{}, fmt.Errorf("the repository is said to be at %s, which is not at %s: the token does not belong there", report.Visible(u.Host), report.Visible(b.Event.Server))
	}
	return gitrepo.Remote{URL: address, Token: b.Event.Token}, nil
}

// push pushes a commit, or says what it would push.
func (b *Bot) push(ctx context.Context, m gitrepo.Remote, commit, branch, expected string) error {
	if b.DryRun {
		what := fmt.Sprintf("git push %s %.12s:refs/heads/%s", m.URL, commit, branch)
		if commit == "" {
			what = fmt.Sprintf("git push %s :refs/heads/%s", m.URL, branch)
		}
		_, err := fmt.Fprintln(b.Out, report.LogLine(what))
		return err
	}
	err := b.repo.Push(ctx, m, commit, branch, expected)
	if errors.Is(err, gitrepo.ErrMoved) {
		return fmt.Errorf("pushing to %s: %w; nothing was changed there, run again", report.Visible(branch), err)
	}
	return err
}

// Push adds one commit with the repair to the branch of the pull request. It adds
// none on top of its own, so that a repair that does not hold cannot go on forever.
func (b *Bot) Push(ctx context.Context, r *report.Report) error {
	if err := b.needPull(); err != nil {
		return err
	}
	head, err := b.open(ctx)
	if err != nil {
		return err
	}
	if len(r.Changes.Files) == 0 {
		return nil
	}
	if b.pull.State != "open" {
		return fmt.Errorf("pull request %d is %s", b.pull.Number, report.Visible(b.pull.State))
	}
	if fork := b.pull.Head.Repo.FullName; fork != b.pull.Base.Repo.FullName {
		switch {
		case !b.AllowFork:
			return fmt.Errorf("the branch is in the fork %s: pushing there needs --allow-fork, and a token that may", report.Visible(fork))
		case !b.pull.MaintainersMayPush && !b.pull.MaintainersMayPushGitea:
			return fmt.Errorf("the owner of the fork %s does not let maintainers push to this branch", report.Visible(fork))
		}
	}
	message, err := b.repo.Message(ctx, head)
	if err != nil {
		return err
	}
	if ownCommit.MatchString(message) {
		return fmt.Errorf("the last commit %.12s is ncclfix's own: there is no second one on top of it", head)
	}
	commit, err := b.commit(ctx, head, r.Changes)
	if err != nil {
		return err
	}
	remote, err := b.remote(b.pull.Head.Repo.CloneURL)
	if err != nil {
		return err
	}
	if err := b.push(ctx, remote, commit, b.pull.Head.Ref, head); err != nil {
		return err
	}
	b.Say(fmt.Sprintf("pushed %.12s to %s: %s", commit, report.Visible(b.pull.Head.Ref), report.Count(r.Changes).Planned()))
	return nil
}

// pullMark is in the text of the bot's own pull request.
const pullMark = "<!-- ncclfix:v1 pull -->"

// PullRequest keeps one pull request with the repair of the branch that is checked
// out. It makes it, updates it, and closes it when nothing is left to repair.
func (b *Bot) PullRequest(ctx context.Context, r *report.Report) error {
	if b.pull != nil {
		return errors.New("mode pr is for schedules: this event is about a pull request; mode push or review is for those")
	}
	if !strings.HasPrefix(b.Branch, "ncclfix/") || len(b.Branch) == len("ncclfix/") {
		return fmt.Errorf("the branch is named %q: its name must begin with ncclfix/", b.Branch)
	}
	if b.api == nil {
		return b.Event.check()
	}
	head, err := b.open(ctx)
	if err != nil {
		return err
	}
	var home repository
	if err := b.api.get(ctx, b.path(""), &home); err != nil {
		return err
	}
	remote, err := b.remote(home.CloneURL)
	if err != nil {
		return err
	}
	base, err := b.baseBranch(ctx, remote, home.DefaultBranch, head)
	if err != nil {
		return err
	}
	have, err := b.ownPull(ctx, home)
	if err != nil {
		return err
	}
	tip, err := b.repo.Tip(ctx, remote, b.Branch)
	if err != nil {
		return err
	}
	if tip != "" {
		if err := b.checkOwn(ctx, remote, tip); err != nil {
			return err
		}
	}
	if len(r.Changes.Files) == 0 {
		return b.close(ctx, remote, have, tip)
	}
	commit, err := b.commit(ctx, head, r.Changes)
	if err != nil {
		return err
	}
	if commit != tip {
		if err := b.push(ctx, remote, commit, b.Branch, tip); err != nil {
			return err
		}
	}
	return b.updatePull(ctx, r, have, base)
}

// baseBranch returns the branch that the pull request goes to: the default branch,
// which must be what is checked out.
func (b *Bot) baseBranch(ctx context.Context, m gitrepo.Remote, base, head string) (string, error) {
	tip, err := b.repo.Tip(ctx, m, base)
	if err == nil && tip != head {
		err = fmt.Errorf("checked out is %.12s, but the branch %s is at %.12s: check out that branch, or run again if it has moved", head, report.Visible(base), tip)
	}
	return base, err
}

// ownPull returns the open pull request from the bot's branch, or nil.
func (b *Bot) ownPull(ctx context.Context, home repository) (*pull, error) {
	owner, _, _ := strings.Cut(b.Event.Repository, "/")
	var found *pull
	query := "state=open&head=" + url.QueryEscape(owner+":"+b.Branch)
	err := list(ctx, b.api, b.path("/pulls"), query, maxPages, func(p pull) {
		if p.Head.Ref == b.Branch && p.Head.Repo != nil && p.Head.Repo.FullName == home.FullName && found == nil {
			found = &p
		}
	})
	return found, err
}

// checkOwn returns an error unless the tip of the bot's branch is the bot's own
// commit: what somebody else pushed there is not overwritten.
func (b *Bot) checkOwn(ctx context.Context, m gitrepo.Remote, tip string) error {
	if _, err := b.repo.Resolve(ctx, tip); err != nil {
		if _, err := b.repo.Fetch(ctx, m, b.Branch); err != nil {
			return err
		}
	}
	message, err := b.repo.Message(ctx, tip)
	if err != nil {
		return err
	}
	// Who amends a commit keeps its message and author, but is its committer. The
	// name does not count: git leaves out what it does not like in it.
	committer, err := b.repo.Committer(ctx, tip)
	if err == nil && (!ownCommit.MatchString(message) || committer.Email != b.Author.Email) {
		err = fmt.Errorf("the branch %s has a commit that is not ncclfix's (%.12s): it is left alone", b.Branch, tip)
	}
	return err
}

// close ends the pull request and removes its branch: nothing is left.
func (b *Bot) close(ctx context.Context, m gitrepo.Remote, have *pull, tip string) error {
	if have != nil {
		text := struct {
			Body string `json:"body"`
		}{"Nothing is left to repair."}
		if err := b.api.change(ctx, http.MethodPost, b.path("/issues/%d/comments", have.Number), text, nil); err != nil {
			return err
		}
		state := struct {
			State string `json:"state"`
		}{"closed"}
		if err := b.api.change(ctx, http.MethodPatch, b.path("/pulls/%d", have.Number), state, nil); err != nil {
			return err
		}
	}
	if tip == "" {
		return nil
	}
	return b.push(ctx, m, "", b.Branch, tip)
}

// updatePull makes the pull request, or brings its text up to date.
func (b *Bot) updatePull(ctx context.Context, r *report.Report, have *pull, base string) error {
	type text struct {
		Title string `json:"title"`
		Body  string `json:"body"`
		Head  string `json:"head,omitempty"`
		Base  string `json:"base,omitempty"`
	}
	body, err := pullBody(r)
	if err != nil {
		return err
	}
	want := text{Title: b.Message, Body: body}
	if have == nil {
		want.Head, want.Base = b.Branch, base
		var made pull
		err := b.api.change(ctx, http.MethodPost, b.path("/pulls"), want, &made)
		if err == nil && made.Number > 0 {
			b.Say(fmt.Sprintf("opened pull request %d", made.Number))
		}
		return err
	}
	if have.Title == want.Title && strings.TrimSpace(have.Body) == strings.TrimSpace(want.Body) {
		return nil
	}
	return b.api.change(ctx, http.MethodPatch, b.path("/pulls/%d", have.Number), want, nil)
}

// pullBody returns the text of the pull request: what is repaired and why, and what
// a person has to look at.
func pullBody(r *report.Report) (string, error) {
	var b strings.Builder
	b.WriteString(pullMark + "\n")
	const reserve = 1024
	part := *r
	set := *r.Changes
	set.Results = slices.DeleteFunc(slices.Clone(set.Results), func(res patchers.Result) bool { return res.Suppressed })
	set.Files = nil // the diff is the pull request itself
	part.Changes = &set
	if err := report.Markdown(&b, &part, maxBody-reserve); err != nil {
		return "", err
	}
	b.WriteString("\nPyTorch asks for one `destroy_process_group` in each process, near its end; without it NCCL warns on exit. " +
		"`ncclfix explain teardown` tells more. A `# ncclfix: ignore` comment on a line keeps it as it is.\n")
	return b.String(), nil
}
