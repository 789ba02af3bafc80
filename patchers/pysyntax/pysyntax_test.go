package pysyntax

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, src string) (*File, error) {
	t.Helper()
	p := NewParser()
	defer p.Close()
	return p.Parse(context.Background(), []byte(src))
}

// outline prints what Parse makes of a file, one statement a line.
func outline(f *File) string {
	var b strings.Builder
	var stmts func(indent string, list []*Stmt)
	node := func(n *Node) string { return sketch(f, n) }
	stmts = func(indent string, list []*Stmt) {
		for _, s := range list {
			fmt.Fprintf(&b, "%s%s", indent, kindNames[s.Kind])
			if s.Async {
				b.WriteString(" async")
			}
			if s.Name != "" {
				b.WriteString(" " + s.Name)
			}
			for _, p := range s.Params {
				b.WriteString(" " + p.Name)
				if p.Default != nil {
					b.WriteString("=" + node(p.Default))
				}
			}
			for _, d := range s.Decorators {
				b.WriteString(" @" + node(d))
			}
			if s.Module != "" {
				b.WriteString(" from " + s.Module)
			}
			for _, i := range s.Imports {
				b.WriteString(" " + i.Name)
				if i.As != "" {
					b.WriteString(">" + i.As)
				}
			}
			for _, n := range s.Targets {
				b.WriteString(" " + node(n) + " :=")
			}
			for _, n := range s.Exprs {
				b.WriteString(" " + node(n))
			}
			b.WriteString("\n")
			for _, bl := range s.Blocks {
				fmt.Fprintf(&b, "%s %s", indent, [...]string{"body", "elif", "else", "except", "finally", "case"}[bl.Clause])
				if bl.Cond != nil {
					b.WriteString(" " + node(bl.Cond))
				}
				b.WriteString("\n")
				stmts(indent+"  ", bl.Body)
			}
		}
	}
	stmts("", f.Body)
	return b.String()
}

var kindNames = [...]string{"other", "expr", "assign", "return", "raise", "break", "continue", "import", "from", "def", "class", "if", "for", "while", "try", "with", "match"}

func sketch(f *File, n *Node) string {
	if n == nil {
		return "nil"
	}
	switch n.Kind {
	case Name:
		return n.Name
	case Attr:
		return sketch(f, n.X) + "." + n.Name
	case Call:
		var args []string
		for _, a := range n.Args {
			s := sketch(f, a.Value)
			if a.Name != "" {
				s = a.Name + "=" + s
			}
			if a.Star {
				s = "*" + s
			}
			args = append(args, s)
		}
		return sketch(f, n.X) + "(" + strings.Join(args, ",") + ")"
	case Lambda:
		return "lambda:" + sketch(f, n.X)
	case String:
		return fmt.Sprintf("%q", n.Name)
	case Await:
		return "await:" + sketch(f, n.X)
	}
	var kids []string
	for _, k := range n.Args {
		kids = append(kids, sketch(f, k.Value))
	}
	return "{" + strings.Join(kids, " ") + "}"
}

