package pysyntax

import (
	"bytes"
	"fmt"
	"math"
)

// A tokenKind says what a token is. The lexer tells apart only what layout,
// comments and the masking of new syntax need.
type tokenKind byte

const (
	tokName    tokenKind = iota // identifier or keyword
	tokNumber                   // number literal
	tokString                   // whole string literal, prefix and quotes included
	tokOp                       // one byte of an operator or a bracket
	tokComment                  // from '#' to the end of the line
	tokNewline                  // end of a logical line
)

// A token is the bytes [start, end) of the source.
type token struct {
	kind       tokenKind
	dropped    bool  // see condenser
	depth      int16 // open brackets around the token
	name       int32 // see condenser
	start, end int
}

// A SyntaxError is a place that is not Python.
type SyntaxError struct {
	Offset  int // in bytes
	Message string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Message) }

// lex splits src into tokens. It understands what decides where statements
// begin and end (strings of all kinds, nested f-strings, brackets, comments,
// line continuation) and accepts any operator. Blank lines give no token.
//
// The tokens are appended to buf, so that its memory is used again.
func lex(buf []token, src []byte) ([]token, *SyntaxError) {
	l := lexer{src: src, tokens: buf}
	if err := l.run(); err != nil {
		return nil, err
	}
	return l.tokens, nil
}

type lexer struct {
	src      []byte
	at       int
	brackets []int // offsets of the open ones
	tokens   []token
}

func (l *lexer) add(kind tokenKind, start int) {
	l.tokens = append(l.tokens, token{kind: kind, depth: int16(min(len(l.brackets), math.MaxInt16)), start: start, end: l.at})
}

func (l *lexer) run() *SyntaxError {
	l.at = len(bom(l.src))
	for l.at < len(l.src) {
		if err := l.next(); err != nil {
			return err
		}
	}
	if n := len(l.brackets); n > 0 {
		at := l.brackets[n-1]
		return &SyntaxError{at, fmt.Sprintf("%q is never closed", l.src[at])}
	}
	l.endLine()
	return nil
}

// endLine ends the logical line, if there is anything on it.
func (l *lexer) endLine() {
	for i := len(l.tokens) - 1; i >= 0; i-- {
		switch l.tokens[i].kind {
		case tokComment:
			continue
		case tokNewline:
			return
		}
		l.add(tokNewline, l.at)
		return
	}
}

func (l *lexer) next() *SyntaxError {
	start, c := l.at, l.src[l.at]
	switch {
	case c == ' ' || c == '\t' || c == '\f':
		for l.at++; l.at < len(l.src) && l.src[l.at] == ' '; {
			l.at++
		}
	case c == '\n':
		if len(l.brackets) == 0 {
			l.endLine()
		}
		l.at++
	case c == '\r':
		if l.at+1 >= len(l.src) || l.src[l.at+1] != '\n' {
			return &SyntaxError{start, loneReturn}
		}
		l.at++
	case c == '\\':
		rest := l.src[l.at+1:]
		switch {
		case bytes.HasPrefix(rest, []byte("\n")):
			l.at += 2
		case bytes.HasPrefix(rest, []byte("\r\n")):
			l.at += 3
		default:
			return &SyntaxError{start, "unexpected character after the line continuation"}
		}
	case c == '#':
		if n := bytes.IndexByte(l.src[l.at:], '\n'); n >= 0 {
			l.at += n
			if l.src[l.at-1] == '\r' {
				l.at--
			}
		} else {
			l.at = len(l.src)
		}
		// To Python, a carriage return alone ends the line: code may follow.
		if n := bytes.IndexByte(l.src[start:l.at], '\r'); n >= 0 {
			return &SyntaxError{start + n, loneReturn}
		}
		l.add(tokComment, start)
	case c == '"' || c == '\'':
		return l.str(start)
	case isNameStart(c):
		for l.at < len(l.src) && isNamePart(l.src[l.at]) {
			l.at++
		}
		if l.at < len(l.src) && (l.src[l.at] == '"' || l.src[l.at] == '\'') && isPrefix(l.src[start:l.at]) {
			return l.str(start)
		}
		l.add(tokName, start)
	case isDigit(c) || c == '.' && l.at+1 < len(l.src) && isDigit(l.src[l.at+1]):
		for l.at < len(l.src) && (isNamePart(l.src[l.at]) || l.src[l.at] == '.' || isSign(l.src[l.at]) && isExponent(l.src[start:l.at])) {
			l.at++
		}
		l.add(tokNumber, start)
	case c == '(' || c == '[' || c == '{':
		l.at++
		l.add(tokOp, start)
		l.brackets = append(l.brackets, start)
	case c == ')' || c == ']' || c == '}':
		n := len(l.brackets) - 1
		if n < 0 || closing(l.src[l.brackets[n]]) != c {
			return &SyntaxError{start, fmt.Sprintf("unmatched %q", c)}
		}
		l.brackets = l.brackets[:n]
		l.at++
		l.add(tokOp, start)
	case c < ' ' || c == 0x7f:
		return &SyntaxError{start, fmt.Sprintf("unexpected control character %q", c)}
	default:
		l.at++
		l.add(tokOp, start)
	}
	return nil
}

