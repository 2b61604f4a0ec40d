/* The plain order (ir/graph.h), as a list. */
#ifndef BK_IR_PLAIN_ORDER_H
#define BK_IR_PLAIN_ORDER_H

#include "ir/graph.h"

typedef struct {
    bk_oid *op;    /* all ops: prologue, micro-batch, epilogue; each part in the order of graph.op */
    int32_t *pos;  /* for each op: its place in `op` */
    bool *late;    /* for each op: of scope step, and depends on something that a micro-batch writes */
    int32_t micro; /* places from `micro` on are the micro-batch's, from `epilogue` on the epilogue's */
    int32_t epilogue;
    int32_t n; /* ops */
} bk_plain_order;

/* An op of scope step is late if it reads something that an op of scope micro writes or updates, or that a
 * late op before it does. Ids out of range count as no operand. The caller frees. BK_E_MEM. */
bk_status bk_plain_order_make(bk_plain_order *out, const bk_graph *g, bk_err *e);
void bk_plain_order_free(bk_plain_order *o); /* NULL is fine */

#endif
