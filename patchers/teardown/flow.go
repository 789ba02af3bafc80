package teardown

import (
	"regexp"
	"slices"
	"strings"

	"ncclfix/patchers/pysyntax"
)

// A state is what is known of the default process group at a place in the code.
// States are ordered by what a join of two paths keeps: a path on which the
// group is destroyed outweighs one on which it is open, since the guards of an
// init and of its destroy are usually the same condition.
type state byte

const (
	none    state = iota // never opened here
	open                 // opened, and no destroy since
	closed               // destroyed
	covered              // a destroy is registered for the end of the process
	numStates
)

// join returns what holds after two paths that both start at entry. Where the
// group was open at the start, a path that destroys it speaks for both. Where it
// was not, a path that opens and destroys one says nothing of the other.
func join(entry, a, b state) state {
	if entry != open && min(a, b) == open && max(a, b) == closed {
		return open
	}
	return max(a, b)
}

// A flow runs over the body of one function and follows the state.
type flow struct {
	f        *function
	opening  *event // the event that opened the group last
	openCond string // the rank condition under which that was, or ""
	cond     string // the innermost rank condition
	exits    []exit
	rankOnly []event             // destroys that only some ranks reach
	finally  []func(state) state // what runs on the way out: finally clauses, ends of with statements
	handler  int                 // depth of except clauses
	loops    []*[]state          // states at the breaks of the loops around
	quiet    bool                // record nothing
}

// An exit is a way out of a function on its normal path.
type exit struct {
	stmt    *pysyntax.Stmt // the return or the call of sys.exit; nil at the end
	state   state
	handler bool // in an except clause
	leaves  bool // ends the process, not only the function
}

// run follows the body from the state and returns the join of all states in
// which the function is left on its normal path, the ends of the process
// included. Where there are none, it returns the state at the start.
func (w *flow) run(s state) state {
	end, reached := w.block(w.f.statements(), s)
	if reached {
		w.exits = append(w.exits, exit{state: end})
	}
	out, any := s, false
	for _, e := range w.exits {
		switch {
		case e.handler || w.f.isError(e):
		case any:
			out = join(s, out, e.state)
		default:
			out, any = e.state, true
		}
	}
	return out
}

// block returns the state at the end of the statements, and whether the end can
// be reached.
func (w *flow) block(list []*pysyntax.Stmt, s state) (state, bool) {
	for _, st := range list {
		var reached bool
		if s, reached = w.stmt(st, s); !reached {
			return s, false
		}
	}
	return s, true
}

func (w *flow) stmt(st *pysyntax.Stmt, s state) (state, bool) {
	for i := range w.f.events[st] {
		e := &w.f.events[st][i]
		switch {
		case e.kind == evExit && isWhole(st, e):
			w.leave(st, s, true)
			return s, false
		case e.kind == evAbort && isWhole(st, e):
			return s, false
		}
		s = w.event(e, s)
	}
	switch st.Kind {
	case pysyntax.Return:
		w.leave(st, s, false)
		return s, false
	case pysyntax.Raise:
		if len(st.Exprs) > 0 && w.f.raisesExit(st.Exprs[0]) {
			w.leave(st, s, true)
		}
		return s, false
	case pysyntax.Break:
		if n := len(w.loops); n > 0 {
			*w.loops[n-1] = append(*w.loops[n-1], s)
		}
		return s, false
	case pysyntax.Continue:
		if n := len(w.loops); n > 0 {
			return s, false
		}
	case pysyntax.If, pysyntax.Match:
		return w.branches(st, s)
	case pysyntax.For, pysyntax.While:
		return w.loop(st, s)
	case pysyntax.Try:
		return w.try(st, s)
	case pysyntax.With:
		return w.with(st, s)
	}
	return s, true
}