// str reads the string literal whose prefix begins at start and whose opening
// quote is at l.at.
func (l *lexer) str(start int) *SyntaxError {
	prefix := bytes.ToLower(l.src[start:l.at])
	format := bytes.ContainsAny(prefix, "ft")
	raw := bytes.IndexByte(prefix, 'r') >= 0
	quote := l.src[l.at : l.at+1]
	if bytes.HasPrefix(l.src[l.at+1:], []byte{quote[0], quote[0]}) {
		quote = l.src[l.at : l.at+3]
	}
	l.at += len(quote)
	if err := l.strBody(start, quote, format, raw); err != nil {
		return err
	}
	l.add(tokString, start)
	return nil
}

// strBody reads up to and including the closing quote.
func (l *lexer) strBody(start int, quote []byte, format, raw bool) *SyntaxError {
	unterminated := &SyntaxError{start, "unterminated string"}
	for l.at < len(l.src) {
		rest := l.src[l.at:]
		switch c := rest[0]; {
		case bytes.HasPrefix(rest, quote):
			l.at += len(quote)
			return nil
		case c == '\\' && format && len(rest) > 1 && (rest[1] == '{' || rest[1] == '}'):
			l.at++ // the brace keeps its meaning
		case c == '\\': // the next byte stands for itself, also in a raw string
			l.at += min(2, len(rest))
			if bytes.HasPrefix(rest[1:], []byte("\r\n")) {
				l.at++
			}
		case c == '\n' && len(quote) == 1:
			return unterminated
		case c == '\r' && len(quote) == 1 && !bytes.HasPrefix(rest, []byte("\r\n")):
			return &SyntaxError{l.at, loneReturn}
		case format && c == '{':
			if bytes.HasPrefix(rest, []byte("{{")) {
				l.at += 2
				continue
			}
			if named(l.src[:l.at], raw) {
				l.at++
				continue
			}
			if err := l.field(start, quote, raw); err != nil {
				return err
			}
		default:
			for l.at++; l.at < len(l.src) && !endsRun[l.src[l.at]]; {
				l.at++
			}
		}
	}
	return unterminated
}

// endsRun tells the bytes of a string literal that can mean something.
var endsRun = [256]bool{'"': true, '\'': true, '\\': true, '\n': true, '\r': true, '{': true}

// named reports whether the brace that follows before belongs to \N{NAME}.
func named(before []byte, raw bool) bool {
	return !raw && bytes.HasSuffix(before, []byte(`\N`))
}

// field reads a replacement field of an f-string or t-string, from its opening
// brace to its closing one. Since Python 3.12 it may hold any expression, with
// strings in the outer quotes.
func (l *lexer) field(start int, quote []byte, raw bool) *SyntaxError {
	unterminated := &SyntaxError{start, "unterminated string"}
	inner := lexer{src: l.src, at: l.at + 1}
	for inner.at < len(l.src) {
		c := l.src[inner.at]
		top := len(inner.brackets) == 0
		switch {
		case top && c == '}':
			l.at = inner.at + 1
			return nil
		case top && c == ':' || top && c == '!' && !bytes.HasPrefix(l.src[inner.at:], []byte("!=")):
			l.at = inner.at + 1
			return l.formatSpec(start, quote, raw)
		case top && bytes.HasPrefix(l.src[inner.at:], quote) && len(quote) == 3:
			return unterminated
		default:
			if err := inner.next(); err != nil {
				return err
			}
		}
	}
	return unterminated
}

// formatSpec reads from behind the colon of a field to its closing brace.
func (l *lexer) formatSpec(start int, quote []byte, raw bool) *SyntaxError {
	for l.at < len(l.src) {
		rest := l.src[l.at:]
		switch c := rest[0]; {
		case bytes.HasPrefix(rest, quote), c == '\n' && len(quote) == 1:
			return &SyntaxError{start, "unterminated replacement field"}
		case c == '}':
			l.at++
			return nil
		case c == '{':
			if err := l.field(start, quote, raw); err != nil {
				return err
			}
		default:
			l.at++
		}
	}
	return &SyntaxError{start, "unterminated string"}
}

