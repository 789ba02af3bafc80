package advice

import (
	"bytes"
	_ "embed"
	"errors"
	"io/fs"
	"path"

	"ncclfix/patchers"
	"ncclfix/patchers/pysyntax"
)

//go:embed doc.go
var docGo string

// Patcher finds calls of DeepEP that wait for more than they have to. It repairs
// nothing.
var Patcher = &patchers.Patcher{
	Name: "advice",
	Codes: []patchers.Code{{
		ID:      async,
		Summary: "a dispatch or combine of DeepEP without async_finish",
		Doc:     patchers.MustDoc(docGo, async),
	}, {
		ID:      handle,
		Summary: "a dispatch of DeepEP computes a layout for which there is a handle",
		Doc:     patchers.MustDoc(docGo, handle),
	}},
	Run: run,
}

const (
	async  = "advice/async"
	handle = "advice/handle"
)

func run(pass *patchers.Pass) error {
	parser := pysyntax.NewParser()
	defer parser.Close()
	for _, name := range pass.Tree.Files {
		if path.Ext(name) != ".py" {
			continue
		}
		src, err := fs.ReadFile(pass.Tree.FS, name)
		if err != nil || !bytes.Contains(src, []byte("deep_ep")) {
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
		judge(name, file, pass.Report)
	}
	return nil
}

// judge reports the findings of one file.
func judge(name string, file *pysyntax.File, report func(patchers.Finding)) {
	r := &reader{name: name, file: file, report: report, scopes: map[*pysyntax.Stmt]*scope{}}
	module := newScope(nil)
	r.collect(module, file.Body)
	r.follow(module, file.Body)
}

// A reader reads one file.
type reader struct {
	name   string
	file   *pysyntax.File
	report func(patchers.Finding)
	scopes map[*pysyntax.Stmt]*scope // of each def and class
}

// position returns where n begins.
func (r *reader) position(n *pysyntax.Node) patchers.Position {
	line, column := r.file.Position(n.Start)
	return patchers.Position{Path: r.name, Line: line, Column: column}
}

// text returns the source of n, or "" if n is nil or the constant None.
func (r *reader) text(n *pysyntax.Node) string {
	if n == nil {
		return ""
	}
	if text := r.file.Text(n.Span); text != "None" {
		return text
	}
	return ""
}
