package pyproject

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

// parseTOML returns what src says, and where it says it.
func parseTOML(src []byte) (map[string]any, *tomlFile, error) {
	tree := map[string]any{}
	if err := toml.Unmarshal(src, &tree); err != nil {
		var perr toml.ParseError
		if errors.As(err, &perr) {
			return nil, nil, &syntaxError{perr.Position.Line, perr.Position.Col, perr.Message}
		}
		return nil, nil, err
	}
	s := tomlScanner{tomlFile: tomlFile{src: src}, at: len(bom(src))}
	s.scan()
	return tree, &s.tomlFile, nil
}

// A tomlFile has the places of the keys and values of a TOML document, but for
// those in arrays.
type tomlFile struct {
	src     []byte
	headers []tomlHeader
	pairs   []*tomlPair // in the order of the file
}

// A tomlHeader is the line [path].
type tomlHeader struct {
	start, end int
	path       []string
}

// A tomlPair is a key with its value.
type tomlPair struct {
	path  []string  // from the root of the document
	keys  []int     // where each part of the key begins, as it is written here
	in    *tomlPair // the pair of the inline table in which it stands, or nil
	value tomlValue
}

// base returns the length of the path of the table in which the pair is written.
func (p *tomlPair) base() int { return len(p.path) - len(p.keys) }

// A tomlValue is a value and what it holds.
type tomlValue struct {
	start, end int
	quote      string      // of a string: ", ', """ or '''
	inline     bool        // an inline table
	items      []tomlValue // of an array
	comma      int         // of an array: behind the comma that follows the last item, or 0
}

// A tomlScanner finds places in a document that is known to be valid TOML. In any
// other it ends, too, but what it finds there means nothing.
type tomlScanner struct {
	tomlFile
	at      int
	inArray bool
}

func (s *tomlScanner) scan() {
	var table []string
	for s.skip(); s.at < len(s.src); s.skip() {
		start := s.at
		if !s.take('[') {
			s.pair(table, nil)
		} else {
			s.inArray = s.take('[')
			table, _ = s.key()
			s.take(']')
			if !s.inArray {
				s.headers = append(s.headers, tomlHeader{start, s.at, table})
			}
			s.take(']')
		}
		s.advanceFrom(start)
	}
}

// pair reads a key and its value.
func (s *tomlScanner) pair(table []string, in *tomlPair) {
	path, keys := s.key()
	s.take('=')
	p := &tomlPair{path: slices.Concat(table, path), keys: keys, in: in}
	if !s.inArray {
		s.pairs = append(s.pairs, p)
	}
	s.skip()
	p.value = s.value(p)
}

// key reads a dotted key.
func (s *tomlScanner) key() (path []string, starts []int) {
	for {
		s.skip()
		start := s.at
		switch quote := s.peek(); quote {
		case '"', '\'':
			s.str()
		default:
			for s.at < len(s.src) && !strings.ContainsRune(" \t\r\n.=]}#,", rune(s.src[s.at])) {
				s.at++
			}
		}
		path, starts = append(path, unquoteKey(string(s.src[start:s.at]))), append(starts, start)
		s.skip()
		if !s.take('.') {
			return path, starts
		}
	}
}

// value reads a value, that of p or one of its array.
func (s *tomlScanner) value(p *tomlPair) tomlValue {
	v := tomlValue{start: s.at}
	switch c := s.peek(); c {
	case '"', '\'':
		v.quote = s.str()
	case '[':
		outer := s.inArray
		s.inArray = true
		s.list(']', func() {
			v.items, v.comma = append(v.items, s.value(p)), 0
		}, func() { v.comma = s.at })
		s.inArray = outer
	case '{':
		v.inline = true
		s.list('}', func() { s.pair(p.path, p) }, func() {})
	default:
		for s.at < len(s.src) && !strings.ContainsRune(",]}#\r\n", rune(s.src[s.at])) {
			s.at++
		}
		s.at = v.start + len(bytes.TrimRight(s.src[v.start:s.at], " \t"))
	}
	v.end = s.at
	return v
}

