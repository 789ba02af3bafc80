package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ncclfix/patchers"
)

func newExplainCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE...]",
		Short: "Say what a finding means and how its repair looks",
		Long: `Explain says what the findings with the given codes mean, why they matter and how
the repair looks. A prefix such as "teardown" stands for all codes under it.
Without an argument it lists all codes.`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var ids []string
			for _, c := range a.codes() {
				ids = append(ids, c.ID)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listCodes()
			}
			return a.explain(args)
		},
	}
}

func (a *app) listCodes() error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CODE\tREPORTED\tREPAIRED\tMEANS")
	for _, c := range a.codes() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.ID, reported(c), repaired(c), c.Summary)
	}
	return w.Flush()
}

func reported(c patchers.Code) string {
	if c.Default {
		return "by default"
	}
	return "if selected"
}

func repaired(c patchers.Code) string {
	if c.Fixable {
		return "yes"
	}
	return "no"
}

func (a *app) explain(names []string) error {
	codes, err := selectCodes(a.codes(), names, nil)
	if err != nil {
		return err
	}
	var texts []string
	for _, c := range codes {
		texts = append(texts, fmt.Sprintf("%s: %s\nreported %s; repaired: %s\n\n%s\n", c.ID, c.Summary, reported(c), repaired(c), c.Doc))
	}
	_, err = fmt.Fprint(a.stdout, strings.Join(texts, "\n"))
	return err
}
