package teardown

import (
	"hash/maphash"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"ncclfix/patchers/pysyntax"
)

// A program is the parsed part of a tree, linked: names lead to what they mean.
type program struct {
	ix      *index
	modules map[int]*module // by number of the source
	closers map[string]bool // names of methods that destroy the group
	sought  map[string]bool // names of methods that were closers once: calls of them are events
	active  []*function     // with events, in the order of the tree

	fsys    fs.FS
	seed    maphash.Seed
	changed string // a file that changed while it was examined
}

// A module is one parsed file.
type module struct {
	prog   *program
	number int // of the source
	path   string
	file   *pysyntax.File
	size   int       // of the file
	sum    uint64    // checksum of the file
	bytes  []byte    // see src
	body   *function // the statements outside any function
	funcs  []*function
	class  []*class
	stars  []star // star imports, in order

	submodules map[string]int // by full name, where the package is no file; may be nil

	rankConds  map[*pysyntax.Node]string // see rankCondition; filled on demand
	frameworks []string                  // foreign libraries that it imports and that may own a group
}

// A star is "from module import *".
type star struct {
	module string
	target target
}

// A target is the file of the tree that a module name leads to, if there is one.
type target struct {
	file  int
	known bool
}

// A function is a def, or the body of a module.
type function struct {
	mod    *module
	stmt   *pysyntax.Stmt // nil for the body of a module
	class  *class         // if it is a method
	outer  *function      // where it is defined; nil for the body of a module
	names  map[string]*binding
	events map[*pysyntax.Stmt][]event // what the statement itself does, in order

	contexts map[*pysyntax.Stmt][]*class // of a with statement: the classes whose objects it enters

	wrappers []*function // of the tree, that decorate it

	contextManager bool // decorated as one: the caller's block runs at its yield
	fixture        bool // of pytest

	// The summary, brought to a fixed point by summarize.
	after       [numStates]state // by the state before the call
	opening     *event           // what leaves the group open, if after[none] is open
	closes      bool             // destroys the group, perhaps through others
	opensInside bool             // opens a group at some point, whatever becomes of it
	repaired    bool             // a planned repair destroys the group at its end
	spawns      map[int]bool     // parameters that it starts as processes
	passing     []*pysyntax.Node // calls that have a parameter of it as an argument
	callers     []*function      // whose summaries depend on this one
	changed     bool             // so the summary, and those that depend on it, say nothing
	stale       bool             // the summary is to be computed anew
	exitStatus  *bool            // see returnsStatus
}

// A class is a class definition.
type class struct {
	mod     *module
	stmt    *pysyntax.Stmt
	outer   *function
	methods map[string]*function
	attrs   map[string]attr // self.x = …, the last assigned value
}

// An attr is the value of an attribute, and the scope that it is evaluated in.
type attr struct {
	scope *function
	value *pysyntax.Node
}

// A binding is what a name is bound to in a scope.
type binding struct {
	kind  bindKind
	mod   string // import: "torch.distributed"; from-import: the module
	name  string // from-import: the name in it
	from  target // the file of mod
	sub   target // from-import: the file of mod.name, where mod is a folder alone
	fn    *function
	class *class
	value *pysyntax.Node // of a simple assignment; nil if it cannot be told
	index int            // of a parameter
	stmt  *pysyntax.Stmt // where; nil for a parameter
	also  []*binding     // other bindings of the same name in the scope
	depth int            // statements around it in its scope: 0 is unconditional
}

type bindKind byte

const (
	bindUnknown bindKind = iota // for, with, except, del …
	bindImport
	bindFrom
	bindFunc
	bindClass
	bindValue
	bindParam
)

// A ref is what an expression means. The zero ref is unknown.
type ref struct {
	lib      string // dotted name outside the tree: "torch.distributed.init_process_group"
	file     int    // module of the tree, if isModule
	isModule bool
	fn       *function
	class    *class
	instance *class // an object of the class
	param    *binding
	guessed  bool // through a star import of a library
}

func (r ref) known() bool {
	return r.lib != "" || r.isModule || r.fn != nil || r.class != nil || r.instance != nil
}

// qualname returns the name as a traceback would show it.
func (f *function) qualname() string {
	switch {
	case f.stmt == nil:
		return "the module"
	case f.class != nil:
		return f.class.stmt.Name + "." + f.stmt.Name
	}
	return f.stmt.Name
}

func (f *function) name() string {
	if f.stmt == nil {
		return ""
	}
	return f.stmt.Name
}

