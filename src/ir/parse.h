/* Reads the text form of a graph (docs/ir.md). */
#ifndef BK_IR_PARSE_H
#define BK_IR_PARSE_H

#include "ir/graph.h"

/* Makes the graph that `len` bytes of text describe, and verifies it (ir/verify.h). The bytes may be
 * anything. `where` stands in front of messages: a file's name, say. The text's print is the canonical form:
 * print(parse(print(g))) == print(g). The caller frees the graph with bk_graph_free.
 *
 * BK_E_INPUT with the line for text that does not follow the grammar, BK_E_CHECK for a graph that breaks an
 * invariant, BK_E_MEM. */
bk_status bk_graph_parse(bk_graph **out, const char *text, int64_t len, const char *where, bk_err *e);

#endif
