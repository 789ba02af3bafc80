package pyproject

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

//go:embed doc.go
var docGo string

// Patcher finds pytest settings that do not show setup and teardown, and test
// modules that pytest cannot run.
var Patcher = &patchers.Patcher{
	Name: "pytest",
	Codes: []patchers.Code{
		code("setup-show", true, true, "pytest does not show setup and teardown"),
		code("shadowed", true, false, "another file outranks the pytest settings of pyproject.toml"),
		code("unparsable", true, false, "pytest cannot read its configuration"),
		code("uncallable", false, false, "pytest collects test functions that it cannot call"),
		code("minversion", false, true, "minversion is absent or below "+minVersion),
	},
	Run:   run,
	Check: verify,
}

// minVersion is the pytest that the repaired tests are known to work with.
const minVersion = "7.3.1"

func code(name string, byDefault, fixable bool, summary string) patchers.Code {
	id := "pytest/" + name
	return patchers.Code{ID: id, Default: byDefault, Fixable: fixable, Summary: summary, Doc: patchers.MustDoc(docGo, id)}
}

func run(pass *patchers.Pass) error {
	r := &ruler{fsys: pass.Tree.FS, folders: map[string]*folder{}}
	s := &scan{pass: pass, ruler: r, parser: pysyntax.NewParser()}
	defer s.parser.Close()
	distributed := map[*folder]bool{} // what rules distributed tests
	for _, name := range pass.Tree.Files {
		if err := pass.Context.Err(); err != nil {
			return err
		}
		if path.Base(name) == "pyproject.toml" {
			if _, err := r.read(name); err != nil {
				s.reportError(name, err)
			}
		}
		if !isTestModule(name) {
			continue
		}
		rules := r.above(path.Dir(name))
		if distributed[rules] && !pass.Wants("pytest/uncallable") {
			continue // nothing more to learn of it
		}
		src, err := fs.ReadFile(pass.Tree.FS, name)
		if err != nil || !isDistributed(src) {
			continue // a file that cannot be read is package teardown's to report
		}
		distributed[rules] = true
		if pass.Wants("pytest/uncallable") {
			if err := s.judgeModule(name, src); err != nil {
				return err
			}
		}
	}
	for f := range distributed {
		switch {
		case f != nil:
			s.judgeFolder(f)
		case len(distributed) == 1:
			s.judgeAbsent()
		}
	}
	return nil
}

// isTestModule reports whether pytest reads the file for tests or fixtures, by
// its default settings.
func isTestModule(name string) bool {
	base, ok := strings.CutSuffix(path.Base(name), ".py")
	return ok && (strings.HasPrefix(base, "test_") || strings.HasSuffix(base, "_test") || base == "conftest")
}

// isDistributed reports whether a module names what opens process groups.
func isDistributed(src []byte) bool {
	for _, mark := range []string{"torch.distributed", "from torch import distributed", "deepspeed"} {
		if bytes.Contains(src, []byte(mark)) {
			return true
		}
	}
	return false
}

// A scan is one run over one tree.
type scan struct {
	pass   *patchers.Pass
	ruler  *ruler
	parser *pysyntax.Parser
}

// lists reports whether a file is one to look at.
func (s *scan) lists(name string) bool {
	_, found := slices.BinarySearch(s.pass.Tree.Files, name)
	return found
}

// listsRoot reports whether the top folder is one to look at, and not only some
// folders and test modules in it.
func (s *scan) listsRoot() bool {
	return slices.ContainsFunc(s.pass.Tree.Files, func(name string) bool {
		return !strings.Contains(name, "/") && !isTestModule(name)
	})
}

func (s *scan) reportError(name string, err error) {
	f := patchers.Finding{Code: "pytest/unparsable", Pos: patchers.Position{Path: name}, Message: "left alone: " + err.Error()}
	var serr *syntaxError
	if errors.As(err, &serr) {
		f.Pos.Line, f.Pos.Column = serr.line, serr.column
		f.Message = "left alone: " + serr.message
	}
	s.pass.Report(f)
}