// with follows a with statement. What the functions do that are decorated as
// context managers has been done by then, as if all of it stood in front of the
// body; a destroy behind the yield counts.
func (w *flow) with(st *pysyntax.Stmt, s state) (state, bool) {
	classes := w.f.contexts[st]
	leave := func(s state) state {
		for _, c := range classes {
			for _, name := range []string{"__exit__", "__aexit__"} {
				if m := c.method(name, maxHops); m != nil && s != covered {
					if s != open && m.after[s] == open {
						w.opening, w.openCond = &event{kind: evCall, in: w.f, stmt: st, node: st.Exprs[0], fn: m}, w.cond
					}
					s = m.after[s]
				}
			}
		}
		return s
	}
	for _, c := range classes {
		if m := c.method("__enter__", maxHops); m != nil {
			s = w.event(&event{kind: evCall, in: w.f, stmt: st, node: st.Exprs[0], fn: m}, s)
		}
	}
	w.finally = append(w.finally, leave)
	s, reached := w.block(st.Blocks[0].Body, s)
	w.finally = w.finally[:len(w.finally)-1]
	return leave(s), reached
}

// raisesExit reports whether an exception ends the process as sys.exit does.
func (f *function) raisesExit(n *pysyntax.Node) bool {
	if n.Kind == pysyntax.Call {
		n = n.X
	}
	return f.resolve(n, maxHops).lib == "builtins.SystemExit"
}

// isWhole reports whether the event's call is all that its statement does.
func isWhole(st *pysyntax.Stmt, e *event) bool {
	return st.Kind == pysyntax.Expr && len(st.Exprs) == 1 && st.Exprs[0] == e.node
}

func (w *flow) event(e *event, s state) state {
	if s == covered {
		return s
	}
	next := s
	switch e.kind {
	case evOpen:
		next = open
	case evDestroy:
		if s == open && (e.fn == nil || e.fn.opensInside) {
			next = closed
		}
	case evMethod:
		if s == open && w.f.mod.prog.closers[e.name] {
			next = closed
		}
	case evAtexit:
		if e.fn == nil || e.fn.closes {
			next = covered
		}
	case evHand:
		if e.fn.closes && !e.fn.opensInside {
			next = covered
		}
	case evCall:
		next = e.fn.after[s]
	}
	if next == open && s != open || e.kind == evCall && e.fn.opensInside && w.opening == nil {
		w.opening, w.openCond = e, w.cond
	}
	if s == open && next == closed && w.cond != "" && w.cond != w.openCond && !w.quiet {
		w.rankOnly = append(w.rankOnly, *e)
	}
	return next
}

// leave records a way out, after the finally clauses around it.
func (w *flow) leave(st *pysyntax.Stmt, s state, process bool) {
	if w.quiet {
		return
	}
	w.quiet = true
	for i := len(w.finally) - 1; i >= 0; i-- {
		s = w.finally[i](s)
	}
	w.quiet = false
	w.exits = append(w.exits, exit{st, s, w.handler > 0, process})
}

func (w *flow) branches(st *pysyntax.Stmt, s state) (state, bool) {
	out, reached := none, false
	complete := false
	for _, b := range st.Blocks {
		complete = complete || b.Clause == pysyntax.Else
		outer := w.cond
		if cond := w.f.rankCondition(b.Cond); cond != "" {
			w.cond = cond
		}
		end, ok := w.block(b.Body, s)
		if ok && s == open && end == closed && w.cond != outer && w.cond != w.openCond && !w.elseDestroys(st, b, s) {
			end = open // only some ranks destroy
		}
		w.cond = outer
		if ok && reached {
			out = join(s, out, end)
		} else if ok {
			out, reached = end, true
		}
	}
	if !complete && reached {
		out = join(s, out, s)
	} else if !complete {
		out, reached = s, true
	}
	return out, reached
}

// elseDestroys reports whether the other branches of an if destroy as well.
func (w *flow) elseDestroys(st *pysyntax.Stmt, but *pysyntax.Block, s state) bool {
	if st.Blocks[len(st.Blocks)-1].Clause != pysyntax.Else {
		return false
	}
	outer := w.quiet
	w.quiet = true
	defer func() { w.quiet = outer }()
	for _, b := range st.Blocks {
		if b == but {
			continue
		}
		if end, ok := w.block(b.Body, s); ok && end == open {
			return false
		}
	}
	return true
}

