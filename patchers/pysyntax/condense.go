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
	c.findNames()
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
	c.names.reset()
	*c = condenser{
		names: c.names, lines: c.lines[:0], units: c.units[:0], links: c.links[:0], module: c.module,
		out: condensed{text: c.out.text[:0], cuts: c.out.cuts[:0], omitted: c.out.omitted[:0]},
	}
}

type condenser struct {
	text     []byte
	tokens   []token
	interest *Interest

	names   names
	lines   []logical
	units   []unit
	links   []link
	module  []byte // see bindsUsed
	outside bool   // the names know whether they stand outside any function

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
	name, class int32 // numbers of names; class 0 if there is none
	from, to    int   // lines
	kept        bool
}

// A link is an element of a chain of units that have a name, or whose class has it.
type link struct {
	unit, next int32 // numbers; next 0 if there is none
}

// findNames gives the tokens that are names their numbers.
func (c *condenser) findNames() {
	for i := range c.tokens {
		t := &c.tokens[i]
		if t.kind != tokName {
			continue
		}
		var isNew bool
		if t.name, isNew = c.names.add(c.text[t.start:t.end]); isNew {
			n := c.name(i)
			n.wanted = c.interest.Word(n.text)
		}
	}
}

// name returns what is known of the token number i, which is nothing if it is no
// name. It is good until the next name is found.
func (c *condenser) name(i int) *name { return &c.names.list[c.tokens[i].name] }

// keyword returns which one the token number i is.
func (c *condenser) keyword(i int) keyword { return c.name(i).keyword }

// matter makes a name a word that matters.
func (c *condenser) matter(number int32) {
	if number != 0 {
		c.names.list[number].matters = true
	}
}

