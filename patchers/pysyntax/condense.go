package pysyntax

import (
	"bytes"
	"sort"
)

// A condensed text is a file without its comments and without the statements
// that nobody wants. Each run of them has become the one expression 0, so what is
// left is in its place in the block structure, and the grammar has little to
// read: a tree costs far more than the tokens do.
type condensed struct {
	text    []byte
	cuts    []cut  // by offset
	omitted []Span // of the file: the runs that were left out
}

// A cut says that offset at of the condensed text, and those behind it, are
// moved by delta bytes in the file. It is that of a run if a 0 ends there.
type cut struct {
	at, delta int
	isRun     bool
}

// start returns the offset in the file of the byte at an offset of the condensed
// text.
func (c *condensed) start(offset int) int {
	i := sort.Search(len(c.cuts), func(i int) bool { return c.cuts[i].at > offset })
	if i == 0 {
		return offset
	}
	return offset + c.cuts[i-1].delta
}

// end returns the offset in the file behind the byte that ends at an offset of
// the condensed text. The end of a 0 is the end of the run that it stands for.
func (c *condensed) end(offset int) int {
	i := sort.Search(len(c.cuts), func(i int) bool { return c.cuts[i].at >= offset })
	if i < len(c.cuts) && c.cuts[i].at == offset && c.cuts[i].isRun {
		i++
	}
	if i == 0 {
		return offset
	}
	return offset + c.cuts[i-1].delta
}

// offset returns the offset in the condensed text of an offset in the file. What
// lies in a part that was left out becomes the end of what is in its place.
func (c *condensed) offset(original int) int {
	i := sort.Search(len(c.cuts), func(i int) bool { return c.cuts[i].at+c.cuts[i].delta > original })
	at := original
	if i > 0 {
		at -= c.cuts[i-1].delta
	}
	if i < len(c.cuts) {
		at = min(at, c.cuts[i].at)
	}
	return at
}

// An Interest says what a caller of ParseWanted looks for.
type Interest struct {
	// Word reports whether code that names the word matters.
	Word func(word []byte) bool

	// Definition says that a function of that name is to be known, though nothing in
	// it may matter: as one of its kind, if there are several in a class or a module
	// and nothing names them. Of no kind are those that need not be known.
	Definition func(name []byte) (kind string)

	// Module reports whether an import is to be known, though nothing that matters
	// may use it. It is asked for "a.b" and for "a" where "import a.b" binds a, and
	// for "a.b" where "from a import b" does.
	Module func(name []byte) bool
}

// condense leaves out of text what is of no interest. A function is kept if it
// mentions a wanted word, or the name of a kept function of the file, or of a
// class with a kept method, or a name that such a word was given ("import x as
// y", "y = x"). Elsewhere a statement stays if it mentions such a word, changes
// the flow of control, defines a class, or binds the name of an import anew. Of
// a function that is not kept, the name stays if it is such a word; so does an
// import that something else uses which stays.
//
// Of what stays, it leaves out the parameters of functions that are not kept, all
// annotations, arguments of decorators without such words, and what an import
// statement binds that nothing uses.
//
// What is returned is good until the next call.
func (c *condenser) condense(text []byte, tokens []token, interest *Interest) *condensed {
	c.reset()
	c.text, c.tokens, c.interest = text, tokens, interest
	c.findLines()
	c.findUnits()
	c.findWords()
	c.spread()
	c.findStaying()
	c.emit(0, len(c.lines))
	c.copy(len(text))
	return &c.out
}

// reset makes c ready for another file. It keeps the memory: files are many, and
// most are small.
func (c *condenser) reset() {
	*c = condenser{
		lines: c.lines[:0], units: c.units[:0], words: c.words, imported: c.imported, used: c.used, outside: c.outside, name: c.name,
		out: condensed{text: c.out.text[:0], cuts: c.out.cuts[:0], omitted: c.out.omitted[:0]},
	}
	for _, m := range []*map[string]bool{&c.words, &c.imported, &c.used, &c.outside} {
		if clear(*m); *m == nil {
			*m = map[string]bool{}
		}
	}
}