// list reads what stands between brackets. It calls item at each item, and comma
// behind each comma.
func (s *tomlScanner) list(closing byte, item, comma func()) {
	s.at++
	for s.skip(); s.at < len(s.src) && !s.take(closing); s.skip() {
		start := s.at
		if s.take(',') {
			comma()
		} else {
			item()
		}
		s.advanceFrom(start)
	}
}

// str reads a string and returns its quotes.
func (s *tomlScanner) str() string {
	c := s.src[s.at]
	quote := string(c)
	if triple := strings.Repeat(quote, 3); bytes.HasPrefix(s.src[s.at:], []byte(triple)) {
		quote = triple
	}
	s.at += len(quote)
	for s.at < len(s.src) && !bytes.HasPrefix(s.src[s.at:], []byte(quote)) {
		if c == '"' && s.src[s.at] == '\\' {
			s.at++
		}
		s.at++
	}
	s.at = min(s.at+len(quote), len(s.src))
	// Up to two quotes may stand in front of the closing ones.
	for n := 0; len(quote) == 3 && n < 2 && s.peek() == c; n++ {
		s.at++
	}
	return quote
}

// skip skips space, line endings and comments.
func (s *tomlScanner) skip() {
	for s.at < len(s.src) {
		switch s.src[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		case '#':
			for s.at < len(s.src) && s.src[s.at] != '\n' {
				s.at++
			}
		default:
			return
		}
	}
}

func (s *tomlScanner) peek() byte {
	if s.at < len(s.src) {
		return s.src[s.at]
	}
	return 0
}

func (s *tomlScanner) take(c byte) bool {
	if s.peek() != c || s.at >= len(s.src) {
		return false
	}
	s.at++
	return true
}

// advanceFrom makes sure that a loop ends, whatever the document is.
func (s *tomlScanner) advanceFrom(start int) {
	if s.at == start {
		s.at++
	}
}

// unquoteKey returns the name that a part of a key stands for.
func unquoteKey(key string) string {
	if !strings.HasPrefix(key, `"`) && !strings.HasPrefix(key, "'") {
		return key
	}
	var v struct{ Key string }
	if err := toml.Unmarshal([]byte("Key = "+key), &v); err != nil {
		return key
	}
	return v.Key
}

func (f *tomlFile) find(table []string, name string) *tomlPair {
	want := append(slices.Clip(table), name)
	for _, p := range f.pairs {
		if slices.Equal(p.path, want) {
			return p
		}
	}
	return nil
}

// place returns where a setting stands, or else the table that would have it.
func (f *tomlFile) place(table []string, name string) (offset int, found bool) {
	if p := f.find(table, name); p != nil {
		return p.keys[0], true
	}
	for _, h := range f.headers {
		if slices.Equal(h.path, table) {
			return h.start, true
		}
	}
	for _, p := range f.pairs {
		if hasPrefix(p.path, table) {
			return p.keys[0], true
		}
	}
	return 0, false
}

// add adds a setting that the table lacks, and the table if there is none.
func (f *tomlFile) add(table []string, name string, value []string, list bool) []diff.Edit {
	text := tomlText(value, list)
	// Behind the last setting of the table, or of a table around it that is
	// closed to additions from elsewhere.
	for n := len(table); n > 0; n-- {
		rest := table[n:]
		for _, p := range slices.Backward(f.pairs) {
			if len(p.path) <= n || !hasPrefix(p.path, table[:n]) || p.base() > n || len(rest) > 0 && p.in == nil {
				continue
			}
			key := string(f.src[p.keys[0]:p.keys[n-p.base()]]) + strings.Join(append(slices.Clip(rest), name), ".")
			if p.in != nil {
				return []diff.Edit{diff.Insert(p.value.end, ", "+key+" = "+text)}
			}
			indent := string(f.src[pysyntax.LineStart(f.src, p.keys[0]):p.keys[0]])
			return []diff.Edit{insertLine(f.src, p.value.end, indent+key+" = "+text)}
		}
		for _, p := range f.pairs {
			if p.value.inline && slices.Equal(p.path, table[:n]) { // and empty
				key := strings.Join(append(slices.Clip(rest), name), ".")
				return []diff.Edit{{Start: p.value.start, End: p.value.end, New: "{ " + key + " = " + text + " }"}}
			}
		}
		if len(rest) > 0 {
			continue
		}
		for _, h := range f.headers {
			if slices.Equal(h.path, table) {
				indent := string(f.src[pysyntax.LineStart(f.src, h.start):h.start])
				return []diff.Edit{insertLine(f.src, h.end, indent+name+" = "+text)}
			}
		}
	}
	return appendSection(f.src, "["+strings.Join(table, ".")+"]", name+" = "+text)
}

