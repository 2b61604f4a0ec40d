/* The text form of a graph: docs/ir.md has the grammar, ir/parse.h reads it back. */
#ifndef BK_IR_PRINT_H
#define BK_IR_PRINT_H

#include "base/str.h"
#include "ir/graph.h"

/* Names of bk_init_rule in the text form. */
extern const char *const bk_init_rule_names[BK_INIT_XAVIER + 1];

/* Appends the whole graph as text: parameter rows, values, ops in the plain order under the line of their
 * tag, regions, terms. The same graph gives the same text, and floats are exact. A graph that the verifier
 * refuses can be printed too: ids and enums out of range are printed as numbers. Short memory shows in
 * out->failed. */
void bk_graph_print(bk_str *out, const bk_graph *g);

#endif
