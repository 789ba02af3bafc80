package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
	"ncclfix/patchers/checkout"
)

type undoOptions struct {
	id   string
	yes  bool
	list bool
}

func newUndoCmd(a *app) *cobra.Command {
	var o undoOptions
	cmd := &cobra.Command{
		Use:   "undo [ID]",
		Short: "Take a fix back, byte for byte",
		Long: `Undo shows what taking back the fix with the given id, or else the last one, does
to the work tree of the current folder, asks, and does it. It refuses if one of
the files changed since.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "write without asking")
	cmd.Flags().BoolVar(&o.list, "list", false, "list what was written to the tree, and nothing else")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			o.id = args[0]
		}
		return a.undo(cmd.Context(), o)
	}
	return cmd
}

func (a *app) undo(ctx context.Context, o undoOptions) error {
	if o.list && o.id != "" {
		return errors.New("listing takes no id")
	}
	if !o.list && !o.yes {
		if err := a.mustBeAsked(); err != nil {
			return err
		}
	}
	c, _, err := a.open(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if o.list {
		return a.listWritten(c)
	}
	id, set, err := c.Reverse(o.id)
	if err != nil {
		return err
	}
	if err := a.showDiff(set); err != nil {
		return err
	}
	if !o.yes {
		yes, err := a.consents(ctx, fmt.Sprintf("take back %s in %s?", id, report.Plural(len(set.Files), "file", "files")))
		if err != nil {
			return err
		}
		if !yes {
			a.say("nothing written")
			return errLeft
		}
	}
	if _, err := c.Undo(ctx, id); err != nil {
		return err
	}
	a.say("took back %s in %s", id, report.Plural(len(set.Files), "file", "files"))
	return nil
}

// listWritten prints what was written to the tree, the last first.
func (a *app) listWritten(c *checkout.Checkout) error {
	all, err := c.History()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for i := len(all) - 1; i >= 0; i-- {
		state := "written"
		switch {
		case all[i].Undoes != "":
			state = "took back " + all[i].Undoes
		case all[i].Undone:
			state = "taken back"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", all[i].ID, state, report.Visible(strings.Join(all[i].Files, ", ")))
	}
	return w.Flush()
}
