package main

import (
	"context"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
)

type diffOptions struct {
	planOptions
	format choice
}

func newDiffCmd(a *app) *cobra.Command {
	o := diffOptions{format: newFormat()}
	cmd := &cobra.Command{
		Use:   "diff [PATH...]",
		Short: "Print the repair as a unified diff",
		Long: `Diff prints the repair of all that is found in the paths (the current folder by
default) as one unified diff, which git apply takes at the top of the tree.
Findings without a repair go to standard error.`,
	}
	fill := addPlanFlags(cmd, &o.planOptions)
	cmd.Flags().Var(&o.format, "format", "print as `FORMAT`: "+o.format.Type())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fill(args)
		return a.diff(cmd.Context(), o)
	}
	return cmd
}

func (a *app) diff(ctx context.Context, o diffOptions) error {
	p, err := a.plan(ctx, o.planOptions)
	if err != nil {
		return err
	}
	defer p.Close()
	if o.format.value == "text" {
		err = a.showDiff(p.changes)
	} else {
		err = a.print(p, o.format.value)
	}
	if err != nil {
		return err
	}
	if err := a.showLeft(p, o.verbose); err != nil {
		return err
	}
	a.summarize(p.changes)
	return verdict(p.changes, false)
}

// showLeft prints what a person has to look at to stderr.
func (a *app) showLeft(p *plan, verbose bool) error {
	return a.text(a.stderr, p.Root(), verbose).Findings(a.stderr, report.Left(p.changes))
}
