package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
	"ncclfix/patchers"
	"ncclfix/patchers/checkout"
)

type fixOptions struct {
	planOptions
	yes         bool
	interactive bool
	exitZero    bool
}

func newFixCmd(a *app) *cobra.Command {
	var o fixOptions
	cmd := &cobra.Command{
		Use:   "fix [PATH...]",
		Short: "Show the repair, ask, and write it",
		Long: `Fix shows the repair of all that is found in the paths (the current folder by
default) as a diff, asks, and writes it. All files are written or none. It prints
the id that ncclfix undo takes, and what is left for a person.`,
	}
	fill := addPlanFlags(cmd, &o.planOptions)
	f := cmd.Flags()
	f.BoolVar(&o.yes, "yes", false, "write without asking")
	f.BoolVarP(&o.interactive, "interactive", "i", false, "ask repair by repair")
	f.BoolVar(&o.exitZero, "exit-zero", false, "exit with 0 even if something is left")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fill(args)
		err := a.fix(cmd.Context(), o)
		if o.exitZero && errors.Is(err, errLeft) {
			return nil
		}
		return err
	}
	return cmd
}

func (a *app) fix(ctx context.Context, o fixOptions) error {
	if o.yes && o.interactive {
		return errors.New("asking repair by repair and not asking exclude each other: -i, --yes")
	}
	if !o.yes {
		if err := a.mustBeAsked(); err != nil {
			return err
		}
	}
	p, err := a.plan(ctx, o.planOptions)
	if err != nil {
		return err
	}
	defer p.Close()

	declined := 0
	if o.interactive {
		declined, err = a.choose(ctx, p)
	} else {
		err = a.showDiff(p.changes)
	}
	if err != nil {
		return err
	}
	planned := report.Count(p.changes)
	written := true
	if planned.Fixes > 0 && !o.yes && !o.interactive {
		if written, err = a.consents(ctx, "write "+planned.Planned()+"?"); err != nil {
			return err
		}
	}
	id := ""
	if written {
		if id, err = p.Write(ctx, p.changes); err != nil {
			return err
		}
	}
	if err := a.showLeft(p, o.verbose); err != nil {
		return err
	}
	if id != "" {
		a.say("%s written; to take that back: ncclfix undo %s%s", planned.Planned(), id, a.where(p.Root()))
	} else if planned.Fixes+declined > 0 {
		a.say("nothing written")
	}
	var left []string
	if rest := planned.Left(); rest != "" {
		left = append(left, rest)
	}
	if declined > 0 {
		left = append(left, fmt.Sprintf("%d declined", declined))
	}
	if len(left) > 0 {
		a.say("left: %s", strings.Join(left, "; "))
	}
	return verdict(p.changes, written && declined == 0)
}

// choose offers the fixes one by one, plans again with those that are taken and
// returns how many were declined. A fix that conflicts with one that was taken is
// not offered; one that conflicts with a declined one is.
func (a *app) choose(ctx context.Context, p *plan) (declined int, err error) {
	var kept []patchers.Finding
	answer := ""
	for _, f := range p.findings {
		with := append(slices.Clip(kept), f)
		set, err := patchers.Plan(p.tree, a.patchers, with)
		if err != nil {
			return 0, err
		}
		if set.Results[len(kept)].Outcome == patchers.Planned {
			if answer, err = a.offer(ctx, p, f, answer); err != nil {
				return 0, err
			}
			if answer == "n" || answer == "q" {
				declined++
				continue
			}
		}
		kept = with
	}
	p.changes, err = patchers.Plan(p.tree, a.patchers, kept)
	return declined, err
}

const offerHelp = `y - make this repair
n - do not make it
a - make it and all that follow
q - make no more; those taken so far are written
? - print this help`

// offer shows one fix, whole, and asks whether to make it: "y", "n", "a" for it
// and all that follow, "q" for no more. Once the answer was a or q it stays so;
// what follows after a is shown but not asked about, and after q neither.
func (a *app) offer(ctx context.Context, p *plan, f patchers.Finding, last string) (string, error) {
	if last == "q" {
		return last, nil
	}
	set, err := patchers.Plan(p.tree, a.patchers, []patchers.Finding{f})
	if err != nil {
		return "", err
	}
	if err := a.text(a.stderr, p.Root(), true).Findings(a.stderr, set.Results); err != nil {
		return "", err
	}
	if err := a.showDiff(set); err != nil {
		return "", err
	}
	if last == "a" {
		return last, nil
	}
	for {
		answer, err := a.ask(ctx, "make this repair? [y,n,a,q,?] ")
		switch {
		case err == io.EOF:
			return "q", nil
		case err != nil:
			return "", err
		}
		switch answer {
		case "y", "n", "a", "q":
			return answer, nil
		}
		a.say(offerHelp)
	}
}

// where returns " in ROOT" if undo would not find the tree from the current
// folder.
func (a *app) where(root string) string {
	if here, _, err := checkout.Find(nil); err == nil && here == root {
		return ""
	}
	return " in " + report.Visible(root)
}
