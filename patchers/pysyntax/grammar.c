#include "grammar.h"

#include <stdlib.h>

// The part of tree-sitter's public API that is used here. Its code and that of the
// grammar come with github.com/smacker/go-tree-sitter, whose Go methods read a node
// by four calls from Go to C, and keep each in a map. That costs nearly as much as parsing
// does (measured: 0.5 and 0.6 s of CPU time for 4 MB of Python), so a tree is written
// down here as a whole.
typedef struct {
	uint32_t context[4];
	const void *id;
	const void *tree;
} TSNode;

typedef struct {
	const void *tree;
	const void *id;
	uint32_t context[3];
} TSTreeCursor;

typedef struct TSParser TSParser;
typedef struct TSTree TSTree;

TSParser *ts_parser_new(void);
void ts_parser_delete(TSParser *);
bool ts_parser_set_language(TSParser *, const void *language);
void ts_parser_set_cancellation_flag(TSParser *, const size_t *flag);
TSTree *ts_parser_parse_string(TSParser *, const TSTree *old, const char *text, uint32_t length);
void ts_parser_reset(TSParser *);
TSNode ts_tree_root_node(const TSTree *);
void ts_tree_delete(TSTree *);
uint16_t ts_node_symbol(TSNode);
uint32_t ts_node_start_byte(TSNode);
uint32_t ts_node_end_byte(TSNode);
bool ts_node_is_error(TSNode);
bool ts_node_is_missing(TSNode);
bool ts_node_has_error(TSNode);
TSTreeCursor ts_tree_cursor_new(TSNode);
void ts_tree_cursor_delete(TSTreeCursor *);
TSNode ts_tree_cursor_current_node(const TSTreeCursor *);
bool ts_tree_cursor_goto_first_child(TSTreeCursor *);
bool ts_tree_cursor_goto_next_sibling(TSTreeCursor *);
bool ts_tree_cursor_goto_parent(TSTreeCursor *);
const void *tree_sitter_python(void);

bool grammar_init(grammar *g)
{
	g->parser = ts_parser_new();
	if (g->parser == NULL || !ts_parser_set_language(g->parser, tree_sitter_python()))
		return false;
	ts_parser_set_cancellation_flag(g->parser, &g->cancelled);
	return true;
}

void grammar_free(grammar *g)
{
	if (g->parser != NULL)
		ts_parser_delete(g->parser);
	free(g->nodes);
	g->parser = NULL;
	g->nodes = NULL;
}

// Returns the offset of the first place below the root that is not in the grammar.
static uint32_t find_error(TSNode root)
{
	TSTreeCursor cursor = ts_tree_cursor_new(root);
	TSNode node = root;
	bool deeper = true;
	while (deeper && !ts_node_is_error(node) && !ts_node_is_missing(node)) {
		deeper = false;
		bool more = ts_tree_cursor_goto_first_child(&cursor);
		for (; more && !deeper; more = !deeper && ts_tree_cursor_goto_next_sibling(&cursor)) {
			TSNode child = ts_tree_cursor_current_node(&cursor);
			if (ts_node_has_error(child) || ts_node_is_missing(child)) {
				node = child;
				deeper = true;
			}
		}
	}
	ts_tree_cursor_delete(&cursor);
	return ts_node_start_byte(node);
}

// Makes room for one more node.
static bool grow(grammar *g)
{
	if (g->count < g->capacity)
		return true;
	size_t capacity = g->capacity == 0 ? 4096 : 2 * g->capacity;
	flat_node *nodes = realloc(g->nodes, capacity * sizeof *nodes);
	if (nodes == NULL)
		return false;
	g->nodes = nodes;
	g->capacity = capacity;
	return true;
}

// Writes down the nodes below the root, and the root itself. While a node is open,
// its `after` is the index of its parent.
static bool flatten(grammar *g, TSNode root)
{
	TSTreeCursor cursor = ts_tree_cursor_new(root);
	uint32_t parent = 0;
	bool ok = true;
	for (;;) {
		TSNode node = ts_tree_cursor_current_node(&cursor);
		uint16_t number = ts_node_symbol(node);
		uint8_t symbol = number < g->symbol_count ? g->symbols[number] : g->error;
		if (symbol != g->skipped) {
			ok = grow(g);
			if (!ok)
				break;
			uint32_t at = (uint32_t)g->count++;
			g->nodes[at] = (flat_node){
				.start = ts_node_start_byte(node), .end = ts_node_end_byte(node), .after = parent, .symbol = symbol,
			};
			if (ts_tree_cursor_goto_first_child(&cursor)) {
				parent = at;
				continue;
			}
			g->nodes[at].after = (uint32_t)g->count;
		}
		bool more;
		while (!(more = ts_tree_cursor_goto_next_sibling(&cursor)) && ts_tree_cursor_goto_parent(&cursor)) {
			uint32_t closed = parent;
			parent = g->nodes[closed].after;
			g->nodes[closed].after = (uint32_t)g->count;
		}
		if (!more)
			break;
	}
	ts_tree_cursor_delete(&cursor);
	return ok;
}

read_result grammar_read(grammar *g, const char *text, uint32_t length, bool want_nodes)
{
	g->count = 0;
	TSTree *tree = ts_parser_parse_string(g->parser, NULL, text, length);
	if (tree == NULL) {
		ts_parser_reset(g->parser); // or the next call would resume this one
		return READ_CANCELLED;
	}
	read_result result = READ_OK;
	TSNode root = ts_tree_root_node(tree);
	if (ts_node_has_error(root)) {
		g->error_at = find_error(root);
		result = READ_ERROR;
	} else if (want_nodes && !flatten(g, root)) {
		result = READ_NO_MEMORY;
	}
	ts_tree_delete(tree);
	return result;
}
