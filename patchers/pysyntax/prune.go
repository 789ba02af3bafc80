package pysyntax

import "bytes"

// prune blanks the bodies of functions that mention none of the wanted words, so
// that the grammar need not read them: a tree costs far more than the tokens do.
// What it returns has the length of text and the same statements elsewhere. A
// blanked body holds the expression 0.
//
// A function that mentions the name of one that is kept, or of a class with a
// method that is kept, is kept as well, and so is what goes by another name of a
// wanted word ("import x as y", "y = x").
func prune(text []byte, tokens []token, wanted func(word []byte) bool) []byte {
	u := findUnits(text, tokens)
	if len(u) == 0 {
		return text
	}
	local := map[string][]int{} // names defined by the file → their units
	for i := range u {
		local[string(u[i].name)] = append(local[string(u[i].name)], i)
		if u[i].class != "" {
			local[u[i].class] = append(local[u[i].class], i)
		}
	}
	aliases := findAliases(text, tokens, wanted)
	users := map[int][]int{} // unit → units that mention it
	var queue []int
	for i := range u {
		for _, t := range tokens[u[i].first:u[i].last] {
			switch t.kind {
			case tokString: // an f-string may hold calls
				if bytes.IndexByte(text[t.start:t.end], '(') >= 0 && !u[i].kept && containsWanted(text[t.start:t.end], wanted) {
					u[i].kept = true
				}
			case tokName:
				word := text[t.start:t.end]
				if !u[i].kept && (wanted(word) || aliases[string(word)]) {
					u[i].kept = true
				}
				name := string(word)
				if name == "cls" && u[i].class != "" {
					name = u[i].class
				}
				for _, j := range local[name] {
					if j != i {
						users[j] = append(users[j], i)
					}
				}
			}
		}
		if u[i].kept {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, j := range users[i] {
			if !u[j].kept {
				u[j].kept = true
				queue = append(queue, j)
			}
		}
	}
	var out []byte
	for i := range u {
		if u[i].kept {
			continue
		}
		if out == nil {
			out = bytes.Clone(text)
		}
		start, end := tokens[u[i].first].start, tokens[u[i].last-1].end
		for at := start; at < end; at++ {
			if out[at] != '\n' && out[at] != '\r' {
				out[at] = ' '
			}
		}
		out[start] = '0'
	}
	if out == nil {
		return text
	}
	return out
}

// A unit is the body of a function that is not nested in another function.
type unit struct {
	name        []byte
	class       string // the class around it, if it is a method
	first, last int    // its tokens, without comments in front
	kept        bool
}

// findUnits returns the bodies that stand on lines of their own.
func findUnits(text []byte, tokens []token) []unit {
	var out []unit
	class, classIndent := "", -1
	for i := 0; i < len(tokens); i = nextLine(tokens, i) {
		if tokens[i].kind == tokComment {
			continue
		}
		indent := tokens[i].start - lineStart(text, tokens[i].start)
		if indent <= classIndent {
			class, classIndent = "", -1
		}
		word := text[tokens[i].start:tokens[i].end]
		def := i
		if string(word) == "async" {
			def++
		}
		switch {
		case string(word) == "class" && i+1 < len(tokens):
			class, classIndent = string(text[tokens[i+1].start:tokens[i+1].end]), indent
		case def+1 < len(tokens) && tokens[def].kind == tokName && string(text[tokens[def].start:tokens[def].end]) == "def":
			body := nextLine(tokens, i)
			for body < len(tokens) && tokens[body].kind == tokComment {
				body = nextLine(tokens, body)
			}
			end := body
			for end < len(tokens) {
				if tokens[end].kind != tokComment && tokens[end].start-lineStart(text, tokens[end].start) <= indent {
					break
				}
				end = nextLine(tokens, end)
			}
			if end <= body { // the body stands on the line of its def
				continue
			}
			out = append(out, unit{name: text[tokens[def+1].start:tokens[def+1].end], class: class, first: body, last: end})
			// Go on behind the body: what is defined in it belongs to it.
			i = end - 1
			for i >= 0 && tokens[i].kind != tokNewline {
				i--
			}
		}
	}
	return out
}

// nextLine returns the number of the first token of the next logical line. A
// comment that stands alone is a line of its own.
func nextLine(tokens []token, i int) int {
	if tokens[i].kind == tokComment {
		return i + 1
	}
	for i < len(tokens) && tokens[i].kind != tokNewline {
		i++
	}
	return i + 1
}

// findAliases returns other names of wanted words: those behind "as", and those
// that are assigned on the same line.
func findAliases(text []byte, tokens []token, wanted func([]byte) bool) map[string]bool {
	out := map[string]bool{}
	lineFirst := 0
	for i, t := range tokens {
		switch {
		case t.kind == tokNewline:
			lineFirst = i + 1
		case t.kind == tokName && wanted(text[t.start:t.end]):
			if i+2 < len(tokens) && string(text[tokens[i+1].start:tokens[i+1].end]) == "as" {
				out[string(text[tokens[i+2].start:tokens[i+2].end])] = true
			}
			first := tokens[lineFirst]
			if lineFirst+1 < i && first.kind == tokName && text[tokens[lineFirst+1].start] == '=' {
				out[string(text[first.start:first.end])] = true
			}
		}
	}
	return out
}

func containsWanted(text []byte, wanted func([]byte) bool) bool {
	for i := 0; i < len(text); {
		if !isNameStart(text[i]) {
			i++
			continue
		}
		start := i
		for i < len(text) && isNamePart(text[i]) {
			i++
		}
		if wanted(text[start:i]) {
			return true
		}
	}
	return false
}
