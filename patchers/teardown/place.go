package teardown

import (
	"bytes"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

// A place is where a destroy can be inserted.
type place struct {
	at     int    // offset in the file
	indent string // of the inserted lines
	before bool   // in front of the statement at offset; else behind the line that ends there
	stmt   *pysyntax.Stmt
}

// endPlace returns the place behind the last statement of body, or why there is
// none. header is where the statement that owns the body begins.
func (m *module) endPlace(body []*pysyntax.Stmt, header int) (place, string) {
	src := m.src()
	first, last := body[0], body[len(body)-1]
	indent, alone := m.indentation(first)
	if !alone {
		return place{}, "its body stands on the line of its header"
	}
	if header >= 0 && pysyntax.LineStart(src, header) == pysyntax.LineStart(src, first.Start) {
		return place{}, "its body stands on the line of its header"
	}
	end := pysyntax.LineEnd(src, last.End)
	// Comments that belong to the body stay in front.
	for end < len(src) {
		next := bytes.IndexByte(src[end:], '\n')
		if next < 0 || end+next+1 >= len(src) {
			break
		}
		start := end + next + 1
		lineEnd := pysyntax.LineEnd(src, start)
		text := src[start:lineEnd]
		trimmed := bytes.TrimLeft(text, " \t")
		if len(trimmed) == 0 || trimmed[0] != '#' || !strings.HasPrefix(string(text), indent) {
			break
		}
		end = lineEnd
	}
	if end > 0 && src[end-1] == '\\' {
		return place{}, "its last line is continued"
	}
	return place{at: end, indent: indent}, ""
}

// beforePlace returns the place in front of a statement, or why there is none.
func (m *module) beforePlace(s *pysyntax.Stmt) (place, string) {
	indent, alone := m.indentation(s)
	if !alone {
		return place{}, "the statement stands behind another one on its line"
	}
	return place{at: pysyntax.LineStart(m.src(), s.Start), indent: indent, before: true, stmt: s}, ""
}

// indentation returns the white space in front of a statement and whether the
// statement is the first on its line. A form feed is no indentation.
func (m *module) indentation(s *pysyntax.Stmt) (string, bool) {
	text := string(m.src()[pysyntax.LineStart(m.src(), s.Start):s.Start])
	alone := strings.TrimLeft(text, " \t\f") == ""
	return text[strings.LastIndexByte(text, '\f')+1:], alone
}

// edit inserts the lines, each without its indentation and line ending.
func (m *module) edit(p place, lines []string) diff.Edit {
	eol := m.eolAt(p)
	var b strings.Builder
	for _, l := range lines {
		if l != "" {
			l = p.indent + l
		}
		if p.before {
			b.WriteString(l + eol)
		} else {
			b.WriteString(eol + l)
		}
	}
	return diff.Insert(p.at, b.String())
}

// eolAt returns the line ending at a place: that of the line that is inserted behind
// or in front of, since a file can have both kinds.
func (m *module) eolAt(p place) string {
	src := m.src()
	switch end := pysyntax.LineEnd(src, p.at); {
	case bytes.HasPrefix(src[end:], []byte("\r\n")):
		return "\r\n"
	case bytes.HasPrefix(src[end:], []byte("\n")):
		return "\n"
	}
	return m.eol()
}

// eol returns the line ending of the file: that of its first line.
func (m *module) eol() string {
	if i := bytes.IndexByte(m.src(), '\n'); i > 0 && m.src()[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// isOnlyAlias reports whether the scope of f itself binds the name to
// torch.distributed, perhaps not on every path, and to nothing else.
func (m *module) isOnlyAlias(f *function, name string) bool {
	b := f.names[name]
	return b != nil && b.isDistributed() && m.sameEverywhere(b)
}

// isDistributed reports whether a binding means torch.distributed.
func (b *binding) isDistributed() bool {
	return b.kind == bindImport && b.mod == "torch.distributed" || b.kind == bindFrom && b.mod == "torch" && b.name == "distributed"
}

// mayLackDistributed reports whether the module goes on where torch.distributed
// cannot be imported: its name is bound to something else as well.
func (m *module) mayLackDistributed() bool {
	for _, b := range m.body.names {
		all := append([]*binding{b}, b.also...)
		if slices.ContainsFunc(all, func(b *binding) bool {
			return b.depth > 0 && (b.isDistributed() || b.kind == bindImport && b.mod == "torch")
		}) && slices.ContainsFunc(all, func(b *binding) bool { return b.kind == bindValue || b.kind == bindUnknown }) {
			return true
		}
	}
	return false
}

// unit returns one level of indentation as the function has it, or else the file.
func (m *module) unit(f *function) string {
	if body := f.statements(); f.stmt != nil && len(body) > 0 {
		outer := string(m.src()[pysyntax.LineStart(m.src(), f.stmt.Header):f.stmt.Header])
		if inner, alone := m.indentation(body[0]); alone && len(inner) > len(outer) && strings.HasPrefix(inner, outer) {
			return inner[len(outer):]
		}
	}
	var found string
	var visit func(list []*pysyntax.Stmt, outer string)
	visit = func(list []*pysyntax.Stmt, outer string) {
		for _, s := range list {
			for _, b := range s.Blocks {
				if found != "" || len(b.Body) == 0 {
					continue
				}
				inner, alone := m.indentation(b.Body[0])
				if alone && len(inner) > len(outer) && strings.HasPrefix(inner, outer) {
					found = inner[len(outer):]
					return
				}
				visit(b.Body, outer)
			}
		}
	}
	visit(m.file.Body, "")
	if found == "" {
		return "    "
	}
	return found
}

// A vocabulary is how a file can name the functions of torch.distributed at a
// place.
type vocabulary struct {
	prefix      string // "dist.", or "" for imported names
	initialized string // is_initialized, as it is called here
	destroy     string
	barrier     string
	imports     []diff.Edit // grown import statements
	local       string      // an import line for the inserted block, or ""
}

// vocabulary returns the words of f for a place at offset.
func (m *module) vocabulary(f *function, at int, barrier bool) vocabulary {
	words := func(prefix string) vocabulary {
		return vocabulary{prefix: prefix, initialized: prefix + "is_initialized", destroy: prefix + "destroy_process_group", barrier: prefix + "barrier"}
	}
	if alias := m.alias(f, at); alias != "" {
		return words(alias + ".")
	}
	if comm := m.deepspeedComm(f, at); comm != "" {
		return words(comm + ".")
	}
	if m.importsFunctions() {
		if v, ok := m.grownImport(f, at, barrier); ok {
			return v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.body.names)) {
		b := m.body.names[name]
		if b.kind == bindImport && b.mod == "torch" && m.sameEverywhere(b) && m.visible(f, name, b, at) && !m.rebinds(name) &&
			(bytes.Contains(m.src(), []byte(name+".distributed.")) || m.importsDistributed()) {
			return words(name + ".distributed.")
		}
	}
	if v, ok := m.grownImport(f, at, barrier); ok {
		return v
	}
	// An import in a function makes its name local to all of it, so a name that
	// the function uses for something else must not be taken.
	within := m.src()
	if f.stmt != nil {
		within = within[f.stmt.Start:f.stmt.End]
	}
	name := "dist"
	for mentions(within, name) && !m.isOnlyAlias(f, name) {
		name = "torch_" + name
	}
	v := words(name + ".")
	v.local = "import torch.distributed as " + name
	return v
}

// alias returns a name that is bound to torch.distributed, and to nothing else,
// where the place is: the one bound first.
func (m *module) alias(f *function, at int) string {
	best, start := "", -1
	for scope := f; scope != nil; scope = scope.outer {
		for name, b := range scope.names {
			if !b.isDistributed() || !m.sameEverywhere(b) || !m.visible(f, name, b, at) || m.rebinds(name) {
				continue
			}
			if start < 0 || b.stmt.Start < start {
				best, start = name, b.stmt.Start
			}
		}
		if best != "" {
			return best
		}
	}
	return ""
}

// rebinds reports whether the file may bind a name to something else in a way that
// is not among its bindings: by except, :=, case, del or global, or by a star import
// behind the name's own.
func (m *module) rebinds(name string) bool {
	src := m.src()
	for at := range occurrences(src, name) {
		if end := at + len(name); end < len(src) && src[end] == '.' || at > 0 && src[at-1] == '.' {
			continue // a use of it, or a member of something
		}
		line := src[pysyntax.LineStart(src, at):pysyntax.LineEnd(src, at)]
		before, after := bytes.TrimSpace(src[pysyntax.LineStart(src, at):at]), bytes.TrimSpace(line[bytes.Index(line, []byte(name))+len(name):])
		switch {
		case bytes.HasSuffix(before, []byte(" as")) && bytes.HasPrefix(before, []byte("except")),
			bytes.HasPrefix(after, []byte(":=")), rebinding.Match(before):
			return true
		}
	}
	first := -1
	for _, s := range m.file.Body {
		for _, i := range s.Imports {
			if i.Name == "*" && first >= 0 && s.Start > first {
				return true
			}
		}
		if b := m.body.names[name]; b != nil && b.stmt == s {
			first = s.Start
		}
	}
	return false
}

// deepspeedComm returns how the file names deepspeed.comm, whose functions are those
// of torch.distributed, if the file opens the group through DeepSpeed and does not
// name torch.distributed itself; or "". DeepSpeed's own code must not name it.
func (m *module) deepspeedComm(f *function, at int) string {
	src := m.src()
	if bytes.Contains(src, []byte("torch.distributed")) || bytes.Contains(src, []byte("from torch import distributed")) ||
		!bytes.Contains(src, []byte("init_distributed(")) && !bytes.Contains(src, []byte("deepspeed.initialize(")) {
		return ""
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(m.body.names)) {
		b := m.body.names[name]
		if !m.sameEverywhere(b) || !m.visible(f, name, b, at) || m.rebinds(name) {
			continue
		}
		switch {
		case b.kind == bindImport && b.mod == "deepspeed.comm" && b.stmt.Imports[0].As == name, b.kind == bindFrom && b.mod == "deepspeed" && b.name == "comm":
			return name
		case b.kind == bindImport && b.mod == "deepspeed" && best == "" && !b.from.known:
			best = name + ".comm"
		}
	}
	return best
}

// rebinding is what stands in front of a name that a statement binds or unbinds.
var rebinding = regexp.MustCompile(`^(del|global|nonlocal|case)\b`)

// sameEverywhere reports whether all bindings of a name in its scope are the
// same import.
func (m *module) sameEverywhere(b *binding) bool {
	for _, other := range b.also {
		if other.kind != b.kind || other.mod != b.mod || other.name != b.name {
			return false
		}
	}
	return true
}

// visible reports whether the name means the binding b at the offset inside f:
// it is bound on every path there, and no scope between hides it.
func (m *module) visible(f *function, name string, b *binding, at int) bool {
	for scope := f; scope != nil; scope = scope.outer {
		have := scope.names[name]
		if have == nil {
			continue
		}
		if have != b {
			return false
		}
		for _, other := range append([]*binding{b}, b.also...) {
			if other.depth == 0 && (scope != f || other.stmt.End <= at) {
				return true
			}
		}
		return false
	}
	return false
}

// importsDistributed reports whether the module has "import torch.distributed".
func (m *module) importsDistributed() bool {
	for _, s := range m.file.Body {
		for _, i := range s.Imports {
			if s.Kind == pysyntax.Import && i.As == "" && strings.HasPrefix(i.Name+".", "torch.distributed.") {
				return true
			}
		}
	}
	return false
}

// importsFunctions reports whether the file calls functions of torch.distributed
// by their bare names, so that more of them fit in. A class alone is no sign.
func (m *module) importsFunctions() bool {
	for _, s := range m.file.Body {
		if s.Kind != pysyntax.FromImport || s.Module != "torch.distributed" {
			continue
		}
		for _, i := range s.Imports {
			if c := i.Name[0]; 'a' <= c && c <= 'z' {
				return true
			}
		}
	}
	return false
}

// grownImport extends "from torch.distributed import init_process_group" by the
// names that are missing.
func (m *module) grownImport(f *function, at int, barrier bool) (vocabulary, bool) {
	need := []string{"is_initialized", "destroy_process_group"}
	if barrier {
		need = append(need, "barrier")
	}
	var stmt *pysyntax.Stmt
	for _, s := range m.file.Body {
		if s.Kind == pysyntax.FromImport && s.Module == "torch.distributed" && s.Imports[len(s.Imports)-1].Name != "*" {
			stmt = s
			break
		}
	}
	if stmt == nil || f.stmt == nil && stmt.End > at {
		return vocabulary{}, false
	}
	v := vocabulary{}
	have := map[string]string{}
	var missing []string
	for _, name := range need {
		as := ""
		for scopeName, b := range m.body.names {
			if b.kind == bindFrom && b.mod == "torch.distributed" && b.name == name && m.sameEverywhere(b) && m.visible(f, scopeName, b, at) && (as == "" || scopeName < as) {
				as = scopeName
			}
		}
		if as == "" {
			if m.usesBare(name) {
				return vocabulary{}, false // it may mean something else
			}
			as = name
			missing = append(missing, name)
		}
		have[name] = as
	}
	v.initialized, v.destroy, v.barrier = have["is_initialized"], have["destroy_process_group"], have["barrier"]
	if len(missing) > 0 {
		v.imports = []diff.Edit{m.growImport(stmt, missing)}
	}
	return v, true
}

// growImport appends names to an import statement, on lines of their own where
// the statement has one name a line.
func (m *module) growImport(s *pysyntax.Stmt, names []string) diff.Edit {
	src := m.src()
	last := s.Imports[len(s.Imports)-1]
	sep := ", "
	if start := pysyntax.LineStart(src, last.Start); strings.TrimSpace(string(src[start:last.Start])) == "" {
		sep = "," + m.eol() + string(src[start:last.Start]) // each name has a line of its own
	}
	return diff.Insert(last.End, sep+strings.Join(names, sep))
}

// mentions reports whether the name occurs in src as a word.
func mentions(src []byte, name string) bool {
	for range occurrences(src, name) {
		return true
	}
	return false
}

// occurrences are the offsets at which the name occurs in src as a word.
func occurrences(src []byte, name string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := 0; ; {
			i := bytes.Index(src[at:], []byte(name))
			if i < 0 {
				return
			}
			start, end := at+i, at+i+len(name)
			at = end
			if (start == 0 || !isWord(src[start-1])) && (end == len(src) || !isWord(src[end])) && !yield(start) {
				return
			}
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// usesBare reports whether the file has the name on its own, not as a member of
// something, outside its comments.
func (m *module) usesBare(name string) bool {
	src := m.src()
	for at := range occurrences(src, name) {
		inComment := slices.ContainsFunc(m.file.Comments, func(c pysyntax.Span) bool { return c.Start <= at && at < c.End })
		if !inComment && (at == 0 || src[at-1] != '.') {
			return true
		}
	}
	return false
}

// block returns the lines of the guarded destroy.
func (v vocabulary) block(unit string, barrier bool) []string {
	var lines []string
	if v.local != "" {
		lines = append(lines, v.local, "")
	}
	lines = append(lines, "if "+v.initialized+"():")
	if barrier {
		lines = append(lines, unit+v.barrier+"()")
	}
	return append(lines, unit+v.destroy+"()")
}
