/* The invariants of a graph. Passes may be checked one by one with it: it holds between any two of them. */
#ifndef BK_IR_VERIFY_H
#define BK_IR_VERIFY_H

#include "ir/graph.h"

/* BK_OK, or BK_E_CHECK with the first violation and the op and value where it is; BK_E_MEM. The rules are the
 * table in verify.c; docs/ir.md says them in words. Any bits in the graph are safe, as long as the arrays are
 * as long as their counts say and names are strings. */
bk_status bk_graph_verify(const bk_graph *g, bk_err *e);

#endif