type condenser struct {
	text     []byte
	tokens   []token
	interest *Interest

	lines    []logical
	units    []unit
	words    map[string]bool // names that matter in this file, beside the wanted ones
	imported map[string]bool // names bound by imports
	used     map[string]bool // names in lines that stay
	outside  map[string]bool // see mentionedOutside
	name     []byte          // see bindsUsed

	out     condensed
	copied  int // offset in text up to which out is made
	comment int // number of the first token that may be a comment behind that
	runAt   int // start of the run at hand
	runEnd  int // its end; 0 if there is none
}

// A logical line is a statement, or the header of one.
type logical struct {
	first, last int // tokens, comments in front and the newline left out
	indent      int
	end         int // number of the first line that is not below this one
	isDef       bool
	isClass     bool
	isImport    bool
	isDecorator bool
	isClause    bool  // else, elif, except, finally: belongs to the statement before
	isCase      bool  // of a match statement, which holds nothing else
	unit        *unit // whose def it is

	matters bool // of itself, see lineMatters
	stays   bool // so it is in the condensed text
}

// A unit is the body of a function that is not nested in another function.
type unit struct {
	name, class string
	from, to    int // lines
	kept        bool
}

func (c *condenser) word(i int) []byte { return c.text[c.tokens[i].start:c.tokens[i].end] }

func (c *condenser) findLines() {
	for i := 0; i < len(c.tokens); i++ {
		if c.tokens[i].kind == tokComment {
			continue
		}
		l := logical{first: i, indent: indentation(c.text, c.tokens[i].start)}
		for i < len(c.tokens) && c.tokens[i].kind != tokNewline {
			if c.tokens[i].kind != tokComment {
				l.last = i + 1
			}
			i++
		}
		word := string(c.word(l.first))
		if word == "async" && l.first+1 < l.last {
			word = string(c.word(l.first + 1))
		}
		switch word {
		case "def":
			l.isDef = true
		case "class":
			l.isClass = true
		case "import", "from":
			l.isImport = true
		case "@":
			l.isDecorator = true
		case "else", "elif", "except", "finally":
			l.isClause = true
		}
		c.lines = append(c.lines, l)
	}
	var open []int
	for i := range c.lines {
		for len(open) > 0 && c.lines[open[len(open)-1]].indent >= c.lines[i].indent {
			c.lines[open[len(open)-1]].end = i
			open = open[:len(open)-1]
		}
		if len(open) > 0 && string(c.word(c.lines[i].first)) == "case" {
			c.lines[i].isCase = string(c.word(c.lines[open[len(open)-1]].first)) == "match"
		}
		open = append(open, i)
	}
	for _, i := range open {
		c.lines[i].end = len(c.lines)
	}
}

// indentation returns the width of the white space in front of offset, with
// tabs to 8 as Python counts them.
func indentation(text []byte, offset int) int {
	col := 0
	for _, b := range text[lineStart(text, offset):offset] {
		switch b {
		case '\t':
			col = (col/8 + 1) * 8
		case '\f':
			col = 0
		default:
			col++
		}
	}
	return col
}

func (c *condenser) findUnits() {
	class, classEnd := "", 0
	for i := 0; i < len(c.lines); i++ {
		l := &c.lines[i]
		if i >= classEnd {
			class = ""
		}
		switch {
		case l.isClass:
			class, classEnd = c.defined(l), l.end
		case l.isDef && l.end > i+1:
			c.units = append(c.units, unit{name: c.defined(l), class: class, from: i + 1, to: l.end})
			i = l.end - 1 // what is defined inside belongs to it
		}
	}
	for i := range c.units {
		c.lines[c.units[i].from-1].unit = &c.units[i]
	}
}

// defined returns the name that the header of a def or class defines.
func (c *condenser) defined(l *logical) string {
	for i := l.first; i+1 < l.last; i++ {
		if word := string(c.word(i)); word == "def" || word == "class" {
			return string(c.word(i + 1))
		}
	}
	return ""
}

