package teardown

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

// judgeTests reports a test module that opens a group, in its own process or in
// workers that it starts, and has nothing that destroys it afterwards.
func (a *analysis) judgeTests(m *module, leaking map[*function]bool) {
	var opening *event
	for _, f := range m.funcs {
		if !f.isTest() || f.class != nil && f.class.isForeign() || f.after[none] != open || f.mocksOpening() {
			continue
		}
		if !f.opening.throughFramework() && (opening == nil || f.opening.node.Start < opening.node.Start) {
			opening = f.opening
		}
	}
	why := "the process that runs the tests"
	at := patchers.Position{}
	if opening == nil {
		opening, at = m.inheritedSetup()
	}
	if opening == nil && m.opensOnImport() {
		opening = m.body.opening
	}
	if opening == nil {
		opening = m.leakingSpawn(leaking)
		why = "workers that this module starts"
	}
	if opening == nil || a.coversTests(m) {
		return
	}
	o := &owner{role: test, fn: m.body}
	if opening.in.mod == m {
		o.fn = opening.in
		at = m.position(opening.node.Start)
	}
	f := patchers.Finding{
		Code:    "teardown/module",
		Pos:     at,
		Message: fmt.Sprintf("test module opens a process group in %s and has no module teardown", why),
	}
	if opening.kind != evSpawn {
		f.Why = o.chain(opening)
		reason := a.refusal(&owner{role: test, fn: m.body}, opening)
		if reason == "" && opening.opensOnce() {
			reason = "the group is opened once for all modules, and would be missing in the next one"
		}
		if reason != "" {
			f.Message += "; not repaired: " + reason
			a.reportFor(o, f)
			return
		}
	} else {
		f.Why = []patchers.Step{{Pos: m.position(opening.node.Start), Message: opening.fn.qualname() + " is started as a process by " + opening.name}}
	}
	name := m.teardownName()
	edits, reason := a.moduleTeardown(m, name)
	if reason != "" {
		f.Message += "; not repaired: " + reason
	} else {
		f.Fix = &patchers.Fix{
			Message: "destroy the process group in " + name,
			Files:   []patchers.FileEdits{{Path: m.path, Base: m.src(), Edits: edits}},
		}
		m.body.repaired = true
	}
	a.reportFor(o, f)
}

// opensOnImport reports whether a test module opens the group when the test runner
// imports it, before any test runs.
func (m *module) opensOnImport() bool {
	if m.body.after[none] != open || m.body.opening == nil || m.body.opening.in != m.body || m.body.opening.throughFramework() {
		return false
	}
	main := m.mainBlock()
	return main == nil || m.body.opening.stmt.Start < main.Start || m.body.opening.stmt.Start >= main.End
}

// opensOnce reports whether a function on the way to an opening remembers that it has
// opened the group: in a global variable, or in a cache.
func (e *event) opensOnce() bool {
	for range maxHops {
		if f := e.in; f.stmt != nil && (f.hasDecorator("cache", "lru_cache") || mentions(f.mod.src()[f.stmt.Start:f.stmt.End], "global")) {
			return true
		}
		if e.kind != evCall || e.fn.opening == nil {
			return false
		}
		e = e.fn.opening
	}
	return false
}

// inheritedSetup returns what opens a group in a setup method that a test class of
// m inherits from another file, and where that class is.
func (m *module) inheritedSetup() (*event, patchers.Position) {
	for _, c := range m.class {
		if c.isForeign() || !slices.ContainsFunc(c.funcs(), func(f *function) bool { return strings.HasPrefix(f.stmt.Name, "test") }) {
			continue
		}
		for _, f := range c.allMethods(maxHops) {
			if f.class.mod != m && f.isSetup() && f.after[none] == open && !f.opening.throughFramework() {
				return f.opening, m.position(c.stmt.Header)
			}
		}
	}
	return nil, patchers.Position{}
}

