/* What a gradient rule works with. passes/autodiff.c walks the ops backwards and calls each rule; the rule
 * asks for the gradients of its op's outputs, appends ops, and adds what they compute to the gradients of the
 * inputs.
 *
 * A rule for a parameter's gradient appends an op that updates the accumulator and reports it with
 * bk_grad_term, so that the checker can hold uses and terms together. */
#ifndef BK_IR_GRAD_H
#define BK_IR_GRAD_H

#include "ir/graph.h"

typedef struct {
    bk_vid *v; /* contributions, in the order in which the plain backward writes them */
    int64_t n, cap;
} bk_grad_list;

struct bk_grad_ctx {
    bk_graph *g;
    bk_grad_list *of; /* for each value of the forward graph */
    bk_vid *sum;      /* for each value: its finished gradient, or BK_NONE */
    const bool *want; /* for each value: gradient flows to it */
    int32_t n;        /* values of the forward graph */
    /* For each value, up to n_counted: to how many gradients it is a contribution. */
    int32_t *n_added;
    int64_t n_counted, cap_counted;
};

/* True if gradient is to flow into v (a trainable parameter, or an activation that depends on one). */
bool bk_grad_wanted(const bk_grad_ctx *c, bk_vid v);

/* The gradient of an output, or BK_NONE if nothing flows. Views of a value have gradients of their own. */
bk_vid bk_grad_of(const bk_grad_ctx *c, bk_vid v);

/* Adds a contribution (a value of v's shape) to the gradient of v. Does nothing if none is wanted. */
bk_status bk_grad_add(bk_grad_ctx *c, bk_vid v, bk_vid contribution, bk_err *e);

/* To how many gradients the value is a contribution. */
int32_t bk_grad_n_added(const bk_grad_ctx *c, bk_vid v);

/* The accumulator of parameter v's gradient (made at the first call); BK_NONE if none is wanted or v is
 * BK_NONE. */
bk_status bk_grad_accumulator(bk_vid *out, bk_grad_ctx *c, bk_vid v, bk_err *e);

/* Says that `term` adds the gradient of parameter v's use in op `use`. */
bk_status bk_grad_term(bk_grad_ctx *c, bk_vid v, bk_oid use, bk_oid term, bk_err *e);

#endif