// isWord reports whether code that has the word matters.
func (c *condenser) isWord(word []byte) bool {
	if number, _, _ := c.names.find(word); number != 0 {
		return c.names.list[number].isWord()
	}
	return c.interest.Word(word)
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
		word := c.keyword(l.first)
		if word == kwAsync && l.first+1 < l.last {
			word = c.keyword(l.first + 1)
		}
		switch word {
		case kwDef:
			l.isDef = true
		case kwClass:
			l.isClass = true
		case kwImport, kwFrom:
			l.isImport = true
		case kwClause:
			l.isClause = true
		default:
			l.isDecorator = c.text[c.tokens[l.first].start] == '@'
		}
		c.lines = append(c.lines, l)
	}
	var open []int
	for i := range c.lines {
		for len(open) > 0 && c.lines[open[len(open)-1]].indent >= c.lines[i].indent {
			c.lines[open[len(open)-1]].end = i
			open = open[:len(open)-1]
		}
		if len(open) > 0 && c.keyword(c.lines[i].first) == kwCase {
			c.lines[i].isCase = c.keyword(c.lines[open[len(open)-1]].first) == kwMatch
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
	class, classEnd := int32(0), 0
	for i := 0; i < len(c.lines); i++ {
		l := &c.lines[i]
		if i >= classEnd {
			class = 0
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

// defined returns the number of the name that the header of a def or class defines.
func (c *condenser) defined(l *logical) int32 {
	for i := l.first; i+1 < l.last; i++ {
		if word := c.keyword(i); word == kwDef || word == kwClass {
			return c.tokens[i+1].name
		}
	}
	return 0
}

// findWords notes the names that imports bind, and other names of wanted words.
func (c *condenser) findWords() {
	for _, l := range c.lines {
		isImport := false
		for i := l.first; i < l.last; i++ {
			if c.tokens[i].kind != tokName {
				continue
			}
			n := c.name(i)
			switch {
			case n.keyword == kwImport:
				isImport = true
			case isImport && (i+1 == l.last || c.keyword(i+1) != kwAs):
				n.imported = true
			}
			if !n.wanted {
				continue
			}
			if i+2 < l.last && c.keyword(i+1) == kwAs {
				c.matter(c.tokens[i+2].name)
			}
			// What a call of it returns is another matter.
			isCalled := i+1 < l.last && c.text[c.tokens[i+1].start] == '('
			if l.first+1 < i && !isCalled && c.tokens[l.first].kind == tokName && string(c.word(l.first+1)) == "=" {
				c.matter(c.tokens[l.first].name)
			}
		}
	}
}

// spread finds the units that are kept, and makes their names words.
func (c *condenser) spread() {
	c.links = append(c.links, link{})
	add := func(number int32, i int) {
		if number != 0 {
			n := &c.names.list[number]
			c.links = append(c.links, link{int32(i), n.units})
			n.units = int32(len(c.links) - 1)
		}
	}
	for i, u := range c.units {
		add(u.name, i)
		add(u.class, i)
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
				n := c.name(t)
				u.kept = u.kept || n.isWord()
				if n.keyword == kwCls && u.class != 0 {
					n = &c.names.list[u.class]
				}
				for at := n.units; at != 0; at = c.links[at].next {
					if j := int(c.links[at].unit); j != i {
						users[j] = append(users[j], i)
					}
				}
			}
		}
		if u.kept {
			queue = append(queue, i)
		}
	}
	cls, _, _ := c.names.find([]byte("cls"))
	for len(queue) > 0 {
		u := &c.units[queue[0]]
		c.matter(u.name)
		for i := u.from; i < u.to; i++ {
			if l := &c.lines[i]; l.isDef || l.isClass {
				c.matter(c.defined(l))
			}
		}
		if u.class != 0 {
			c.matter(u.class)
			c.matter(cls)
		}
		for _, j := range users[queue[0]] {
			if !c.units[j].kept {
				c.units[j].kept = true
				queue = append(queue, j)
			}
		}
		queue = queue[1:]
	}
}

// isFormat reports whether a string literal is an f-string or a t-string.
func isFormat(literal []byte) bool {
	return bytes.ContainsAny(literal[:bytes.IndexAny(literal, `"'`)], "fFtT")
}

// stringMatters reports whether a string holds calls that may matter.
func (c *condenser) stringMatters(t int) bool {
	text := c.word(t)
	if !isFormat(text) || bytes.IndexByte(text, '(') < 0 {
		return false
	}
	return ContainsWord(text, c.isWord)
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
				c.name(t).used = true
			case token.kind == tokString && isFormat(c.word(t)):
				ContainsWord(c.word(t), func(word []byte) bool {
					number, _, _ := c.names.find(word)
					c.names.list[number].used = number != 0
					return false
				})
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
	c.module = c.module[:0]
	isFrom := c.keyword(l.first) == kwFrom
	for ; isFrom && list < l.last && c.keyword(list) != kwImport; list++ {
		c.module = append(c.module, c.word(list)...)
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
// of use. Of a from-import, c.module is the module. The name that a module to be known
// is bound to is used from then on: it matters what else is bound to it.
func (c *condenser) bindsUsed(from, to int, isFrom bool) bool {
	module, top := len(c.module), 0
	defer func() { c.module = c.module[:module] }()
	if isFrom {
		c.module = append(c.module, '.')
	}
	inName := true
	var bound int32
	for i := from; i < to; i++ {
		word := c.word(i)
		switch kind := c.tokens[i].kind; {
		case kind == tokOp && word[0] == '*':
			return true
		case kind == tokName && c.keyword(i) == kwAs:
			inName, top = false, 0
			continue
		case kind == tokName && (c.name(i).used || c.name(i).isWord()):
			return true
		case kind == tokName && (isFrom || top == 0):
			bound = c.tokens[i].name
		}
		if inName && c.tokens[i].kind != tokComment {
			c.module = append(c.module, word...)
			if top == 0 && !isFrom {
				top = len(c.module)
			}
		}
	}
	known := c.interest.Module(c.module) || top > 0 && c.interest.Module(c.module[:top])
	if known && bound != 0 {
		c.names.list[bound].used = true
	}
	return known
}

// findKnown decides which functions are known by name, kept or not. Of those that
// differ in nothing but their names, the first in its class or module stays for all.
func (c *condenser) findKnown() {
	type place struct {
		class int32
		kind  string
	}
	have := map[place]bool{}
	for i := range c.units {
		u := &c.units[i]
		n := &c.names.list[u.name]
		known := u.kept || n.isWord() || n.imported || u.class != 0 && bytes.HasPrefix(n.text, []byte("__"))
		if kind := c.interest.Definition(n.text); !known && kind != "" {
			p := place{u.class, kind}
			mentioned := c.mentionedOutside(n)
			known = mentioned || !have[p]
			have[p] = have[p] || !mentioned
		}
		c.lines[u.from-1].matters = known
	}
}

// mentionedOutside reports whether the name stands in a line outside any function.
func (c *condenser) mentionedOutside(n *name) bool {
	if !c.outside {
		c.outside = true
		next := 0
		for i := 0; i <= len(c.units); i++ {
			end := len(c.lines)
			if i < len(c.units) {
				end = c.units[i].from - 1
			}
			for _, l := range c.lines[next:end] {
				for t := l.first; t < l.last; t++ {
					if c.tokens[t].kind == tokName {
						c.name(t).outside = true
					}
				}
			}
			if i < len(c.units) {
				next = c.units[i].to
			}
		}
	}
	return n.outside
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
			case c.mentions(l, kwDunderName): // what a script does: all of it
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

func (c *condenser) mentions(l *logical, word keyword) bool {
	for i := l.first; i < l.last; i++ {
		if c.keyword(i) == word {
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
			n := c.name(i)
			// An import can stand behind something else.
			if n.keyword == kwFlow || n.keyword == kwImport && !l.isImport || n.isWord() {
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
		switch c.keyword(i) {
		case kwFor:
			if i <= l.first+1 {
				from, to = i+1, l.last
			}
		case kwAs:
			from, to = i+1, l.last
		case kwIn:
			if from > l.first {
				to = i
			}
		default:
			if c.isOp(i, '=') && c.isAssignment(i) {
				from, to = l.first, i
			}
		}
	}
	for i := from; i < to; i++ {
		// Not in front of a dot: torch.x = y does not bind torch.
		if c.tokens[i].kind == tokName && c.name(i).imported &&
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