// mocksOpening reports whether a test names the function that opens the group in
// a string, as tests do that replace it: mock.patch("torch.distributed.init_process_group").
func (f *function) mocksOpening() bool {
	names := []string{f.opening.called(), f.opening.origin().called()}
	text := string(f.mod.src()[f.stmt.Start:f.stmt.End])
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(text, name+`"`) || strings.Contains(text, name+`'`)
	})
}

// leakingSpawn returns the event by which m starts a worker that leaves its
// group open, or nil.
func (m *module) leakingSpawn(leaking map[*function]bool) *event {
	for _, f := range m.allFunctions() {
		for _, s := range f.sortedEvents() {
			for i := range f.events[s] {
				if e := &f.events[s][i]; e.kind == evSpawn && leaking[e.fn] {
					return e
				}
			}
		}
	}
	return nil
}

// coversTests reports whether something that runs after the tests of m destroys
// the group: a teardown or a fixture of the module, of a base class, or of a
// conftest.py above it.
func (a *analysis) coversTests(m *module) bool {
	w := &flow{f: m.body}
	if w.run(none) == covered {
		return true
	}
	for _, f := range m.funcs {
		if (f.isTeardown() || f.fixture) && f.closes {
			return true
		}
	}
	for _, c := range m.class {
		for _, name := range []string{"tearDown", "tearDownClass", "teardown_method", "teardown_class", "teardown", "asyncTearDown"} {
			if f := c.method(name, maxHops); f != nil && f.closes {
				return true
			}
		}
	}
	for dir := path.Dir(m.path); ; dir = path.Dir(dir) {
		if n, ok := a.prog.ix.files[path.Join(dir, "conftest.py")]; ok {
			if conftest := a.prog.modules[n]; conftest != nil {
				for _, f := range conftest.funcs {
					if (f.isTeardown() || f.fixture) && f.closes {
						return true
					}
				}
			}
		}
		if dir == "." {
			return false
		}
	}
}

// judgeConftest reports fixtures that open a group for the tests below and do
// not destroy it. A fixture that yields is destroyed behind its yield.
func (a *analysis) judgeConftest(m *module) {
	for _, f := range m.funcs {
		if !f.fixture || f.class != nil || f.after[none] != open || f.opening.throughFramework() {
			continue
		}
		o := &owner{role: test, fn: f, body: f.statements()}
		w := &flow{f: f}
		w.run(none)
		ends, _ := o.split(slices.DeleteFunc(w.exits, func(e exit) bool { return e.state != open || e.handler }))
		if len(ends) == 0 {
			continue // what returns early has yielded nothing, or is no teardown's to end
		}
		finding := patchers.Finding{
			Code:    "teardown/module",
			Pos:     m.position(f.opening.node.Start),
			Message: fmt.Sprintf("fixture %s opens a process group and does not destroy it", f.stmt.Name),
			Why:     (&owner{fn: f}).chain(f.opening),
		}
		reason := ""
		switch {
		case !f.isGenerator():
			reason = "it does not yield, so nothing of it runs after the tests"
		case f.stmt.Async:
			reason = "it is asynchronous"
		case f.opening.isGuess():
			reason = "the name comes through a star import"
		}
		var p place
		switch {
		case reason != "":
		case len(ends) > 1:
			reason = "it ends in more than one place"
		case ends[0].stmt == nil:
			p, reason = m.endPlace(o.body, f.stmt.Header)
		case o.computes(ends[0]):
			reason = "the value computed at its end may need the group"
		default:
			p, reason = m.beforePlace(ends[0].stmt)
		}
		if reason == "" {
			finding.Fix = &patchers.Fix{
				Message: "destroy the process group behind the yield of " + f.stmt.Name,
				Files:   []patchers.FileEdits{{Path: m.path, Base: m.src(), Edits: a.insert(f, p)}},
			}
			f.repaired = true
		} else {
			finding.Message += "; not repaired: " + reason
		}
		a.reportFor(o, finding)
	}
}

