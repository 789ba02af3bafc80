package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"ncclfix/cmd/internal/report"
	"ncclfix/patchers"
	"ncclfix/patchers/checkout"
	"ncclfix/patchers/pysyntax"
)

// planOptions are what the commands that plan repairs have in common.
type planOptions struct {
	paths   []string
	codes   *[]string // nil: not given
	ignore  []string
	barrier *bool // nil: not given
	verbose bool

	// read returns the files that hold settings, if they are not those of the tree.
	read func(name string) ([]byte, error)
}

// addPlanFlags adds the flags that fill o. The function that it returns has to
// be called with the arguments, when the flags are parsed.
func addPlanFlags(cmd *cobra.Command, o *planOptions) func(paths []string) {
	var codes []string
	var barrier bool
	f := cmd.Flags()
	f.StringSliceVar(&codes, "select", nil, "report these `codes` only: codes, prefixes, or \"default\"")
	f.StringSliceVar(&o.ignore, "ignore", nil, "do not report these `codes`")
	f.BoolVar(&barrier, "barrier", false, "put a barrier before each inserted destroy")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show how each finding comes about")
	return func(paths []string) {
		o.paths = paths
		if f.Changed("select") {
			o.codes = &codes
		}
		if f.Changed("barrier") {
			o.barrier = &barrier
		}
	}
}

// override puts what the command line says over what the tree says. Codes that
// are selected there replace all that the tree says of codes.
func (o *planOptions) override(s *settings) {
	if o.codes != nil {
		s.Select, s.Ignore = *o.codes, nil
	}
	s.Ignore = append(slices.Clip(s.Ignore), o.ignore...)
	if o.barrier != nil {
		s.Barrier = *o.barrier
	}
}

// A plan is an open tree, what was found in it and what a run would do to it.
type plan struct {
	*checkout.Checkout
	scope    []string // the paths that are asked about, as the tree has them
	tree     patchers.Tree
	settings settings
	codes    []patchers.Code // that can be reported
	findings []patchers.Finding
	changes  *patchers.ChangeSet
}

