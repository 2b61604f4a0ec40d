/* bias_grad: dbias [C] += the sum over tokens of dy [S, B, C]. */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbc>+c", e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbc>+c", e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *dy = &c->in[0];
    BK_REAL_CALL(bk_call_f64(c), bk_residual_add_bwd, NULL, c->upd[0].p, dy->p, (bk_rng_key){{0, 0}}, NULL,
                 bk_arg_dim(dy, 0), bk_arg_dim(dy, 1), bk_arg_dim(dy, 2), 0.0, 0, bk_call_beta(c, 0));
    return BK_OK;
}

const bk_op_rules bk_bias_grad_rules = {.shape = shape, .spread = spread, .cost = cost, .cpu = cpu};