// teardownName returns the module teardown that the file's tests want: pytest
// also calls unittest's, unittest does not call pytest's.
func (m *module) teardownName() string {
	for _, name := range []string{"teardown_module", "tearDownModule"} {
		if b := m.body.names[name]; b != nil && b.kind == bindFunc {
			return name
		}
	}
	unittest := false
	for _, f := range m.funcs {
		if f.outer != m.body || !strings.HasPrefix(f.stmt.Name, "test") {
			continue
		}
		if f.class == nil {
			return "teardown_module"
		}
		unittest = unittest || f.class.derivesFrom(func(lib string) bool { return strings.HasSuffix(lib, "TestCase") })
	}
	if unittest {
		return "tearDownModule"
	}
	return "teardown_module"
}

// moduleTeardown inserts or extends the module teardown.
func (a *analysis) moduleTeardown(m *module, name string) ([]diff.Edit, string) {
	if b := m.body.names[name]; b != nil {
		if b.kind != bindFunc || b.depth > 0 || len(b.also) > 0 {
			return nil, name + " is bound in a way that cannot be extended"
		}
		w := &flow{f: b.fn}
		w.run(open)
		if len(w.exits) != 1 || w.exits[0].stmt != nil || b.fn.stmt.Async || b.fn.isGenerator() {
			return nil, "the end of " + name + " is not its only way out"
		}
		p, reason := m.endPlace(b.fn.statements(), b.fn.stmt.Header)
		if reason != "" {
			return nil, reason
		}
		return a.insert(b.fn, p), ""
	}
	src, eol := m.src(), m.eol()
	// The new function has no names of its own, so it sees the module's.
	v := m.vocabulary(&function{mod: m, stmt: &pysyntax.Stmt{Definition: &pysyntax.Definition{}}, outer: m.body}, len(src), a.pass.Options.Barrier)
	unit := m.unit(m.body)
	lines := []string{"def " + name + "():"}
	for _, l := range v.block(unit, a.pass.Options.Barrier) {
		if l != "" {
			l = unit + l
		}
		lines = append(lines, l)
	}
	text := strings.Join(lines, eol) + eol
	before := m.mainBlock()
	last := m.file.Body[len(m.file.Body)-1]
	switch lacksNewline := src[len(src)-1] != '\n'; {
	case before != nil:
	case !lacksNewline:
		return append(v.imports, diff.Insert(len(src), strings.Repeat(eol, 2-m.blankLines(len(src)))+text)), ""
	case !m.hasRepairIn(last):
		return append(v.imports, diff.Insert(len(src), strings.Repeat(eol, 3)+strings.TrimSuffix(text, eol))), ""
	default:
		before = last // its repair takes the end of the file
	}
	if indent, alone := m.indentation(before); !alone || indent != "" {
		return nil, fmt.Sprintf("line %d does not begin with its statement", m.position(before.Start).Line)
	}
	at := m.aboveComments(pysyntax.LineStart(src, before.Start))
	return append(v.imports, diff.Insert(at, strings.Repeat(eol, 2-m.blankLines(at))+text+eol+eol)), ""
}

// hasRepairIn reports whether a function inside the statement is repaired.
func (m *module) hasRepairIn(s *pysyntax.Stmt) bool {
	return slices.ContainsFunc(m.funcs, func(f *function) bool {
		return f.repaired && f.stmt.Start >= s.Start && f.stmt.End <= s.End
	})
}

// aboveComments returns the start of the comment lines that stand directly above
// the line at offset.
func (m *module) aboveComments(at int) int {
	for at > 0 {
		start := pysyntax.LineStart(m.src(), at-1)
		if !bytes.HasPrefix(m.src()[start:at], []byte("#")) {
			break
		}
		at = start
	}
	return at
}

// blankLines counts the blank lines in front of offset, up to 2.
func (m *module) blankLines(at int) int {
	n := 0
	for n < 2 && at > 0 {
		start := pysyntax.LineStart(m.src(), at-1)
		if len(bytes.TrimSpace(m.src()[start:at])) > 0 {
			break
		}
		n++
		at = start
	}
	return n
}
