package pysyntax

import "strings"

// A converter makes statements and expressions of a tree. Every method leaves it at
// the node where it found it. Expressions without a call are taken from the text
// alone.
type converter struct {
	text string // names are parts of it, and cost no memory of their own
	flat []flatNode
	at   int          // the node at hand
	err  *SyntaxError // the first

	stmts  slab[Stmt]
	blocks slab[Block]
	nodes  slab[Node]
}

// A slab hands out values of a tree, which is kept or dropped as a whole: one by one,
// they cost the collector much more.
type slab[T any] []T

func (s *slab[T]) add(v T) *T {
	if n := cap(*s); len(*s) == n {
		*s = make([]T, 0, min(max(2*n, 4), 64))
	}
	*s = append(*s, v)
	return &(*s)[len(*s)-1]
}

// each calls f at each child of the node at hand in turn.
func (c *converter) each(f func(sym symbol, at Span)) {
	parent := c.at
	for c.at++; c.at < int(c.flat[parent].after); c.at = int(c.flat[c.at].after) {
		n := &c.flat[c.at]
		f(symbol(n.symbol), Span{int(n.start), int(n.end)})
	}
	c.at = parent
}

func (c *converter) fail(offset int, message string) {
	if c.err == nil {
		c.err = &SyntaxError{offset, message}
	}
}

// tooDeep stops the descent into hostile input.
func (c *converter) tooDeep(depth int, at Span) bool {
	if depth > maxDepth {
		c.fail(at.Start, "nested too deeply")
	}
	return c.err != nil
}

// block converts the statements below a module or block node.
func (c *converter) block(depth int) []*Stmt {
	var out []*Stmt
	c.each(func(sym symbol, at Span) {
		if c.tooDeep(depth, at) {
			return
		}
		out = append(out, c.stmt(sym, at, depth))
	})
	return out
}

// undefined is the definition of statements that define nothing.
var undefined Definition

func (c *converter) stmt(sym symbol, at Span, depth int) *Stmt {
	s := c.stmts.add(Stmt{Span: at, Header: at.Start, Definition: &undefined})
	switch sym {
	case symImport, symImportFrom, symFuture, symDecorated, symFunction, symClass:
		s.Definition = &Definition{}
	}
	switch sym {
	case symExpressionStatement:
		c.exprStatement(s, depth)
	case symReturn:
		s.Kind = Return
		s.Exprs = c.exprs(depth)
	case symRaise:
		s.Kind = Raise
		s.Exprs = c.exprs(depth)
	case symBreak:
		s.Kind = Break
	case symContinue:
		s.Kind = Continue
	case symImport, symImportFrom, symFuture:
		c.importStatement(s, sym)
	case symPython2:
		c.fail(at.Start, "statement of Python 2")
	case symDecorated:
		c.each(func(sym symbol, at Span) {
			switch sym {
			case symDecorator:
				s.Decorators = append(s.Decorators, c.exprs(depth)...)
			case symFunction, symClass:
				s.Header = at.Start
				c.definition(s, sym, depth)
			}
		})
	case symFunction, symClass:
		c.definition(s, sym, depth)
	case symIf, symFor, symWhile, symTry, symWith:
		c.compound(s, sym, depth)
	case symMatch:
		s.Kind = Match
		c.each(func(sym symbol, at Span) {
			switch sym {
			case symColon:
			case symBlock:
				c.cases(s, depth)
			case symCase:
				s.Blocks = append(s.Blocks, c.caseBlock(depth))
			default:
				s.Exprs = append(s.Exprs, c.expr(sym, at, depth+1))
			}
		})
	default:
		s.Exprs = c.exprs(depth)
	}
	return s
}

// exprStatement converts an assignment or an expression that stands alone.
func (c *converter) exprStatement(s *Stmt, depth int) {
	s.Kind = Expr
	c.each(func(sym symbol, at Span) {
		switch sym {
		case symAssignment:
			s.Kind = Assign
			c.assignment(s, depth)
		default:
			s.Exprs = append(s.Exprs, c.expr(sym, at, depth+1))
		}
	})
}

