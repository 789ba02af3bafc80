package teardown

import (
	"maps"
	"slices"
	"strings"

	"ncclfix/patchers/pysyntax"
)

// An eventKind is something a statement does that matters to process groups.
type eventKind byte

const (
	evOpen    eventKind = iota // opens the default group, through a library
	evDestroy                  // destroys the default group, through a library
	evAtexit                   // registers a destroy for the end of the process
	evHand                     // hands on fn, which counts like evAtexit if it destroys
	evCall                     // calls fn
	evMethod                   // calls a method of an unknown object, under a name that destroys
	evSpawn                    // starts fn as a process
	evExit                     // ends the process: sys.exit and the like
	evAbort                    // ends the process at once: os._exit
)

// An event is one such thing, at one call.
type event struct {
	kind    eventKind
	in      *function // whose statement it is
	stmt    *pysyntax.Stmt
	node    *pysyntax.Node
	fn      *function // evCall, evSpawn, evHand, evAtexit of a function of the tree; evDestroy of the group that fn returned
	name    string    // evOpen, evSpawn: the library function; evMethod: the method
	guessed bool      // the name came through a star import
}

// find records the events of every function of m, and which functions have others
// than before. It needs all modules linked.
func (m *module) find() {
	for _, f := range m.allFunctions() {
		events, contexts, wrappers := f.events, f.contexts, f.wrappers
		f.events, f.contexts = nil, nil
		f.contextManager = f.hasDecorator("contextmanager", "asynccontextmanager")
		f.fixture = f.hasDecorator("fixture", "yield_fixture")
		f.wrappers = f.findWrappers()
		f.findIn(f.statements())
		if maps.EqualFunc(f.events, events, slices.Equal) && maps.EqualFunc(f.contexts, contexts, slices.Equal) && slices.Equal(f.wrappers, wrappers) {
			f.events = events // summaries point into them
		} else {
			f.changed = true
		}
	}
}

func (m *module) allFunctions() []*function { return append([]*function{m.body}, m.funcs...) }

func (f *function) findIn(list []*pysyntax.Stmt) {
	for _, s := range list {
		switch s.Kind {
		case pysyntax.FuncDef:
			f.findRegistered(s)
			continue
		case pysyntax.ClassDef:
			continue
		}
		for _, n := range s.Exprs {
			f.findCalls(s, n)
			if s.Kind == pysyntax.With {
				if r := f.resolve(n, maxHops); r.instance != nil {
					if f.contexts == nil {
						f.contexts = map[*pysyntax.Stmt][]*class{}
					}
					f.contexts[s] = append(f.contexts[s], r.instance)
				}
			}
		}
		for _, b := range s.Blocks {
			if b.Clause == pysyntax.Elif {
				f.findCalls(s, b.Cond)
			}
			f.findIn(b.Body)
		}
	}
}

func (f *function) add(e event) {
	if f.events == nil {
		f.events = map[*pysyntax.Stmt][]event{}
	}
	f.events[e.stmt] = append(f.events[e.stmt], e)
}

// findRegistered records a function that its decorator registers for the end of
// the process.
func (f *function) findRegistered(s *pysyntax.Stmt) {
	for _, d := range s.Decorators {
		if f.resolve(d, maxHops).lib != "atexit.register" {
			continue
		}
		if r := f.lookup(s.Name, maxHops); r.fn != nil {
			f.add(event{kind: evAtexit, in: f, stmt: s, node: d, fn: r.fn})
		}
	}
}

// findCalls records the events of one expression in the order of evaluation:
// arguments before the call that takes them.
func (f *function) findCalls(s *pysyntax.Stmt, n *pysyntax.Node) {
	if n == nil || n.Kind == pysyntax.Lambda { // a lambda's body runs elsewhere
		return
	}
	f.findCalls(s, n.X)
	for _, a := range n.Args {
		f.findCalls(s, a.Value)
	}
	if n.Kind == pysyntax.Call {
		for _, e := range f.classify(n) {
			e.in, e.stmt, e.node = f, s, n
			f.add(e)
		}
	}
}

