package setuppy

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

//go:embed doc.go
var docGo string

// Patcher makes setup.py look at PyTorch's version.
var Patcher = &patchers.Patcher{
	Name: "setuppy",
	Codes: []patchers.Code{{
		ID:      torchVersion,
		Fixable: true,
		Summary: "setup.py does not look at PyTorch's version",
		Doc:     patchers.MustDoc(docGo, torchVersion),
	}},
	Run:   run,
	Check: check,
}

const torchVersion = "setuppy/torch-version"

func run(pass *patchers.Pass) error {
	parser := pysyntax.NewParser()
	defer parser.Close()
	for _, name := range pass.Tree.Files {
		if path.Base(name) != "setup.py" {
			continue
		}
		src, err := fs.ReadFile(pass.Tree.FS, name)
		if err != nil || !bytes.Contains(src, []byte("torch")) {
			continue // a file that cannot be read is package teardown's to report
		}
		file, err := parser.Parse(pass.Context, src)
		var serr *pysyntax.SyntaxError
		switch {
		case errors.As(err, &serr):
			continue // the same
		case err != nil:
			return err
		}
		if f, ok := judge(name, file); ok {
			f.Suppressed = patchers.SilencedAt(src, f.Pos.Line, f.Code)
			pass.Report(f)
		}
	}
	return nil
}

// looks reports whether a setup.py in which PyTorch is called module names its
// version in one of the usual ways.
func looks(src []byte, module string) bool {
	return regexp.MustCompile(`\b(torch|` + regexp.QuoteMeta(module) + `)\s*\.\s*(version\s*\.\s*)?__version__` +
		`|\bfrom\s+torch(\.version)?\s+import\b[^\n]*\b__version__` +
		`|\b(torch_version|TORCH_VERSION|TORCH_MAJOR)\b` +
		`|\b(version|get_distribution)\(\s*["']torch["']` +
		`|["']torch\s*(\[[^\]]*\])?\s*\(?\s*[<>=~!]=?\s*\d`).Match(src)
}

// judge returns the finding of a setup.py that does not look at the version, if
// it imports PyTorch at all.
func judge(name string, file *pysyntax.File) (patchers.Finding, bool) {
	finding := func(s *pysyntax.Stmt) patchers.Finding {
		line, column := file.Position(s.Start)
		return patchers.Finding{
			Code:    torchVersion,
			Pos:     patchers.Position{Path: name, Line: line, Column: column},
			Message: "setup.py builds against any PyTorch: it does not look at the version",
		}
	}
	var first, last *pysyntax.Stmt // the first import of PyTorch, the last of its run of imports
	module := ""                   // what PyTorch is called, if it is
	for _, s := range file.Body {
		isImport := s.Kind == pysyntax.Import || s.Kind == pysyntax.FromImport
		if first != nil && !isImport {
			break
		}
		if first == nil && isTorch(s) {
			first = s
		}
		if first != nil {
			last = s
		}
		if n := bound(s); n != "" {
			module = n
		}
	}
	if looks(file.Src, cmp.Or(module, "torch")) {
		return patchers.Finding{}, false
	}
	if first == nil {
		if s := inner(file.Body); s != nil {
			f := finding(s)
			f.Message += "; left alone: the import is inside of another statement"
			return f, true
		}
		return patchers.Finding{}, false
	}

	f := finding(first)
	end := pysyntax.LineEnd(file.Src, last.End)
	for _, s := range file.Body {
		if last.End <= s.Start && s.Start < end {
			f.Message += "; left alone: another statement follows in the line"
			return f, true
		}
	}
	f.Fix = &patchers.Fix{
		Message: "check PyTorch's version",
		Files: []patchers.FileEdits{{
			Path:  name,
			Base:  file.Src,
			Edits: []diff.Edit{diff.Insert(end, guard(file.Src, module))},
		}},
	}
	return f, true
}

// isTorch reports whether s imports PyTorch or a part of it.
func isTorch(s *pysyntax.Stmt) bool {
	torch := func(name string) bool { return name == "torch" || strings.HasPrefix(name, "torch.") }
	if s.Kind == pysyntax.FromImport {
		return torch(s.Module)
	}
	for _, i := range s.Imports {
		if s.Kind == pysyntax.Import && torch(i.Name) {
			return true
		}
	}
	return false
}

// bound returns the name that s gives to PyTorch itself, or "".
func bound(s *pysyntax.Stmt) string {
	name := ""
	for _, i := range s.Imports {
		switch {
		case s.Kind != pysyntax.Import:
		case i.Name == "torch" && i.As != "":
			name = i.As
		case i.As == "" && (i.Name == "torch" || strings.HasPrefix(i.Name, "torch.")):
			name = "torch"
		}
	}
	return name
}

// inner returns the first import of PyTorch that is not a statement of body itself.
func inner(body []*pysyntax.Stmt) *pysyntax.Stmt {
	for _, s := range body {
		for _, b := range s.Blocks {
			for _, in := range b.Body {
				if isTorch(in) {
					return in
				}
			}
			if found := inner(b.Body); found != nil {
				return found
			}
		}
	}
	return nil
}

// guard returns the lines that check the version, in the style of src. An empty
// module means that PyTorch is still to be imported.
func guard(src []byte, module string) string {
	quote, eol, indent := "'", "\n", "    "
	if bytes.Count(src, []byte(`"`)) > bytes.Count(src, []byte("'")) {
		quote = `"`
	}
	if bytes.Contains(src, []byte("\r\n")) {
		eol = "\r\n"
	}
	if bytes.Contains(src, []byte("\n\t")) {
		indent = "\t"
	}
	text := ""
	if module == "" {
		text, module = "\nimport torch", "torch"
	}
	text += fmt.Sprintf("\n\nif tuple(int(n) for n in %[1]s.__version__.split(%[2]s.%[2]s)[:2]) < (2, 0):\n"+
		"%[3]sraise RuntimeError(f%[2]sPyTorch 2.0 or later is needed, not {%[1]s.__version__}%[2]s)", module, quote, indent)
	return strings.ReplaceAll(text, "\n", eol)
}

// check judges a file that repairs made: it must still be Python.
func check(_ string, _, new []byte) error {
	p := pysyntax.NewParser()
	defer p.Close()
	_, err := p.Parse(context.Background(), new)
	return err
}