// assignment converts "a = b", "a: int = b", "a += b" and chains "a = b = c".
func (c *converter) assignment(s *Stmt, depth int) {
	left := true
	c.each(func(sym symbol, at Span) {
		switch {
		case sym == symAssignment:
			c.assignment(s, depth+1)
		case sym == symType || sym == symEquals || sym == symColon:
		case left:
			s.Targets = append(s.Targets, c.expr(sym, at, depth+1))
			left = false
		default:
			s.Exprs = append(s.Exprs, c.expr(sym, at, depth+1))
		}
	})
}

func (c *converter) importStatement(s *Stmt, sym symbol) {
	s.Kind = FromImport
	switch sym {
	case symImport:
		s.Kind = Import
	case symFuture:
		s.Module = "__future__"
	}
	c.each(func(sym symbol, at Span) {
		switch sym {
		case symRelative, symDottedName:
			if s.Kind == FromImport && s.Module == "" {
				s.Module = compact(c.text[at.Start:at.End])
				return
			}
			s.Imports = append(s.Imports, Imported{Span: at, Name: compact(c.text[at.Start:at.End])})
		case symAliased:
			i := Imported{Span: at}
			c.each(func(sym symbol, at Span) {
				switch sym {
				case symDottedName:
					i.Name = compact(c.text[at.Start:at.End])
				case symIdentifier:
					i.As = c.text[at.Start:at.End]
				}
			})
			s.Imports = append(s.Imports, i)
		case symWildcard:
			s.Imports = append(s.Imports, Imported{Span: at, Name: "*"})
		}
	})
}

// compact removes the white space that may stand inside a dotted name.
func compact(name string) string {
	if strings.ContainsAny(name, " \t\f\r\n\\") {
		return strings.Join(strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" \t\f\r\n\\", r) }), "")
	}
	return name
}

func (c *converter) definition(s *Stmt, sym symbol, depth int) {
	s.Kind = FuncDef
	if sym == symClass {
		s.Kind = ClassDef
	}
	c.each(func(sym symbol, at Span) {
		switch sym {
		case symAsync:
			s.Async = true
		case symIdentifier:
			if s.Name == "" {
				s.Name = c.text[at.Start:at.End]
			}
		case symParameters:
			s.Params = c.params(depth)
		case symArguments:
			for _, a := range c.args(depth) {
				s.Exprs = append(s.Exprs, a.Value)
			}
		case symBlock:
			s.Blocks = append(s.Blocks, c.suite(Body, at, depth))
		}
	})
}

func (c *converter) params(depth int) []Param {
	var out []Param
	c.each(func(sym symbol, at Span) {
		switch sym {
		case symColon, symEquals:
		case symIdentifier:
			out = append(out, Param{Name: c.text[at.Start:at.End]})
		default: // with a default, a type, stars, or several of these
			p := Param{}
			value := false
			c.each(func(sym symbol, at Span) {
				switch {
				case sym == symEquals:
					value = true
				case sym == symType || sym == symColon:
				case value:
					p.Default = c.expr(sym, at, depth+1)
				case p.Name == "":
					p.Name = strings.TrimLeft(c.text[at.Start:at.End], "* ")
				}
			})
			if p.Name != "" {
				out = append(out, p)
			}
		}
	})
	return out
}

// suite converts the block that the cursor stands on.
func (c *converter) suite(clause Clause, at Span, depth int) *Block {
	return c.blocks.add(Block{Span: at, Clause: clause, Body: c.block(depth + 1)})
}

