package advice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ncclfix/patchers"
	"ncclfix/patchers/pysyntax"
)

// A flow goes through one body in the order in which it runs, and knows which
// values the names have. A value has no content, only an identity: that of the
// name and of the binding it comes from.
type flow struct {
	*reader
	scope  *scope
	hidden []string // the words in front of the body of each lambda around: "lambda", parameters
	dry    bool     // only new values count: nothing is reported or kept
	next   int      // the last binding's number
	kept   []string // the names that layouts and handles are of, since the branch began

	values  map[string]int          // by name; a name that is not in it was not bound here
	layouts map[string]layout       // by the value of is_token_in_rank
	handles map[string]handleAtHand // by layout
}

// A layout says which dispatches go together.
type layout struct {
	id   string
	call *pysyntax.Node // the get_dispatch_layout that computed it; nil if not seen
}

// A handleAtHand is a handle that can be given to a later dispatch.
type handleAtHand struct {
	name, value string
	dispatch    dispatch
}

// A dispatch is a call that computes or takes a layout, and gives no handle to it.
type dispatch struct {
	call                  *pysyntax.Node
	layout                layout
	topk, weights, config string // values; "" is None
}

// follow reports on body, which is all of s, and on what it defines.
func (r *reader) follow(s *scope, body []*pysyntax.Stmt) {
	f := &flow{
		reader: r, scope: s,
		values: map[string]int{}, layouts: map[string]layout{}, handles: map[string]handleAtHand{},
	}
	f.block(body)
}

func (f *flow) block(body []*pysyntax.Stmt) {
	for _, s := range body {
		f.stmt(s)
	}
}

func (f *flow) stmt(s *pysyntax.Stmt) {
	for _, e := range slices.Concat(s.Decorators, s.Exprs) {
		f.expr(e)
	}
	for _, p := range s.Params {
		f.expr(p.Default)
	}
	var made dispatch
	if s.Kind == pysyntax.Assign && len(s.Targets) == 1 && len(s.Exprs) == 1 {
		made = f.read(s.Exprs[0])
	}
	f.rebind(s)
	if made.call != nil && !f.dry {
		f.keep(made, f.text(s.Targets[0]))
	}
	switch s.Kind {
	case pysyntax.FuncDef, pysyntax.ClassDef:
		for _, b := range s.Blocks {
			if !f.dry {
				f.follow(f.scopes[s], b.Body)
			}
		}
	case pysyntax.With:
		for _, b := range s.Blocks {
			f.block(b.Body)
		}
	case pysyntax.For, pysyntax.While:
		if !f.dry { // what the body binds is not what it was in the second round
			for _, b := range s.Blocks {
				f.branch(b, true)
			}
		}
		fallthrough
	default:
		for _, b := range s.Blocks {
			f.branch(b, f.dry)
		}
	}
}

// branch goes through a block that may not run, or run many times. Afterwards
// nothing is known of what its names hold.
func (f *flow) branch(b *pysyntax.Block, dry bool) {
	if b.Clause == pysyntax.Elif {
		f.expr(b.Cond)
	}
	outer, kept := f.dry, len(f.kept)
	f.dry = dry
	f.block(b.Body)
	f.dry = outer
	for _, name := range f.kept[kept:] {
		f.renew(name)
	}
	f.kept = f.kept[:kept]
}

func (f *flow) renew(name string) {
	f.next++
	f.values[name] = f.next
}

// rebind gives new values to the names that s binds, and to those whose object it
// seems to change.
func (f *flow) rebind(s *pysyntax.Stmt) {
	for _, t := range s.Targets {
		for _, name := range words(f.text(t)) {
			f.renew(name)
		}
	}
	switch {
	case s.Kind == pysyntax.FuncDef, s.Kind == pysyntax.ClassDef:
		f.renew(s.Name)
	case s.Kind == pysyntax.Other:
		if list := words(f.file.Text(s.Span)); len(list) > 0 && list[0] == "del" {
			for _, name := range list[1:] {
				f.renew(name)
			}
		}
	case s.Kind == pysyntax.Expr && len(s.Exprs) == 1 && s.Exprs[0].Kind == pysyntax.Call:
		if _, method := f.method(s.Exprs[0]); method != "" {
			return
		}
		for _, a := range s.Exprs[0].Args { // called for what it does to them
			if a.Value.Kind == pysyntax.Name {
				f.renew(a.Value.Name)
			}
		}
	}
}

// expr judges the calls of n.
func (f *flow) expr(n *pysyntax.Node) {
	n.Walk(func(n *pysyntax.Node) bool {
		switch n.Kind {
		case pysyntax.Lambda:
			outer := f.hidden
			f.hidden = append(slices.Clip(outer), words(f.file.Text(pysyntax.Span{Start: n.Start, End: n.X.Start}))...)
			f.expr(n.X)
			f.hidden = outer
			return false
		case pysyntax.Call:
			f.judgeAsync(n)
			f.judgeHandle(n)
			if n.X.Kind == pysyntax.Attr && n.X.X.Kind == pysyntax.Name && strings.HasSuffix(n.X.Name, "_") {
				f.renew(n.X.X.Name) // x.zero_()
			}
			for _, a := range n.Args {
				if a.Name == "out" && a.Value.Kind == pysyntax.Name {
					f.renew(a.Value.Name)
				}
			}
		}
		return true
	})
}

// method returns the names of the buffer and of its method that n calls, or "".
func (f *flow) method(n *pysyntax.Node) (buffer, method string) {
	if n.Kind != pysyntax.Call || n.X.Kind != pysyntax.Attr || n.X.X.Kind != pysyntax.Name {
		return "", ""
	}
	buffer = n.X.X.Name
	if slices.Contains(f.hidden, buffer) || !f.scope.isBuffer(buffer) {
		return "", ""
	}
	return buffer, n.X.Name
}