func (w *flow) loop(st *pysyntax.Stmt, s state) (state, bool) {
	var breaks []state
	w.loops = append(w.loops, &breaks)
	end, ok := w.block(st.Blocks[0].Body, s)
	w.loops = w.loops[:len(w.loops)-1]
	out, reached := s, true
	if st.Kind == pysyntax.While && isTrue(w.f.mod.file.Text(st.Blocks[0].Cond.Span)) {
		out, reached = none, false
	} else if ok {
		out = max(out, end)
	}
	for _, b := range st.Blocks[1:] {
		if reached {
			out, reached = w.block(b.Body, out)
		}
	}
	for _, b := range breaks {
		out, reached = max(out, b), true
	}
	return out, reached
}

func isTrue(cond string) bool { return cond == "True" || cond == "1" }

func (w *flow) try(st *pysyntax.Stmt, s state) (state, bool) {
	var last *pysyntax.Block
	if b := st.Blocks[len(st.Blocks)-1]; b.Clause == pysyntax.Finally {
		last = b
		w.finally = append(w.finally, func(s state) state {
			s, _ = w.block(b.Body, s)
			return s
		})
	}
	out, reached := w.block(st.Blocks[0].Body, s)
	middle := max(s, out)
	for _, b := range st.Blocks[1:] {
		switch b.Clause {
		case pysyntax.Else:
			if reached {
				out, reached = w.block(b.Body, out)
			}
		case pysyntax.Except:
			w.handler++
			end, ok := w.block(b.Body, middle)
			w.handler--
			if ok && !reached {
				out, reached = end, true
			} else if ok {
				out = max(out, end)
			}
		}
	}
	if last == nil {
		return out, reached
	}
	w.finally = w.finally[:len(w.finally)-1]
	end, ok := w.block(last.Body, out)
	return end, ok && reached
}

// summarize brings the summaries of all functions to a fixed point. It computes anew
// those of functions that have changed, and of what calls them at any distance; they
// start as if they did nothing to a group. What the others do, they still do.
func (p *program) summarize(all []*function) {
	p.active = p.active[:0]
	for _, f := range all {
		f.callers, f.stale = f.callers[:0], false
		if len(f.events) > 0 || len(f.contexts) > 0 {
			p.active = append(p.active, f)
		}
	}
	for _, f := range p.active {
		f.eachCalled(func(g *function) {
			if n := len(g.callers); n == 0 || g.callers[n-1] != f {
				g.callers = append(g.callers, f)
			}
		})
	}
	var anew []*function
	for _, f := range all {
		if f.changed {
			anew = append(anew, f)
		}
	}
	for i := 0; i < len(anew); i++ {
		f := anew[i]
		for s := range f.after {
			f.after[s] = state(s)
		}
		f.opening, f.closes, f.opensInside = nil, false, false
		for _, g := range f.callers {
			if !g.changed {
				g.changed = true
				anew = append(anew, g)
			}
		}
	}
	for _, f := range anew {
		f.changed, f.stale = false, f.touchesGroup()
	}
	p.settle()
}

// touchesGroup reports whether f does something to a group by itself, or calls what is
// known to.
func (f *function) touchesGroup() bool {
	for _, events := range f.events {
		for i := range events {
			switch e := &events[i]; e.kind {
			case evOpen, evDestroy, evMethod, evExit:
				return true
			case evAtexit:
				if e.fn == nil {
					return true
				}
			}
		}
	}
	known := false
	f.eachCalled(func(g *function) {
		known = known || g.closes || g.opensInside || g.after != [numStates]state{none, open, closed, covered}
	})
	return known
}

// eachCalled calls yield for the functions on whose summaries that of f depends.
func (f *function) eachCalled(yield func(g *function)) {
	for _, events := range f.events {
		for i := range events {
			if e := &events[i]; e.fn != nil && e.kind != evSpawn {
				yield(e.fn)
			}
		}
	}
	for _, classes := range f.contexts {
		for _, c := range classes {
			for _, name := range []string{"__enter__", "__exit__", "__aexit__"} {
				if m := c.method(name, maxHops); m != nil {
					yield(m)
				}
			}
		}
	}
	for _, g := range f.wrappers {
		yield(g)
	}
}

// guess takes the names for those of methods that destroy the group, and brings
// the summaries to a fixed point again.
func (p *program) guess(closers map[string]bool) {
	p.closers = closers
	for _, f := range p.active {
		f.stale = f.stale || f.callsMethod(closers)
	}
	p.settle()
}