// classify returns what a call does.
func (f *function) classify(n *pysyntax.Node) []event {
	r := f.resolve(n.X, maxHops)
	if t := f.spawnTarget(n, r); t != nil {
		return []event{{kind: evSpawn, fn: t, name: f.mod.file.Text(n.X.Span)}}
	}
	var out []event
	if r.lib != "functools.partial" {
		out = f.handsOn(n)
	}
	if len(out) > 0 && out[0].kind == evAtexit {
		return out
	}
	switch {
	case r.fn != nil:
		out = append(out, event{kind: evCall, fn: r.fn})
		for _, i := range slices.Sorted(maps.Keys(r.fn.spawns)) {
			if t := f.callable(r.fn.argument(n, i)); t != nil {
				out = append(out, event{kind: evSpawn, fn: t, name: r.fn.qualname()})
			}
		}
		return out
	case r.class != nil:
		if init := r.class.method("__init__", maxHops); init != nil {
			out = append(out, event{kind: evCall, fn: init})
		}
		if del := r.class.method("__del__", maxHops); del != nil {
			out = append(out, event{kind: evAtexit, fn: del})
		}
		return out
	case r.lib != "":
		return append(out, f.classifyLibrary(n, r)...)
	}
	switch method := n.X.Name; {
	case n.X.Kind != pysyntax.Attr:
	case method == "destroy_process_group" && len(n.Args) == 0:
		return append(out, event{kind: evDestroy})
	case f.mod.prog.sought[method]:
		return append(out, event{kind: evMethod, name: method})
	}
	return out
}

// handsOn returns the functions of the tree that a call hands on, perhaps as a
// callback for later: addfinalizer, addCleanup, ExitStack.callback. When one is
// run cannot be told, so one that destroys counts as the end of the process. If
// the library's own destroy is among them, it is the only event.
func (f *function) handsOn(n *pysyntax.Node) []event {
	var out []event
	add := func(r ref) bool {
		if r.fn != nil {
			out = append(out, event{kind: evHand, fn: r.fn})
		}
		return destroys(r.lib)
	}
	for _, a := range n.Args {
		found := false
		switch a.Value.Kind {
		case pysyntax.Name, pysyntax.Attr:
			found = add(f.resolve(a.Value, maxHops))
		case pysyntax.Lambda:
			a.Value.X.Walk(func(n *pysyntax.Node) bool {
				found = found || n.Kind == pysyntax.Call && add(f.resolve(n.X, maxHops))
				return true
			})
		}
		if found {
			return []event{{kind: evAtexit}}
		}
	}
	return out
}

// libraryMember reports whether a star import of the library may bring name.
func libraryMember(lib, name string) bool {
	full := lib + "." + name
	return opens(full) || destroys(full) || spawnArgument(full) != nil
}

// opens reports whether a call of the library function opens the default group,
// as the documentation of PyTorch and DeepSpeed has it: init_device_mesh,
// DeviceMesh and deepspeed.initialize do so when there is none yet.
func opens(lib string) bool {
	name := lib[strings.LastIndexByte(lib, '.')+1:]
	switch {
	case strings.HasPrefix(lib, "torch.distributed."):
		return name == "init_process_group" || name == "init_device_mesh" || name == "DeviceMesh"
	case strings.HasPrefix(lib, "deepspeed."):
		return name == "init_distributed" || name == "initialize" && lib == "deepspeed.initialize"
	}
	return false
}

func destroys(lib string) bool {
	return (strings.HasPrefix(lib, "torch.distributed.") || strings.HasPrefix(lib, "deepspeed.")) &&
		strings.HasSuffix(lib, ".destroy_process_group")
}

