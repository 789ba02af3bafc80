package advice

import (
	"cmp"
	"regexp"
	"strings"
	"unicode"

	"ncclfix/patchers/pysyntax"
)

// A scope is what the names of a module, a class or a function are bound to.
type scope struct {
	parent *scope
	class  bool // its names are not seen by the functions in it
	names  map[string][]binding
	outer  map[string]*scope // where names declared global or nonlocal live

	buffers map[string]bool // what isBuffer has answered
}

// A binding is one of the things that a name is bound to.
type binding struct {
	kind bindingKind
	path string // of imported and instance
	in   *scope // in which path means something
}

type bindingKind byte

const (
	other    bindingKind = iota
	none                 // the constant None
	imported             // the module or the member of one that path names
	instance             // an object of the class that path names
)

func newScope(parent *scope) *scope {
	return &scope{parent: parent, names: map[string][]binding{}, outer: map[string]*scope{}, buffers: map[string]bool{}}
}

func (s *scope) bind(name string, kind bindingKind, path string) {
	to := s
	if o := s.outer[name]; o != nil {
		to = o
	}
	to.names[name] = append(to.names[name], binding{kind, path, s})
}

// enclosing returns the next scope outwards whose names s sees, or nil.
func (s *scope) enclosing() *scope {
	p := s.parent
	for p != nil && p.class {
		p = p.parent
	}
	return p
}

// lookup returns all that name may be bound to where s uses it.
func (s *scope) lookup(name string) []binding {
	if o := s.outer[name]; o != nil {
		return o.names[name]
	}
	for ; s != nil; s = s.enclosing() {
		if b := s.names[name]; b != nil {
			return b
		}
	}
	return nil
}

// imports returns the full path of a dotted name that is imported, or "".
func (s *scope) imports(dotted string) string {
	head, rest, _ := strings.Cut(dotted, ".")
	path := ""
	for _, b := range s.lookup(head) {
		switch {
		case b.kind == none:
		case b.kind != imported, path != "" && path != b.path:
			return ""
		default:
			path = b.path
		}
	}
	if path != "" && rest != "" {
		path += "." + rest
	}
	return path
}

// isBuffer reports whether name is a deep_ep.Buffer, or None, and nothing else.
// All that binds it must have been collected.
func (s *scope) isBuffer(name string) bool {
	if is, ok := s.buffers[name]; ok {
		return is
	}
	is := s.bindsBuffer(name)
	s.buffers[name] = is
	return is
}

func (s *scope) bindsBuffer(name string) bool {
	found := false
	for _, b := range s.lookup(name) {
		switch {
		case b.kind == none:
		case b.kind != instance || !isBufferClass(b.in.imports(b.path)):
			return false
		default:
			found = true
		}
	}
	return found
}

// isBufferClass reports whether path names DeepEP's class Buffer, which has been
// in deep_ep/buffer.py and is in deep_ep/buffers/legacy.py.
func isBufferClass(path string) bool {
	return strings.HasPrefix(path, "deep_ep.") && strings.HasSuffix(path, ".Buffer")
}

// collect enters what the statements of body bind into s, and makes the scopes of
// what they define.
func (r *reader) collect(s *scope, body []*pysyntax.Stmt) {
	for _, stmt := range body {
		switch stmt.Kind {
		case pysyntax.Import, pysyntax.FromImport:
			for _, i := range stmt.Imports {
				first, _, _ := strings.Cut(i.Name, ".")
				switch {
				case stmt.Kind == pysyntax.FromImport:
					s.bind(cmp.Or(i.As, i.Name), imported, stmt.Module+"."+i.Name)
				case i.As != "":
					s.bind(i.As, imported, i.Name)
				default:
					s.bind(first, imported, first)
				}
			}
		case pysyntax.FuncDef, pysyntax.ClassDef:
			s.bind(stmt.Name, other, "")
			r.define(s, stmt)
			continue
		case pysyntax.Other:
			r.declare(s, stmt)
		case pysyntax.Assign:
			r.assign(s, stmt)
		default:
			for _, t := range stmt.Targets {
				for _, name := range words(r.text(t)) {
					s.bind(name, other, "")
				}
			}
		}
		for _, b := range stmt.Blocks {
			r.collect(s, b.Body)
		}
	}
}

// define makes the scope of a def or class.
func (r *reader) define(s *scope, stmt *pysyntax.Stmt) {
	in := newScope(s)
	in.class = stmt.Kind == pysyntax.ClassDef
	r.scopes[stmt] = in
	for _, b := range stmt.Blocks {
		if len(stmt.Params) > 0 {
			types := annotations(r.file.Text(pysyntax.Span{Start: stmt.Header, End: b.Start}))
			for _, p := range stmt.Params {
				kind := other
				if types[p.Name] != "" {
					kind = instance
				}
				in.bind(p.Name, kind, types[p.Name])
			}
		}
		r.collect(in, b.Body)
	}
}

// declare enters the names of a global or nonlocal statement.
func (r *reader) declare(s *scope, stmt *pysyntax.Stmt) {
	list := words(r.file.Text(stmt.Span))
	if len(list) == 0 || list[0] != "global" && list[0] != "nonlocal" {
		return
	}
	to := s.enclosing()
	for list[0] == "global" && to != nil && to.parent != nil {
		to = to.parent
	}
	for _, name := range list[1:] {
		s.outer[name] = to
	}
}

// assign enters what an assignment binds.
func (r *reader) assign(s *scope, stmt *pysyntax.Stmt) {
	kind, path := other, ""
	end := stmt.End
	if len(stmt.Exprs) > 0 {
		value := stmt.Exprs[0]
		end = value.Start
		switch {
		case value.Kind == pysyntax.Call && value.X.Dotted() != "":
			kind, path = instance, value.X.Dotted()
		case r.text(value) == "":
			kind = none
		}
	}
	types := annotations(r.file.Text(pysyntax.Span{Start: stmt.Start, End: end}))
	for _, t := range stmt.Targets {
		switch {
		case t.Kind != pysyntax.Name:
			for _, name := range words(r.text(t)) {
				s.bind(name, other, "")
			}
		case types[t.Name] != "":
			s.bind(t.Name, instance, types[t.Name])
		default:
			s.bind(t.Name, kind, path)
		}
	}
}

// annotations returns the names that text, the head of a def or an assignment,
// annotates with a class or with a class or None, and the class.
func annotations(text string) map[string]string {
	types := map[string]string{}
	form := regexp.MustCompile(`(\w+)\s*:\s*["']?(?:(?:\w+\.)?Optional\s*\[\s*["']?)?([\w.]+)["']?\s*\]?\s*(?:\|\s*None\s*)?["']?\s*(?:[,=)]|$)`)
	for _, m := range form.FindAllStringSubmatch(text, -1) {
		types[m[1]] = m[2]
	}
	return types
}

// words returns the names and numbers of text, in order.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
