package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ncclfix/cmd/internal/report"
	"ncclfix/patchers"
	"ncclfix/patchers/advice"
	"ncclfix/patchers/pyproject"
	"ncclfix/patchers/setuppy"
	"ncclfix/patchers/teardown"
)

// An app is all that the commands know of the world outside, so that a test can
// stand in for it. One app runs once.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	getwd          func() (string, error)
	isTerminal     func(stream any) bool // of stdin, stdout, stderr
	patchers       []*patchers.Patcher

	color choice // --color
	lines *bufio.Reader
}

func newApp() *app {
	return &app{
		stdin:      os.Stdin,
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		getenv:     os.Getenv,
		getwd:      os.Getwd,
		isTerminal: isTerminal,
		patchers:   []*patchers.Patcher{teardown.Patcher, pyproject.Patcher, setuppy.Patcher, advice.Patcher},
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// errLeft ends a command that did what it should and leaves something to do.
// What that is has been shown.
var errLeft = errors.New("something is left to do")

// run runs one command and returns the exit status of the process.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRootCmd(a)
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errLeft):
		return 1
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	case isStdout(err):
		err = fmt.Errorf("writing to standard output: %w", cause(err))
	}
	fmt.Fprintf(a.stderr, "ncclfix: %s\n", report.Visible(strings.ReplaceAll(err.Error(), "\n", "; ")))
	return 2
}

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "ncclfix",
		Short: "Make a PyTorch-distributed checkout exit without NCCL warnings",
		Long: `Ncclfix finds process groups that are opened and never destroyed, shows the
repair as a unified diff and writes it.

Exit status: 0 nothing left to do; 1 something was shown that is not written, or
a person is needed; 2 could not do it.`,
		Version:            version(),
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true,
		Args:               cobra.ArbitraryArgs,
	}
	root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("no command given; ncclfix help lists them")
		}
		var names []string
		for _, c := range root.Commands() {
			names = append(names, c.Name())
		}
		hint := cmp.Or(didYouMean(args[0], names), "; ncclfix help lists them")
		return fmt.Errorf("unknown command %q%s", args[0], hint)
	}
	root.SetVersionTemplate("{{.Version}}\n")
	a.color = choice{value: "auto", of: []string{"auto", "always", "never"}}
	root.PersistentFlags().Var(&a.color, "color", "colour the output: "+a.color.Type())
	root.AddCommand(
		newCheckCmd(a),
		newDiffCmd(a),
		newFixCmd(a),
		newUndoCmd(a),
		newRebuildCmd(a),
		newDoctorCmd(a),
		newDiagnoseCmd(a),
		newVerifyCmd(a),
		newBotCmd(a),
		newExplainCmd(a),
		newVersionCmd(a),
	)
	return root
}

// codes returns all finding codes, in the order in which they are listed.
func (a *app) codes() []patchers.Code {
	var out []patchers.Code
	for _, p := range a.patchers {
		out = append(out, p.Codes...)
	}
	return out
}

// colors reports whether what goes to the stream is coloured. The flag outranks
// the variables, and NO_COLOR outranks FORCE_COLOR.
func (a *app) colors(stream any) bool {
	switch {
	case a.color.value != "auto":
		return a.color.value == "always"
	case a.getenv("NO_COLOR") != "":
		return false
	case a.getenv("FORCE_COLOR") != "":
		return true
	}
	return a.isTerminal(stream) && a.getenv("TERM") != "dumb"
}

// text returns how findings of the tree at root are printed to the stream: with
// paths as the current folder sees them.
func (a *app) text(stream any, root string, verbose bool) report.Text {
	wd, err := a.getwd()
	if err == nil {
		wd, err = filepath.EvalSymlinks(wd)
	}
	return report.Text{Color: a.colors(stream), Verbose: verbose, Path: func(path string) string {
		full := filepath.Join(root, filepath.FromSlash(path))
		if rel, relErr := filepath.Rel(wd, full); err == nil && relErr == nil {
			return rel
		}
		return full
	}}
}

// showDiff prints what set does to stdout: for git as it is, for a person with
// all that could steer a terminal made visible.
func (a *app) showDiff(set *patchers.ChangeSet) error {
	diff, err := set.Unified()
	if err != nil {
		return err
	}
	if a.isTerminal(a.stdout) || a.colors(a.stdout) {
		return report.Text{Color: a.colors(a.stdout)}.Diff(a.stdout, diff)
	}
	_, err = io.WriteString(a.stdout, diff)
	return err
}

// say prints a line for the person who looks on.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.stderr, format+"\n", args...)
}

// isStdout reports whether err comes from writing to stdout.
func isStdout(err error) bool {
	var perr *fs.PathError
	return errors.As(err, &perr) && perr.Path == os.Stdout.Name()
}

// cause returns err without the operation and the path that package fs puts in
// front.
func cause(err error) error {
	if perr := (*fs.PathError)(nil); errors.As(err, &perr) {
		return perr.Err
	}
	return err
}

// ask asks on the terminal and returns what was typed, without the space around
// it. The error is io.EOF if there is no more, and ctx's as soon as that is done.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(a.stderr, question)
	if a.lines == nil {
		a.lines = bufio.NewReader(a.stdin)
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := a.lines.ReadString('\n')
		answered <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case got := <-answered:
		if got.err != nil {
			a.say("")
			return "", got.err
		}
		return strings.TrimSpace(got.text), nil
	}
}

// consents reports whether the person at the terminal says yes.
func (a *app) consents(ctx context.Context, question string) (bool, error) {
	answer, err := a.ask(ctx, question+" [y/N] ")
	if err == io.EOF {
		err = nil
	}
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), err
}

// mustBeAsked returns an error if nobody is there to ask.
func (a *app) mustBeAsked() error {
	if a.isTerminal(a.stdin) {
		return nil
	}
	return errors.New("refusing to write without a terminal to ask on; --yes writes without asking")
}

// A choice is a flag that takes one of a few words.
type choice struct {
	value string
	of    []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.of, "|") }

func (c *choice) Set(s string) error {
	for _, word := range c.of {
		if s == word {
			c.value = s
			return nil
		}
	}
	return fmt.Errorf("not one of %s", strings.Join(c.of, ", "))
}