// forgetGuess takes back what guess did, as of the next summarize.
func (p *program) forgetGuess() {
	for _, f := range p.active {
		f.changed = f.changed || f.callsMethod(p.closers)
	}
	p.closers = nil
}

// callsMethod reports whether f calls a method of an unknown object that has one of
// the names.
func (f *function) callsMethod(names map[string]bool) bool {
	if len(names) == 0 {
		return false
	}
	for _, events := range f.events {
		if slices.ContainsFunc(events, func(e event) bool { return e.kind == evMethod && names[e.name] }) {
			return true
		}
	}
	return false
}

// settle computes stale summaries, and those of callers as long as they change.
// It goes in the order of the functions, so that the result does not depend on
// maps.
func (p *program) settle() {
	for range maxRounds {
		var next []*function
		for _, f := range p.active {
			if f.stale {
				f.stale = false
				if f.summarize() {
					next = append(next, f.callers...)
				}
			}
		}
		if len(next) == 0 {
			return
		}
		for _, f := range next {
			f.stale = true
		}
	}
}

// findClosers returns the names of methods that destroy the group of somebody
// else. Methods that Python or a test runner calls have names that tell nothing.
func findClosers(all []*function) map[string]bool {
	closers := map[string]bool{}
	for _, f := range all {
		if f.closes && !f.opensInside && f.class != nil && !f.isTeardown() && !strings.HasPrefix(f.stmt.Name, "__") {
			closers[f.stmt.Name] = true
		}
	}
	return closers
}

// maxRounds bounds the fixed point: the longest chain of calls that is followed.
const maxRounds = 30

// summarize computes the effects of f from those of what it calls, and reports
// whether they changed.
func (f *function) summarize() bool {
	before, opening, closes, opensInside := f.after, f.opening, f.closes, f.opensInside
	for s := none; s < numStates; s++ {
		w := &flow{f: f}
		f.after[s] = w.run(s)
		if (f.repaired || f.isWrapped()) && f.after[s] == open {
			f.after[s] = closed
		}
		if s == none {
			f.opensInside = w.opening != nil
			f.opening = nil
			if f.after[none] == open {
				f.opening = w.opening
			}
		}
	}
	// A function that starts with an open group and returns without one closes it.
	f.closes = f.after[open] == closed
	return f.after != before || (f.opening == nil) != (opening == nil) || f.closes != closes || f.opensInside != opensInside
}

// isWrapped reports whether a decorator of the tree destroys the group around f.
func (f *function) isWrapped() bool {
	return slices.ContainsFunc(f.wrappers, func(g *function) bool { return g.closes || g.after[none] == closed })
}

// findWrappers returns the functions of the tree that decorate f, and those in them.
func (f *function) findWrappers() []*function {
	if f.stmt == nil {
		return nil
	}
	var out []*function
	for _, d := range f.stmt.Decorators {
		if d.Kind == pysyntax.Call {
			d = d.X
		}
		g := f.outer.resolve(d, maxHops).fn
		if g == nil {
			continue
		}
		for _, inner := range g.mod.funcs {
			if inner == g || inner.outer == g {
				out = append(out, inner)
			}
		}
	}
	return out
}

var (
	rankWord = regexp.MustCompile(`(?i)rank|is_main|main_process|is_master|master_process|is_chief|is_primary`)
	// "local_rank != -1" and the like ask whether the run is distributed at all.
	rankGuard = regexp.MustCompile(`(?i)\w*rank\w*(\(\))?\s*(!=\s*-\s*1|==\s*-\s*1|>=\s*0|>\s*-\s*1|<\s*0\b|is\s+not\s+None|is\s+None)|["']\w*RANK["']\s*(not\s+)?in\b`)
)

// rankCondition returns the text of a condition that holds on some ranks only,
// or "".
func (f *function) rankCondition(cond *pysyntax.Node) string {
	if cond == nil {
		return ""
	}
	text, known := f.mod.rankConds[cond]
	if !known {
		if whole := f.mod.file.Text(cond.Span); rankWord.MatchString(whole) {
			whole = strings.Join(strings.Fields(whole), " ")
			if rankWord.MatchString(rankGuard.ReplaceAllString(whole, "")) {
				text = whole
			}
		}
		f.mod.rankConds[cond] = text
	}
	return text
}
