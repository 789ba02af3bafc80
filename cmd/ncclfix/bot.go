package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/gitrepo"
	"ncclfix/cmd/internal/prbot"
	"ncclfix/cmd/internal/report"
)

type botOptions struct {
	planOptions
	mode      choice
	dryRun    bool
	exitZero  bool
	pull      int
	author    string
	message   string
	branch    string
	login     string
	allowFork bool
}

func newBotCmd(a *app) *cobra.Command {
	o := botOptions{mode: choice{value: "annotate", of: []string{"annotate", "review", "push", "pr"}}}
	cmd := &cobra.Command{
		Use:   "bot [PATH...]",
		Short: "Bring findings or the repair into a pull request, from a workflow",
		Long: `Bot works in a workflow of GitHub Actions, Gitea or Forgejo. It reads the event and
the repository from the environment and the token from GITHUB_TOKEN. It runs no
code of the checkout. In a pull request, the settings of its base branch apply.

Modes:
  annotate  print annotations and write the summary of the step
  review    suggest the repair on the lines that the pull request changes, and keep
            the rest in one comment
  push      add one commit with the repair to the branch of the pull request
  pr        keep one pull request with the repair of the default branch; for
            schedules`,
	}
	fill := addPlanFlags(cmd, &o.planOptions)
	f := cmd.Flags()
	f.Var(&o.mode, "mode", "work in this `MODE`: "+o.mode.Type())
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be sent and pushed, and change nothing")
	f.BoolVar(&o.exitZero, "exit-zero", false, "exit with 0 even if something is left")
	f.IntVar(&o.pull, "pull", 0, "work on the pull request `NUMBER`, whatever the event is about")
	f.StringVar(&o.author, "author", "github-actions[bot] <41898282+github-actions[bot]@users.noreply.github.com>", "the `author` of commits: \"Name <email>\"")
	f.StringVar(&o.message, "message", "Destroy the process groups that are opened", "the subject of commits, and the title of the pull request")
	f.StringVar(&o.branch, "branch", "ncclfix/teardown", "the `branch` of mode pr; begins with ncclfix/")
	f.StringVar(&o.login, "login", "", "the account that the token belongs to (default: what the API says)")
	f.BoolVar(&o.allowFork, "allow-fork", false, "push to the branch of a fork if its owner allows it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fill(args)
		err := a.bot(cmd.Context(), o)
		if o.exitZero && errors.Is(err, errLeft) {
			return nil
		}
		return err
	}
	return cmd
}

func (a *app) bot(ctx context.Context, o botOptions) error {
	author, err := parseAuthor(o.author)
	if err != nil {
		return err
	}
	event, err := prbot.ReadEvent(a.getenv)
	if err != nil {
		return err
	}
	if o.pull != 0 {
		event.Number = o.pull
	}
	if o.mode.value == "annotate" && event.Token == "" && event.AboutPull() {
		a.say("without GITHUB_TOKEN the settings of the base branch cannot be asked for: the default settings apply")
		o.read = func(string) ([]byte, error) { return nil, fs.ErrNotExist }
		event.Number, event.Run = 0, nil
	}
	b, err := prbot.New(ctx, prbot.Options{
		Event:     event,
		Version:   version(),
		Out:       a.stdout,
		Say:       func(s string) { a.say("%s", report.LogLine(s)) },
		DryRun:    o.dryRun,
		Login:     o.login,
		Author:    author,
		Message:   o.message,
		Branch:    o.branch,
		AllowFork: o.allowFork,
	})
	if err != nil {
		return err
	}
	if b.HasBase() {
		o.read = func(name string) ([]byte, error) {
			data, err := b.BaseFile(ctx, name)
			if err == nil && data == nil {
				err = fs.ErrNotExist
			}
			return data, err
		}
	}
	p, err := a.plan(ctx, o.planOptions)
	if err != nil {
		return err
	}
	defer p.Close()
	b.Dir = p.Root()
	switch o.mode.value {
	case "annotate":
		err = b.Annotate(p.report())
	case "review":
		err = b.Review(ctx, p.report())
	case "push":
		err = b.Push(ctx, p.report())
	case "pr":
		err = b.PullRequest(ctx, p.report())
	}
	if err != nil {
		return err
	}
	a.summarize(p.changes)
	return verdict(p.changes, o.mode.value == "push" || o.mode.value == "pr")
}

// parseAuthor reads "Name <email>".
func parseAuthor(s string) (gitrepo.Identity, error) {
	name, rest, _ := strings.Cut(s, "<")
	email, more, closed := strings.Cut(rest, ">")
	id := gitrepo.Identity{Name: strings.TrimSpace(name), Email: strings.TrimSpace(email)}
	if id.Name == "" || id.Email == "" || !closed || more != "" || strings.ContainsFunc(s, unicode.IsControl) {
		return id, fmt.Errorf("the author is %q, not \"Name <email>\"", s)
	}
	return id, nil
}
