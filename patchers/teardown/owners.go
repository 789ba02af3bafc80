package teardown

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"ncclfix/patchers/pysyntax"
)

// A role is why a function is the last to run in its process.
type role byte

const (
	worker role = iota // started as a process of its own
	script             // run by the interpreter, or reached from there in tail position
	test               // run by pytest or unittest
)

// An owner is code that is answerable for a process: when it ends, so does the
// process, and a group that is open then is never destroyed.
type owner struct {
	role role
	fn   *function
	body []*pysyntax.Stmt // what ends with the process; fn's statements, or a __main__ block
	main *pysyntax.Stmt   // the if statement of that block
	why  *event           // what starts the process, or the call that led here; may be nil
}

// workers returns the functions that run as processes of their own, each once,
// in the order of the tree.
func (p *program) workers(all []*function) []*owner {
	seen := map[*function]bool{}
	var out []*owner
	add := func(f *function, why *event) {
		if f != nil && f.stmt != nil && !seen[f] {
			seen[f] = true
			out = append(out, &owner{role: worker, fn: f, body: f.statements(), why: why})
		}
	}
	for _, f := range all {
		for _, s := range f.sortedEvents() {
			for i := range f.events[s] {
				if e := &f.events[s][i]; e.kind == evSpawn {
					add(e.fn, e)
				}
			}
		}
		// A subclass of Process runs its method run.
		if f.class != nil && f.name() == "run" && f.class.derivesFrom(func(lib string) bool { return spawnArgument(lib) != nil }) {
			add(f, nil)
		}
	}
	slices.SortFunc(out, func(a, b *owner) int {
		return cmp.Or(cmp.Compare(a.fn.mod.path, b.fn.mod.path), cmp.Compare(a.fn.stmt.Start, b.fn.stmt.Start))
	})
	return out
}