func (f *function) classifyLibrary(n *pysyntax.Node, r ref) []event {
	switch {
	case opens(r.lib):
		if r.lib == "deepspeed.initialize" && f.isFalse(n.Arg(-1, "dist_init_required")) {
			return nil
		}
		if slices.ContainsFunc(n.Args, func(a pysyntax.Arg) bool { return f.needsGroup(a.Value) }) {
			return nil
		}
		return []event{{kind: evOpen, name: r.lib, guessed: r.guessed}}
	case destroys(r.lib):
		group := n.Arg(0, "group")
		if f.isWholeGroup(group) {
			return []event{{kind: evDestroy}}
		}
		if opener := f.madeBy(group); opener != nil {
			return []event{{kind: evDestroy, fn: opener}}
		}
		return nil
	}
	switch r.lib {
	case "atexit.register":
		if target := f.callable(n.Arg(0, "func")); target != nil {
			return []event{{kind: evAtexit, fn: target}}
		}
	case "threading.Thread": // a thread ends with its process
		if target := f.callable(n.Arg(-1, "target")); target != nil {
			return []event{{kind: evCall, fn: target}}
		}
	case "sys.exit", "builtins.exit", "builtins.quit":
		return []event{{kind: evExit}}
	case "os._exit":
		return []event{{kind: evAbort}}
	}
	if i := strings.LastIndexByte(r.lib, '.'); i > 0 {
		switch r.lib[i+1:] {
		case "Fire", "run": // fire.Fire(main), typer.run(main), absl.app.run(main)
			if target := f.resolve(n.Arg(0, ""), maxHops); target.fn != nil {
				return []event{{kind: evCall, fn: target.fn}}
			}
		case "destroy_process_group":
			if len(n.Args) == 0 {
				return []event{{kind: evDestroy}}
			}
		}
	}
	return nil
}

// needsGroup reports whether an expression asks the default group for its size or
// for a rank, which raises if there is none (PyTorch's documentation): what takes
// it as an argument does not open the group.
func (f *function) needsGroup(n *pysyntax.Node) bool {
	found := false
	n.Walk(func(n *pysyntax.Node) bool {
		if n.Kind == pysyntax.Call && (n.X.Name == "get_world_size" || n.X.Name == "get_rank") {
			found = found || strings.HasPrefix(f.resolve(n.X, maxHops).lib, "torch.distributed.")
		}
		return !found
	})
	return found
}

func (f *function) isFalse(n *pysyntax.Node) bool {
	return n != nil && f.mod.file.Text(n.Span) == "False"
}

// isWholeGroup reports whether the argument of destroy_process_group means the
// default group, whose end is that of all others.
func (f *function) isWholeGroup(n *pysyntax.Node) bool {
	if n == nil || f.mod.file.Text(n.Span) == "None" {
		return true
	}
	lib := f.resolve(n, maxHops).lib
	return strings.HasPrefix(lib, "torch.distributed.") && (strings.HasSuffix(lib, "group.WORLD") || strings.HasSuffix(lib, "GroupMember.WORLD") ||
		strings.HasSuffix(lib, "._get_default_group()"))
}

// madeBy returns the function of the tree whose result a name or an attribute was
// given, or nil.
func (f *function) madeBy(n *pysyntax.Node) *function {
	var value *pysyntax.Node
	scope := f
	switch {
	case n.Kind == pysyntax.Name:
		var b *binding
		if scope, b = f.bindingOf(n.Name); b != nil && b.kind == bindValue {
			value = b.value
		}
	case n.Kind == pysyntax.Attr:
		if r := f.resolve(n.X, maxHops); r.instance != nil {
			a := r.instance.attrs[n.Name]
			scope, value = a.scope, a.value
		}
	}
	if value == nil || value.Kind != pysyntax.Call {
		return nil
	}
	return scope.resolve(value.X, maxHops).fn
}

// A spawner says which argument of a library function is run in new processes.
type spawner struct {
	index int
	name  string
}

func spawnArgument(lib string) *spawner {
	lib = strings.ReplaceAll(lib, ".get_context()", "")
	lib = strings.TrimPrefix(lib, "torch.")
	switch lib {
	case "multiprocessing.spawn", "multiprocessing.spawn.spawn", "multiprocessing.start_processes",
		"multiprocessing.spawn.start_processes":
		return &spawner{0, "fn"}
	case "multiprocessing.Process", "multiprocessing.context.Process", "multiprocessing.process.Process",
		"multiprocessing.context.SpawnProcess", "multiprocessing.context.ForkProcess":
		return &spawner{-1, "target"} // the first position is group, always None
	}
	if strings.HasPrefix(lib, "distributed.") {
		switch lib[strings.LastIndexByte(lib, '.')+1:] {
		case "elastic_launch()": // elastic_launch(config, f)(...)
			return nil
		case "launch_agent", "elastic_launch":
			return &spawner{1, "entrypoint"}
		case "start_processes":
			return &spawner{1, "entrypoint"}
		}
	}
	return nil
}

