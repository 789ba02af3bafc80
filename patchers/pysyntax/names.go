package pysyntax

import (
	"bytes"
	"hash/maphash"
)

// A keyword is a word of Python that the condenser tells apart.
type keyword byte

const (
	kwNone       keyword = iota
	kwDef                // def
	kwClass              // class
	kwAsync              // async
	kwImport             // import
	kwFrom               // from
	kwAs                 // as
	kwFor                // for
	kwIn                 // in
	kwMatch              // match
	kwCase               // case
	kwClause             // of a statement in front: else, elif, except, finally
	kwFlow               // changes the flow of control: return, raise, break, continue, yield, while
	kwDunderName         // __name__
	kwCls                // cls
)

func keywordOf(word []byte) keyword {
	switch string(word) {
	case "def":
		return kwDef
	case "class":
		return kwClass
	case "async":
		return kwAsync
	case "import":
		return kwImport
	case "from":
		return kwFrom
	case "as":
		return kwAs
	case "for":
		return kwFor
	case "in":
		return kwIn
	case "match":
		return kwMatch
	case "case":
		return kwCase
	case "else", "elif", "except", "finally":
		return kwClause
	case "return", "raise", "break", "continue", "yield", "while":
		return kwFlow
	case "__name__":
		return kwDunderName
	case "cls":
		return kwCls
	}
	return kwNone
}

// A name is what the condenser knows of one identifier or keyword of a file.
type name struct {
	text     []byte
	hash     uint64
	keyword  keyword
	wanted   bool  // by the caller
	matters  bool  // in this file, beside the wanted ones
	imported bool  // bound by an import
	used     bool  // in a line that stays
	outside  bool  // stands in a line outside any function
	units    int32 // first in a chain of those that are called so; see condenser.links
}

// isWord reports whether code that has the name matters.
func (n *name) isWord() bool { return n.wanted || n.matters }

// Names are the distinct names of a file, by number. Number 0 stands for a token that
// is no name: nothing is known of it. A map would need a key of its own for each name of
// each file.
type names struct {
	list  []name
	slots []int32 // a hash table without deletion: number of a name, or 0
	seed  maphash.Seed
}

// reset forgets all names. It keeps the memory.
func (t *names) reset() {
	if t.slots == nil {
		*t = names{slots: make([]int32, 1024), seed: maphash.MakeSeed()}
	}
	clear(t.slots)
	t.list = append(t.list[:0], name{})
}

// find returns the number of a word, or 0, and the slot that is its own.
func (t *names) find(word []byte) (number int32, hash uint64, slot uint64) {
	hash = maphash.Bytes(t.seed, word)
	mask := uint64(len(t.slots) - 1)
	for slot = hash & mask; ; slot = (slot + 1) & mask {
		number = t.slots[slot]
		if n := &t.list[number]; number == 0 || n.hash == hash && bytes.Equal(n.text, word) {
			return number, hash, slot
		}
	}
}

// add returns the number of a word, and whether it is new.
func (t *names) add(word []byte) (number int32, isNew bool) {
	number, hash, slot := t.find(word)
	if number != 0 {
		return number, false
	}
	number = int32(len(t.list))
	t.list = append(t.list, name{text: word, hash: hash, keyword: keywordOf(word)})
	t.slots[slot] = number
	if 2*len(t.list) > len(t.slots) {
		t.slots = make([]int32, 2*len(t.slots))
		mask := uint64(len(t.slots) - 1)
		for i := 1; i < len(t.list); i++ {
			slot := t.list[i].hash & mask
			for t.slots[slot] != 0 {
				slot = (slot + 1) & mask
			}
			t.slots[slot] = int32(i)
		}
	}
	return number, true
}
