package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
	"ncclfix/patchers/checkout"
	"ncclfix/patchers/teardown"
	"ncclfix/rebuild/verify"
)

type verifyOptions struct {
	path     string
	command  []string
	runs     int
	timeout  time.Duration
	minRatio float64
	baseline string
	valgrind bool
	report   string
	format   choice
}

func newVerifyCmd(a *app) *cobra.Command {
	o := verifyOptions{format: choice{value: "text", of: []string{"text", "json"}}}
	cmd := &cobra.Command{
		Use:   "verify [PATH] -- COMMAND...",
		Short: "Prove that the tests pass and end cleanly",
		Long: `Verify runs a command in the checkout (the current folder by default) and judges

  function     every run ends with status 0 and prints no warning of NCCL or
               what is around it
  open groups  no Python process ends with an open process group
  bandwidth    the medians of what the output reports in GB/s are at least
               --min-ratio of the baseline's
  stability    nothing is left behind, in /dev/shm, as processes or as open
               descriptors, and peak memory does not grow from run to run

A baseline is the log of an earlier run, or a git revision or the id of a fix:
then the tree as it was is laid out beside the checkout and the command runs in
both by turns.

The runs get NCCL_DEBUG=WARN and PYTHONUNBUFFERED=1 unless these are set. The exit
status is 0 if no check failed. Interrupted, verify reports on the runs so far.`,
	}
	f := cmd.Flags()
	f.IntVar(&o.runs, "runs", 1, "run the command this `many` times")
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "end a run after this `time`; 0 is never")
	f.Float64Var(&o.minRatio, "min-ratio", 0.98, "least bandwidth relative to the baseline")
	f.StringVar(&o.baseline, "baseline", "", "compare with this `log`, git revision or id of a fix")
	f.BoolVar(&o.valgrind, "valgrind", false, "make one more run under valgrind")
	f.StringVar(&o.report, "report", "", "write the report to `file`.md, .json and .svg")
	f.Var(&o.format, "format", "print as `FORMAT`: "+o.format.Type())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.path, o.command, err = splitCommand(cmd, args); err != nil {
			return err
		}
		return a.verify(cmd.Context(), o)
	}
	return cmd
}

func (a *app) verify(ctx context.Context, o verifyOptions) error {
	switch {
	case o.command == nil:
		return errors.New("no command to run; it stands behind --")
	case o.runs < 1:
		return fmt.Errorf("running %d times: at least 1 is needed", o.runs)
	case o.minRatio <= 0 || o.timeout < 0:
		return errors.New("--min-ratio is above 0 and --timeout not below")
	}
	dir, err := a.folder(o.path)
	if err != nil {
		return err
	}
	base, err := a.openBaseline(ctx, dir, o.baseline)
	if err != nil {
		return err
	}
	if base != nil {
		defer base.Close()
	}
	logs, err := os.MkdirTemp("", "ncclfix-verify-")
	if err != nil {
		return err
	}
	progress := &progress{app: a, runs: o.runs, rewrite: a.isTerminal(a.stderr)}
	r, err := verify.Execute(ctx, verify.Config{
		Command: o.command, Dir: dir, Runs: o.runs, Timeout: o.timeout, MinRatio: o.minRatio, Baseline: base,
		Valgrind: o.valgrind, Logs: logs, Started: progress.started, Ended: progress.ended,
	})
	progress.clear()
	if err != nil {
		os.RemoveAll(logs)
		return err
	}
	if o.format.value == "json" {
		err = a.json(r)
	} else {
		err = a.showVerified(r)
	}
	if err != nil {
		return err
	}
	if err := a.showOpeners(ctx, o, r); err != nil {
		return err
	}
	if o.report != "" {
		files, err := r.Save(o.report)
		if err != nil {
			return err
		}
		a.say("wrote %s", report.LogLine(strings.Join(files, ", ")))
	}
	if r.Interrupted {
		a.say("interrupted after %d of %s", len(r.Runs), report.Plural(o.runs, "run", "runs"))
	}
	if r.Passed {
		return os.RemoveAll(logs)
	}
	a.say("the output of the runs is in %s", logs)
	return errLeft
}

func (a *app) showVerified(r *verify.Report) error {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-11s  %-10s  %s\n", c.Name, c.Verdict, report.LogLine(c.Summary))
		for _, d := range c.Details {
			fmt.Fprintf(&b, "    %s\n", report.LogLine(d))
		}
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

// showOpeners prints where the sources leave groups open, if runs did.
func (a *app) showOpeners(ctx context.Context, o verifyOptions, r *verify.Report) error {
	open := slices.ContainsFunc(r.Checks, func(c verify.Check) bool { return c.Name == "open groups" && c.Verdict == verify.Fail })
	if !open || o.format.value != "text" || ctx.Err() != nil {
		return nil
	}
	p, err := a.plan(ctx, planOptions{paths: []string{o.path}, codes: &[]string{teardown.Patcher.Name}})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := a.text(a.stderr, p.Root(), false).Findings(a.stderr, p.changes.Results); err != nil {
		return err
	}
	if report.Count(p.changes).Fixes > 0 {
		a.say("the repair: ncclfix diff %s", report.LogLine(quote(o.path)))
	}
	return nil
}

// openBaseline opens what --baseline names: a file, the id of a fix, or a git
// revision, in this order. "" is none.
func (a *app) openBaseline(ctx context.Context, dir, name string) (*verify.Baseline, error) {
	if name == "" {
		return nil, nil
	}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		return verify.LogBaseline(name)
	}
	c, _, err := a.open([]string{dir})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	written, err := c.History()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(written, func(w checkout.Written) bool { return w.ID == name }) {
		_, back, err := c.Reverse(name)
		if err != nil {
			return nil, err
		}
		return verify.ChangedBaseline(c.Root(), dir, name, back.Files)
	}
	return verify.RevisionBaseline(ctx, c.Root(), dir, name)
}

// A progress says what is being run: on a terminal in one line, which each run
// writes anew, else in a line for each run.
type progress struct {
	app     *app
	runs    int
	rewrite bool
}

func (p *progress) started(label string) {
	if p.rewrite {
		fmt.Fprintf(p.app.stderr, "\r\x1b[K%s of %d", label, p.runs)
	}
}

func (p *progress) ended(r verify.Run) {
	how := "passed"
	switch {
	case r.TimedOut:
		how = "took too long"
	case r.Signal != "":
		how = "ended by a signal"
	case r.Status != 0:
		how = fmt.Sprintf("ended with status %d", r.Status)
	}
	p.clear()
	if !p.rewrite || how != "passed" {
		p.app.say("%s of %d: %s after %.1f s", r.Label, p.runs, how, r.Seconds)
	}
}

func (p *progress) clear() {
	if p.rewrite {
		fmt.Fprint(p.app.stderr, "\r\x1b[K")
	}
}

// pathOf returns the only argument, or the current folder.
func pathOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// splitCommand returns the path in front of -- and the command behind it, which is
// nil if there is no --.
func splitCommand(cmd *cobra.Command, args []string) (path string, command []string, err error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		dash = len(args)
	} else if command = args[dash:]; len(command) == 0 {
		return "", nil, errors.New("no command stands behind --")
	}
	if dash > 1 {
		return "", nil, fmt.Errorf("one path is wanted, not %d; the command stands behind --", dash)
	}
	return pathOf(args[:dash]), command, nil
}

// folder returns the absolute path of a folder.
func (a *app) folder(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", path, cause(err))
	}
	return path, nil
}

// json prints v as indented JSON.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quote makes one word of s for a shell.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func commandLine(argv []string) string {
	var words []string
	for _, arg := range argv {
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}
