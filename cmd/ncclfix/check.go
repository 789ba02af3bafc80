package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
)

type checkOptions struct {
	planOptions
	format       choice
	showSettings bool
}

func newCheckCmd(a *app) *cobra.Command {
	o := checkOptions{format: newFormat()}
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Print what is found",
		Long: `Check prints what is found in the paths (the current folder by default), one
finding a line, and how many there are.

The whole work tree that the paths are in is analyzed, since a process group may
be opened in one file and destroyed in another.`,
	}
	fill := addPlanFlags(cmd, &o.planOptions)
	cmd.Flags().Var(&o.format, "format", "print as `FORMAT`: "+o.format.Type())
	cmd.Flags().BoolVar(&o.showSettings, "show-settings", false, "print the settings that apply, and nothing else")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fill(args)
		return a.check(cmd.Context(), o)
	}
	return cmd
}

func (a *app) check(ctx context.Context, o checkOptions) error {
	if o.showSettings {
		return a.showSettings(ctx, o.planOptions)
	}
	p, err := a.plan(ctx, o.planOptions)
	if err != nil {
		return err
	}
	defer p.Close()
	if o.format.value == "text" {
		err = a.text(a.stdout, p.Root(), o.verbose).Findings(a.stdout, p.changes.Results)
	} else {
		err = a.print(p, o.format.value)
	}
	if err != nil {
		return err
	}
	a.summarize(p.changes)
	return verdict(p.changes, false)
}

func newFormat() choice {
	return choice{value: "text", of: []string{"text", "json", "sarif", "github", "rdjson", "markdown"}}
}

// summaryLimit is how much Markdown GitHub takes for the summary of a step.
const summaryLimit = 1 << 20

// print prints the plan in a format other than text.
func (a *app) print(p *plan, format string) error {
	r := p.report()
	switch format {
	case "json":
		return report.JSON(a.stdout, r)
	case "sarif":
		return report.SARIF(a.stdout, r)
	case "github":
		return report.GitHub(a.stdout, r)
	case "rdjson":
		return report.RDJSON(a.stdout, r)
	}
	return report.Markdown(a.stdout, r, summaryLimit)
}

func (a *app) showSettings(ctx context.Context, o planOptions) error {
	p, err := a.prepare(ctx, o)
	if err != nil {
		return err
	}
	defer p.Close()
	from := "no file"
	if p.settings.source != "" {
		from = p.settings.source
	}
	var ids []string
	for _, c := range p.codes {
		ids = append(ids, c.ID)
	}
	fmt.Fprintf(a.stdout, "# %s, settings from %s\n# reported: %s\n", report.Visible(p.Root()), from, strings.Join(ids, ", "))
	return p.settings.write(a.stdout)
}
