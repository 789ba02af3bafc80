package teardown

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ncclfix/patchers"
	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

//go:embed doc.go
var docGo string

// Patcher finds process groups that are never destroyed.
var Patcher = &patchers.Patcher{
	Name: "teardown",
	Codes: []patchers.Code{
		code("worker", true, "a function that runs in its own process leaves the process group open"),
		code("script", true, "a script ends with an open process group"),
		code("module", true, "a test module opens a process group and has no module teardown"),
		code("early-return", true, "a return behind the init skips the destroy"),
		code("launcher", false, "the launcher destroys what only its workers opened"),
		code("rank", false, "only some ranks destroy the process group"),
		code("unparsable", false, "a file that names process groups is not valid Python"),
	},
	Run:   run,
	Check: check,
}

func code(name string, fixable bool, summary string) patchers.Code {
	id := "teardown/" + name
	return patchers.Code{ID: id, Default: true, Fixable: fixable, Summary: summary, Doc: patchers.MustDoc(docGo, id)}
}

func run(pass *patchers.Pass) error {
	t, err := scanTree(pass)
	if err != nil {
		return err
	}
	defer t.close()
	for _, part := range t.parts() {
		a := t.analysis(part)
		if err := a.parse(); err != nil {
			return err
		}
		a.judge()
		if p := a.prog.changed; p != "" {
			return fmt.Errorf("%s changed while it was read", p)
		}
	}
	return nil
}

// check judges a file that repairs made: it must still be Python. What was left
// out when it was parsed may never have been.
func check(path string, old, new []byte) error {
	if !strings.HasSuffix(path, ".py") {
		return nil
	}
	var p *pysyntax.Parser
	select {
	case p = <-checkers:
	default:
		p = pysyntax.NewParser()
	}
	defer func() {
		select {
		case checkers <- p:
		default:
			p.Close()
		}
	}()
	err := checkPython(p, new)
	if err == nil {
		return nil
	}
	if before := checkPython(p, old); before != nil {
		return &patchers.BrokenBeforeError{Reason: before.Error()}
	}
	return err
}

// checkers are parsers that check has made and that are free.
var checkers = make(chan *pysyntax.Parser, runtime.GOMAXPROCS(0))

func checkPython(p *pysyntax.Parser, src []byte) error {
	err := p.Check(context.Background(), src)
	var serr *pysyntax.SyntaxError
	if errors.As(err, &serr) {
		line, column := pysyntax.Position(src, serr.Offset)
		return fmt.Errorf("line %d:%d: %s", line, column, serr.Message)
	}
	return err
}

// An analysis is one run over a part of a tree that has nothing to do with the rest.
type analysis struct {
	*scanned
	part  []int // numbers of the files, ascending
	prog  *program
	tried map[int]bool // numbers of the files that were parsed, or could not be
	all   []*function  // of the parsed modules, by path and offset

	// By number of a parsed file: names that it offers, and whether they leave a group
	// open.
	offers map[int]map[string]bool

	// What has changed since nextWave was called last: the parsed files that can offer
	// other names now, and what it knew then.
	changed map[int]bool
	used    []bool          // by source: imported by a parsed file, at any distance
	closers map[string]bool // see program

	uses map[*function]*use // when all is parsed
}

// maxWave bounds how many files are parsed before those are forgotten again that
// turn out not to matter.
const maxWave = 400

// parse parses the files that can matter: those that name a group function, and
// those that use what such a file offers, until there are no more.
func (a *analysis) parse() error {
	// What others import comes first: they are read with its names in mind.
	var wave, last []int
	for _, i := range a.part {
		s := a.sources[i]
		switch {
		case s.err != nil:
			a.report(patchers.Finding{Code: "teardown/unparsable", Pos: patchers.Position{Path: s.path}, Message: unreadable(s.err)})
			a.tried[i] = true
		case s.isSeed() && len(a.importers[i]) > 0:
			wave = append(wave, i)
		case s.isSeed():
			last = append(last, i)
		}
	}
	for len(wave)+len(last) > 0 {
		if err := a.parseAll(wave); err != nil {
			return err
		}
		if err := a.link(wave); err != nil {
			return err
		}
		a.forget()
		last = slices.Compact(slices.Sorted(slices.Values(append(a.nextWave(), last...))))
		wave, last = last[:min(len(last), maxWave)], last[min(len(last), maxWave):]
	}
	return nil
}

// entryPoints returns the functions that console scripts of the tree run.
func (a *analysis) entryPoints() map[*module][]*function {
	out := map[*module][]*function{}
	for _, e := range a.entries {
		if m := a.prog.modules[e.file]; m != nil {
			if b := m.body.names[e.name]; b != nil && b.kind == bindFunc && !slices.Contains(out[m], b.fn) {
				out[m] = append(out[m], b.fn)
			}
		}
	}
	return out
}

