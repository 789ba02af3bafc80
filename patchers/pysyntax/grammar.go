package pysyntax

// #include <stdlib.h>
// #include "grammar.h"
import "C"

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	sitter "github.com/smacker/go-tree-sitter"
	"github.com/smacker/go-tree-sitter/python"
)

// A grammar is tree-sitter's parser and its grammar of Python.
type grammar struct{ c *C.grammar }

// A flatNode is a node of a tree that is written down in the order of its text: its
// children follow it, and field after is the index of the first node behind them.
// Comments, keywords and punctuation that never matter are left out.
type flatNode = C.flat_node

func newGrammar() grammar {
	c := (*C.grammar)(C.calloc(1, C.sizeof_grammar))
	if c == nil {
		panic("out of memory")
	}
	table := symbols()
	c.symbols, c.symbol_count = table.bytes, table.count
	c.skipped, c.error = C.uint8_t(symSeparator), C.uint8_t(symError)
	if !C.grammar_init(c) {
		panic("the grammar does not fit its parser") // both come from one module
	}
	return grammar{c}
}

func (g *grammar) close() {
	if g.c != nil {
		C.grammar_free(g.c)
		C.free(unsafe.Pointer(g.c))
		g.c = nil
	}
}

// read returns the nodes of the text, the root first, or none if they are not
// wanted. They are good until the next read. The error is that of a cancelled
// context, or a *SyntaxError.
func (g *grammar) read(ctx context.Context, text []byte, wantNodes bool) ([]flatNode, error) {
	if ctx.Done() != nil {
		stopped := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			atomic.StoreUintptr((*uintptr)(unsafe.Pointer(&g.c.cancelled)), 1)
			close(stopped)
		})
		defer func() {
			if !stop() {
				<-stopped
				g.c.cancelled = 0
			}
		}()
	}
	start := (*C.char)(unsafe.Pointer(unsafe.SliceData(text)))
	switch C.grammar_read(g.c, start, C.uint32_t(len(text)), C.bool(wantNodes)) {
	case C.READ_ERROR:
		return nil, &SyntaxError{int(g.c.error_at), "not valid Python, or newer than the grammar of this tool"}
	case C.READ_CANCELLED:
		return nil, cmp.Or(ctx.Err(), errors.New("the grammar gave up"))
	case C.READ_NO_MEMORY:
		return nil, errors.New("out of memory")
	}
	return unsafe.Slice(g.c.nodes, g.c.count), nil
}

// A symbolTable maps the grammar's symbol numbers to ours, in C's memory.
type symbolTable struct {
	bytes *C.uint8_t
	count C.uint32_t
}

// symbols returns the one table, which is never freed. Several numbers of the grammar
// can have one name.
var symbols = sync.OnceValue(func() symbolTable {
	lang := python.GetLanguage()
	table := make([]byte, lang.SymbolCount())
	for i := range table {
		s := sitter.Symbol(i)
		known, ok := symbolNames[lang.SymbolName(s)]
		switch {
		case ok:
			table[i] = byte(known)
		case lang.SymbolType(s) != sitter.SymbolTypeRegular:
			table[i] = byte(symSeparator)
		}
	}
	return symbolTable{(*C.uint8_t)(C.CBytes(table)), C.uint32_t(len(table))}
})