// findWords notes the names that imports bind, and other names of wanted words.
func (c *condenser) findWords() {
	for _, l := range c.lines {
		isImport := false
		for i := l.first; i < l.last; i++ {
			if c.tokens[i].kind != tokName {
				continue
			}
			word := c.word(i)
			switch {
			case string(word) == "import":
				isImport = true
			case isImport && (i+1 == l.last || string(c.word(i+1)) != "as"):
				c.imported[string(word)] = true
			}
			if !c.interest.Word(word) {
				continue
			}
			if i+2 < l.last && string(c.word(i+1)) == "as" {
				c.words[string(c.word(i+2))] = true
			}
			// What a call of it returns is another matter.
			isCalled := i+1 < l.last && c.text[c.tokens[i+1].start] == '('
			if l.first+1 < i && !isCalled && c.tokens[l.first].kind == tokName && string(c.word(l.first+1)) == "=" {
				c.words[string(c.word(l.first))] = true
			}
		}
	}
}

// spread finds the units that are kept, and makes their names words.
func (c *condenser) spread() {
	local := map[string][]int{}
	for i, u := range c.units {
		local[u.name] = append(local[u.name], i)
		if u.class != "" {
			local[u.class] = append(local[u.class], i)
		}
	}
	users := make([][]int, len(c.units))
	var queue []int
	for i := range c.units {
		u := &c.units[i]
		for t := c.lines[u.from].first; t < c.lines[u.to-1].last; t++ {
			switch c.tokens[t].kind {
			case tokString: // an f-string can hold calls
				u.kept = u.kept || c.stringMatters(t)
			case tokName:
				name := string(c.word(t))
				u.kept = u.kept || c.words[name] || c.interest.Word(c.word(t))
				if name == "cls" && u.class != "" {
					name = u.class
				}
				for _, j := range local[name] {
					if j != i {
						users[j] = append(users[j], i)
					}
				}
			}
		}
		if u.kept {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		c.words[c.units[i].name] = true
		for _, l := range c.lines[c.units[i].from:c.units[i].to] {
			if l.isDef || l.isClass {
				c.words[c.defined(&l)] = true
			}
		}
		if class := c.units[i].class; class != "" {
			c.words[class] = true
			c.words["cls"] = true
		}
		for _, j := range users[i] {
			if !c.units[j].kept {
				c.units[j].kept = true
				queue = append(queue, j)
			}
		}
	}
}

// isFormat reports whether a string literal is an f-string or a t-string.
func (c *condenser) isFormat(t int) bool {
	text := c.word(t)
	return bytes.ContainsAny(text[:bytes.IndexAny(text, `"'`)], "fFtT")
}

// stringMatters reports whether a string holds calls that may matter.
func (c *condenser) stringMatters(t int) bool {
	text := c.word(t)
	if !c.isFormat(t) || bytes.IndexByte(text, '(') < 0 {
		return false
	}
	return ContainsWord(text, func(word []byte) bool { return c.interest.Word(word) || c.words[string(word)] })
}

// findStaying decides which lines stay.
func (c *condenser) findStaying() {
	for i := range c.lines {
		if l := &c.lines[i]; l.unit == nil {
			l.matters = c.lineMatters(l)
		}
	}
	c.findKnown()
	c.mark(0, len(c.lines))
	for i := range c.lines {
		l := &c.lines[i]
		if !l.stays || l.isImport {
			continue
		}
		switch {
		case l.isDef:
			c.dropTypes(l)
		case l.isDecorator && !l.matters:
			c.dropArguments(l)
		}
		for t := l.first; t < l.last; t++ {
			switch token := &c.tokens[t]; {
			case token.dropped:
			case token.kind == tokName:
				c.used[string(c.word(t))] = true
			case token.kind == tokString && c.isFormat(t):
				ContainsWord(c.word(t), func(word []byte) bool { c.used[string(word)] = true; return false })
			}
		}
	}
	for _, drop := range []bool{false, true} { // what the first round finds is used
		for i := range c.lines {
			if l := &c.lines[i]; l.isImport {
				c.readImport(l, drop)
			}
		}
	}
	c.mark(0, len(c.lines))
}

// drop leaves tokens out.
func (c *condenser) drop(from, to int) {
	for i := from; i < to; i++ {
		c.tokens[i].dropped = true
	}
}

// isOp reports whether a token is the one byte op outside any bracket.
func (c *condenser) isOp(t int, op byte) bool {
	return c.tokens[t].kind == tokOp && c.tokens[t].depth == 0 && c.text[c.tokens[t].start] == op
}

// dropArguments leaves out the arguments of a decorator.
func (c *condenser) dropArguments(l *logical) {
	open := 0
	for i := l.first; i < l.last; i++ {
		switch {
		case c.isOp(i, '('):
			open = i + 1
		case c.isOp(i, ')'):
			c.drop(open, i)
		}
	}
}

// dropTypes leaves out the annotations of a function, and its parameters if it is
// not kept.
func (c *condenser) dropTypes(l *logical) {
	open := 0
	for i := l.first; i < l.last; i++ {
		switch {
		case open == 0 && c.isOp(i, '('):
			open = i + 1
		case open > 0 && c.isOp(i, ')'):
			if u := l.unit; u != nil && !u.kept {
				c.drop(open, i)
			} else {
				c.dropAnnotations(open, i)
			}
			if l.last-1 > i && c.isOp(l.last-1, ':') {
				c.drop(i+1, l.last-1)
			}
			return
		}
	}
}

// dropAnnotations leaves out what stands behind the colons of parameters.
func (c *condenser) dropAnnotations(from, to int) {
	for i := from; i < to; i++ {
		// Elsewhere, a colon belongs to a default value.
		isName := c.tokens[i].kind == tokName && c.tokens[i].depth == 1
		if before := c.text[c.tokens[i-1].start]; !isName || i+1 >= to || before != '(' && before != ',' && before != '*' ||
			c.text[c.tokens[i+1].start] != ':' {
			continue
		}
		end := i + 1
		for end < to && (c.tokens[end].depth > 1 || c.text[c.tokens[end].start] != ',' && c.text[c.tokens[end].start] != '=') {
			end++
		}
		c.drop(i+1, end)
		i = end - 1
	}
}

// readImport decides whether an import statement stays: if it binds a name that is
// used or a module that is to be known, or binds names that it does not tell. If drop
// is set, it leaves out of "from a import (b, c)" the names that are of no use.
func (c *condenser) readImport(l *logical, drop bool) {
	list := l.first + 1
	c.name = c.name[:0]
	isFrom := string(c.word(l.first)) == "from"
	for ; isFrom && list < l.last && string(c.word(list)) != "import"; list++ {
		c.name = append(c.name, c.word(list)...)
	}
	if isFrom {
		list++
	}
	end := l.last
	inBrackets := list < end && c.isOp(list, '(') && c.isOp(end-1, ')')
	if inBrackets {
		list, end = list+1, end-1
	}
	kept := list // behind the last name that stays, and the comma there
	for i := list; i < end; {
		next := i
		for next < end && c.text[c.tokens[next].start] != ',' {
			next++
		}
		if c.bindsUsed(i, next, isFrom) {
			l.matters = true
			if inBrackets && drop {
				c.drop(kept, i)
			}
			kept = min(next+1, end)
		}
		i = next + 1
	}
	if inBrackets && drop && kept > list {
		if kept < end {
			kept-- // no comma behind the last
		}
		c.drop(kept, end)
	}
}

// bindsUsed reports whether the part of an import statement between two commas is
// of use. Of a from-import, c.name is the module. The name that a module to be known
// is bound to is used from then on: it matters what else is bound to it.
func (c *condenser) bindsUsed(from, to int, isFrom bool) bool {
	module, top := len(c.name), 0
	defer func() { c.name = c.name[:module] }()
	if isFrom {
		c.name = append(c.name, '.')
	}
	inName := true
	var bound []byte
	for i := from; i < to; i++ {
		word := c.word(i)
		switch kind := c.tokens[i].kind; {
		case kind == tokOp && word[0] == '*':
			return true
		case kind == tokName && string(word) == "as":
			inName, top = false, 0
			continue
		case kind == tokName && (c.used[string(word)] || c.words[string(word)] || c.interest.Word(word)):
			return true
		case kind == tokName && (isFrom || top == 0):
			bound = word
		}
		if inName && c.tokens[i].kind != tokComment {
			c.name = append(c.name, word...)
			if top == 0 && !isFrom {
				top = len(c.name)
			}
		}
	}
	known := c.interest.Module(c.name) || top > 0 && c.interest.Module(c.name[:top])
	if known {
		c.used[string(bound)] = true
	}
	return known
}

// findKnown decides which functions are known by name, kept or not. Of those that
// differ in nothing but their names, the first in its class or module stays for all.
func (c *condenser) findKnown() {
	type place struct{ class, kind string }
	have := map[place]bool{}
	for i := range c.units {
		u := &c.units[i]
		name := []byte(u.name)
		known := u.kept || c.words[u.name] || c.imported[u.name] || c.interest.Word(name) ||
			u.class != "" && bytes.HasPrefix(name, []byte("__"))
		if kind := c.interest.Definition(name); !known && kind != "" {
			p := place{u.class, kind}
			mentioned := c.mentionedOutside(u.name)
			known = mentioned || !have[p]
			have[p] = have[p] || !mentioned
		}
		c.lines[u.from-1].matters = known
	}
}

// mentionedOutside reports whether the name stands in a line outside any function.
func (c *condenser) mentionedOutside(name string) bool {
	if len(c.outside) == 0 {
		next := 0
		for _, u := range append(c.units, unit{from: len(c.lines) + 1}) {
			for _, l := range c.lines[next : u.from-1] {
				for t := l.first; t < l.last; t++ {
					if c.tokens[t].kind == tokName {
						c.outside[string(c.word(t))] = true
					}
				}
			}
			next = u.to
		}
	}
	return c.outside[name]
}

// mark sets stays for the lines of one block and those below them, and reports
// whether any of them stays.
func (c *condenser) mark(from, to int) bool {
	any := false
	for i := from; i < to; {
		end := c.group(i, to)
		stays := false
		for j := i; j < end; j = c.lines[j].end {
			l := &c.lines[j]
			switch u := l.unit; {
			case u != nil && !u.kept:
				stays = stays || l.matters
			case c.mentions(l, "__name__"): // what a script does: all of it
				for k := j; k < l.end; k++ {
					c.lines[k].stays = true
				}
				stays = true
			default:
				below := c.mark(j+1, l.end)
				stays = stays || below || l.matters
			}
		}
		if stays {
			for j := i; j < end; j = c.lines[j].end {
				c.lines[j].stays = true
			}
		}
		any = any || stays
		i = end
	}
	return any
}

// group returns the number of the line behind the statement that begins at line
// i, its clauses included. Decorators belong to what they decorate.
func (c *condenser) group(i, to int) int {
	for c.lines[i].isDecorator && c.lines[i].end < to {
		i = c.lines[i].end
	}
	end := c.lines[i].end
	for end < to && c.lines[end].isClause {
		end = c.lines[end].end
	}
	return end
}

// emit makes the output for lines of one block and those below them.
func (c *condenser) emit(from, to int) {
	for i := from; i < to; i = c.lines[i].end {
		l := &c.lines[i]
		if !l.stays {
			c.run(i, l.end)
			continue
		}
		c.flush()
		c.shorten(l)
		if u := l.unit; u != nil && !u.kept {
			c.run(u.from, u.to)
			c.flush()
		} else {
			c.emit(i+1, l.end)
		}
	}
	c.flush()
}

func (c *condenser) mentions(l *logical, word string) bool {
	for i := l.first; i < l.last; i++ {
		if c.tokens[i].kind == tokName && string(c.word(i)) == word {
			return true
		}
	}
	return false
}

// lineMatters reports whether a line must stay, whatever is around it.
func (c *condenser) lineMatters(l *logical) bool {
	if l.isDef || l.isClass || l.isCase {
		return true
	}
	for i := l.first; i < l.last; i++ {
		switch c.tokens[i].kind {
		case tokString:
			if c.stringMatters(i) {
				return true
			}
		case tokName:
			word := c.word(i)
			switch string(word) {
			case "return", "raise", "break", "continue", "yield", "while":
				return true
			case "import":
				if !l.isImport { // behind something else
					return true
				}
			}
			if c.interest.Word(word) || c.words[string(word)] {
				return true
			}
		}
	}
	return !l.isImport && !l.isDecorator && c.rebinds(l)
}

// rebinds reports whether a line binds a name that an import binds.
func (c *condenser) rebinds(l *logical) bool {
	from, to := 0, 0 // the tokens that are bound
	for i := l.first; i < l.last; i++ {
		switch word := c.word(i); {
		case c.tokens[i].kind == tokOp && c.tokens[i].depth == 0 && string(word) == "=" && c.isAssignment(i):
			from, to = l.first, i
		case c.tokens[i].kind != tokName:
		case string(word) == "for" && i <= l.first+1:
			from, to = i+1, l.last
		case string(word) == "as":
			from, to = i+1, l.last
		case string(word) == "in" && from > l.first:
			to = i
		}
	}
	for i := from; i < to; i++ {
		// Not in front of a dot: torch.x = y does not bind torch.
		if c.tokens[i].kind == tokName && c.imported[string(c.word(i))] &&
			(i+1 == l.last || c.text[c.tokens[i+1].start] != '.') {
			return true
		}
	}
	return false
}

// isAssignment reports whether the equals sign at token i is no comparison.
func (c *condenser) isAssignment(i int) bool {
	at := c.tokens[i].start
	return at > 0 && bytes.IndexByte([]byte("=!<>"), c.text[at-1]) < 0 && (at+1 == len(c.text) || c.text[at+1] != '=')
}

// run adds lines to the run at hand.
func (c *condenser) run(from, to int) {
	if c.runEnd == 0 {
		c.runAt = c.tokens[c.lines[from].first].start
	}
	c.runEnd = c.tokens[c.lines[to-1].last-1].end
}

// shorten leaves out of a line the tokens that were dropped.
func (c *condenser) shorten(l *logical) {
	for i := l.first; i < l.last; i++ {
		if !c.tokens[i].dropped {
			continue
		}
		from := i
		for i+1 < l.last && c.tokens[i+1].dropped {
			i++
		}
		c.copy(c.tokens[from].start)
		c.skip(c.tokens[i+1].start, false)
		if l.isImport || l.isDecorator { // names in types and parameters mean nothing
			c.out.omitted = append(c.out.omitted, Span{c.tokens[from].start, c.tokens[i].end})
		}
	}
}

// flush ends the run at hand.
func (c *condenser) flush() {
	if c.runEnd == 0 {
		return
	}
	c.copy(c.runAt)
	c.out.text = append(c.out.text, '0')
	c.skip(c.runEnd, true)
	c.out.omitted = append(c.out.omitted, Span{c.runAt, c.runEnd})
	c.runEnd = 0
}

// skip leaves out the bytes up to the offset in text.
func (c *condenser) skip(to int, isRun bool) {
	if to > c.copied {
		c.copied = to
		c.out.cuts = append(c.out.cuts, cut{len(c.out.text), to - len(c.out.text), isRun})
	}
}

// copy makes the output up to the offset in text, without comments.
func (c *condenser) copy(to int) {
	for ; c.comment < len(c.tokens) && c.tokens[c.comment].start < to; c.comment++ {
		if t := c.tokens[c.comment]; t.kind == tokComment && t.start >= c.copied {
			c.out.text = append(c.out.text, c.text[c.copied:t.start]...)
			c.copied = t.start
			c.skip(t.end, false)
		}
	}
	if to > c.copied {
		c.out.text = append(c.out.text, c.text[c.copied:to]...)
		c.copied = to
	}
}

// restore moves all spans of the statements to their offsets in the file.
func (c *condensed) restore(list []*Stmt) {
	if len(c.cuts) == 0 {
		return
	}
	for _, s := range list {
		s.Span = c.span(s.Span)
		s.Header = c.start(s.Header)
		for _, group := range [][]*Node{s.Decorators, s.Targets, s.Exprs} {
			for _, n := range group {
				c.restoreNode(n)
			}
		}
		for _, p := range s.Params {
			c.restoreNode(p.Default)
		}
		for i := range s.Imports {
			s.Imports[i].Span = c.span(s.Imports[i].Span)
		}
		for _, b := range s.Blocks {
			b.Span = c.span(b.Span)
			if b.Clause == Elif {
				c.restoreNode(b.Cond) // elsewhere it is among Exprs
			}
			c.restore(b.Body)
		}
	}
}

func (c *condensed) restoreNode(n *Node) {
	n.Walk(func(n *Node) bool {
		n.Span = c.span(n.Span)
		return true
	})
}

func (c *condensed) span(s Span) Span { return Span{c.start(s.Start), c.end(s.End)} }
