// Package pysyntax reads Python: it gives the statements of a file, their
// blocks and the calls in them as plain Go values, and says whether a file is
// Python at all.
//
// It is the only importer of tree-sitter's Python grammar. A tree never leaves
// this package: it is copied out and closed before [Parse] returns, so a File
// may be kept, shared and read by several goroutines.
//
// The grammar (tree-sitter-python 0.23, of 2024) is younger than Python 3.12 and
// older than 3.13. Syntax that came later is rewritten to older syntax of the
// same length before the grammar sees it, so offsets stay true: t-strings (PEP
// 750), except without brackets (PEP 758), defaults of type parameters (PEP
// 696), unpacking in comprehensions (PEP 798), lazy imports (PEP 810). What the
// grammar accepts and Python does not, such as a wrong indentation, is checked
// here; the check is not complete, and Parse may accept a file that Python
// rejects for another reason than its layout.
package pysyntax

// A File is a parsed Python file.
type File struct {
	Src      []byte // the whole file; a caller that has what it needs may set it to nil
	Body     []*Stmt
	Comments []Span // in order
	Omitted  []Span // what ParseWanted left out, in order

	read string // what the grammar read
	cuts *condensed
}

// A Span is the bytes [Start, End) of a file.
type Span struct{ Start, End int }

// A StmtKind is a kind of statement.
type StmtKind byte

const (
	Other  StmtKind = iota // pass, break, global, del, assert, type and the like
	Expr                   // an expression that stands alone
	Assign                 // also augmented and annotated
	Return
	Raise
	Break
	Continue
	Import     // import a.b as c
	FromImport // from a import b as c
	FuncDef
	ClassDef
	If
	For
	While
	Try
	With
	Match
)

// A Stmt is one statement. Fields that its kind has no use for are empty.
type Stmt struct {
	Span
	Kind    StmtKind
	Async   bool     // def, for, with
	Targets []*Node  // assigned names: Assign, For, With (as)
	Exprs   []*Node  // evaluated by the statement itself, in order; of a class its bases
	Blocks  []*Block // suites of a compound statement

	// Header is where the statement begins without its decorators.
	Header int

	*Definition // never nil
}

// A Definition is what only few statements have: most of a tree is others.
type Definition struct {
	Name       string     // def, class
	Decorators []*Node    // def, class
	Params     []Param    // def
	Imports    []Imported // Import, FromImport
	Module     string     // FromImport: "a.b", with leading dots if relative
}

// A Clause is what a block belongs to.
type Clause byte

const (
	Body    Clause = iota // of def, class, if, for, while, try, with
	Elif                  // with a condition
	Else                  // of if, for, while, try
	Except                // also except*
	Finally               //
	Case                  // of match
)

// A Block is a suite of statements.
type Block struct {
	Span
	Clause Clause
	Cond   *Node // of If's Body, While's Body and Elif
	Body   []*Stmt
}

// A Param is a parameter of a function.
type Param struct {
	Name    string
	Default *Node // nil if there is none
}

// An Imported is one name of an import statement.
type Imported struct {
	Span        // the name with its alias
	Name string // "a.b", or "*"
	As   string // "" without an alias
}

// A NodeKind is a kind of expression.
type NodeKind byte

const (
	Opaque NodeKind = iota // anything else; Args are what it contains as far as it holds calls
	Name                   // an identifier, Name
	Attr                   // X.Name
	Call                   // X(Args...)
	Lambda                 // lambda …: X
	String                 // a literal without replacement fields; Name is its text between the quotes, escapes as written
	Await                  // await X
)

// A Node is an expression. An expression that contains no call and is no dotted
// name is Opaque without Args: its bytes are all that is known of it.
type Node struct {
	Span
	Kind NodeKind
	Name string
	X    *Node
	Args []Arg
}

// An Arg is one argument of a call. Star is set for *x and **x.
type Arg struct {
	Name  string // keyword, or ""
	Star  bool
	Value *Node
}

// Arg returns the argument with the keyword name, or else the positional one at
// index, or nil. Behind a starred argument, positions are not known. What is no
// call has no arguments.
func (n *Node) Arg(index int, name string) *Node {
	if n.Kind != Call {
		return nil
	}
	at := 0
	for _, a := range n.Args {
		switch {
		case a.Name != "":
			if a.Name == name {
				return a.Value
			}
		case a.Star:
			at = -1
		case at >= 0:
			if at == index {
				return a.Value
			}
			at++
		}
	}
	return nil
}

// Dotted returns the text of a chain of names such as "torch.distributed.init",
// or "" if n is anything else.
func (n *Node) Dotted() string {
	switch {
	case n == nil:
		return ""
	case n.Kind == Name:
		return n.Name
	case n.Kind == Attr:
		if x := n.X.Dotted(); x != "" {
			return x + "." + n.Name
		}
	}
	return ""
}

// Walk calls f for n and every node below it, outer ones first. Where f returns
// false, nodes below are left out.
func (n *Node) Walk(f func(*Node) bool) {
	if n == nil || !f(n) {
		return
	}
	n.X.Walk(f)
	for _, a := range n.Args {
		a.Value.Walk(f)
	}
}

// ContainsWord reports whether a word of text, a maximal run of letters, digits
// and underscores, is wanted.
func ContainsWord(text []byte, wanted func(word []byte) bool) bool {
	for i := 0; i < len(text); {
		start := i
		for i < len(text) && isNamePart(text[i]) {
			i++
		}
		if i == start {
			i++
		} else if wanted(text[start:i]) {
			return true
		}
	}
	return false
}

// Text returns the source of a span. After ParseWanted it is without comments
// and with a 0 for each run that was left out, and does not need Src.
func (f *File) Text(s Span) string { return f.read[f.cuts.offset(s.Start):f.cuts.offset(s.End)] }

// Kept returns the text that ParseWanted did not leave out.
func (f *File) Kept() string { return f.read }

// Position returns line and column of an offset, both from 1, the column in
// bytes. A byte order mark counts as no column.
func (f *File) Position(offset int) (line, column int) { return Position(f.Src, offset) }