// spawnTarget returns the function of the tree that a call runs in processes of
// its own, or nil.
func (f *function) spawnTarget(n *pysyntax.Node, r ref) *function {
	s := spawnArgument(r.lib)
	if s == nil && r.lib == "" && r.fn == nil && r.class == nil && n.X.Kind == pysyntax.Attr && n.X.Name == "Process" {
		s = &spawner{-1, "target"} // context.Process, of a context that came from elsewhere
	}
	if s == nil {
		return nil
	}
	return f.callable(n.Arg(s.index, s.name))
}

// callable returns the function of the tree that an expression calls when it is
// called: a name, a method, functools.partial of one, a lambda that calls one.
func (f *function) callable(n *pysyntax.Node) *function {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case pysyntax.Lambda:
		if n.X != nil && n.X.Kind == pysyntax.Call {
			return f.resolve(n.X.X, maxHops).fn
		}
	case pysyntax.Call:
		r := f.resolve(n.X, maxHops)
		if r.lib == "functools.partial" {
			return f.callable(n.Arg(0, ""))
		}
		if r.class != nil { // an object that can be called
			return r.class.method("__call__", maxHops)
		}
	default:
		if n.Kind == pysyntax.Name {
			if scope, b := f.bindingOf(n.Name); b != nil && b.kind == bindValue && b.value.Kind == pysyntax.Call {
				return scope.callable(b.value)
			}
		}
		r := f.resolve(n, maxHops)
		if r.class != nil {
			return r.class.method("__init__", maxHops)
		}
		if r.instance != nil {
			return r.instance.method("__call__", maxHops)
		}
		return r.fn
	}
	return nil
}

// argument returns what a call of f passes as parameter number i.
func (f *function) argument(call *pysyntax.Node, i int) *pysyntax.Node {
	at := i
	if f.class != nil && !f.hasDecorator("staticmethod") {
		at-- // self is not written
	}
	return call.Arg(at, f.stmt.Params[i].Name)
}

// findPassing notes the calls in the statements that have a parameter of f as an
// argument.
func (f *function) findPassing(list []*pysyntax.Stmt) {
	for _, s := range list {
		if s.Kind == pysyntax.FuncDef || s.Kind == pysyntax.ClassDef {
			continue
		}
		for _, e := range s.Exprs {
			e.Walk(func(n *pysyntax.Node) bool {
				if n.Kind == pysyntax.Call && slices.ContainsFunc(n.Args, func(a pysyntax.Arg) bool { return f.isParam(a.Value) }) {
					f.passing = append(f.passing, n)
				}
				return true
			})
		}
		for _, b := range s.Blocks {
			f.findPassing(b.Body)
		}
	}
}

// isParam reports whether an expression is the name of a parameter of f.
func (f *function) isParam(n *pysyntax.Node) bool {
	if n == nil || n.Kind != pysyntax.Name {
		return false
	}
	b := f.names[n.Name]
	return b != nil && b.kind == bindParam
}

// findSpawnParams notes which parameters a function hands on to a spawner, and
// reports whether that is news.
func (f *function) findSpawnParams() bool {
	news := false
	check := func(n *pysyntax.Node) {
		if !f.isParam(n) {
			return
		}
		if i := f.names[n.Name].index; !f.spawns[i] {
			if f.spawns == nil {
				f.spawns = map[int]bool{}
			}
			f.spawns[i] = true
			news = true
		}
	}
	for _, n := range f.passing {
		r := f.resolve(n.X, maxHops)
		if sp := spawnArgument(r.lib); sp != nil {
			check(n.Arg(sp.index, sp.name))
		}
		if r.fn != nil {
			for i := range r.fn.spawns {
				check(r.fn.argument(n, i))
			}
		}
	}
	return news
}