// judgeFolder judges the settings that rule distributed tests.
func (s *scan) judgeFolder(f *folder) {
	switch {
	case f.err != nil:
		if s.lists(f.path) && path.Base(f.path) != "pyproject.toml" { // those are reported anyway
			s.reportError(f.path, f.err)
		}
	case s.lists(f.rules.path):
		s.judgeConfig(f.rules)
	}
	if f.outranks != nil && s.lists(f.outranks.path) {
		c := f.outranks
		s.report(c, "shadowed", "addopts", path.Base(f.rules.path)+" outranks this file: pytest does not read these settings", nil)
	}
}

// judgeAbsent finds the place for settings that no distributed test has: a
// pyproject.toml in the top folder, or a new pytest.ini. It never makes a
// pyproject.toml, because that changes how pip builds the package.
func (s *scan) judgeAbsent() {
	c := s.ruler.look(".").plain
	switch {
	case c == nil && s.listsRoot():
		c, _ = readConfig("pytest.ini", nil) // which is valid
	case c == nil || !s.lists(c.path):
		return
	}
	s.judgeConfig(c)
}

func (s *scan) judgeConfig(c *config) {
	s.judgeOptions(c)
	s.judgeVersion(c)
}

func (s *scan) judgeOptions(c *config) {
	args, err := c.args()
	if err == nil && shows(args) && !blocks(args) {
		return
	}
	edits := []diff.Edit(nil)
	switch {
	case c.refuse != "":
		err = errors.New(c.refuse)
	case err == nil && blocks(args):
		err = errors.New("it switches off pytest's plugin setuponly")
	case err == nil:
		edits, err = c.withOption(setupShow)
	}
	message := "addopts lacks " + setupShow + ": pytest does not show setup and teardown"
	s.reportFix(c, "setup-show", "addopts", message, "add "+setupShow+" to addopts", edits, err)
}

func (s *scan) judgeVersion(c *config) {
	settings, _ := c.settings()
	message := "minversion is not set"
	err := error(nil)
	if v, ok := settings["minversion"]; ok {
		text := fmt.Sprint(v)
		numbers, ok := release(text)
		if ok && slices.Compare(numbers, []int{7, 3, 1}) >= 0 {
			return
		}
		message = fmt.Sprintf("minversion is %s, below %s", text, minVersion)
		if !ok {
			message, err = fmt.Sprintf("minversion is %q", text), errors.New("not a version")
		}
	}
	edits := []diff.Edit(nil)
	switch {
	case c.refuse != "":
		err = errors.New(c.refuse)
	case err == nil:
		edits, err = c.withVersion(minVersion)
	}
	s.reportFix(c, "minversion", "minversion", message, "set minversion to "+minVersion, edits, err)
}

// release returns the numbers that a version begins with.
func release(version string) ([]int, bool) {
	var numbers []int
	for part := range strings.SplitSeq(regexp.MustCompile(`^\d{1,9}(\.\d{1,9})*`).FindString(version), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}

// reportFix reports a finding with its fix, or why there is none.
func (s *scan) reportFix(c *config, code, setting, message, verb string, edits []diff.Edit, err error) {
	if err != nil {
		s.report(c, code, setting, message+"; left alone: "+err.Error(), nil)
		return
	}
	s.report(c, code, setting, message, &patchers.Fix{
		Message: verb,
		Files:   []patchers.FileEdits{{Path: c.path, Base: c.src, Edits: edits}},
	})
}

func (s *scan) report(c *config, code, setting, message string, fix *patchers.Fix) {
	line, column := c.position(setting)
	f := patchers.Finding{Code: "pytest/" + code, Pos: patchers.Position{Path: c.path, Line: line, Column: column}, Message: message, Fix: fix}
	f.Suppressed = patchers.SilencedAt(c.src, line, f.Code)
	s.pass.Report(f)
}
