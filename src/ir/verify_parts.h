/* The checks of the verifier, private to ir/verify*.c. The table in verify.c calls them in this order: each
 * may rely on those before it. */
#ifndef BK_IR_VERIFY_PARTS_H
#define BK_IR_VERIFY_PARTS_H

#include "ir/graph.h"
#include "ir/plain_order.h"

typedef struct {
    const bk_graph *g;
    bk_plain_order order; /* made by verify_order, before the checks that read it */
    bk_err *e;
} bk_verifier;

/* Sets the error: "verify: op @3 linear (decoder.0.attn forward): ..." and "verify: value %3 'h': ...". */
bk_status bk_verify_op_error(const bk_verifier *v, bk_oid op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bk_status bk_verify_value_error(const bk_verifier *v, bk_vid value, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "%3 'h'" into buf. */
enum { BK_VERIFY_NAME = 160 };
const char *bk_verify_name(char buf[BK_VERIFY_NAME], const bk_graph *g, bk_vid v);

/* verify_values.c */
bk_status bk_verify_value_ids(bk_verifier *v);
bk_status bk_verify_params(bk_verifier *v);
bk_status bk_verify_strides(bk_verifier *v);
/* verify_ops.c */
bk_status bk_verify_op_ids(bk_verifier *v);
bk_status bk_verify_arity(bk_verifier *v);
bk_status bk_verify_effects(bk_verifier *v);
bk_status bk_verify_dense(bk_verifier *v);
bk_status bk_verify_scopes(bk_verifier *v);
bk_status bk_verify_shapes(bk_verifier *v);
bk_status bk_verify_spreads(bk_verifier *v);
/* verify_order.c */
bk_status bk_verify_order(bk_verifier *v);
/* verify_lists.c */
bk_status bk_verify_regions(bk_verifier *v);
bk_status bk_verify_terms(bk_verifier *v);

#endif
