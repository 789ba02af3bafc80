package pysyntax

import "bytes"

// plain appends to buf a shorter text that the grammar takes if it takes text: it has
// neither comments nor blank lines, and one letter stands for a name, for a chain such
// as "a.b(c, d=1)[0]", and for a bracket in which nothing stands but these, literals
// and operators between them. Of lines that have become the same, one stands for those
// that follow it. What is left out is Python, as far as the grammar can tell; but a letter
// can stand for what cannot be assigned to, behind "for" or "lambda" or in front of "+=".
// Where the grammar refuses the result, text itself decides.
func plain(buf, text []byte, tokens []token) []byte {
	p := plainer{text: text, out: buf, last: len(buf)}
	for i := 0; i < len(tokens); i++ {
		if tokens[i].kind == tokComment {
			continue
		}
		first := i
		for i < len(tokens) && tokens[i].kind != tokNewline {
			i++
		}
		p.line(tokens[first:i])
	}
	return p.out
}

type plainer struct {
	text []byte
	out  []byte
	open []bracket // the line itself, and the brackets around the token at hand
	gap  bool      // there is white space in front of it
	last int       // offset in out of the line before
}

// A bracket is an open bracket and what stands in it so far.
type bracket struct {
	op      byte // the bracket, 0 for the line
	postfix bool // it follows an expression: a call or a subscript
	at      int  // offset in the output
	plain   bool

	atom     bool // the last token ends an expression
	isName   bool // which is the name of a keyword argument, if an equals sign follows
	isStr    bool // which is a string literal
	isTarget bool // which can be assigned to
	targets  bool // so can all items so far
	dot      bool // the last token is a dot behind an expression
	dotAt    int  // its offset in the output
	operand  bool // an expression must follow
	keyed    bool // the item at hand has a keyword
	items    int
	colons   int // in the item at hand
	pairs    int // items with a colon
}

// line writes down a logical line.
func (p *plainer) line(tokens []token) {
	at := len(p.out)
	start := tokens[0].start
	p.out = append(p.out, p.text[lineStart(p.text, start):start]...)
	whole := hasOwnBrackets(p.text[start:tokens[0].end])
	p.open = append(p.open[:0], bracket{targets: true})
	end := start
	for _, t := range tokens {
		if t.kind == tokComment {
			continue
		}
		p.gap, end = t.start > end, t.end
		if whole {
			p.emit(p.text[t.start:t.end])
		} else {
			p.token(t)
		}
	}
	p.out = append(p.out, '\n')
	if this := p.out[at:]; bytes.Equal(this, p.out[p.last:at]) && !bytes.HasSuffix(this, []byte(":\n")) {
		p.out = p.out[:at]
	} else {
		p.last = at
	}
}

// hasOwnBrackets reports whether a statement that begins with the word can have
// brackets that are not those of expressions.
func hasOwnBrackets(word []byte) bool {
	switch string(word) {
	case "def", "class", "async", "import", "from", "match", "case", "type", "print", "exec", "global", "nonlocal", "del":
		return true
	}
	return false
}

// emit writes down a token.
func (p *plainer) emit(word []byte) {
	last := p.out[max(len(p.out)-1, 0):]
	if p.gap || len(last) > 0 && isNamePart(last[0]) && (isNamePart(word[0]) || word[0] == '"' || word[0] == '\'') {
		p.out = append(p.out, ' ')
	}
	p.out = append(p.out, word...)
}

func (p *plainer) token(t token) {
	b := &p.open[len(p.open)-1]
	word := p.text[t.start:t.end]
	switch {
	case t.kind == tokOp:
		p.op(b, t.start)
	case t.kind == tokName && isKeyword(word):
		p.strange(b, word)
	case t.kind == tokName && b.dot && !isConstant(word):
		if last := p.out[b.dotAt-1]; isNamePart(last) || last == '\'' {
			p.out = p.out[:b.dotAt]
		} else { // a bracket, which cannot be assigned to
			p.emit(nameAtom)
		}
		b.dot, b.atom, b.isStr, b.isTarget = false, true, false, true
	case t.kind == tokString && b.isStr && b.atom && !isFormat(word):
	case t.kind == tokName && !isConstant(word):
		p.atom(b, nameAtom)
	case t.kind == tokString && isFormat(word): // holds expressions
		p.atom(b, word)
		b.plain = false
	case t.kind == tokString:
		p.atom(b, stringAtom)
	case len(bytes.Trim(word, "0123456789")) == 0:
		p.atom(b, numberAtom)
	default: // a constant, or a number that may be none
		p.atom(b, word)
		b.plain = b.plain && isConstant(word)
	}
}

var nameAtom, stringAtom, numberAtom = []byte("a"), []byte("''"), []byte("0")