// set replaces the value of a setting that is there.
func (f *tomlFile) set(table []string, name, value string) []diff.Edit {
	v := f.find(table, name).value
	return []diff.Edit{{Start: v.start, End: v.end, New: tomlText([]string{value}, false)}}
}

// extend returns ways to add an option to a setting that is there, the most
// natural one first. Which of them do so must be found out.
func (f *tomlFile) extend(table []string, name, option string) [][]diff.Edit {
	v := f.find(table, name).value
	switch {
	case v.quote != "":
		return f.extendString(v, option)
	case f.src[v.start] == '[':
		return f.extendArray(v, option)
	}
	return nil
}

func (f *tomlFile) extendString(v tomlValue, option string) [][]diff.Edit {
	start, end := v.start+len(v.quote), v.end-len(v.quote)
	text := string(f.src[start:end])
	var ways [][]diff.Edit
	if last := strings.LastIndexByte(text, '\n'); last >= 0 && len(v.quote) == 3 {
		if strings.TrimSpace(text[last:]) == "" && strings.TrimSpace(text) != "" {
			// The closing quotes have a line of their own: the option gets one,
			// with what joins the lines.
			words := len(strings.TrimRight(text, " \t\r\n"))
			line := text[strings.LastIndexByte(text[:words], '\n')+1 : words]
			indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
			joined := ""
			if bare, ok := strings.CutSuffix(line, `\`); ok && v.quote == `"""` {
				joined = line[len(strings.TrimRight(bare, " \t")):]
			}
			ways = append(ways, []diff.Edit{diff.Insert(start+words, eol(f.src, start)+indent+option+joined)})
		}
		if first := strings.IndexByte(text, '\n') + 1; strings.TrimSpace(text[:first]) == "" {
			start += first
			text = text[first:]
		}
	}
	before, behind := " ", " "
	if text == "" || strings.ContainsRune(" \t\n", rune(text[len(text)-1])) {
		before = ""
	}
	if text == "" {
		behind = ""
	}
	return append(ways, []diff.Edit{diff.Insert(end, before+option)}, []diff.Edit{diff.Insert(start, option+behind)})
}

func (f *tomlFile) extendArray(v tomlValue, option string) [][]diff.Edit {
	if len(v.items) == 0 {
		return [][]diff.Edit{{diff.Insert(v.start+1, `"`+option+`"`)}}
	}
	first, last := v.items[0], v.items[len(v.items)-1]
	text := `"` + option + `"`
	if last.quote == "'" {
		text = "'" + option + "'"
	}
	front := []diff.Edit{diff.Insert(first.start, text+", ")}

	indent := string(f.src[pysyntax.LineStart(f.src, last.start):last.start])
	tail := last.end
	if v.comma > 0 {
		tail = v.comma
	}
	lineEnd := pysyntax.LineEnd(f.src, tail)
	behind := strings.TrimLeft(string(f.src[tail:lineEnd]), " \t")
	ownLine := strings.TrimSpace(indent) == "" && lineEnd < v.end && (behind == "" || behind[0] == '#')
	switch {
	case ownLine && v.comma > 0:
		return [][]diff.Edit{{insertLine(f.src, tail, indent+text+",")}, front}
	case ownLine:
		return [][]diff.Edit{{diff.Insert(last.end, ","), insertLine(f.src, tail, indent+text)}, front}
	case v.comma > 0:
		return [][]diff.Edit{{diff.Insert(tail, " "+text+",")}, front}
	}
	return [][]diff.Edit{{diff.Insert(last.end, ", "+text)}, front}
}

// tomlText returns a value as TOML writes it. It must need no escapes.
func tomlText(value []string, list bool) string {
	text := `"` + strings.Join(value, `", "`) + `"`
	if list {
		text = "[" + text + "]"
	}
	return text
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}
