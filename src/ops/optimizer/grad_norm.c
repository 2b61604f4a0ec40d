/* grad_norm: f64 [1], the root of the sum of squares of all inputs, in their order. Non-finite elements make
 * it non-finite. */
#include "ops/rules.h"

#include <math.h>

#define BK_BOTH "ops/optimizer/optimizer_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_dtype real = bk_rule_real(g, op);
    const bk_dim one = bk_fixed(1);
    for (int k = 0; k < op->n_in; k++) {
        const bk_status st = bk_shape_need_dtype(g, op, k, real, e);
        if (st != BK_OK) return st;
    }
    bk_shape_set(&out[0], BK_F64, 1, &one);
    return BK_OK;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis,
                               "its square is not this rank's part of the norm; reduce it first", e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    for (int k = 0; k < op->n_in; k++)
        if (bk_in(g, op, k)) out->flops += 2 * bk_elements(bk_in(g, op, k));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bool f64 = bk_call_f64(c);
    double sum = 0;
    for (int k = 0; k < c->op->n_in; k++)
        if (c->in[k].p) sum += BK_REAL_CALL(f64, bk_sumsq, c->in[k].p, bk_elements(c->in[k].v));
    *(double *)c->out[0].p = sqrt(sum);
    return BK_OK;
}

const bk_op_rules bk_grad_norm_rules = {.shape = shape, .spread = spread, .cost = cost, .cpu = cpu};