// atom writes down the beginning of an expression.
func (p *plainer) atom(b *bracket, word []byte) {
	b.plain = b.plain && !b.atom && !b.dot
	b.isTarget = string(word) == "a"
	b.isName = b.isTarget && !b.operand
	b.isStr = string(word) == "''"
	b.atom, b.operand, b.dot = true, false, false
	p.emit(word)
}

// strange writes down what makes its bracket one to be read.
func (p *plainer) strange(b *bracket, word []byte) {
	b.plain, b.atom, b.dot, b.operand = false, false, false, false
	p.emit(word)
}

// op writes down the byte of an operator or a bracket at an offset of the text.
func (p *plainer) op(b *bracket, at int) {
	op := p.text[at]
	word := p.text[at : at+1]
	isCall := b.op == '(' && b.postfix
	switch op {
	case '(', '[', '{':
		p.open = append(p.open, bracket{op: op, postfix: b.atom && op != '{', at: len(p.out), targets: op != '{', plain: !b.dot && !(b.atom && op == '{')})
		p.emit(word)
		return
	case ')', ']', '}':
		p.close(word)
		return
	case '.':
		if b.atom {
			b.dotAt = len(p.out)
			b.atom, b.dot, b.isName = false, true, false
			p.emit(word)
			return
		}
	case ',':
		if b.atom || b.colons > 0 && !b.operand {
			b.items++
			b.targets = b.targets && b.isTarget && b.colons == 0
			b.atom, b.keyed, b.colons = false, false, 0
			p.emit(word)
			return
		}
	case ':':
		if b.atom && !b.isName && at+1 < len(p.text) && p.text[at+1] == '=' {
			p.emit([]byte("= ="))
		}
		isSlice := b.op == '[' && b.postfix && b.colons < 2 && !b.operand
		isPair := b.op == '{' && b.colons < 1 && b.atom
		if isSlice || isPair {
			b.colons++
			b.atom, b.operand = false, isPair
			if isPair {
				b.pairs++
			}
			p.emit(word)
			return
		}
	case '=':
		isOne := !p.isPair(at, at+1) && !p.isPair(at-1, at)
		if b.atom && isOne && (b.op == 0 && b.colons == 0 && !(b.isTarget && b.targets) || b.op != 0 && !b.isName) {
			p.emit([]byte("= =")) // the letter stands for what cannot be assigned to
		}
		if isCall && b.isName && b.atom && !b.keyed && !p.isPair(at, at+1) {
			b.atom, b.operand, b.keyed = false, true, true
			p.emit(word)
			return
		}
	}
	switch {
	case b.atom && bytes.IndexByte([]byte("+-*/%@&|^<>"), op) >= 0,
		b.atom && bytes.IndexByte([]byte("=!"), op) >= 0 && p.isPair(at, at+1),
		b.operand && p.isPair(at-1, at),
		!b.atom && !b.dot && bytes.IndexByte([]byte("+-~"), op) >= 0,
		isCall && !b.atom && !b.dot && !b.operand && op == '*':
		b.atom, b.isName, b.isTarget, b.operand = false, false, false, true
		p.emit(word)
	default:
		if op == ':' {
			b.colons++
		}
		p.strange(b, word)
	}
}

// isPair reports whether the bytes at two offsets make one operator.
func (p *plainer) isPair(at, next int) bool {
	if at < 0 || next >= len(p.text) {
		return false
	}
	switch string(p.text[at : next+1]) {
	case "**", "//", "<<", ">>", "<=", ">=", "==", "!=":
		return at == 0 || p.text[at-1] != p.text[at]
	}
	return false
}

// close ends a bracket: what is plain was not worth writing down.
func (p *plainer) close(word []byte) {
	n := len(p.open) - 1
	b, outer := p.open[n], &p.open[n-1]
	p.open = p.open[:n]
	if b.atom {
		b.items++
		b.targets = b.targets && b.isTarget
	}
	isEmpty := !b.atom && b.items == 0 && b.colons == 0
	if !b.plain || b.operand || b.dot || b.op == '[' && b.postfix && isEmpty || b.pairs > 0 && b.pairs != b.items {
		p.emit(word)
		outer.plain = false
		outer.isTarget = b.postfix && b.op == '[' || !b.postfix && b.op != '{'
		outer.atom, outer.isName, outer.isStr, outer.operand, outer.dot = true, false, false, false, false
		return
	}
	p.out = p.out[:b.at]
	if b.postfix {
		outer.isName, outer.isStr, outer.isTarget = false, false, b.op == '['
		return
	}
	p.gap = false
	p.atom(outer, nameAtom)
	outer.isName, outer.isTarget = false, b.targets
}

func isConstant(word []byte) bool {
	return string(word) == "None" || string(word) == "True" || string(word) == "False"
}

func isKeyword(word []byte) bool {
	switch string(word) {
	case "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
		"finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
		"return", "try", "while", "with", "yield":
		return true
	}
	return false
}