// open opens the tree that the paths are in and puts right what an interrupted
// run has left there. It returns the paths as the tree has them.
func (a *app) open(paths []string) (*checkout.Checkout, []string, error) {
	root, scope, err := checkout.Find(paths)
	if err != nil {
		return nil, nil, err
	}
	c, err := checkout.Open(root)
	if err != nil {
		return nil, nil, err
	}
	r, err := c.Recover()
	if r.ID != "" {
		a.say("rolled back %s, which was interrupted: %s put back", r.ID, report.Plural(len(r.Files), "file", "files"))
	}
	for _, l := range r.Left {
		if l.Old == "" {
			a.say("left alone: %s, which the interrupted run made and which changed since", report.Visible(l.Path))
		} else {
			a.say("left alone: %s changed since; its old bytes are in %s", report.Visible(l.Path), report.Visible(l.Old))
		}
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, scope, nil
}

// prepare opens the tree and settles what is to be reported of it. The plan, which
// is empty, must be closed.
func (a *app) prepare(ctx context.Context, o planOptions) (*plan, error) {
	c, scope, err := a.open(o.paths)
	if err != nil {
		return nil, err
	}
	p := &plan{Checkout: c, scope: scope}
	// The analysis sees the whole tree, whatever is asked about. What is named
	// is read even if git ignores it.
	p.tree, err = p.Tree(ctx, append([]string{"."}, scope...))
	if err == nil {
		read := o.read
		if read == nil {
			read = func(name string) ([]byte, error) { return fs.ReadFile(p.tree.FS, name) }
		}
		p.settings, err = readSettings(read)
	}
	if err == nil {
		o.override(&p.settings)
		p.codes, err = selectCodes(a.codes(), p.settings.Select, p.settings.Ignore)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return p, nil
}

// plan finds and plans. The plan must be closed.
func (a *app) plan(ctx context.Context, o planOptions) (*plan, error) {
	p, err := a.prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := p.fill(ctx, a.patchers); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *plan) fill(ctx context.Context, all []*patchers.Patcher) error {
	named, err := p.readNamed(ctx)
	if err != nil {
		return err
	}
	findings, err := patchers.Analyze(ctx, p.tree, patchers.Options{Barrier: p.settings.Barrier, Wants: p.selects}, p.needed(all))
	if err != nil {
		return err
	}
	for _, f := range findings {
		if p.selects(f.Code) && p.inScope(f.Pos.Path) && (named[f.Pos.Path] || p.wants(f)) {
			p.findings = append(p.findings, f)
		}
	}
	p.changes, err = patchers.Plan(p.tree, all, p.findings)
	return err
}

func (p *plan) selects(code string) bool {
	return slices.ContainsFunc(p.codes, func(c patchers.Code) bool { return c.ID == code })
}

// needed returns the patchers that can report a selected code.
func (p *plan) needed(all []*patchers.Patcher) []*patchers.Patcher {
	return slices.DeleteFunc(slices.Clone(all), func(patcher *patchers.Patcher) bool {
		return !slices.ContainsFunc(patcher.Codes, func(c patchers.Code) bool { return p.selects(c.ID) })
	})
}

// wants reports whether the settings cover the finding and all that its fix
// would change.
func (p *plan) wants(f patchers.Finding) bool {
	if f.Fix != nil {
		for _, fe := range f.Fix.Files {
			if !p.settings.covers(fe.Path) {
				return false
			}
		}
	}
	return p.settings.covers(f.Pos.Path)
}

func (p *plan) inScope(path string) bool {
	return slices.ContainsFunc(p.scope, func(s string) bool {
		return s == "." || s == path || strings.HasPrefix(path, s+"/")
	})
}

// readNamed returns which paths of the scope are files. It is an error if one of
// them is not what its name says: who names a file wants to hear of that, while
// in a folder it is one finding among others, or none.
func (p *plan) readNamed(ctx context.Context) (map[string]bool, error) {
	named := map[string]bool{}
	for _, path := range p.scope {
		info, err := fs.Stat(p.tree.FS, path)
		if err == nil && info.IsDir() {
			continue
		}
		named[path] = true
		data, err := fs.ReadFile(p.tree.FS, path)
		switch {
		case err != nil:
			err = cause(err)
		case strings.HasSuffix(path, ".py"):
			err = checkPython(ctx, data)
		case strings.HasSuffix(path, ".toml"):
			if _, err = toml.Decode(string(data), new(struct{})); err != nil {
				err = tomlError(err)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	return named, nil
}

// checkPython returns an error if data is not Python, or not UTF-8 without saying
// so in its first two lines, as Python wants it.
func checkPython(ctx context.Context, data []byte) error {
	head := bytes.Join(bytes.SplitN(data, []byte("\n"), 3)[:min(2, bytes.Count(data, []byte("\n"))+1)], nil)
	if !utf8.Valid(data) && !bytes.Contains(head, []byte("coding")) {
		return errors.New("not UTF-8, and no other encoding is declared")
	}
	parser := pysyntax.NewParser()
	defer parser.Close()
	_, err := parser.Parse(ctx, data)
	var serr *pysyntax.SyntaxError
	if errors.As(err, &serr) {
		line, column := pysyntax.Position(data, serr.Offset)
		return fmt.Errorf("line %d:%d: %s", line, column, serr.Message)
	}
	return err
}

// report returns what is shown of the plan.
func (p *plan) report() *report.Report {
	return &report.Report{Changes: p.changes, Codes: p.codes, Tree: p.tree.FS, Version: version()}
}

// verdict returns the error that a command ends with: the fixes of set were all
// written, or something is left.
func verdict(set *patchers.ChangeSet, written bool) error {
	c := report.Count(set)
	switch {
	case c.Broken > 0:
		return fmt.Errorf("dropping %s: the files would be damaged, which is a bug in ncclfix", report.Plural(c.Broken, "fix", "fixes"))
	case c.Manual+c.Conflicted > 0, c.Fixes > 0 && !written:
		return errLeft
	}
	return nil
}

// summarize prints what was found, if anything was.
func (a *app) summarize(set *patchers.ChangeSet) {
	if s := report.Count(set).String(); s != "" {
		a.say("%s", s)
	}
}
