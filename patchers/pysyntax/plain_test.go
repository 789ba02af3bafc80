package pysyntax

import (
	"context"
	"errors"
	"testing"
)

func TestPlain(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"x = a.b(c, d=1)[0]\n", "a = a\n"},
		{"# comment\n\nif a.b == 'x' 'y': # why\n\treturn(f(x))\n", "if a == '':\n\treturn a\n"},
		{"f(*a, **b, c=-d ** 2, e=x[1:, 2])\n", "a\n"},
		{"a.b, c[0] = {'k': [1, 2.5e3], **m}\n", "a, a = {'': [0, 2.5e3], **a}\n"},
		{"x = {1: a, 'b': (c, d)}\n", "a =a\n"},
		{"f(i for i in g(h))\n", "a(a for a in a)\n"},
		{"f(lambda y: y.z(1), not b)\n", "a(lambda a: a, not a)\n"},
		{"def f(a, b=c(d)): return a.b\n", "def f(a, b=c(d)): return a.b\n"},
		{"@a.b(c)\nclass C(D): pass\n", "@a\nclass C(D): pass\n"},
		{"print(f'{a.b(c)}', d.e)\n", "print(f'{a.b(c)}', d.e)\n"},
		{"log(f'{a.b(c)}', d.e)\n", "a(f'{a.b(c)}', a)\n"},
		{"x: List[int] = g(\n    1,\n)\n", "a: a = a\n"},
		{"(a.b, [c, d]) = e\n", "a = a\n"},
		{"if a:\n  b = c\n  d = e(f)\n  g()\ng()\nif a: b\nfor a in b:\n  c\n", "if a:\n  a = a\n  a\na\nif a: a\nfor a in a:\n  a\n"},
		{"g(a, f'{b}').c = d\n", "a(a, f'{b}').a = a\n"},
		{"f(x := a.b)\n", "a(a := a)\n"},
	} {
		src := []byte(test.text)
		tokens, err := lex(nil, src)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if got := string(plain(nil, src, tokens)); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}

// What the grammar refuses, Check refuses as well, though it shows less to the grammar.
func TestCheckIsStrict(t *testing.T) {
	p := NewParser()
	defer p.Close()
	for _, text := range []string{
		"f(x y)\n", "f(a,,b)\n", "f(a b=1)\n", "f(a.b=c)\n", "f(a[0]=c)\n", "f(16calc, 1)\n", "f(1 2)\n",
		"x = a.(b)\n", "x = a..b\n", "x[]\n", "x = y[]\n", "x = {a: b, c}\n", "x = {a:}\n", "x = [a=1]\n", "x = (a=1)\n",
		"f(a) = 1\n", "[''] = 1\n", "(a, f(b)) = 1\n", "x = f(a) = 1\n", "'' = 1\n", "f(a +)\n", "f(- , b)\n",
		"f(f'{a b}')\n", "x = f'{a b}'\n", "f(f(a) := 1)\n", "f(a =)\n", "f(a ! b)\n", "f(a = = b)\n", "x = *a *\n",
		"f(a == = b)\n", "None: int = 1\n", "x = a {b}\n", "f(a $ b)\n", "x = a ? b\n", "if a: b c\n", "return(a b)\n", "f(a).b(c) d\n",
		"x = 's' f'{a b}'\n", "f('a' f'{a b}', 1)\n", "global f(a)\n", "x = 'a\x00b'\n", "# \x00\n",
		"<<<<<<< HEAD\nx = 1\n", "f(a, b=1 c)\n", "f(*)\n", "f(a,\n  b\n  c)\n", "x = 'a' b\n",
	} {
		src := []byte(text)
		whole := false
		if tokens, err := lex(nil, src); err == nil {
			_, err := p.grammar.read(context.Background(), src, false)
			whole = err == nil && checkLayout(src, tokens) == nil
		}
		if whole {
			t.Errorf("%q: is in the grammar", text)
		}
		var serr *SyntaxError
		if err := p.Check(context.Background(), src); !errors.As(err, &serr) {
			t.Errorf("%q: got %v, want a syntax error", text, err)
		}
	}
}