func TestParse(t *testing.T) {
	tests := []struct{ name, src, want string }{
		{"imports", "import a.b as c, d\nfrom . import e\nfrom ..f.g import (h as i,\n  j)\nfrom k import *\nfrom __future__ import x\n",
			"import a.b>c d\nfrom from . e\nfrom from ..f.g h>i j\nfrom from k *\nfrom from __future__ x\n"},
		{"calls", "f(a, *b, k=g(1), **c).h.i(lambda: j())\n", "expr f(a,*{},k=g({}),*{}).h.i(lambda:j())\n"},
		{"assignments", "a = b = f()\nc: int = g()\nd += h()\ne: int\n", "assign a := b := f()\nassign c := g()\nassign d := h()\nassign e :=\n"},
		{"def", "@a.b(c())\n@d\nasync def f(x, y: int = g(), *z, w=1, **k) -> T:\n  return x\n",
			"def async f x y=g() z w={} k @a.b(c()) @d\n body\n  return x\n"},
		{"class", "class A(B, metaclass=C):\n  def m(self): pass\n", "class A B C\n body\n  def m self\n   body\n    other\n"},
		{"if", "if a():\n  b()\nelif c:\n  d()\nelse:\n  e()\n", "if a()\n body a()\n  expr b()\n elif c\n  expr d()\n else\n  expr e()\n"},
		{"loops", "for x, y in f():\n  break\nelse:\n  continue\nwhile True:\n  pass\n",
			"for {} := f()\n body\n  break\n else\n  continue\nwhile {}\n body {}\n  other\n"},
		{"try", "try:\n  a()\nexcept E as e:\n  b()\nexcept* F:\n  pass\n",
			"try\n body\n  expr a()\n except\n  expr b()\n except\n  other\n"},
		{"finally", "try:\n  a()\nfinally:\n  raise E(f())\n", "try\n body\n  expr a()\n finally\n  raise E(f())\n"},
		{"with", "with a() as b, c():\n  d()\n", "with b := a() c()\n body\n  expr d()\n"},
		{"with brackets", "with (a() as b, c() as d):\n  d()\n", "with b := d := a() c()\n body\n  expr d()\n"},
		{"match", "match f():\n  case [A(x=1), b]:\n    g()\n  case _:\n    h()\n", "match f()\n case\n  expr g()\n case\n  expr h()\n"},
		{"one line", "if a: b(); c()\n", "if a\n body a\n  expr b()\n  expr c()\n"},
		{"parentheses, await, strings", "(await (f)())\nx = 'a' \"b\"\ny = r'c'\nz = f'{g()}'\n", "expr await:f()\nassign x := {}\nassign y := \"c\"\nassign z := {{g()}}\n"},
		{"nested in expressions", "[f(x) for x in g() if h()]\n{a: b(c)}\nd and e()\n", "expr {f(x) {x g()} {h()}}\nexpr {{a b(c)}}\nexpr {d e()}\n"},
		{"spread over lines", "torch \\\n  .distributed.init()\n(a\n .b\n .c())\n", "expr torch.distributed.init()\nexpr a.b.c()\n"},
		{"splat call", "f(*g(x))\n", "expr f(*{g(x)})\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parse(t, tt.src)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, outline(f)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Syntax newer than the grammar is read, and calls keep their offsets.
func TestNewSyntax(t *testing.T) {
	for name, src := range map[string]string{
		"PEP 646 star index":           "x[*f()]\ninit()\n",
		"PEP 654 except*":              "try:\n    a()\nexcept* A:\n    init()\n",
		"PEP 695 type parameters":      "def f[T: int, *Ts, **P](x: T) -> T:\n    init()\ntype X[T] = list[T]\n",
		"PEP 696 defaults":             "class A[T = int, U = dict[str, int]]:\n    def f[V = list[T]](self): init()\n",
		"PEP 701 nested quotes":        "print(f\"{x[\"a\"]} {f'{y}'}\")\ninit()\n",
		"PEP 750 t-string":             "a = t'{x} {y!r:>{w}}'\nb = rt\"{z}\\d\"\ninit()\n",
		"PEP 758 bare except":          "try:\n    a()\nexcept A, B:\n    init()\n",
		"PEP 758 except*":              "try:\n    a()\nexcept* A, B.c:\n    init()\n",
		"PEP 798 unpacking":            "a = [*x for x in y]\nb = {**d for d in e}\nc = (*x for x in y)\ninit()\n",
		"PEP 810 lazy import":          "if a:\n    lazy import x.y\n    lazy from x import y\ninit()\n",
		"lazy as a name":               "lazy = 1\nlazy.x()\ninit()\n",
		"parenthesised with":           "with (\n    a() as b,\n):\n    init()\n",
		"walrus, posonly, match names": "def f(a, /, b, *, c):\n    if (n := g()) > 1:\n        match = type = case = n\n    init()\n",
		"backslash in f-string":        "x = f'{\"\\n\".join(y)}' '\\N{BULLET}' f'\\N{BULLET}{z:\\n}'\ninit()\n",
		"form feed":                    "a()\n\f\ndef f():\n    init()\n",
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(t, src)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			walkStmts(f.Body, func(s *Stmt) {
				for _, n := range s.Exprs {
					n.Walk(func(n *Node) bool {
						found = found || n.Kind == Call && n.X.Dotted() == "init" && strings.HasPrefix(src[n.Start:], "init()")
						return true
					})
				}
			})
			if !found {
				t.Errorf("the call of init is lost in\n%s", outline(f))
			}
		})
	}
}

func walkStmts(list []*Stmt, f func(*Stmt)) {
	for _, s := range list {
		f(s)
		for _, b := range s.Blocks {
			walkStmts(b.Body, f)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	for name, tt := range map[string]struct{ src, at, message string }{
		"mixed tabs":             {"if a:\n        b()\n\tc()\n", "c()", "inconsistent use of tabs and spaces"},
		"blanks then tab":        {"if a:\n  if b:\n  \tc()\n\td()\n", "d()", "inconsistent use of tabs and spaces"},
		"unexpected indent":      {"a()\n  b()\n", "b()", "unexpected indent"},
		"unmatched dedent":       {"if a:\n    b()\n  c()\n", "c()", "unindent does not match"},
		"no block":               {"def f():\nx = 1\n", "x = 1", "expected an indented block"},
		"no block at the end":    {"def f():\n  # nothing\n", "", "expected an indented block"},
		"unclosed bracket":       {"f(a\nb = 1\n", "(a", "never closed"},
		"wrong bracket":          {"f(a]\n", "]\n", "unmatched"},
		"unterminated string":    {"a = 'b\n", "'b", "unterminated string"},
		"unterminated triple":    {"a = '''b\n", "'''b", "unterminated string"},
		"lone carriage return":   {"a()\rb()\n", "\rb", "carriage return"},
		"one in a comment":       {"a() # b\rc()\n", "\rc", "carriage return"},
		"one in a string":        {"a('b\rc')\n", "\rc", "carriage return"},
		"NUL":                    {"a()\n\x00", "\x00", "control character"},
		"Python 2":               {"print 'a'\n", "print", "Python 2"},
		"conflict marker":        {"<<<<<<< HEAD\na()\n", "<", "not valid Python"},
		"magic":                  {"%matplotlib inline\n", "%", "not valid Python"},
		"missing operand":        {"a = b +\n", "a", "not valid Python"},
		"unclosed replacement":   {"f'{a'\n", "'\n", "unterminated"},
		"text after the \\ line": {"a = \\ b\n", "\\ b", "line continuation"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(t, tt.src)
			serr, ok := err.(*SyntaxError)
			if !ok {
				t.Fatalf("got %v, %v", f, err)
			}
			if !strings.HasPrefix(tt.src[serr.Offset:], tt.at) || !strings.Contains(serr.Message, tt.message) {
				t.Errorf("%q at %q, want %q at %q", serr.Message, tt.src[serr.Offset:], tt.message, tt.at)
			}
		})
	}
}

// Hostile input ends in an error or a tree, soon, and never in a crash.
func TestHostileInput(t *testing.T) {
	for name, src := range map[string]string{
		"brackets":     strings.Repeat("(", 100_000) + strings.Repeat(")", 100_000),
		"calls":        "f" + strings.Repeat("()", 100_000),
		"attributes":   "a" + strings.Repeat(".b()", 50_000),
		"operators":    "a" + strings.Repeat("+f()", 100_000),
		"unary":        strings.Repeat("not ", 100_000) + "f()",
		"unclosed":     strings.Repeat("def f(", 50_000),
		"f-strings":    strings.Repeat("f'{", 50_000),
		"blocks":       strings.Repeat("if a:", 10_000),
		"dictionaries": "x = " + strings.Repeat("{1:", 50_000) + "f()" + strings.Repeat("}", 50_000),
	} {
		t.Run(name, func(t *testing.T) { parse(t, src) })
	}
	if _, err := parse(t, strings.Repeat("#\n", MaxSize)); err == nil {
		t.Error("a file above MaxSize was parsed")
	}
}

// The lexer and the layout check accept what CPython accepts: its own library.
func TestStandardLibrary(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 not found")
	}
	out, err := exec.Command(python, "-c", "import os, glob; d = os.path.dirname(os.__file__); print('\\n'.join(sorted(glob.glob(d + '/*.py') + glob.glob(d + '/asyncio/*.py') + glob.glob(d + '/multiprocessing/*.py') + glob.glob(d + '/unittest/*.py'))))").Output()
	if err != nil {
		t.Fatal(err)
	}
	p := NewParser()
	defer p.Close()
	files := strings.Fields(string(out))
	if len(files) < 50 {
		t.Fatalf("only %d files", len(files))
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Parse(context.Background(), src); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPosition(t *testing.T) {
	src := []byte("\xef\xbb\xbfab\r\nü c\n")
	for _, tt := range []struct{ offset, line, column int }{{3, 1, 1}, {4, 1, 2}, {7, 2, 1}, {10, 2, 4}, {len(src), 3, 1}} {
		if l, c := Position(src, tt.offset); l != tt.line || c != tt.column {
			t.Errorf("Position(%d) = %d:%d, want %d:%d", tt.offset, l, c, tt.line, tt.column)
		}
	}
	if got := LineEnd(src, 3); got != 5 {
		t.Errorf("LineEnd = %d, want 5", got)
	}
}

var wanted = &Interest{
	Word: func(word []byte) bool { return string(word) == "wanted" },
	Definition: func(name []byte) string {
		if bytes.HasPrefix(name, []byte("test")) {
			return "test"
		}
		return ""
	},
	Module: func(name []byte) bool { return string(name) == "json" || string(name) == "torch.distributed" },
}

func TestKept(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"annotations", `
def f(a: int, *b: "str", c: List[int] = [1], d=lambda x: x, /, **e: T) -> Dict[str, int]:
    wanted()
`, `
def f(a, *b, c= [1], d=lambda x: x, /, **e) :
    wanted()
`},
		{"type parameters", `
def f[T: (int, str) = int](a: T, b):
    def g(c: T = wanted()) -> T:
        return 1
`, `
def f[T: (int, str)      ](a, b):
    def g(c= wanted()) :
        return 1
`},
		{"functions of no interest", `
def f(a: int = g()) -> T:
    return h
class C:
    def __init__(self, a):
        return 1
    def other(self):
        return 2
`, `
0
class C:
    def __init__():
        0
    0
`},
		{"decorators", `
@parametrize("a", [1, 2], ids=names)(b)
@f(wanted)
@plain
def test_a(a):
    wanted()
@register(key)
class C(Base):
    pass
`, `
@parametrize()()
@f(wanted)
@plain
def test_a(a):
    wanted()
@register()
class C(Base):
    0
`},
		{"one test stands for others", `
def test_called(a): pass

def test_first():
    pass
def test_second():
    pass
def test_named():
    pass
class TestA:
    def test_first(self):
        pass
    def test_second(self):
        pass
f = test_named
`, `
def test_called(a): pass

def test_first():
    0
0
def test_named():
    0
class TestA:
    def test_first():
        0
    0
0
`},
		{"imports", `
import os, json
import os.path as json
import json.decoder
import json.decoder as decoder
from a import (b, c as d, e,
    f, # f
    g as h)
from a import b, wanted
from .a import (  # a
    x, # x
    wanted, # w
    y, # y
)
from torch import (nn, distributed as td)
from mine import td
from mine import distributed
from many import *
wanted(e, h, os)
`, `
import os, json
import os.path as json
import json.decoder
import json.decoder as decoder
from a import (e,
    
    g as h)
from a import b, wanted
from .a import (  
    wanted)
from torch import (distributed as td)
from mine import td
0
from many import *
wanted(e, h, os)
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := NewParser()
			defer p.Close()
			f, err := p.ParseWanted(t.Context(), []byte(tt.src), wanted)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, f.Kept()); d != "" {
				t.Errorf("kept text (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseWanted(t *testing.T) {
	src := `import os, json  # a
import torch
from tools import (
    helper,  # b
    other,
)

@decorated  # c
def unused(a, b=[1]) -> int:  # d
    return compute(a)

def test_known():
    pass

class Empty(Base):  # e
    def method(self):
        return 1

# f
def main(x=helper):  # g
    y = compute(x)  # h
    if y == helper:
        y = 2
        wanted(y)# i
    else:
        y = 3
    torch = None
    z = f"{wanted(1)}"
    return y  # j
`
	p := NewParser()
	defer p.Close()
	f, err := p.ParseWanted(t.Context(), []byte(src), wanted)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var visit func(list []*Stmt, indent string)
	visit = func(list []*Stmt, indent string) {
		for _, s := range list {
			text := src[s.Header:s.End]
			if len(s.Blocks) > 0 {
				text, _, _ = strings.Cut(text, "\n")
			} else if slices.Contains(f.Omitted, s.Span) {
				text = "..."
			}
			got = append(got, indent+text)
			for _, b := range s.Blocks {
				visit(b.Body, indent+"  ")
			}
		}
	}
	visit(f.Body, "")
	want := []string{
		"import os, json",
		"import torch", // main binds it anew
		"from tools import (\n    helper,  # b\n    other,\n)",
		"...",
		"def test_known():",
		"  ...",
		"class Empty(Base):  # e",
		"  ...",
		"def main(x=helper):  # g",
		"  ...",
		"  if y == helper:",
		"    ...",
		"    wanted(y)",
		"    ...",
		"  torch = None",
		`  z = f"{wanted(1)}"`,
		"  return y",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("statements (-want +got):\n%s", d)
	}
}