// sortedEvents returns the statements of f that have events, in source order.
func (f *function) sortedEvents() []*pysyntax.Stmt {
	out := make([]*pysyntax.Stmt, 0, len(f.events))
	for s := range f.events {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *pysyntax.Stmt) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// derivesFrom reports whether a base class of c, at any distance, stands outside
// the tree under a name that is wanted.
func (c *class) derivesFrom(wanted func(lib string) bool) bool {
	return c.anyBase(maxHops, func(r ref) bool { return r.lib != "" && wanted(r.lib) })
}

// anyBase reports whether f holds for what any base class of c means.
func (c *class) anyBase(hops int, f func(ref) bool) bool {
	if hops <= 0 {
		return false
	}
	for _, b := range c.stmt.Exprs {
		r := c.outer.resolve(b, maxHops)
		if f(r) || r.class != nil && r.class != c && r.class.anyBase(hops-1, f) {
			return true
		}
	}
	return false
}

// isForeign reports whether somebody else may run the methods of c and end their
// group: one of its bases stands outside the tree and is not known to leave
// processes alone, or stands in the tree and destroys groups or starts processes
// itself. PyTorch's MultiProcessTestCase destroys the group in its own run loop.
func (c *class) isForeign() bool {
	return c.anyBase(maxHops, func(r ref) bool {
		if r.class != nil {
			return r.class.runsProcesses()
		}
		name := r.lib[strings.LastIndexByte(r.lib, '.')+1:]
		switch r.lib {
		case "unittest.TestCase", "unittest.case.TestCase", "unittest.IsolatedAsyncioTestCase",
			"torch.testing._internal.common_utils.TestCase", "absl.testing.absltest.TestCase",
			"absl.testing.parameterized.TestCase", "torch.nn.Module", "torch.nn.modules.module.Module",
			"abc.ABC", "typing.Protocol", "typing.NamedTuple", "enum.Enum":
			return false
		}
		return !strings.HasPrefix(r.lib, "builtins.") || name == "" || r.lib == ""
	})
}

// runsProcesses reports whether a method of c destroys the group or starts
// processes.
func (c *class) runsProcesses() bool {
	for _, m := range c.mod.funcs {
		if m.class != c || m.isSetup() {
			continue
		}
		found := m.closes && !m.isTeardown()
		m.eachEvent(m.statements(), func(e *event) { found = found || e.kind == evSpawn })
		if found || len(m.spawns) > 0 {
			return true
		}
	}
	return false
}

// mainBlock returns the statement if __name__ == "__main__" of the module.
func (m *module) mainBlock() *pysyntax.Stmt {
	for _, s := range m.file.Body {
		if s.Kind == pysyntax.If && s.Blocks[0].Cond != nil {
			cond := m.file.Text(s.Blocks[0].Cond.Span)
			if strings.Contains(cond, "__name__") && strings.Contains(cond, "__main__") {
				return s
			}
		}
	}
	return nil
}

// isTestModule reports whether pytest collects the file, and finds tests in it.
func (m *module) isTestModule() bool {
	return isTestName(m.path) && slices.ContainsFunc(m.funcs, func(f *function) bool { return f.isTest() })
}

func isTestName(file string) bool {
	base := path.Base(file)
	return strings.HasPrefix(base, "test_") || strings.HasSuffix(base, "_test.py")
}

// isTest reports whether a test runner calls f: as a test, a fixture or a setup.
func (f *function) isTest() bool {
	if f.stmt == nil || f.outer != f.mod.body {
		return false
	}
	return f.fixture || f.isSetup() || strings.HasPrefix(f.stmt.Name, "test") && !f.isCalledWith()
}

// isCalledWith reports whether the module itself calls f with arguments: pytest
// cannot pass those, so f is a part of a script that is named like a test.
func (f *function) isCalledWith() bool {
	called := false
	f.mod.body.eachEvent(f.mod.file.Body, func(e *event) {
		called = called || e.kind == evCall && e.fn == f && len(e.node.Args) > 0
	})
	return called
}

// isSetup reports whether a test runner calls f before tests.
func (f *function) isSetup() bool { return isSetupName(f.name(), f.class != nil) }

func isSetupName(name string, isMethod bool) bool {
	switch name {
	case "setup_module", "setUpModule", "setup_function":
		return !isMethod
	case "setUp", "setUpClass", "setup_class", "setup_method", "asyncSetUp":
		return isMethod
	}
	return false
}

// isTeardown reports whether a test runner calls f after tests.
func (f *function) isTeardown() bool { return isTeardownName(f.name()) }

func isTeardownName(name string) bool {
	switch name {
	case "teardown_module", "tearDownModule", "teardown_function", "teardown_class", "teardown_method",
		"teardown", "tearDown", "tearDownClass", "asyncTearDown", "doCleanups",
		"pytest_sessionfinish", "pytest_unconfigure", "pytest_runtest_teardown":
		return true
	}
	return false
}

// isScript reports whether the module's own statements may be what a process
// runs. An imported module, a package or a configuration of tests is not.
func (m *module) isScript() bool {
	base := path.Base(m.path)
	return base != "__init__.py" && base != "conftest.py"
}

// tail returns the calls of functions of the tree, and the statements that hold
// them, behind which body does nothing more: its last statement, or the last
// ones of its branches.
func (f *function) tail(body []*pysyntax.Stmt) []*event {
	if len(body) == 0 {
		return nil
	}
	last := body[len(body)-1]
	switch last.Kind {
	case pysyntax.If, pysyntax.With, pysyntax.Try:
		var out []*event
		if f.runsBehind(last) {
			return nil
		}
		for i, b := range last.Blocks {
			// The body of a try is followed by its else.
			isBody := last.Kind == pysyntax.Try && i == 0 && hasClause(last, pysyntax.Else)
			if b.Clause != pysyntax.Except && !isBody {
				out = append(out, f.tail(b.Body)...)
			}
		}
		return out
	}
	var out []*event
	for i := range f.events[last] {
		if e := &f.events[last][i]; e.kind == evCall && f.isWholeCall(last, e.node) {
			out = append(out, e)
		}
	}
	return out
}

// runsBehind reports whether a statement runs code when it is left that may use the
// group: a finally clause, or a context manager.
func (f *function) runsBehind(s *pysyntax.Stmt) bool {
	switch s.Kind {
	case pysyntax.Try:
		last := s.Blocks[len(s.Blocks)-1]
		return last.Clause == pysyntax.Finally && !isHarmless(f.mod.src()[last.Start:last.End])
	case pysyntax.With:
		return slices.ContainsFunc(s.Exprs, f.mayUseGroup)
	}
	return false
}

var (
	called   = regexp.MustCompile(`(\w+)\s*\(`)
	harmless = regexp.MustCompile(`^(print|info|debug|warning|error|exception|log|close|flush|write|time|perf_counter|empty_cache|stop|terminate|kill|unlink|remove|rmtree|str|len|format|join)$`)
)

// isHarmless reports whether code calls nothing that could use the group, by the names
// of what it calls.
func isHarmless(code []byte) bool {
	for _, m := range called.FindAllSubmatch(code, -1) {
		if !harmless.Match(m[1]) {
			return false
		}
	}
	return true
}

// mayUseGroup reports whether a decorator or a context manager of the tree names
// torch.distributed. Those of libraries do not count, but for ExitStack.
func (f *function) mayUseGroup(n *pysyntax.Node) bool {
	if n.Kind == pysyntax.Call {
		n = n.X
	}
	r := f.resolve(n, maxHops)
	switch {
	case r.fn != nil && r.fn.stmt != nil:
		return r.fn.mod.namesDistributed(r.fn.stmt)
	case r.class != nil:
		return r.class.mod.namesDistributed(r.class.stmt)
	case r.instance != nil:
		return r.instance.mod.namesDistributed(r.instance.stmt)
	case strings.HasPrefix(r.lib, "builtins."): // or a definition that was left out
		return f.mod.definesUser(strings.TrimPrefix(r.lib, "builtins."))
	case r.lib != "":
		return strings.HasSuffix(r.lib, "ExitStack")
	}
	root, _, _ := strings.Cut(n.Dotted(), ".")
	if _, b := f.bindingOf(root); b != nil && (b.from.known || b.sub.known) {
		file := b.from.file
		if !b.from.known {
			file = b.sub.file
		}
		src, err := fs.ReadFile(f.mod.prog.fsys, f.mod.prog.ix.paths[file])
		return err != nil || bytes.Contains(src, []byte("distributed"))
	}
	return false
}

// definesUser reports whether the file defines a function or a class of that name that
// names torch.distributed. It goes by the text, since definitions can be left out of
// the tree.
func (m *module) definesUser(name string) bool {
	src := m.src()
	for _, at := range regexp.MustCompile(`(?m)^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+`+regexp.QuoteMeta(name)+`\b`).FindAllIndex(src, -1) {
		end := pysyntax.LineEnd(src, at[1])
		indent := len(src[at[0]:at[1]]) - len(bytes.TrimLeft(src[at[0]:at[1]], " \t"))
		for line := range bytes.Lines(src[end:]) {
			text := bytes.TrimLeft(line, " \t")
			if len(bytes.TrimSpace(text)) > 0 && len(line)-len(text) <= indent && text[0] != ')' {
				break
			}
			end += len(line)
		}
		if m.textNamesDistributed(src[at[0]:end]) {
			return true
		}
	}
	return false
}

// namesDistributed reports whether a statement names torch.distributed, as the module
// knows it.
func (m *module) namesDistributed(s *pysyntax.Stmt) bool {
	return m.textNamesDistributed(m.src()[s.Start:s.End])
}

func (m *module) textNamesDistributed(text []byte) bool {
	return pysyntax.ContainsWord(text, func(word []byte) bool {
		if string(word) == "distributed" {
			return true
		}
		for _, f := range m.allFunctions() {
			if b := f.names[string(word)]; b != nil && (b.isDistributed() || b.kind == bindFrom && b.mod == "torch.distributed") {
				return true
			}
		}
		return false
	})
}

func hasClause(s *pysyntax.Stmt, c pysyntax.Clause) bool {
	return slices.ContainsFunc(s.Blocks, func(b *pysyntax.Block) bool { return b.Clause == c })
}

// wayOut returns the innermost statement around s in the body that runs more code
// when it is left, or nil.
func (f *function) wayOut(body []*pysyntax.Stmt, s *pysyntax.Stmt) *pysyntax.Stmt {
	for _, outer := range body {
		if outer == s || s.Start < outer.Start || s.End > outer.End || outer.Kind == pysyntax.FuncDef || outer.Kind == pysyntax.ClassDef {
			continue
		}
		for _, b := range outer.Blocks {
			if inner := f.wayOut(b.Body, s); inner != nil {
				return inner
			}
		}
		if f.runsBehind(outer) {
			return outer
		}
	}
	return nil
}

// isWholeCall reports whether a call is all that a statement does, but for
// ending the process or running a coroutine with it: sys.exit(main()).
func (f *function) isWholeCall(s *pysyntax.Stmt, call *pysyntax.Node) bool {
	if len(s.Exprs) != 1 {
		return false
	}
	n := s.Exprs[0]
	if n != call && n.Kind == pysyntax.Call && len(n.Args) == 1 {
		switch f.resolve(n.X, maxHops).lib {
		case "sys.exit", "builtins.exit", "builtins.quit", "builtins.SystemExit", "asyncio.run":
			n = n.Args[0].Value
		}
	}
	return n == call
}

// scripts returns the code that the interpreter runs in m and that leaves the
// group open, as deep as the way there is a tail call.
func (m *module) scripts(callers map[*function]*calls) *owner {
	o := &owner{role: script, fn: m.body, body: m.file.Body}
	if main := m.mainBlock(); main != nil {
		o.main = main
		if m.body.opensIn(main.Blocks[0].Body) {
			o.body = main.Blocks[0].Body
		}
	}
	return o.descend(callers)
}

// opensIn reports whether the statements themselves open the group, alone or
// through what they call.
func (f *function) opensIn(body []*pysyntax.Stmt) bool {
	for _, s := range body {
		for _, e := range f.events[s] {
			if e.kind == evOpen || e.kind == evCall && e.fn.after[none] == open {
				return true
			}
		}
		for _, c := range f.contexts[s] {
			if m := c.method("__enter__", maxHops); m != nil && m.after[none] == open {
				return true
			}
		}
		for _, b := range s.Blocks {
			if s.Kind != pysyntax.FuncDef && s.Kind != pysyntax.ClassDef && f.opensIn(b.Body) {
				return true
			}
		}
	}
	return false
}

// descend follows the one call that opens the group into its function, as long
// as it is the last thing that happens, and only other scripts call that function
// besides, last as well. From a script it may lead to another file.
func (o *owner) descend(callers map[*function]*calls) *owner {
	for range maxHops {
		var opening []*event
		o.fn.eachEvent(o.body, func(e *event) {
			if e.kind == evOpen || e.kind == evCall && e.fn.after[none] == open {
				opening = append(opening, e)
			}
		})
		if len(opening) != 1 || opening[0].kind != evCall {
			return o
		}
		e := opening[0]
		isTail := slices.ContainsFunc(o.fn.tail(o.body), func(t *event) bool { return t.node == e.node })
		g := e.fn
		elsewhere := g.mod != o.fn.mod && o.fn.stmt != nil // the function of another file may serve more than this one
		if !isTail || elsewhere || g.stmt == nil || callers[g] == nil || callers[g].others || g.isTest() && isTestName(g.mod.path) || g.contextManager || g.stmt.Name == "__init__" || g.isGenerator() {
			return o
		}
		o = &owner{role: script, fn: g, body: g.statements(), why: e}
	}
	return o
}

// eachEvent calls f for every event of the statements and those inside them, in
// source order.
func (f *function) eachEvent(body []*pysyntax.Stmt, do func(*event)) {
	for _, s := range body {
		for i := range f.events[s] {
			do(&f.events[s][i])
		}
		if s.Kind == pysyntax.FuncDef || s.Kind == pysyntax.ClassDef {
			continue
		}
		for _, b := range s.Blocks {
			f.eachEvent(b.Body, do)
		}
	}
}

// isGenerator reports whether f yields: the end of its body is then not where
// its caller goes on.
func (f *function) isGenerator() bool {
	for _, s := range f.statements() {
		if strings.Contains(f.mod.file.Text(s.Span), "yield") && f.yields([]*pysyntax.Stmt{s}) {
			return true
		}
	}
	return false
}

func (f *function) yields(list []*pysyntax.Stmt) bool {
	for _, s := range list {
		if s.Kind == pysyntax.FuncDef || s.Kind == pysyntax.ClassDef {
			continue
		}
		for _, n := range s.Exprs {
			if strings.HasPrefix(f.mod.file.Text(n.Span), "yield") {
				return true
			}
		}
		for _, b := range s.Blocks {
			if f.yields(b.Body) {
				return true
			}
		}
	}
	return false
}

// calls tells of a function who calls it.
type calls struct {
	count  int
	others bool // not only scripts, and functions that scripts end with
}

// findCallers counts the calls of every function.
func (p *program) findCallers(all []*function) map[*function]*calls {
	out := map[*function]*calls{}
	for _, f := range all {
		out[f] = &calls{}
	}
	for _, f := range all {
		if len(f.events) == 0 {
			continue
		}
		tails := map[*pysyntax.Node]bool{}
		bodies := [][]*pysyntax.Stmt{f.statements()}
		if f.stmt == nil {
			if main := f.mod.mainBlock(); main != nil {
				bodies = append(bodies, main.Blocks[0].Body)
			}
		}
		for _, body := range bodies {
			for _, e := range f.tail(body) {
				tails[e.node] = true
			}
		}
		for _, events := range f.events {
			for _, e := range events {
				if e.kind != evCall {
					continue
				}
				if c := out[e.fn]; c != nil { // else it was forgotten
					c.count++
					c.others = c.others || !tails[e.node]
				}
			}
		}
	}
	// A second call out of a function is one too many, whichever came first.
	for _, f := range all {
		if f.stmt == nil {
			continue
		}
		for _, events := range f.events {
			for _, e := range events {
				if c := out[e.fn]; e.kind == evCall && c != nil && c.count > 1 {
					c.others = true
				}
			}
		}
	}
	return out
}

// describe says which process ends with the group open.
func (o *owner) describe() string {
	name := o.fn.qualname()
	switch {
	case o.role == worker && o.why != nil:
		return fmt.Sprintf("%s runs as a process of its own, started by %s, and ends with it open", name, o.why.name)
	case o.role == worker:
		return name + " runs as a process of its own and ends with it open"
	case o.fn.stmt != nil:
		return name + " is the last thing that the script runs, and ends with it open"
	}
	return "the script ends with it open"
}