// src returns the bytes of the file. They are not kept after parsing, since few
// files get a finding: they are read again on demand. If they have changed, the
// run fails with an error in the end, and what is returned means nothing.
func (m *module) src() []byte {
	if m.bytes == nil {
		src, err := fs.ReadFile(m.prog.fsys, m.path)
		if err != nil || maphash.Bytes(m.prog.seed, src) != m.sum {
			m.prog.changed = m.path
			src = make([]byte, m.size)
		}
		m.bytes = src
	}
	return m.bytes
}

// statements returns the body of f.
func (f *function) statements() []*pysyntax.Stmt {
	if f.stmt == nil {
		return f.mod.file.Body
	}
	if len(f.stmt.Blocks) == 0 {
		return nil
	}
	return f.stmt.Blocks[0].Body
}

// newModule builds the scopes of one file. It lets go of the file's bytes.
func (p *program) newModule(number int, file *pysyntax.File) *module {
	m := &module{prog: p, number: number, path: p.ix.paths[number], file: file, size: len(file.Src), sum: maphash.Bytes(p.seed, file.Src), rankConds: map[*pysyntax.Node]string{}}
	m.body = &function{mod: m, changed: true}
	m.bind(m.body, nil, file.Body, 0)
	for _, f := range m.funcs {
		f.findPassing(f.statements())
	}
	file.Src = nil
	return m
}

// bind records the names that statements bind in the scope of f, or in class c
// if that is not nil, and the functions they define.
func (m *module) bind(f *function, c *class, list []*pysyntax.Stmt, depth int) {
	for _, s := range list {
		switch s.Kind {
		case pysyntax.FuncDef:
			fn := &function{mod: m, stmt: s, class: c, outer: f, changed: true}
			m.funcs = append(m.funcs, fn)
			for i, p := range s.Params {
				fn.define(p.Name, &binding{kind: bindParam, index: i, name: p.Name})
			}
			m.bind(fn, nil, fn.statements(), 0)
			if c != nil {
				c.methods[s.Name] = fn
				break
			}
			f.define(s.Name, &binding{kind: bindFunc, fn: fn, stmt: s, depth: depth})
		case pysyntax.ClassDef:
			inner := &class{mod: m, stmt: s, outer: f, methods: map[string]*function{}}
			m.class = append(m.class, inner)
			for _, b := range s.Blocks {
				m.bind(f, inner, b.Body, depth+1)
			}
			if c == nil {
				f.define(s.Name, &binding{kind: bindClass, class: inner, stmt: s, depth: depth})
			}
		case pysyntax.Import:
			for _, i := range s.Imports {
				m.noteFramework(i.Name)
				if c != nil {
					continue
				}
				if i.As != "" {
					f.define(i.As, &binding{kind: bindImport, mod: i.Name, from: m.target(i.Name), stmt: s, depth: depth})
				} else {
					top, _, _ := strings.Cut(i.Name, ".")
					m.noteNamespace(top, i.Name)
					f.define(top, &binding{kind: bindImport, mod: top, from: m.target(top), stmt: s, depth: depth})
				}
			}
		case pysyntax.FromImport:
			m.noteFramework(s.Module)
			from := m.target(s.Module)
			for _, i := range s.Imports {
				switch {
				case i.Name == "*":
					m.stars = append(m.stars, star{s.Module, from})
				case c != nil:
				default:
					as := i.As
					if as == "" {
						as = i.Name
					}
					b := &binding{kind: bindFrom, mod: s.Module, name: i.Name, from: from, stmt: s, depth: depth}
					if !from.known {
						b.sub = m.target(joinModule(s.Module, i.Name))
					}
					f.define(as, b)
				}
			}
		default:
			for _, t := range s.Targets {
				m.bindTarget(f, c, s, t, depth)
			}
			for _, b := range s.Blocks {
				m.bind(f, c, b.Body, depth+1)
			}
		}
	}
}

// noteNamespace notes the modules that "import a.b.c" leads to where a is a folder
// without an __init__.py.
func (m *module) noteNamespace(top, name string) {
	if m.target(top).known {
		return
	}
	for i := range name {
		if part := name[:i]; i > len(top) && name[i] == '.' {
			m.noteSubmodule(part)
		}
	}
	m.noteSubmodule(name)
}

func (m *module) noteSubmodule(name string) {
	if t := m.target(name); t.known {
		if m.submodules == nil {
			m.submodules = map[string]int{}
		}
		m.submodules[name] = t.file
	}
}

// target finds the file of a module name in an import statement of m.
func (m *module) target(name string) target {
	n, ok := m.prog.ix.resolve(m.path, name)
	return target{n, ok}
}

// joinModule returns the full name of a member of a module.
func joinModule(module, member string) string {
	if strings.HasSuffix(module, ".") {
		return module + member
	}
	return module + "." + member
}