// parseAll parses files on all processors and links them in order.
func (a *analysis) parseAll(wave []int) error {
	modules := make([]*module, len(wave))
	failed := make([]*patchers.Finding, len(wave))
	order := make([]int, len(wave)) // the largest first, so that all end at one time
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(a.sources[wave[j]].size, a.sources[wave[i]].size) })
	err := parallel(a.pass.Context, len(wave), func(k int) error {
		i := order[k]
		n := wave[i]
		s := a.sources[n]
		words := a.words(n)
		pos := patchers.Position{Path: s.path}
		var perr error
		err := a.reader.read(s.path, func(src []byte) {
			p := <-a.parsers
			defer func() { a.parsers <- p }()
			var file *pysyntax.File
			file, perr = readPython(a.pass.Context, p, src, interest(words))
			var serr *pysyntax.SyntaxError
			if errors.As(perr, &serr) {
				pos.Line, pos.Column = pysyntax.Position(src, serr.Offset)
				perr = errors.New(serr.Message)
			} else if perr == nil {
				modules[i] = a.prog.newModule(n, file)
			}
		})
		s.asked, s.invalid = words, modules[i] == nil
		switch {
		case err != nil:
			failed[i] = &patchers.Finding{Code: "teardown/unparsable", Pos: pos, Message: unreadable(err)}
		case perr != nil:
			failed[i] = &patchers.Finding{Code: "teardown/unparsable", Pos: pos, Message: "left alone: " + perr.Error()}
		}
		return a.pass.Context.Err()
	})
	if err != nil {
		return err
	}
	for i, n := range wave {
		a.tried[n] = true
		if modules[i] != nil {
			a.prog.modules[n] = modules[i]
		} else if failed[i] != nil && (a.sources[n].opens || a.sources[n].closes) {
			a.report(*failed[i])
		}
	}
	return nil
}

// codingCookie is the declaration of PEP 263, in the first two lines.
var codingCookie = regexp.MustCompile(`^(?:[^\n]*\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)`)

