package pysyntax

import "bytes"

// mask rewrites syntax that is newer than the grammar to older syntax of the
// same length and the same calls. It returns nil if there is none. The result
// is for parsing only; what it means does not matter as long as statements,
// blocks and calls keep their places.
func mask(src []byte, tokens []token) []byte {
	var out []byte
	put := func(at int, text string) {
		if out == nil {
			out = bytes.Clone(src)
		}
		copy(out[at:], text)
	}
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if src[i] != '\n' && src[i] != '\r' {
				put(i, " ")
			}
		}
	}
	text := func(i int) string {
		if i < 0 || i >= len(tokens) || tokens[i].kind == tokNewline {
			return ""
		}
		return string(src[tokens[i].start:tokens[i].end])
	}
	first := true // at the first token of a logical line
	for i, t := range tokens {
		switch {
		case t.kind == tokComment:
			continue
		case t.kind == tokString: // PEP 750
			for j := t.start; src[j] != '"' && src[j] != '\''; j++ {
				if src[j]|0x20 == 't' {
					put(j, "f")
				}
			}
		case first && text(i) == "lazy" && (text(i+1) == "import" || text(i+1) == "from"): // PEP 810
			// The keyword moves to the front, so that the line keeps its indentation.
			word := text(i + 1)
			blank(t.start, tokens[i+1].end)
			put(t.start, word)
		case first && text(i) == "except": // PEP 758
			maskExcept(src, tokens, i, blank)
		case (text(i) == "def" || text(i) == "class" || text(i) == "type") && text(i+2) == "[": // PEP 696
			maskDefaults(src, tokens, i+2, blank)
		case t.kind == tokOp && text(i) == "*" && isComprehension(src, tokens, i): // PEP 798
			blank(t.start, t.end)
			if text(i+1) == "*" {
				blank(tokens[i+1].start, tokens[i+1].end)
			}
		}
		first = t.kind == tokNewline
	}
	return out
}

// maskExcept leaves the first of several exceptions without brackets.
func maskExcept(src []byte, tokens []token, i int, blank func(from, to int)) {
	comma, colon := -1, -1
	for j := i + 1; j < len(tokens) && tokens[j].kind != tokNewline; j++ {
		if tokens[j].kind != tokOp || tokens[j].depth != tokens[i].depth {
			continue
		}
		switch src[tokens[j].start] {
		case ',':
			if comma < 0 {
				comma = tokens[j].start
			}
		case ':':
			if colon < 0 {
				colon = tokens[j].start
			}
		}
	}
	if comma >= 0 && colon > comma {
		blank(comma, colon)
	}
}

// maskDefaults removes " = default" from the type parameters whose bracket is
// token i.
func maskDefaults(src []byte, tokens []token, i int, blank func(from, to int)) {
	depth := tokens[i].depth + 1
	from := -1
	for j := i + 1; j < len(tokens); j++ {
		t := tokens[j]
		if t.kind != tokOp {
			continue
		}
		c := src[t.start]
		end := c == ']' && t.depth == depth-1
		if from >= 0 && (end || c == ',' && t.depth == depth) {
			blank(from, t.start)
			from = -1
		}
		if end {
			return
		}
		if c == '=' && t.depth == depth {
			from = t.start
		}
	}
}

// isComprehension reports whether the star at token i begins the element of a
// comprehension: it follows the opening bracket, and a "for" follows it at the
// same depth without a comma between.
func isComprehension(src []byte, tokens []token, i int) bool {
	prev := i - 1
	if prev >= 0 && tokens[prev].kind == tokOp && src[tokens[prev].start] == '*' {
		prev--
	}
	if prev < 0 || tokens[prev].kind != tokOp || bytes.IndexByte([]byte("([{"), src[tokens[prev].start]) < 0 {
		return false
	}
	for j := i + 1; j < len(tokens) && tokens[j].depth >= tokens[i].depth; j++ {
		if tokens[j].depth > tokens[i].depth {
			continue
		}
		switch word := string(src[tokens[j].start:tokens[j].end]); word {
		case "for":
			return true
		case ",":
			return false
		}
	}
	return false
}