func (c *converter) compound(s *Stmt, sym symbol, depth int) {
	s.Kind = map[symbol]StmtKind{symIf: If, symFor: For, symWhile: While, symTry: Try, symWith: With}[sym]
	var cond *Node
	clause := Body
	c.each(func(sym symbol, at Span) {
		switch sym {
		case symColon:
		case symAsync:
			s.Async = true
		case symBlock:
			b := c.suite(clause, at, depth)
			b.Cond = cond
			s.Blocks = append(s.Blocks, b)
		case symElif:
			s.Blocks = append(s.Blocks, c.clause(Elif, at, depth))
		case symElse:
			s.Blocks = append(s.Blocks, c.clause(Else, at, depth))
		case symExcept:
			s.Blocks = append(s.Blocks, c.clause(Except, at, depth))
		case symFinally:
			s.Blocks = append(s.Blocks, c.clause(Finally, at, depth))
		case symWithClause:
			c.withItems(s, depth)
		default:
			e := c.expr(sym, at, depth+1)
			switch {
			case s.Kind == If || s.Kind == While:
				cond = e
				s.Exprs = append(s.Exprs, e)
			case s.Kind == For && len(s.Targets) == 0:
				s.Targets = append(s.Targets, e)
			default:
				s.Exprs = append(s.Exprs, e)
			}
		}
	})
}

// clause converts an elif, else, except or finally.
func (c *converter) clause(clause Clause, at Span, depth int) *Block {
	b := c.blocks.add(Block{Span: at, Clause: clause})
	var head []*Node
	c.each(func(sym symbol, at Span) {
		switch sym {
		case symColon:
		case symBlock:
			b.Span = at
			b.Body = c.block(depth + 1)
		default:
			head = append(head, c.expr(sym, at, depth+1))
		}
	})
	if clause == Elif && len(head) > 0 {
		b.Cond = head[0]
	}
	return b
}

func (c *converter) cases(s *Stmt, depth int) {
	c.each(func(sym symbol, at Span) {
		if sym == symCase {
			s.Blocks = append(s.Blocks, c.caseBlock(depth+1))
		}
	})
}

// caseBlock converts a case of a match statement. Its patterns hold no calls
// that run (Point(x=0) only looks like one) and are left out.
func (c *converter) caseBlock(depth int) *Block {
	b := c.blocks.add(Block{Clause: Case})
	c.each(func(sym symbol, at Span) {
		if sym == symBlock {
			b.Span = at
			b.Body = c.block(depth + 1)
		}
	})
	return b
}

func (c *converter) withItems(s *Stmt, depth int) {
	c.each(func(sym symbol, at Span) {
		if sym != symWithItem {
			return
		}
		c.each(func(sym symbol, at Span) {
			switch sym {
			case symAsPattern:
				c.each(func(sym symbol, at Span) {
					switch sym {
					case symAsTarget:
						s.Targets = append(s.Targets, c.dotted(at))
					default:
						s.Exprs = append(s.Exprs, c.expr(sym, at, depth+1))
					}
				})
			default:
				s.Exprs = append(s.Exprs, c.expr(sym, at, depth+1))
			}
		})
	})
}

// exprs converts every expression below the node at hand.
func (c *converter) exprs(depth int) []*Node {
	var out []*Node
	c.each(func(sym symbol, at Span) {
		if sym != symColon && sym != symEquals {
			out = append(out, c.expr(sym, at, depth+1))
		}
	})
	return out
}