func (m *module) bindTarget(f *function, c *class, s *pysyntax.Stmt, t *pysyntax.Node, depth int) {
	var value *pysyntax.Node
	if s.Kind == pysyntax.Assign && len(s.Targets) == 1 && len(s.Exprs) == 1 || s.Kind == pysyntax.With && len(s.Targets) == 1 && len(s.Exprs) == 1 {
		value = s.Exprs[0]
	}
	switch {
	case t.Kind == pysyntax.Name && c == nil:
		b := &binding{kind: bindUnknown, stmt: s, depth: depth}
		if value != nil {
			b.kind, b.value = bindValue, value
		}
		f.define(t.Name, b)
	case t.Kind == pysyntax.Name:
		if value != nil {
			c.set(t.Name, attr{f, value})
		}
	case t.Kind == pysyntax.Attr && t.X.Kind == pysyntax.Name && t.X.Name == "self" && f.class != nil:
		if value != nil {
			f.class.set(t.Name, attr{f, value})
		}
	case t.Kind == pysyntax.Opaque && c == nil:
		// A tuple: each name in it is bound to something unknown.
		for _, name := range identifiers(m.file.Text(t.Span)) {
			f.define(name, &binding{kind: bindUnknown, stmt: s, depth: depth})
		}
	}
}

func (c *class) set(name string, a attr) {
	if c.attrs == nil {
		c.attrs = map[string]attr{}
	}
	c.attrs[name] = a
}

// define adds a binding. Where a scope binds a name several times, the one that
// says most comes first: an import or a definition before a value.
func (f *function) define(name string, b *binding) {
	old := f.names[name]
	switch {
	case old == nil:
		if f.names == nil {
			f.names = map[string]*binding{}
		}
		f.names[name] = b
	case old.kind <= bindUnknown || old.kind == bindValue && b.kind < bindValue && b.kind > bindUnknown:
		b.also = append(old.also, old)
		old.also = nil
		f.names[name] = b
	default:
		old.also = append(old.also, b)
	}
}