const loneReturn = "carriage return without a newline"

func bom(src []byte) []byte {
	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(src, mark) {
		return mark
	}
	return nil
}

func isDigit(c byte) bool     { return '0' <= c && c <= '9' }
func isNameStart(c byte) bool { return nameBytes[c] && !isDigit(c) }
func isNamePart(c byte) bool  { return nameBytes[c] }
func isSign(c byte) bool      { return c == '+' || c == '-' }

// nameBytes tells the bytes of names. Other letters than those of ASCII have none
// below 0x80.
var nameBytes = func() (t [256]bool) {
	for i := range t {
		c := byte(i)
		t[i] = c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80 || isDigit(c)
	}
	return t
}()

// isExponent reports whether a sign may follow number, as in 1e-5.
func isExponent(number []byte) bool {
	n := len(number)
	return n > 1 && number[n-1]|0x20 == 'e' && !bytes.HasPrefix(bytes.ToLower(number), []byte("0x"))
}

func closing(c byte) byte {
	switch c {
	case '(':
		return ')'
	case '[':
		return ']'
	}
	return '}'
}

// isPrefix reports whether name in front of a quote is a string prefix.
func isPrefix(name []byte) bool {
	switch string(bytes.ToLower(name)) {
	case "r", "b", "u", "f", "t", "br", "rb", "fr", "rf", "tr", "rt":
		return true
	}
	return false
}

// checkLayout applies the rules of Python's tokenizer for indentation: tabs and
// blanks must not be mixed so that their width matters, a block is indented
// under its header and nowhere else, and a dedent goes back to an outer level.
// The statements print and exec of Python 2 are refused as well, since the
// grammar takes them.
func checkLayout(src []byte, tokens []token) *SyntaxError {
	type level struct{ col, alt int } // tabs to 8, and tabs to 1
	stack := []level{{}}
	wantBlock := false
	for i := 0; i < len(tokens); i++ {
		if tokens[i].kind == tokComment {
			continue
		}
		first := tokens[i]
		var now level
		for _, c := range src[lineStart(src, first.start):first.start] {
			switch c {
			case ' ':
				now.col++
				now.alt++
			case '\t':
				now.col = (now.col/8 + 1) * 8
				now.alt++
			case '\f':
				now = level{}
			}
		}
		top := stack[len(stack)-1]
		if (now.col > top.col) != (now.alt > top.alt) || (now.col == top.col) != (now.alt == top.alt) {
			return &SyntaxError{first.start, "inconsistent use of tabs and spaces in indentation"}
		}
		switch {
		case now.col > top.col:
			if !wantBlock {
				return &SyntaxError{first.start, "unexpected indent"}
			}
			stack = append(stack, now)
		case wantBlock:
			return &SyntaxError{first.start, "expected an indented block"}
		case now.col < top.col:
			for len(stack) > 1 && stack[len(stack)-1].col > now.col {
				stack = stack[:len(stack)-1]
			}
			top = stack[len(stack)-1]
			if top.col != now.col {
				return &SyntaxError{first.start, "unindent does not match any outer indentation level"}
			}
			if top.alt != now.alt {
				return &SyntaxError{first.start, "inconsistent use of tabs and spaces in indentation"}
			}
		}
		if i+1 < len(tokens) && isPython2(src, first, tokens[i+1]) {
			return &SyntaxError{first.start, "statement of Python 2"}
		}
		// The line opens a block if its last token is a colon outside brackets.
		last := first
		for ; i < len(tokens) && tokens[i].kind != tokNewline; i++ {
			if tokens[i].kind != tokComment {
				last = tokens[i]
			}
		}
		wantBlock = last.kind == tokOp && src[last.start] == ':' && last.depth == 0
	}
	if wantBlock {
		return &SyntaxError{len(src), "expected an indented block"}
	}
	return nil
}

// isPython2 reports whether a line that begins with two tokens is a print or exec
// statement.
func isPython2(src []byte, first, second token) bool {
	if word := string(src[first.start:first.end]); first.kind != tokName || word != "print" && word != "exec" {
		return false
	}
	switch second.kind {
	case tokString, tokNumber:
		return true
	case tokName:
		switch string(src[second.start:second.end]) {
		case "if", "and", "or", "in", "is", "not": // print is a name
			return false
		}
		return true
	}
	return false
}

// lineStart returns the offset of the first byte of the line that holds at,
// behind a byte order mark.
func lineStart(src []byte, at int) int {
	return max(bytes.LastIndexByte(src[:at], '\n')+1, min(len(bom(src)), at))
}
