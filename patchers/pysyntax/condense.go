package pysyntax

import (
	"bytes"
	"sort"
)

// A condensed text is a file without the statements that nobody wants. Each run
// of them has become the one expression 0, so what is left is in its place in
// the block structure, and the grammar has little to read: a tree costs far more
// than the tokens do.
type condensed struct {
	text    []byte
	cuts    []cut  // by offset
	omitted []Span // of the file: the runs that were left out
}

// A cut says that offset at of the condensed text, and those behind it, are
// moved by delta bytes in the file.
type cut struct{ at, delta int }

// original returns the offset in the file of an offset in the condensed text.
// The end of a 0 is the end of the run that it stands for.
func (c *condensed) original(offset int) int {
	i := sort.Search(len(c.cuts), func(i int) bool { return c.cuts[i].at > offset })
	if i == 0 {
		return offset
	}
	return offset + c.cuts[i-1].delta
}

// condense leaves out of text what cannot matter to somebody who looks for the
// wanted words. A function is wanted if it mentions one, or the name of a wanted
// function of the file, or of a class with a wanted method, or a name that such
// a word was given ("import x as y", "y = x"); of other functions only the
// name stays. Elsewhere a statement stays if it mentions such a word, changes
// the flow of control, imports or defines something, or binds the name of an
// import anew.
func condense(text []byte, tokens []token, wanted func(word []byte) bool) *condensed {
	c := &condenser{text: text, tokens: tokens, wanted: wanted}
	c.findLines()
	c.findUnits()
	c.findWords()
	c.spread()
	c.block(0, len(c.lines))
	c.copy(len(text))
	return &c.out
}

type condenser struct {
	text   []byte
	tokens []token
	wanted func([]byte) bool

	lines    []logical
	units    []unit
	unitAt   map[int]*unit   // by the number of the def's line
	words    map[string]bool // names that matter in this file, beside the wanted ones
	imported map[string]bool // names bound by imports

	out    condensed
	copied int // offset in text up to which out is made
	runAt  int // start of the run at hand
	runEnd int // its end; 0 if there is none
}

// A logical line is a statement, or the header of one.
type logical struct {
	first, last int // tokens, comments in front and the newline left out
	indent      int
	end         int // number of the first line that is not below this one
	isDef       bool
	isClass     bool
	isClause    bool // else, elif, except, finally: belongs to the statement before
	isCase      bool // of a match statement, which holds nothing else
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
	c.unitAt = map[int]*unit{}
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
		c.unitAt[c.units[i].from-1] = &c.units[i]
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
	c.words, c.imported = map[string]bool{}, map[string]bool{}
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
			if !c.wanted(word) {
				continue
			}
			if i+2 < l.last && string(c.word(i+1)) == "as" {
				c.words[string(c.word(i+2))] = true
			}
			if l.first+1 < i && c.tokens[l.first].kind == tokName && string(c.word(l.first+1)) == "=" {
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
				u.kept = u.kept || c.words[name] || c.wanted(c.word(t))
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

func (c *condenser) stringMatters(t int) bool {
	text := c.word(t)
	if bytes.IndexByte(text, '(') < 0 {
		return false
	}
	return ContainsWord(text, func(word []byte) bool { return c.wanted(word) || c.words[string(word)] })
}

// block makes the output for lines of one block and those below them.
func (c *condenser) block(from, to int) {
	for i := from; i < to; {
		end := c.lines[i].end
		for end < to && c.lines[end].isClause {
			end = c.lines[end].end
		}
		if c.mentions(&c.lines[i], "__name__") { // what a script does: all of it
			c.flush()
			i = end
			continue
		}
		if !c.matters(i, end) {
			c.run(i, end)
			i = end
			continue
		}
		for i < end {
			c.flush()
			if u := c.unitAt[i]; u != nil && !u.kept {
				c.shorten(&c.lines[i])
				c.run(u.from, u.to)
			} else {
				c.block(i+1, c.lines[i].end)
			}
			i = c.lines[i].end
		}
	}
	c.flush()
}

func (c *condenser) mentions(l *logical, word string) bool {
	for i := l.first; i < l.last; i++ {
		if string(c.word(i)) == word {
			return true
		}
	}
	return false
}

// matters reports whether any of the lines must stay.
func (c *condenser) matters(from, to int) bool {
	for i := from; i < to; i++ {
		if c.lineMatters(&c.lines[i]) {
			return true
		}
	}
	return false
}

func (c *condenser) lineMatters(l *logical) bool {
	if l.isDef || l.isClass || l.isCase || c.text[c.tokens[l.first].start] == '@' {
		return true
	}
	binds := false // the line binds a name that an import binds
	for i := l.first; i < l.last; i++ {
		switch c.tokens[i].kind {
		case tokString:
			if c.stringMatters(i) {
				return true
			}
		case tokName:
			word := c.word(i)
			if i == l.first && (string(word) == "print" || string(word) == "exec") && i+1 < l.last && c.tokens[i+1].kind != tokOp {
				return true // a statement of Python 2, for the grammar to refuse
			}
			switch string(word) {
			case "return", "raise", "break", "continue", "yield", "import", "while":
				return true
			case "for", "as":
				binds = true
			}
			if c.wanted(word) || c.words[string(word)] {
				return true
			}
		case tokOp:
			if c.tokens[i].depth == 0 && c.text[c.tokens[i].start] == '=' {
				binds = true
			}
		}
	}
	if binds {
		for i := l.first; i < l.last; i++ {
			// Not in front of a dot: torch.x = y does not bind torch.
			if c.tokens[i].kind == tokName && c.imported[string(c.word(i))] &&
				(i+1 == l.last || c.text[c.tokens[i+1].start] != '.') {
				return true
			}
		}
	}
	return false
}

// run adds lines to the run at hand.
func (c *condenser) run(from, to int) {
	if c.runEnd == 0 {
		c.runAt = c.tokens[c.lines[from].first].start
	}
	c.runEnd = c.tokens[c.lines[to-1].last-1].end
}

// shorten leaves out the parameters and the result of a function.
func (c *condenser) shorten(l *logical) {
	for i := l.first; i < l.last; i++ {
		if t := c.tokens[i]; t.kind == tokOp && t.depth == 0 {
			switch c.text[t.start] {
			case '(':
				c.copy(t.end)
			case ')':
				c.skip(t.start)
				c.copy(t.end)
				c.skip(c.tokens[l.last-1].start) // the colon
				return
			}
		}
	}
}

// skip leaves out the bytes up to the offset in text.
func (c *condenser) skip(to int) {
	if to > c.copied {
		c.copied = to
		c.out.cuts = append(c.out.cuts, cut{len(c.out.text), to - len(c.out.text)})
	}
}

// flush ends the run at hand.
func (c *condenser) flush() {
	if c.runEnd == 0 {
		return
	}
	c.copy(c.runAt)
	c.out.text = append(c.out.text, '0')
	c.skip(c.runEnd)
	c.out.omitted = append(c.out.omitted, Span{c.runAt, c.runEnd})
	c.runEnd = 0
}

// copy makes the output up to the offset in text.
func (c *condenser) copy(to int) {
	c.out.text = append(c.out.text, c.text[c.copied:to]...)
	c.copied = to
}

// restore moves all spans of the statements to their offsets in the file.
func (c *condensed) restore(list []*Stmt) {
	for _, s := range list {
		s.Span = c.span(s.Span)
		s.Header = c.original(s.Header)
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

func (c *condensed) span(s Span) Span { return Span{c.original(s.Start), c.original(s.End)} }