// readPython parses src. Text that is not UTF-8 needs a declaration, as in
// Python; the edits then keep its bytes, since all they add is ASCII.
func readPython(ctx context.Context, p *pysyntax.Parser, src []byte, interest *pysyntax.Interest) (*pysyntax.File, error) {
	if !utf8.Valid(src) && !codingCookie.Match(src[:min(len(src), 500)]) {
		offset := 0
		for offset < len(src) {
			r, n := utf8.DecodeRune(src[offset:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			offset += n
		}
		return nil, &pysyntax.SyntaxError{Offset: offset, Message: "not UTF-8, and no other encoding is declared"}
	}
	return p.ParseWanted(ctx, src, interest)
}

// link brings events and summaries up to date after files were parsed.
func (a *analysis) link(parsed []int) error {
	a.collect()
	users := a.users(parsed)
	for _, m := range users {
		a.changed[m.number] = true
	}
	if err := a.find(users); err != nil {
		return err
	}
	// A method of an unknown object destroys if it is named like one that does. A
	// method that does so only through such a name makes no such name itself: a
	// guess is not built on a guess.
	a.prog.forgetGuess()
	a.prog.summarize(a.all)
	closers := findClosers(a.all)
	if !maps.Equal(closers, a.closers) {
		for n := range a.prog.modules {
			a.changed[n] = true
		}
	}
	if len(closers) == 0 {
		return nil
	}
	users = users[:0]
	fresh := slices.DeleteFunc(slices.Collect(maps.Keys(closers)), func(name string) bool { return a.prog.sought[name] })
	for _, i := range a.part {
		if m := a.prog.modules[i]; m != nil && slices.ContainsFunc(fresh, func(name string) bool { return strings.Contains(m.file.Kept(), name) }) {
			users = append(users, m)
		}
	}
	if len(users) > 0 {
		maps.Copy(a.prog.sought, closers)
		if err := a.find(users); err != nil {
			return err
		}
		a.prog.summarize(a.all)
	}
	a.prog.guess(closers)
	return nil
}

// collect lists the functions of the parsed modules.
func (a *analysis) collect() {
	a.all = a.all[:0]
	for _, i := range a.part {
		if m := a.prog.modules[i]; m != nil {
			a.all = append(a.all, m.allFunctions()...)
		}
	}
}

// forget drops the modules that do nothing to a process group and hand on no name
// that does, as far as is known. A name that is new to them brings them back.
func (a *analysis) forget() {
	for n := range a.changed {
		m := a.prog.modules[n]
		if path.Base(m.path) != "conftest.py" && len(m.stars) == 0 && !m.matters() && !m.offersAny() {
			delete(a.prog.modules, n)
			delete(a.offers, n)
			delete(a.changed, n)
		}
	}
	a.collect()
}

func (m *module) offersAny() bool {
	any := false
	m.offers(maxHops, func(string, bool) { any = true })
	return any
}

// matters reports whether a function or a class of m has to do with a group.
func (m *module) matters() bool {
	for _, f := range m.allFunctions() {
		for _, events := range f.events {
			for _, e := range events {
				switch e.kind {
				case evOpen, evDestroy, evSpawn, evMethod:
					return true
				default:
					if e.fn == nil && e.kind == evAtexit || e.fn != nil && e.fn.matters() {
						return true
					}
				}
			}
		}
		for _, classes := range f.contexts {
			for _, c := range classes {
				if slices.ContainsFunc(c.allMethods(maxHops), (*function).matters) {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(m.class, func(c *class) bool { return slices.ContainsFunc(c.allMethods(maxHops), (*function).matters) })
}

// matters reports whether a call of f does anything to a group.
func (f *function) matters() bool {
	return f.opensInside || f.closes || f.after[none] != none || len(f.spawns) > 0
}

// find records the events of modules.
func (a *analysis) find(modules []*module) error {
	for changed := true; changed; {
		changed = false
		for _, m := range modules {
			for _, f := range m.allFunctions() {
				changed = f.findSpawnParams() || changed
			}
		}
	}
	return parallel(a.pass.Context, len(modules), func(i int) error { modules[i].find(); return nil })
}

// users returns the parsed modules in which a name can lead to one of the files:
// those files, and all that import them at any distance.
func (a *analysis) users(files []int) []*module {
	seen := make([]bool, len(a.sources))
	queue := slices.Clone(files)
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		queue = append(queue, a.importers[n]...)
		// A package leads to what stands in its folder.
		if p := a.packages[n]; p >= 0 {
			queue = append(queue, p)
		}
	}
	var out []*module
	for n, is := range seen {
		if m := a.prog.modules[n]; is && m != nil {
			out = append(out, m)
		}
	}
	return out
}

// words returns the names of functions and classes that matter to the users of
// what file number n imports.
func (a *analysis) words(n int) map[string]bool {
	out := map[string]bool{}
	for _, j := range a.sources[n].imports {
		for name := range a.offers[j] {
			out[name] = true
		}
	}
	for name := range a.prog.closers {
		out[name] = true
	}
	return out
}

// findStarters notes which of the files name a function that starts processes, where
// that has not been asked.
func (a *analysis) findStarters(files []int) {
	unknown := slices.DeleteFunc(slices.Clone(files), func(n int) bool { return a.sources[n].spawns != nil || a.tried[n] })
	parallel(a.pass.Context, len(unknown), func(k int) error {
		s := a.sources[unknown[k]]
		found := false
		a.reader.read(s.path, func(src []byte) { found = startsProcesses(src) })
		s.spawns = &found
		return nil
	})
}

// nextWave returns the files that what is parsed so far makes interesting: the
// users of what leaves a group open, and what stands between parsed files and
// functions that destroy or start processes. Files come back when there is more
// to look for in them.
func (a *analysis) nextWave() []int {
	wanted := map[int]bool{}
	candidates := map[int]bool{} // for which there may be more to look for
	changed := slices.Sorted(maps.Keys(a.changed))
	offers := make([]map[string]bool, len(changed))
	bases := make([][]int, len(changed))
	parallel(a.pass.Context, len(changed), func(k int) error {
		m := a.prog.modules[changed[k]]
		m.offers(maxHops, func(name string, opens bool) {
			if offers[k] == nil {
				offers[k] = map[string]bool{}
			}
			offers[k][name] = offers[k][name] || opens
		})
		for _, c := range m.class {
			if c.changesGroup() {
				bases[k] = append(bases[k], c.baseModules()...)
			}
		}
		return nil
	})
	for k, n := range changed {
		if !maps.Equal(offers[k], a.offers[n]) {
			a.offers[n] = offers[k]
			for _, i := range a.importers[n] {
				candidates[i] = true
			}
		}
		for _, j := range bases[k] {
			if !a.tried[j] {
				wanted[j] = true
			}
		}
	}
	clear(a.changed)

	used := make([]bool, len(a.sources))
	var queue, neighbors []int // files that parsed ones import: at any distance, and directly
	for n := range a.prog.modules {
		for _, j := range a.sources[n].imports {
			if !used[j] {
				used[j] = true
				neighbors = append(neighbors, j)
			}
		}
	}
	queue = slices.Clone(neighbors)
	for len(queue) > 0 {
		j := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if !a.tried[j] && a.sources[j].closes {
			wanted[j] = true
		}
		if !a.used[j] {
			candidates[j] = true
		}
		for _, k := range a.sources[j].imports {
			if !used[k] {
				used[k] = true
				queue = append(queue, k)
			}
		}
	}
	a.used = used
	a.findStarters(neighbors)
	for _, j := range neighbors {
		if spawns := a.sources[j].spawns; spawns != nil && *spawns && !a.tried[j] {
			wanted[j] = true
		}
	}
	if !maps.Equal(a.closers, a.prog.closers) {
		a.closers = a.prog.closers
		for n := range a.prog.modules {
			candidates[n] = true
		}
	}
	list := slices.Sorted(maps.Keys(candidates))
	interesting := make([]bool, len(list))
	parallel(a.pass.Context, len(list), func(k int) error {
		i := list[k]
		interesting[k] = !wanted[i] && a.hasMore(i, used[i])
		return nil
	})
	for k, i := range list {
		if interesting[k] {
			wanted[i] = true
		}
	}
	return slices.Sorted(maps.Keys(wanted))
}

// hasMore reports whether there is something to look for in file number i that
// was not known when it was parsed, or when it was asked about last.
func (a *analysis) hasMore(i int, used bool) (found bool) {
	s, m := a.sources[i], a.prog.modules[i]
	if s.err != nil || s.invalid || m != nil && len(m.file.Omitted) == 0 {
		return false
	}
	if s.asked == nil {
		s.asked = map[string]bool{}
	}
	var names [][]byte
	ask := func(name string, opens bool) {
		if asOpening, asked := s.asked[name]; !asked || opens && !asOpening {
			s.asked[name] = opens
			names = append(names, []byte(name))
		}
	}
	if m != nil {
		for name := range a.words(i) {
			ask(name, true)
		}
		if len(names) == 0 {
			return false
		}
		a.reader.read(s.path, func(src []byte) {
			found = slices.ContainsFunc(names, func(name []byte) bool {
				for at := range occurrences(src, string(name)) {
					if slices.ContainsFunc(m.file.Omitted, func(o pysyntax.Span) bool { return o.Start <= at && at < o.End }) {
						return true
					}
				}
				return false
			})
		})
		return found
	}
	for _, j := range s.imports {
		for name, opens := range a.offers[j] {
			if opens || used || path.Base(s.path) == "conftest.py" {
				ask(name, opens)
			}
		}
	}
	if len(names) == 0 {
		return false
	}
	a.reader.read(s.path, func(src []byte) {
		found = slices.ContainsFunc(names, func(name []byte) bool { return mentions(src, string(name)) }) || used && bytes.Contains(src, []byte("import *"))
	})
	return found
}

// offers calls f for the names of m whose users can matter, and says whether
// they leave a group open; else they destroy it or start processes. Names that m
// imports from elsewhere count as its own.
func (m *module) offers(hops int, f func(name string, opens bool)) {
	opens := func(f *function) bool { return f.after[none] == open && !f.opening.throughFramework() }
	other := func(f *function) bool { return f.closes || len(f.spawns) > 0 }
	for name, b := range m.body.names {
		switch r := m.body.follow(b, maxHops); {
		case r.fn != nil:
			if opens(r.fn) || other(r.fn) {
				f(name, opens(r.fn))
			}
		case r.class != nil:
			// Subclasses call its methods without naming it.
			for _, m := range r.class.allMethods(maxHops) {
				if opens(m) || other(m) {
					f(name, opens(m))
					f(m.stmt.Name, false)
				}
			}
		}
	}
	for _, s := range m.stars {
		if s.target.known && hops > 0 {
			if other := m.prog.modules[s.target.file]; other != nil && other != m {
				other.offers(hops-1, f)
			}
		}
	}
}

// changesGroup reports whether a method of c opens or destroys the group.
func (c *class) changesGroup() bool {
	for _, f := range c.methods {
		if f.after[none] != none {
			return true
		}
	}
	return false
}

// funcs returns the methods of c.
func (c *class) funcs() []*function { return slices.Collect(maps.Values(c.methods)) }

// baseModules returns the files that the base classes of c are imported from.
func (c *class) baseModules() []int {
	var out []int
	for _, b := range c.stmt.Exprs {
		root, _, _ := strings.Cut(b.Dotted(), ".")
		for scope := c.outer; scope != nil && root != ""; scope = scope.outer {
			if have := scope.names[root]; have != nil && have.from.known {
				out = append(out, have.from.file)
			}
		}
	}
	return out
}

// judge looks at every process and reports what its owner leaves open.
func (a *analysis) judge() {
	leaking := map[*function]bool{} // workers with an open group at their end
	a.uses = findUses(a.all)
	workers := a.prog.workers(a.all)
	for _, o := range workers {
		if o.fn.class != nil && o.fn.name() != "run" && o.fn.class.isForeign() {
			continue
		}
		leaking[o.fn] = a.judgeOwner(o, "teardown/worker")
		o.fn.changed = o.fn.repaired
	}
	a.prog.summarize(a.all) // the repaired workers destroy now

	callers := a.prog.findCallers(a.all)
	entries := a.entryPoints()
	for _, i := range a.part {
		m := a.prog.modules[i]
		if m == nil {
			continue
		}
		if path.Base(m.path) == "conftest.py" {
			a.judgeConftest(m)
		}
		if m.isTestModule() {
			a.judgeTests(m, leaking)
		}
		for _, f := range entries[m] {
			a.judgeOwner(&owner{role: script, fn: f, body: f.statements()}, "teardown/script")
		}
		if m.isScript() {
			a.judgeScript(m, callers, len(a.importers[i]) > 0)
		}
		a.judgeLaunchers(m)
	}
	// Functions that do destroy can still be left early.
	for _, o := range workers {
		if !leaking[o.fn] && !o.fn.repaired {
			a.judgeEarly(o)
		}
	}
}

// judgeOwner reports an owner whose process can end with an open group, and
// whether it does.
func (a *analysis) judgeOwner(o *owner, codeID string) bool {
	w := &flow{f: o.fn}
	w.run(none)
	var leaks []exit
	for _, e := range w.exits {
		if e.state == open && !e.handler && !o.fn.isError(e) {
			leaks = append(leaks, e)
		}
	}
	if len(leaks) == 0 || w.opening == nil || w.opening.throughFramework() || o.fn.isWrapped() {
		return false
	}
	ends, early := o.split(leaks)
	if len(ends) == 0 {
		// The end destroys; only some ways out do not.
		for _, e := range early {
			a.reportEarly(o, w.opening, e)
		}
		return len(early) > 0 && !slices.ContainsFunc(w.exits, func(e exit) bool { return e.state == closed })
	}
	f := patchers.Finding{
		Code:    codeID,
		Pos:     o.fn.mod.position(w.opening.node.Start),
		Message: fmt.Sprintf("%s opens a process group that is never destroyed: %s", w.opening.called(), o.describe()),
		Why:     o.chain(w.opening),
	}
	if len(w.rankOnly) > 0 {
		f.Code = "teardown/rank"
		e := w.rankOnly[0]
		f.Pos = e.in.mod.position(e.node.Start)
		f.Message = "only the ranks for which " + e.in.conditionOf(e) + " destroy the process group; destroying is collective, and the others can make these hang"
		a.report(f)
		return true
	}
	fix, reason := a.fix(o, w.opening, ends)
	if reason == "" {
		f.Fix = fix
		o.fn.repaired = true
	} else {
		f.Message += "; not repaired: " + reason
	}
	a.reportFor(o, f)
	if f.Fix != nil {
		for _, e := range early {
			a.reportEarly(o, w.opening, e)
		}
	}
	return true
}

// isError reports whether a way out tells of a failure. There the group is left
// to the operating system: destroying it would wait for ranks that may be stuck.
func (f *function) isError(e exit) bool {
	if e.stmt == nil || len(e.stmt.Exprs) == 0 {
		return false
	}
	if !e.leaves {
		return e.stmt.Kind == pysyntax.Return && isFailure(f.mod.file.Text(e.stmt.Exprs[0].Span)) && f.returnsStatus()
	}
	arg := e.stmt.Exprs[0].Arg(0, "")
	if arg == nil {
		return false
	}
	text := f.mod.file.Text(arg.Span)
	return arg.Kind == pysyntax.String || strings.ContainsAny(text, `"'`) || strings.Trim(text, "0123456789-") == "" && text != "0"
}

// isFailure reports whether an expression is a constant that tells of a failure as an
// exit status.
func isFailure(expr string) bool {
	return expr != "" && strings.IndexByte(`-123456789"'`, expr[0]) >= 0 && failure.MatchString(expr)
}

var failure = regexp.MustCompile(`^(-?[1-9][0-9]*|["\'].*)$`)

// returnsStatus reports whether the file hands the result of f to sys.exit.
func (f *function) returnsStatus() bool {
	if f.exitStatus == nil {
		found := f.stmt != nil && regexp.MustCompile(`\b(exit|SystemExit)\(\s*`+regexp.QuoteMeta(f.stmt.Name)+`\(`).MatchString(f.mod.file.Kept())
		f.exitStatus = &found
	}
	return *f.exitStatus
}

// split tells the ways out at the end of the body from the early ones.
func (o *owner) split(exits []exit) (ends, early []exit) {
	tails := map[*pysyntax.Stmt]bool{}
	markTails(o.body, tails)
	for _, e := range exits {
		if e.stmt == nil || tails[e.stmt] {
			ends = append(ends, e)
		} else {
			early = append(early, e)
		}
	}
	return ends, early
}

// markTails notes the last statements of a body: the last one, and those of its
// branches.
func markTails(body []*pysyntax.Stmt, tails map[*pysyntax.Stmt]bool) {
	if len(body) == 0 {
		return
	}
	last := body[len(body)-1]
	tails[last] = true
	switch last.Kind {
	case pysyntax.If, pysyntax.With, pysyntax.Match, pysyntax.Try:
		for _, b := range last.Blocks {
			markTails(b.Body, tails)
		}
	}
}

// fix inserts a destroy at each of the ends, or says why it cannot.
func (a *analysis) fix(o *owner, opening *event, ends []exit) (*patchers.Fix, string) {
	m := o.fn.mod
	if reason := a.refusal(o, opening); reason != "" {
		return nil, reason
	}
	var edits []diff.Edit
	for _, e := range ends {
		var p place
		var reason string
		switch {
		case e.stmt == nil:
			header := -1
			if o.fn.stmt != nil {
				header = o.fn.stmt.Header
			} else if o.main != nil && len(o.body) > 0 && o.body[0] == o.main.Blocks[0].Body[0] {
				header = o.main.Header
			}
			p, reason = m.endPlace(o.body, header)
		case o.computes(e):
			reason = fmt.Sprintf("the value computed in line %d may need the group", m.position(e.stmt.Start).Line)
		default:
			if p, reason = m.beforePlace(e.stmt); reason == "" {
				reason = o.blocked(e)
			}
		}
		if reason != "" {
			return nil, reason
		}
		edits = append(edits, a.insert(o.fn, p)...)
	}
	slices.SortStableFunc(edits, func(x, y diff.Edit) int { return x.Start - y.Start })
	edits = slices.Compact(edits)
	where := "at the end of " + o.fn.qualname()
	if o.fn.stmt == nil {
		where = "at the end of the script"
	}
	return &patchers.Fix{
		Message: "destroy the process group " + where,
		Files:   []patchers.FileEdits{{Path: m.path, Base: m.src(), Edits: edits}},
	}, ""
}

// insert returns the edits that put the guarded destroy at a place.
func (a *analysis) insert(f *function, p place) []diff.Edit {
	m := f.mod
	v := m.vocabulary(f, p.at, a.pass.Options.Barrier)
	return append(v.imports, m.edit(p, v.block(m.unit(f), a.pass.Options.Barrier)))
}

// refusal returns why an owner's code must not be edited, or "".
func (a *analysis) refusal(o *owner, opening *event) string {
	switch {
	case opening.isGuess():
		return "the name comes through a star import, so it cannot be told whose it is"
	case o.fn.stmt != nil && o.fn.stmt.Async:
		return o.fn.qualname() + " is asynchronous, and other tasks may still use the group when it ends"
	case o.fn.isGenerator():
		return o.fn.qualname() + " is a generator, which may never be run to its end"
	case o.role == script && o.fn.stmt == nil && o.main == nil && o.onlyDefines(opening):
		return "only definitions follow, and whoever imports the file uses them with the group open"
	case o.fn.usingDecorator() != nil:
		return "its decorator in line " + strconv.Itoa(o.fn.mod.line(o.fn.usingDecorator().Start)) + " may use the group behind its end"
	case o.role == worker && a.isHandedOn(o.fn):
		return o.fn.qualname() + " is handed to other code as well, which may run it without ending the process"
	case o.role != test && o.startsMore() != "":
		return o.startsMore() + " may still use the group, in a thread or at the end of the process"
	case o.role == worker && a.goesOn(o.fn) != nil:
		return a.goesOn(o.fn).qualname() + " calls it in its own process as well, and goes on with the group"
	case o.fn.mod.mayLackDistributed():
		return "torch.distributed is imported on a condition"
	}
	return ""
}

// onlyDefines reports whether the module consists of definitions behind the opening
// at its top level.
func (o *owner) onlyDefines(opening *event) bool {
	if opening.in != o.fn {
		return false
	}
	src := o.fn.mod.src()
	defines := false
	at := pysyntax.LineEnd(src, opening.stmt.End)
	for line := range bytes.Lines(src[at:]) {
		switch line = bytes.TrimRight(line, "\r\n"); {
		case len(line) == 0 || bytes.IndexByte([]byte(" \t\f#)]}"), line[0]) >= 0:
		case definition.Match(line):
			defines = true
		default:
			return false
		}
	}
	return defines
}

var definition = regexp.MustCompile(`^(def|class|async\s+def)\b|^@`)

// usingDecorator returns a decorator of f that the tree defines and that may use the
// group behind the end of f, or nil.
func (f *function) usingDecorator() *pysyntax.Node {
	if f.stmt == nil {
		return nil
	}
	for _, d := range f.stmt.Decorators {
		if f.outer.mayUseGroup(d) {
			return d
		}
	}
	return nil
}

// A use is what else the tree does with a function than to start it as a process.
type use struct {
	handed bool // an argument of a call that does not start it
	calls  []callSite
}

// A callSite is a statement that calls a function.
type callSite struct {
	in   *function
	stmt *pysyntax.Stmt
}

// findUses returns what the functions of the tree do with each other.
func findUses(all []*function) map[*function]*use {
	out := map[*function]*use{}
	of := func(f *function) *use {
		if out[f] == nil {
			out[f] = &use{}
		}
		return out[f]
	}
	for _, g := range all {
		for s, events := range g.events {
			for _, e := range events {
				switch e.kind {
				case evCall:
					of(e.fn).calls = append(of(e.fn).calls, callSite{g, s})
				case evHand:
					if !slices.ContainsFunc(events, func(s event) bool { return s.kind == evSpawn && s.node == e.node }) {
						of(e.fn).handed = true
					}
				}
			}
		}
	}
	return out
}

// isHandedOn reports whether f is an argument of a call that does not start it as a
// process, as the tasks of a pool are.
func (a *analysis) isHandedOn(f *function) bool {
	u := a.uses[f]
	return u != nil && u.handed
}

// startsMore returns the name of a function that the owner's code hands to a thread
// that is not waited for, or registers for the end of the process, and that names
// torch.distributed; or "". It goes by the text, since such calls can be left out of
// the tree.
func (o *owner) startsMore() string {
	src := o.fn.mod.src()
	if o.fn.stmt != nil {
		src = src[o.fn.stmt.Start:o.fn.stmt.End]
	}
	if !containsAny(src, handing) {
		return ""
	}
	waits := joins.Match(src)
	for _, match := range handed.FindAllSubmatch(src, -1) {
		thread, callback := string(match[1])+string(match[2]), string(match[3])+string(match[4])
		name := callback
		if name == "" && !waits {
			name = thread
		}
		name = name[strings.LastIndexByte(name, '.')+1:]
		if name != "" && o.fn.mod.definesUser(name) {
			return name
		}
	}
	return ""
}

var (
	handing = [][]byte{[]byte("Thread("), []byte(".submit("), []byte("atexit.register("), []byte("weakref.finalize(")} // each match of handed has one

	handed = regexp.MustCompile(`\bThread\([^()]*\btarget\s*=\s*([\w.]+)|\.submit\(\s*([\w.]+)|\batexit\.register\(\s*([\w.]+)|\bweakref\.finalize\([^(),]*,\s*([\w.]+)`)
	joins  = regexp.MustCompile(`\.join\(|\.result\(|\.shutdown\(|as_completed\(`)
)

// goesOn returns a function that calls f in its own process and uses
// torch.distributed after that, or nil.
func (a *analysis) goesOn(f *function) *function {
	u := a.uses[f]
	if u == nil {
		return nil
	}
	for _, site := range u.calls {
		g := site.in
		end := g.mod.size
		if g.stmt != nil {
			end = g.stmt.End
		}
		uses := func(word []byte) bool {
			_, b := g.bindingOf(string(word))
			return b != nil && (b.isDistributed() || b.kind == bindFrom && b.mod == "torch.distributed") || string(word) == "distributed"
		}
		if site.stmt.End < end && pysyntax.ContainsWord(g.mod.src()[site.stmt.End:end], uses) {
			return g
		}
	}
	return nil
}

// computes reports whether a way out evaluates more than names.
func (o *owner) computes(e exit) bool {
	if e.leaves { // sys.exit(...): its arguments
		for _, n := range e.stmt.Exprs {
			for _, arg := range n.Args {
				if hasCall(arg.Value) {
					return true
				}
			}
		}
		return false
	}
	return slices.ContainsFunc(e.stmt.Exprs, hasCall)
}

// blocked returns why nothing can be inserted in front of a way out: more code runs
// behind it, which may need the group.
func (o *owner) blocked(e exit) string {
	if outer := o.fn.wayOut(o.fn.statements(), e.stmt); outer != nil {
		return fmt.Sprintf("what runs at the end of line %d's statement may need the group", o.fn.mod.line(outer.Start))
	}
	return ""
}

func hasCall(n *pysyntax.Node) bool {
	found := false
	n.Walk(func(n *pysyntax.Node) bool {
		found = found || n.Kind == pysyntax.Call || n.Kind == pysyntax.Await
		return !found
	})
	return found
}

// reportEarly reports a way out between the init and the destroy.
func (a *analysis) reportEarly(o *owner, opening *event, e exit) {
	m := o.fn.mod
	f := patchers.Finding{
		Code:    "teardown/early-return",
		Pos:     m.position(e.stmt.Start),
		Message: fmt.Sprintf("%s leaves here with the process group open, which %s opened", o.fn.qualname(), opening.called()),
		Why:     o.chain(opening),
	}
	reason := a.refusal(o, opening)
	var p place
	switch {
	case reason != "":
	case o.computes(e):
		reason = "the value computed here may need the group"
	default:
		if p, reason = m.beforePlace(e.stmt); reason == "" {
			reason = o.blocked(e)
		}
	}
	if reason == "" {
		f.Fix = &patchers.Fix{
			Message: "destroy the process group before leaving",
			Files:   []patchers.FileEdits{{Path: m.path, Base: m.src(), Edits: a.insert(o.fn, p)}},
		}
	} else {
		f.Message += "; not repaired: " + reason
	}
	a.reportFor(o, f)
}

// judgeEarly reports early ways out of an owner that destroys at its end.
func (a *analysis) judgeEarly(o *owner) {
	w := &flow{f: o.fn}
	w.run(none)
	if w.opening == nil || len(w.rankOnly) > 0 || w.opening.throughFramework() {
		return
	}
	if !slices.ContainsFunc(w.exits, func(e exit) bool { return e.state == closed }) {
		return
	}
	for _, e := range w.exits {
		if e.state == open && e.stmt != nil && !e.handler && !o.fn.isError(e) {
			a.reportEarly(o, w.opening, e)
		}
	}
}

// judgeScript reports a module that the interpreter runs.
func (a *analysis) judgeScript(m *module, callers map[*function]*calls, imported bool) {
	main := m.mainBlock()
	for _, f := range m.commands() {
		a.judgeOwner(&owner{role: script, fn: f, body: f.statements()}, "teardown/script")
	}
	w := &flow{f: m.body}
	if w.run(none) != open || w.opening == nil {
		a.judgeCalled(m)
		return
	}
	if m.isTestModule() && m.opensOnImport() {
		return // see judgeTests
	}
	if main == nil && imported {
		return // a library that opens a group when it is imported: not ours to end
	}
	if o := m.scripts(callers); !o.fn.repaired || o.fn.stmt == nil {
		a.judgeOwner(o, "teardown/script")
	}
}

// judgeCalled reports early ways out of the functions that a script calls.
func (a *analysis) judgeCalled(m *module) {
	seen := map[*function]bool{}
	m.body.eachEvent(m.file.Body, func(e *event) {
		if e.kind == evCall && e.fn.stmt != nil && !seen[e.fn] && !e.fn.repaired && e.fn.mod == m && !e.fn.isGenerator() {
			seen[e.fn] = true
			if m.endsOpenAfter(e.fn) {
				a.judgeEarly(&owner{role: script, fn: e.fn, body: e.fn.statements(), why: e})
			}
		}
	})
	a.judgeEarly(&owner{role: script, fn: m.body, body: m.file.Body})
}

// endsOpenAfter reports whether the module ends with an open group if f returns with
// one: what comes behind the call may destroy it.
func (m *module) endsOpenAfter(f *function) bool {
	saved := f.after
	defer func() { f.after = saved }()
	f.after = [numStates]state{none: open, open: open, closed: open, covered: covered}
	return (&flow{f: m.body}).run(none) == open
}

// commands returns the functions that a command-line library calls for the
// module: those decorated with @app.command() where app is called at the end.
func (m *module) commands() []*function {
	var out []*function
	for _, f := range m.funcs {
		if f.outer != m.body || f.class != nil {
			continue
		}
		for _, d := range f.stmt.Decorators {
			if d.Kind == pysyntax.Call {
				d = d.X
			}
			if d.Kind == pysyntax.Attr && (d.Name == "command" || d.Name == "callback") && d.X.Kind == pysyntax.Name && m.callsAtTop(d.X.Name) {
				out = append(out, f)
				break
			}
		}
	}
	return out
}

// callsAtTop reports whether the module itself calls the name.
func (m *module) callsAtTop(name string) bool {
	found := false
	var visit func(list []*pysyntax.Stmt)
	visit = func(list []*pysyntax.Stmt) {
		for _, s := range list {
			if s.Kind == pysyntax.FuncDef || s.Kind == pysyntax.ClassDef {
				continue
			}
			for _, n := range s.Exprs {
				n.Walk(func(n *pysyntax.Node) bool {
					found = found || n.Kind == pysyntax.Call && n.X.Kind == pysyntax.Name && n.X.Name == name
					return true
				})
			}
			for _, b := range s.Blocks {
				visit(b.Body)
			}
		}
	}
	visit(m.file.Body)
	return found
}

// judgeLaunchers reports launchers that destroy what only their workers opened.
func (a *analysis) judgeLaunchers(m *module) {
	for _, f := range m.allFunctions() {
		var spawn, destroy, opener *event
		f.eachEvent(f.statements(), func(e *event) {
			switch {
			case e.kind == evSpawn:
				spawn = e
			case e.kind == evOpen, e.kind == evCall && e.fn.opensInside, e.kind == evMethod:
				opener = e
			case e.kind == evDestroy, e.kind == evCall && e.fn.closes:
				if spawn != nil && destroy == nil {
					destroy = e
				}
			}
		})
		if spawn == nil || destroy == nil || opener != nil || spawn.fn.stmt == nil {
			continue
		}
		a.reportFor(&owner{role: script, fn: f}, patchers.Finding{
			Code:    "teardown/launcher",
			Pos:     m.position(destroy.node.Start),
			Message: fmt.Sprintf("the process group is open in the processes that run %s, not in their launcher: destroying it here does nothing, or raises", spawn.fn.qualname()),
			Why:     []patchers.Step{{Pos: m.position(spawn.node.Start), Message: spawn.fn.qualname() + " is started as a process by " + spawn.name}},
		})
	}
}

// report hands a finding on, unless the file asks for silence.
func (a *analysis) report(f patchers.Finding) { a.pass.Report(f) }

// reportFor reports a finding about an owner's code.
func (a *analysis) reportFor(o *owner, f patchers.Finding) {
	f.Suppressed = o.fn.mod.suppresses(o.fn, f.Code, f.Pos.Line)
	a.report(f)
}

// position returns where an offset of m is.
func (m *module) position(offset int) patchers.Position {
	line, column := pysyntax.Position(m.src(), offset)
	return patchers.Position{Path: m.path, Line: line, Column: column}
}

// line returns the number of the line that holds an offset of m.
func (m *module) line(offset int) int { return m.position(offset).Line }

// called returns the name of what an event calls.
func (e *event) called() string {
	if e.fn != nil {
		return e.fn.qualname()
	}
	return e.name[strings.LastIndexByte(e.name, '.')+1:]
}

// origin follows an event to the library call that opens the group.
func (e *event) origin() *event {
	for range maxHops {
		if e.kind != evCall || e.fn.opening == nil {
			return e
		}
		e = e.fn.opening
	}
	return e
}

// throughFramework reports whether a framework may own the group: a file on the
// way to its opening imports one, or belongs to one that stands in the tree.
func (e *event) throughFramework() bool {
	for range maxHops {
		if len(e.in.mod.frameworks) > 0 {
			return true
		}
		for _, dir := range strings.Split(path.Dir(e.in.mod.path), "/") {
			if frameworks[dir] {
				return true
			}
		}
		if e.kind != evCall || e.fn.opening == nil {
			return false
		}
		e = e.fn.opening
	}
	return false
}

func (e *event) isGuess() bool { return e.origin().guessed }

// chain tells hop by hop how the group of a process is opened.
func (o *owner) chain(opening *event) []patchers.Step {
	var steps []patchers.Step
	if o.why != nil {
		m := o.why.in.mod
		verb := " is called by "
		by := o.why.in.qualname()
		if o.why.kind == evSpawn {
			verb, by = " is started as a process by ", o.why.name
		}
		steps = append(steps, patchers.Step{Pos: m.position(o.why.node.Start), Message: o.fn.qualname() + verb + by})
	}
	e := opening
	for range maxHops {
		step := patchers.Step{Pos: e.in.mod.position(e.node.Start)}
		if e.kind != evCall || e.fn.opening == nil {
			step.Message = fmt.Sprintf("%s opens the default process group", e.name)
			return append(steps, step)
		}
		step.Message = fmt.Sprintf("%s calls %s, which returns with the group open", e.in.qualname(), e.fn.qualname())
		steps = append(steps, step)
		e = e.fn.opening
	}
	return steps
}

// conditionOf returns the text of the condition around an event.
func (f *function) conditionOf(e event) string {
	cond := "a condition holds"
	var visit func(list []*pysyntax.Stmt, current string)
	visit = func(list []*pysyntax.Stmt, current string) {
		for _, s := range list {
			if s == e.stmt {
				cond = current
			}
			for _, b := range s.Blocks {
				inner := current
				if c := f.rankCondition(b.Cond); c != "" {
					inner = fmt.Sprintf("%q holds", c)
				}
				visit(b.Body, inner)
			}
		}
	}
	visit(f.statements(), cond)
	return cond
}
