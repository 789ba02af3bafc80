package pyproject

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"ncclfix/patchers"
	"ncclfix/patchers/pysyntax"
)

// judgeModule looks for test functions that pytest cannot call. That a parameter
// is no fixture cannot be known for sure: plugins bring fixtures. So it is said
// only of functions that the module itself calls, or starts as a process, as
// functions are called that are no tests.
func (s *scan) judgeModule(name string, src []byte) error {
	if path.Base(name) == "conftest.py" || !mayBeCalled(src) {
		return nil
	}
	file, err := s.parser.Parse(s.pass.Context, src)
	var serr *pysyntax.SyntaxError
	switch {
	case errors.As(err, &serr):
		return nil // package teardown's to report
	case err != nil:
		return err
	}
	fixtures, known := s.fixtures(name, file)
	if !known {
		return nil
	}
	var why []patchers.Step
	var names []string
	for _, fn := range file.Body {
		if fn.Kind != pysyntax.FuncDef || !strings.HasPrefix(fn.Name, "test") || len(fn.Decorators) > 0 || !isUsed(file, fn) {
			continue
		}
		missing := required(file, fn)
		missing = slices.DeleteFunc(missing, func(param string) bool { return fixtures[param] })
		if len(missing) == 0 {
			continue
		}
		line, column := file.Position(fn.Header)
		why = append(why, patchers.Step{
			Pos:     patchers.Position{Path: name, Line: line, Column: column},
			Message: fmt.Sprintf("%s wants %s", fn.Name, strings.Join(missing, ", ")),
		})
		names = append(names, fn.Name)
	}
	if len(why) == 0 {
		return nil
	}
	f := patchers.Finding{
		Code:    "pytest/uncallable",
		Pos:     why[0].Pos,
		Message: fmt.Sprintf("pytest collects %s, but cannot call what takes parameters that are no fixtures; run this file as a script, or rename", strings.Join(names, ", ")),
		Why:     why,
	}
	f.Suppressed = patchers.SilencedAt(src, f.Pos.Line, f.Code)
	s.pass.Report(f)
	return nil
}

// mayBeCalled reports whether a test function with parameters is named a second
// time.
func mayBeCalled(src []byte) bool {
	for _, def := range regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+(test\w*)[ \t]*\(\s*[^\s)]`).FindAllSubmatch(src, -1) {
		if bytes.Count(src, def[1]) > 1 {
			return true
		}
	}
	return false
}

// isUsed reports whether the file uses fn in an expression outside of its body.
func isUsed(file *pysyntax.File, fn *pysyntax.Stmt) bool {
	used := false
	names := func(n *pysyntax.Node) bool {
		used = used || n.Kind == pysyntax.Name && n.Name == fn.Name
		return !used
	}
	var walk func([]*pysyntax.Stmt)
	walk = func(body []*pysyntax.Stmt) {
		for _, stmt := range body {
			if used || stmt == fn {
				continue
			}
			for _, e := range stmt.Exprs {
				e.Walk(names)
			}
			for _, b := range stmt.Blocks {
				walk(b.Body)
			}
		}
	}
	walk(file.Body)
	return used
}

// required returns the parameters of fn that a caller must give.
func required(file *pysyntax.File, fn *pysyntax.Stmt) []string {
	header := file.Text(pysyntax.Span{Start: fn.Header, End: fn.Blocks[0].Start})
	var out []string
	for _, p := range fn.Params {
		if p.Default == nil && !regexp.MustCompile(`\*\s*`+regexp.QuoteMeta(p.Name)+`\b`).MatchString(header) {
			out = append(out, p.Name)
		}
	}
	return out
}

// fixtures returns names that may be fixtures for the tests of a module, and
// whether all that are not are known not to be.
func (s *scan) fixtures(name string, file *pysyntax.File) (map[string]bool, bool) {
	names := map[string]bool{}
	for _, f := range builtinFixtures() {
		names[f] = true
	}
	sources := [][]byte{file.Src}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if src, err := fs.ReadFile(s.pass.Tree.FS, path.Join(dir, "conftest.py")); err == nil {
			sources = append(sources, src)
		}
		if dir == "." {
			break
		}
	}
	for _, src := range sources {
		if bytes.Contains(src, []byte("pytest_generate_tests")) || bytes.Contains(src, []byte("import *")) || bytes.Contains(src, []byte("pytestmark")) {
			return nil, false
		}
		for _, form := range []string{
			`fixture\b[^\n]*\n(?:\s*@[^\n]*\n)*\s*(?:async\s+)?def\s+(\w+)`,
			`fixture\([^\n]*\bname\s*=\s*["'](\w+)`,
		} {
			for _, m := range regexp.MustCompile(form).FindAllSubmatch(src, -1) {
				names[string(m[1])] = true
			}
		}
	}
	for _, stmt := range file.Body {
		for _, i := range stmt.Imports {
			names[i.Name], names[i.As] = true, true
		}
	}
	return names, true
}

// builtinFixtures are the fixtures of pytest 9 itself.
func builtinFixtures() []string {
	return []string{
		"cache", "capfd", "capfdbinary", "caplog", "capsys", "capsysbinary", "capteesys",
		"doctest_namespace", "monkeypatch", "pytestconfig", "pytester", "record_property",
		"record_testsuite_property", "record_xml_attribute", "recwarn", "request", "subtests",
		"testdir", "tmp_path", "tmp_path_factory", "tmpdir", "tmpdir_factory",
	}
}