// identifiers returns the names in an expression without strings.
func identifiers(src string) []string {
	return strings.FieldsFunc(src, func(r rune) bool {
		return !(r == '_' || r >= 0x80 || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	})
}

// frameworks open and close groups for the code that they run.
var frameworks = map[string]bool{
	"accelerate": true, "lightning": true, "pytorch_lightning": true, "lightning_fabric": true,
	"ignite": true, "ray": true, "monarch": true, "composer": true, "colossalai": true,
	"mmengine": true, "mmcv": true, "horovod": true,
}

func (m *module) noteFramework(name string) {
	top, _, _ := strings.Cut(name, ".")
	if !frameworks[top] {
		return
	}
	for _, have := range m.frameworks {
		if have == top {
			return
		}
	}
	m.frameworks = append(m.frameworks, top)
}

// maxHops bounds how far one name is followed through imports and assignments;
// imports can go in circles.
const maxHops = 12

// bindingOf returns the scope that binds a name used in f, and the binding.
func (f *function) bindingOf(name string) (*function, *binding) {
	for scope := f; scope != nil; scope = scope.outer {
		if b := scope.names[name]; b != nil {
			return scope, b
		}
	}
	return nil, nil
}

// lookup returns what a name means inside f.
func (f *function) lookup(name string, hops int) ref {
	if scope, b := f.bindingOf(name); b != nil {
		return scope.follow(b, hops)
	}
	return f.mod.starred(name, hops)
}

// starred looks a name up in what the module imports with a star.
func (m *module) starred(name string, hops int) ref {
	if hops <= 0 {
		return ref{}
	}
	for i := len(m.stars) - 1; i >= 0; i-- {
		if t := m.stars[i].target; t.known {
			if r := m.prog.member(t.file, name, hops-1); r.known() {
				return r
			}
		} else if lib := m.stars[i].module; libraryMember(lib, name) {
			return ref{lib: lib + "." + name, guessed: true}
		}
	}
	return ref{lib: "builtins." + name}
}

// follow returns what a binding of scope f means.
func (f *function) follow(b *binding, hops int) ref {
	if hops <= 0 {
		return ref{}
	}
	switch b.kind {
	case bindImport:
		if b.from.known {
			return ref{file: b.from.file, isModule: true}
		}
		return ref{lib: b.mod}
	case bindFrom:
		switch {
		case b.from.known:
			return f.mod.prog.member(b.from.file, b.name, hops-1)
		case b.sub.known:
			return ref{file: b.sub.file, isModule: true}
		case strings.HasPrefix(b.mod, "."):
			return ref{}
		}
		return ref{lib: b.mod + "." + b.name}
	case bindFunc:
		return ref{fn: b.fn}
	case bindClass:
		return ref{class: b.class}
	case bindParam:
		if f.class != nil && b.index == 0 && !f.hasDecorator("staticmethod") {
			if f.hasDecorator("classmethod") {
				return ref{class: f.class}
			}
			return ref{instance: f.class}
		}
		return ref{param: b}
	case bindValue:
		return f.resolve(b.value, hops-1)
	}
	return ref{}
}

// member returns what the name means in the module number n of the tree, or the
// submodule of that name.
func (p *program) member(n int, name string, hops int) ref {
	if hops <= 0 {
		return ref{}
	}
	if m := p.modules[n]; m != nil {
		if b := m.body.names[name]; b != nil {
			if r := m.body.follow(b, hops-1); r.known() {
				return r
			}
		}
		if r := m.starred(name, hops-1); r.known() && !strings.HasPrefix(r.lib, "builtins.") {
			return r
		}
	}
	if file := p.ix.paths[n]; path.Base(file) == "__init__.py" {
		if sub, ok := p.ix.find(parent(file), name); ok {
			return ref{file: sub, isModule: true}
		}
	}
	return ref{}
}

// resolve returns what an expression means inside f.
func (f *function) resolve(n *pysyntax.Node, hops int) ref {
	if n == nil || hops <= 0 {
		return ref{}
	}
	switch n.Kind {
	case pysyntax.Name:
		return f.lookup(n.Name, hops-1)
	case pysyntax.Await:
		return f.resolve(n.X, hops-1)
	case pysyntax.Attr:
		if len(f.mod.submodules) > 0 {
			if file, ok := f.mod.submodules[n.Dotted()]; ok && f.resolve(n.X, hops-1).lib != "" {
				return ref{file: file, isModule: true}
			}
		}
		return f.mod.prog.attribute(f.resolve(n.X, hops-1), n.Name, hops-1)
	case pysyntax.Call:
		switch r := f.resolve(n.X, hops-1); {
		case r.class != nil:
			return ref{instance: r.class}
		case r.lib == "builtins.super" && f.enclosingClass() != nil:
			if b := f.enclosingClass().base(hops - 1); b != nil {
				return ref{instance: b}
			}
		case r.lib != "" && !strings.HasPrefix(r.lib, "builtins."):
			return ref{lib: r.lib + "()", guessed: r.guessed}
		}
	}
	return ref{}
}

// enclosingClass returns the class whose method f is, or is defined in.
func (f *function) enclosingClass() *class {
	for ; f != nil; f = f.outer {
		if f.class != nil {
			return f.class
		}
	}
	return nil
}

// attribute returns what the name means as an attribute of r.
func (p *program) attribute(r ref, name string, hops int) ref {
	switch {
	case hops <= 0:
	case r.lib != "":
		return ref{lib: r.lib + "." + name, guessed: r.guessed}
	case r.isModule:
		return p.member(r.file, name, hops-1)
	case r.class != nil:
		if m := r.class.method(name, hops-1); m != nil {
			return ref{fn: m}
		}
	case r.instance != nil:
		if m := r.instance.method(name, hops-1); m != nil {
			return ref{fn: m}
		}
		if v := r.instance.attrs[name]; v.value != nil {
			return v.scope.resolve(v.value, hops-1)
		}
	}
	return ref{}
}

// method finds a method of c or of its base classes in the tree.
func (c *class) method(name string, hops int) *function {
	if m := c.methods[name]; m != nil || hops <= 0 {
		return m
	}
	for _, b := range c.stmt.Exprs {
		if r := c.outer.resolve(b, hops-1); r.class != nil && r.class != c {
			if m := r.class.method(name, hops-1); m != nil {
				return m
			}
		}
	}
	return nil
}

// allMethods returns the methods of c, its base classes' included.
func (c *class) allMethods(hops int) []*function {
	out := slices.Collect(maps.Values(c.methods))
	if hops > 0 {
		for _, b := range c.stmt.Exprs {
			if r := c.outer.resolve(b, hops-1); r.class != nil && r.class != c {
				out = append(out, r.class.allMethods(hops-1)...)
			}
		}
	}
	return out
}

// base returns the first base class that stands in the tree.
func (c *class) base(hops int) *class {
	for _, b := range c.stmt.Exprs {
		if r := c.outer.resolve(b, hops); r.class != nil && r.class != c {
			return r.class
		}
	}
	return nil
}

// hasDecorator reports whether a decorator's last name is one of names, called
// or not.
func (f *function) hasDecorator(names ...string) bool {
	if f.stmt == nil {
		return false
	}
	for _, d := range f.stmt.Decorators {
		if d.Kind == pysyntax.Call {
			d = d.X
		}
		for _, name := range names {
			if (d.Kind == pysyntax.Name || d.Kind == pysyntax.Attr) && d.Name == name {
				return true
			}
		}
	}
	return false
}