func (c *converter) expr(sym symbol, at Span, depth int) *Node {
	if c.tooDeep(depth, at) {
		return c.nodes.add(Node{Span: at})
	}
	text := c.text[at.Start:at.End]
	switch sym {
	case symIdentifier, symDottedName:
		return c.dotted(at)
	case symString:
		if s, ok := plainString(text); ok {
			return c.nodes.add(Node{Span: at, Kind: String, Name: s})
		}
	case symAttribute:
		if n := c.dotted(at); n.Kind != Opaque {
			return n
		}
		n := c.nodes.add(Node{Span: at, Kind: Attr})
		c.each(func(sym symbol, at Span) {
			switch {
			case n.X == nil:
				n.X = c.expr(sym, at, depth+1)
			case sym == symIdentifier:
				n.Name = c.text[at.Start:at.End]
			}
		})
		if n.X == nil || n.Name == "" {
			return c.nodes.add(Node{Span: at})
		}
		return n
	case symCall:
		n := c.nodes.add(Node{Span: at, Kind: Call})
		c.each(func(sym symbol, at Span) {
			switch {
			case sym == symArguments:
				n.Args = c.args(depth + 1)
			case n.X == nil:
				n.X = c.expr(sym, at, depth+1)
			default: // a generator expression as the only argument
				n.Args = append(n.Args, Arg{Value: c.expr(sym, at, depth+1)})
			}
		})
		if n.X == nil {
			return c.nodes.add(Node{Span: at})
		}
		return n
	case symLambda:
		n := c.nodes.add(Node{Span: at, Kind: Lambda})
		body := false
		c.each(func(sym symbol, at Span) {
			switch {
			case sym == symColon:
				body = true
			case body:
				n.X = c.expr(sym, at, depth+1)
			}
		})
		return n
	case symAwait:
		n := c.nodes.add(Node{Span: at, Kind: Await})
		c.each(func(sym symbol, at Span) {
			n.X = c.expr(sym, at, depth+1)
		})
		return n
	case symParenthesized:
		var inner *Node
		c.each(func(sym symbol, at Span) {
			inner = c.expr(sym, at, depth+1)
		})
		if inner != nil {
			return inner
		}
		return c.nodes.add(Node{Span: at})
	}
	opaque := c.nodes.add(Node{Span: at})
	if strings.IndexByte(text, '(') >= 0 {
		c.each(func(sym symbol, at Span) {
			if sym == symColon || sym == symEquals || sym == symType {
				return
			}
			if k := c.expr(sym, at, depth+1); k.Kind != Opaque || len(k.Args) > 0 {
				opaque.Args = append(opaque.Args, Arg{Value: k})
			}
		})
	}
	return opaque
}

// args converts the argument list that the cursor stands on.
func (c *converter) args(depth int) []Arg {
	var out []Arg
	c.each(func(sym symbol, at Span) {
		switch sym {
		case symKeyword:
			a := Arg{}
			value := false
			c.each(func(sym symbol, at Span) {
				switch {
				case sym == symEquals:
					value = true
				case value:
					a.Value = c.expr(sym, at, depth+1)
				default:
					a.Name = c.text[at.Start:at.End]
				}
			})
			if a.Value != nil {
				out = append(out, a)
			}
		default:
			// The grammar takes *f(x) for a call of the list splat *f: such an
			// argument begins with the star as well.
			star := sym == symListSplat || sym == symDictSplat || c.text[at.Start] == '*'
			out = append(out, Arg{Star: star, Value: c.expr(sym, at, depth+1)})
		}
	})
	return out
}

// dotted makes a chain of names of the text at, or an opaque node if it is
// anything else.
func (c *converter) dotted(at Span) *Node {
	text := c.text
	var n *Node
	for i := at.Start; ; {
		from := i
		for i < at.End && isNamePart(text[i]) {
			i++
		}
		if i == from || isDigit(text[from]) {
			return c.nodes.add(Node{Span: at})
		}
		name := text[from:i]
		if n == nil {
			n = c.nodes.add(Node{Span: Span{from, i}, Kind: Name, Name: name})
		} else {
			n = c.nodes.add(Node{Span: Span{at.Start, i}, Kind: Attr, Name: name, X: n})
		}
		if i == at.End {
			return n
		}
		if text[i] != '.' {
			return c.nodes.add(Node{Span: at})
		}
		i++
	}
}

// plainString returns what stands between the quotes of a single literal.
func plainString(text string) (string, bool) {
	i := strings.IndexAny(text, `"'`)
	if i < 0 || strings.ContainsAny(text[:i], "fFtT") {
		return "", false
	}
	body := text[i:]
	n := 1
	if len(body) >= 6 && body[0] == body[1] && body[0] == body[2] {
		n = 3
	}
	if len(body) < 2*n {
		return "", false
	}
	return body[n : len(body)-n], true
}
