package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
	"ncclfix/patchers/teardown"
	"ncclfix/rebuild/diagnose"
	"ncclfix/rebuild/doctor"
	"ncclfix/rebuild/ncclog"
	"ncclfix/rebuild/verify"
)

type diagnoseOptions struct {
	path    string
	log     string
	command []string
	format  choice
}

func newDiagnoseCmd(a *app) *cobra.Command {
	o := diagnoseOptions{format: choice{value: "text", of: []string{"text", "json"}}}
	cmd := &cobra.Command{
		Use:   "diagnose [PATH] (--log FILE | -- COMMAND...)",
		Short: "Say what a run's warnings mean and what to do",
		Long: `Diagnose reads what a test run of the checkout printed (the current folder by
default), or runs the command itself, in that folder, and walks from question to
question: did the tests pass, do warnings stand at the exit, is the process group
destroyed in the process that opened it, is NVSHMEM built without NCCL. Each
answer comes with what it rests on, and at the end stands what to do next.

Without a command, nothing of the checkout is run. With one, the processes are
watched, so that the answer names them. The exit status is 0 if nothing is left
to do.`,
	}
	cmd.Flags().StringVar(&o.log, "log", "", "read the output from this `file`; - is standard input")
	cmd.Flags().Var(&o.format, "format", "print as `FORMAT`: "+o.format.Type())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.path, o.command, err = splitCommand(cmd, args); err != nil {
			return err
		}
		return a.diagnose(cmd.Context(), o)
	}
	return cmd
}

func (a *app) diagnose(ctx context.Context, o diagnoseOptions) error {
	switch {
	case o.log == "" && o.command == nil:
		return errors.New("nothing to diagnose: --log FILE reads what a run printed, -- COMMAND runs it")
	case o.log != "" && o.command != nil:
		return errors.New("a log or a command is diagnosed, not both")
	}
	dir, err := a.folder(o.path)
	if err != nil {
		return err
	}
	in := diagnose.Input{LogName: o.log, Path: quote(o.path), Examined: true}
	if o.command != nil {
		err = a.diagnoseRun(ctx, dir, o.command, &in)
	} else {
		in.Log, err = a.readLog(o.log)
	}
	if err != nil {
		return err
	}
	if in.LogName == "-" {
		in.LogName = "stdin"
	}
	p, err := a.plan(ctx, planOptions{paths: []string{o.path}, codes: &[]string{teardown.Patcher.Name}})
	if err != nil {
		return err
	}
	defer p.Close()
	in.Findings = p.findings
	in.NVSHMEM = doctor.Examine(ctx, doctor.Options{Dir: dir}).NVSHMEM
	d := diagnose.Walk(in)
	if o.format.value == "json" {
		err = a.json(d)
	} else {
		err = a.showDiagnosis(d)
	}
	if err == nil && !d.Clean {
		err = errLeft
	}
	return err
}

func (a *app) readLog(name string) (*ncclog.Report, error) {
	from := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, cause(err))
		}
		defer f.Close()
		from = f
	}
	r, err := ncclog.Read(from)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, cause(err))
	}
	return r, nil
}

// diagnoseRun runs the command once and keeps its output, since the answers refer
// to its lines.
func (a *app) diagnoseRun(ctx context.Context, dir string, command []string, in *diagnose.Input) error {
	logs, err := os.MkdirTemp("", "ncclfix-diagnose-")
	if err != nil {
		return err
	}
	a.say("running %s", report.LogLine(commandLine(command)))
	r, err := verify.Execute(ctx, verify.Config{Command: command, Dir: dir, Runs: 1, Logs: logs})
	if err != nil {
		os.RemoveAll(logs)
		return err
	}
	if len(r.Runs) == 0 {
		os.RemoveAll(logs)
		return context.Cause(ctx)
	}
	run := r.Runs[0]
	in.Log, in.LogName, in.Status, in.Processes, in.Command = run.Output, run.Log, &run.Status, run.Processes, commandLine(command)
	return nil
}

func (a *app) showDiagnosis(d *diagnose.Diagnosis) error {
	var b strings.Builder
	for i, s := range d.Steps {
		fmt.Fprintf(&b, "%d. %s %s\n", i+1, s.Question, s.Answer)
		for _, e := range s.Evidence {
			where := ""
			if e.Where != "" {
				where = e.Where + ": "
			}
			fmt.Fprintf(&b, "     %s\n", report.LogLine(where+e.Text))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", d.Recommendation)
	if d.Command != "" {
		fmt.Fprintf(&b, "  %s\n", report.LogLine(d.Command))
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}
