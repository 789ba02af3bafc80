#ifndef PYSYNTAX_GRAMMAR_H_
#define PYSYNTAX_GRAMMAR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A flat_node is a node of a tree, written down in the order of its text. Its
// children begin behind it; `after` is the index of the first node that is not
// below it.
typedef struct {
	uint32_t start, end; // bytes of the text
	uint32_t after;
	uint8_t symbol;
} flat_node;

// A grammar reads texts, one at a time.
typedef struct {
	struct TSParser *parser;
	const uint8_t *symbols; // by the grammar's symbol number
	uint32_t symbol_count;
	uint8_t skipped;        // symbol of what is not written down
	uint8_t error;          // symbol of what has no number in symbols
	size_t cancelled;       // not 0: give up

	// What the last read returned. The memory is used again.
	flat_node *nodes;
	size_t count, capacity;
	uint32_t error_at; // offset of the first place that is not in the grammar
} grammar;

typedef enum { READ_OK, READ_ERROR, READ_CANCELLED, READ_NO_MEMORY } read_result;

// Makes a grammar of one whose symbols are set. Returns whether it could.
bool grammar_init(grammar *g);
void grammar_free(grammar *g);

// Reads a text, and writes down its tree if that is wanted.
read_result grammar_read(grammar *g, const char *text, uint32_t length, bool want_nodes);

#endif
