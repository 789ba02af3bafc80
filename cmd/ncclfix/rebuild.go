package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ncclfix/cmd/internal/report"
	"ncclfix/rebuild"
)

type rebuildOptions struct {
	rebuild.Options
	rebuild.RunOptions
	yes, plan bool
	format    choice
}

func newRebuildCmd(a *app) *cobra.Command {
	o := rebuildOptions{format: choice{value: "text", of: []string{"text", "json"}}}
	cmd := &cobra.Command{
		Use:   "rebuild [PATH]",
		Short: "Rebuild NVSHMEM without NCCL, and the checkout against it",
		Long: `Rebuild plans and runs what makes a checkout (the current folder by default) use
an NVSHMEM that was built with NVSHMEM_USE_NCCL=0: third-party/nvshmem.patch is
applied to NVSHMEM's source, NVSHMEM is configured, built and installed to a
prefix of its own, and install.sh is run against it.

It shows the plan, asks, and only then runs code of the checkout. A step counts
when its product is there, whatever its exit status. A rebuild that ended early
is resumed by the next one. Ctrl-C ends all that it runs.

Known traps are looked for first; a rebuild that would walk into one is not begun.
With NVSHMEM up to 3.2.5, CUDA 13 takes --cxx-standard 17.`,
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.BoolVar(&o.plan, "plan", false, "show the plan, and run nothing")
	f.Var(&o.format, "format", "how --plan shows it: "+o.format.Type())
	f.BoolVar(&o.yes, "yes", false, "run without asking")
	f.StringVar(&o.Source, "nvshmem-src", "", "NVSHMEM's source: a folder, .txz or .tar.gz (default $NVSHMEM_SRC, or what is found in the checkout)")
	f.BoolVar(&o.SkipNVSHMEM, "skip-nvshmem", false, "leave NVSHMEM as it is installed")
	f.StringVar(&o.Prefix, "prefix", "", "folder to install NVSHMEM to (default in the state folder)")
	f.StringArrayVar(&o.Set, "set", nil, "`NAME=VALUE` for the environment of all steps, such as NVSHMEM_IBGDA_SUPPORT=0")
	f.StringArrayVar(&o.CMakeArgs, "cmake-arg", nil, "further argument of cmake when NVSHMEM is configured")
	f.IntVar(&o.CXXStandard, "cxx-standard", 0, "C++ standard to compile all of NVSHMEM as, such as 17")
	f.IntVarP(&o.Jobs, "jobs", "j", 0, "how many things to build at once (default the number of processors)")
	f.StringArrayVar(&o.KeepEnv, "keep-env", nil, "`NAME` of a variable to hand on though it looks like a secret")
	f.StringArrayVar(&o.Despite, "despite", nil, "`CODE` of a trap to go on in spite of")
	f.StringVar(&o.From, "from", "", "first `STEP` to run: patch, configure, build, clean or install")
	f.DurationVar(&o.TimeLimit, "time-limit", 0, "end a step that takes longer, such as 90m (default no limit)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Checkout = "."
		if len(args) > 0 {
			o.Checkout = args[0]
		}
		o.Env = os.Environ()
		return a.rebuild(cmd.Context(), o)
	}
	return cmd
}

func (a *app) rebuild(ctx context.Context, o rebuildOptions) error {
	switch {
	case o.plan && o.yes:
		return errors.New("showing the plan and running it exclude each other: --plan, --yes")
	case o.format.value != "text" && !o.plan:
		return errors.New("only a plan has a format: --format goes with --plan")
	case o.Jobs < 0 || o.CXXStandard < 0 || o.TimeLimit < 0:
		return errors.New("numbers below 0 mean nothing: --jobs, --cxx-standard, --time-limit")
	case !o.plan && !o.yes:
		if err := a.mustBeAsked(); err != nil {
			return err
		}
	}
	p, err := rebuild.NewPlan(ctx, o.Options)
	if err != nil {
		return err
	}
	if o.format.value == "json" {
		e := json.NewEncoder(a.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(p); err != nil {
			return err
		}
	} else if err := a.showPlan(p); err != nil {
		return err
	}
	if o.plan || p.Blocked() || len(p.Steps) == 0 {
		return errLeft
	}
	if !o.yes {
		yes, err := a.consents(ctx, fmt.Sprintf("run %s, with code of the checkout?", report.Plural(len(p.Steps), "step", "steps")))
		if err != nil {
			return err
		}
		if !yes {
			a.say("nothing run")
			return errLeft
		}
	}
	return a.runPlan(ctx, p, o.RunOptions)
}

// showPlan prints the plan to stdout, the patch's diff first.
func (a *app) showPlan(p *rebuild.Plan) error {
	if p.Patch != nil {
		if err := (report.Text{Color: a.colors(a.stdout)}).Diff(a.stdout, p.Patch.Diff); err != nil {
			return err
		}
	}
	var b strings.Builder
	for line := range strings.Lines(p.Text()) {
		b.WriteString(report.Visible(strings.TrimSuffix(line, "\n")) + "\n")
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

func (a *app) runPlan(ctx context.Context, p *rebuild.Plan, o rebuild.RunOptions) error {
	steps := &stepLines{app: a, fd: -1}
	if f, ok := a.stderr.(*os.File); ok && a.isTerminal(f) {
		steps.fd = int(f.Fd())
	}
	o.Progress = steps.show
	did, err := p.Run(ctx, o)
	if failed := (*rebuild.StepError)(nil); errors.As(err, &failed) {
		for _, line := range failed.Last {
			a.say("  | %s", report.Visible(line))
		}
	}
	if did.Log != "" {
		a.say("log: %s", report.Visible(did.Log))
	}
	if did.Undo != "" {
		a.say("the source is patched; to take that back: ncclfix undo %s%s", did.Undo, a.where(p.Patch.Root))
	}
	if err != nil {
		if ctx.Err() != nil {
			a.say("run it again to go on")
		}
		return err
	}
	for _, wheel := range did.Wheels {
		a.say("installed for %s: %s", report.Visible(did.Interpreter), report.Visible(wheel))
	}
	if p.Partial {
		a.say("the checkout itself is not installed: there is no install.sh")
		return errLeft
	}
	return nil
}

// stepLines shows the progress of a rebuild: on a terminal in a line that changes,
// elsewhere in a line when a step begins or ends, and one a minute.
type stepLines struct {
	*app
	fd    int // of the terminal, or -1
	step  int // that was shown last
	state rebuild.StepState
	at    time.Duration // when in the step
}

func (l *stepLines) show(p rebuild.Progress) {
	line := fmt.Sprintf("[%d/%d] %s", p.Number, p.Of, p.Step)
	switch p.State {
	case rebuild.Skipped:
		line += ": done before"
	case rebuild.Finished:
		line += ": done in " + round(p.Elapsed)
	case rebuild.Failed:
		line += ": failed after " + round(p.Elapsed)
	default:
		line += " " + round(p.Elapsed)
		if p.Percent >= 0 {
			line += fmt.Sprintf(" %d%%", p.Percent)
		}
		if p.Line != "" {
			line += " | " + report.Visible(p.Line)
		}
	}
	if l.fd >= 0 {
		end := "\n"
		if p.State == rebuild.Running {
			end = ""
			if width, _, err := term.GetSize(l.fd); err == nil {
				line = cut(line, width-1)
			}
		}
		fmt.Fprintf(l.stderr, "\r\x1b[K%s%s", line, end)
		return
	}
	if p.Number == l.step && p.State == l.state && p.Elapsed-l.at < time.Minute {
		return
	}
	l.step, l.state, l.at = p.Number, p.State, p.Elapsed
	l.say("%s", line)
}

func round(d time.Duration) string { return d.Round(time.Second).String() }

// cut shortens a line to so many characters.
func cut(line string, width int) string {
	runes := []rune(strings.ReplaceAll(line, "\t", " "))
	return string(runes[:max(0, min(len(runes), width))])
}
