package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
	"ncclfix/rebuild/doctor"
)

type doctorOptions struct {
	path   string
	python string
	format choice
}

func newDoctorCmd(a *app) *cobra.Command {
	o := doctorOptions{format: choice{value: "text", of: []string{"text", "json"}}}
	cmd := &cobra.Command{
		Use:   "doctor [PATH]",
		Short: "Check what the tests need around them",
		Long: `Doctor prints the checklist of a checkout (the current folder by default): what is
found of PyTorch, CUDA, NCCL, pytest, NVSHMEM, the GPUs and the system's limits,
what is wanted, and how to get there.

It runs nothing of the checkout. Versions are those of the Python interpreter
that --python names, else of the active virtual or conda environment, of .venv in
the checkout, or of python3 on PATH. The exit status is 1 if an item fails.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&o.python, "python", "", "the `interpreter` to ask")
	cmd.Flags().Var(&o.format, "format", "print as `FORMAT`: "+o.format.Type())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.path = pathOf(args)
		return a.doctor(cmd.Context(), o)
	}
	return cmd
}

func (a *app) doctor(ctx context.Context, o doctorOptions) error {
	dir, err := a.folder(o.path)
	if err != nil {
		return err
	}
	r := doctor.Examine(ctx, doctor.Options{Dir: dir, Python: o.python})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if o.format.value == "json" {
		err = a.json(r)
	} else {
		err = a.checklist(r)
	}
	if err == nil && r.Failed() {
		err = errLeft
	}
	return err
}

// checklist prints a line for each item and, below it, what to do.
func (a *app) checklist(r *doctor.Report) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\titem\tfound\twanted\n")
	for _, i := range r.Items {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.Verdict, i.Name, report.LogLine(i.Found), i.Wanted)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	n := -1 // the heading
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprint(a.stdout, line); err != nil {
			return err
		}
		if n >= 0 && r.Items[n].Fix != "" {
			if _, err := fmt.Fprintf(a.stdout, "      %s\n", report.LogLine(r.Items[n].Fix)); err != nil {
				return err
			}
		}
		n++
	}
	return nil
}