func (f *flow) judgeAsync(n *pysyntax.Node) {
	_, method := f.method(n)
	// first is the lowest index that async_finish has had in any version. Of a
	// call with more positional arguments nothing is known.
	first := map[string]int{
		"dispatch": 11, "internode_dispatch": 11,
		"combine": 5, "internode_combine": 5,
		"low_latency_dispatch": 4, "low_latency_combine": 4,
	}[method]
	if first == 0 || f.dry {
		return
	}
	finish := n.Arg(-1, "async_finish")
	positional, star := shape(n)
	unseen := star || positional > first
	switch {
	case finish == nil && unseen,
		finish != nil && f.text(finish) != "False",
		strings.HasPrefix(method, "low_latency_") && (unseen || !isFalse(f.text(n.Arg(-1, "return_recv_hook")))):
		return
	}
	f.find(patchers.Finding{
		Code:    async,
		Pos:     f.position(n),
		Message: fmt.Sprintf("%s without async_finish=True makes the stream wait for the communication; left alone: with it, the result may only be used behind its event", n.X.Dotted()),
	})
}

// isFalse reports whether an argument's text is that of a flag not set.
func isFalse(text string) bool { return text == "" || text == "False" }

// shape returns how many positional arguments n has, and whether it has some that
// are not to be seen.
func shape(n *pysyntax.Node) (positional int, star bool) {
	for _, a := range n.Args {
		star = star || a.Star
		if a.Name == "" {
			positional++
		}
	}
	return positional, star
}

func (f *flow) judgeHandle(n *pysyntax.Node) {
	d := f.read(n)
	if d.call == nil || n.X.Name == "get_dispatch_layout" || f.dry || len(f.hidden) > 0 {
		return
	}
	h, ok := f.handles[d.layout.id]
	first := h.dispatch
	if !ok || f.valueOf(h.name) != h.value || d.config != first.config ||
		d.topk != "" && d.topk != first.topk || d.weights != "" && d.weights != first.weights {
		return
	}
	at := f.position(first.call)
	why := []patchers.Step{{Pos: at, Message: fmt.Sprintf("%s returned %s for the same layout", first.call.X.Dotted(), h.name)}}
	if again := d.layout.call; again != first.layout.call {
		why = append(why, patchers.Step{Pos: f.position(again), Message: again.X.Dotted() + " computed that layout again"})
	}
	f.find(patchers.Finding{
		Code: handle,
		Pos:  f.position(n),
		Message: fmt.Sprintf("%s computes its layout again, which handle=%s of line %d would save; left alone: a dispatch with a handle returns no topk_idx and no topk_weights",
			n.X.Dotted(), h.name, at.Line),
		Why: why,
	})
}

func (f *flow) find(finding patchers.Finding) {
	finding.Suppressed = patchers.SilencedAt(f.file.Src, finding.Pos.Line, finding.Code)
	f.report(finding)
}

// read returns what n is if it is a get_dispatch_layout or a dispatch without a
// handle, and all its arguments are to be seen.
func (f *flow) read(n *pysyntax.Node) dispatch {
	buffer, method := f.method(n)
	positional, star := shape(n)
	if star {
		return dispatch{}
	}
	switch method {
	case "get_dispatch_layout":
		id := fmt.Sprintf("%s|%s|%s", f.valueOf(buffer), f.value(n.Arg(0, "topk_idx")), f.setting(n.Arg(1, "num_experts")))
		return dispatch{call: n, layout: layout{id, n}}
	case "dispatch", "internode_dispatch":
		if positional > 9 || f.text(n.Arg(1, "handle")) != "" || f.text(n.Arg(-1, "num_worst_tokens")) != "" {
			return dispatch{}
		}
		tokens := f.value(n.Arg(4, "is_token_in_rank"))
		if tokens == "" {
			return dispatch{}
		}
		l := f.layouts[tokens]
		l.id = f.valueOf(buffer) + "|" + cmp.Or(l.id, tokens)
		return dispatch{
			call: n, layout: l,
			topk:    f.value(n.Arg(6, "topk_idx")),
			weights: f.value(n.Arg(7, "topk_weights")),
			config:  f.setting(n.Arg(-1, "config")),
		}
	}
	return dispatch{}
}

// keep notes what the targets of an assignment get from d.
func (f *flow) keep(d dispatch, targets string) {
	list := words(targets)
	size := 6
	if d.call.X.Name == "get_dispatch_layout" {
		size = 5
	}
	if strings.ContainsAny(targets, ".[#") || len(list) < 2 || len(list) != size && !strings.Contains(targets, "*") {
		return
	}
	name := list[len(list)-2] // before the event: the handle, or is_token_in_rank
	if name == "_" {
		return
	}
	f.kept = append(f.kept, name)
	switch size {
	case 5:
		f.layouts[f.valueOf(name)] = d.layout
	default:
		f.handles[d.layout.id] = handleAtHand{name, f.valueOf(name), d}
	}
}

// valueOf returns the value that name has now.
func (f *flow) valueOf(name string) string { return fmt.Sprintf("%s@%d", name, f.values[name]) }

// value returns the value of an argument, "" if it is None. What is no name has a
// value of its own.
func (f *flow) value(n *pysyntax.Node) string {
	switch {
	case f.text(n) == "":
		return ""
	case n.Kind == pysyntax.Name:
		return f.valueOf(n.Name)
	}
	return fmt.Sprintf("at %d", n.Start)
}

// setting is value for an argument that hardly changes: what is no name has the
// value that its text says.
func (f *flow) setting(n *pysyntax.Node) string {
	if n != nil && n.Kind == pysyntax.Name {
		return f.value(n)
	}
	return f.text(n)
}
