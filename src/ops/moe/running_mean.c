/* running_mean: the mean, like x, of this x and those of the micro-batches of the step before it. The state
 * [elements of x + 1] holds their sum and their number; the first update of a step assigns, so nothing clears
 * it. */
#include "ops/rules.h"

#define BK_BOTH "ops/moe/balance_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *x = bk_in(g, op, 0);
    char text[BK_OPERAND_TEXT];
    if (!bk_dtype_is_float(x->dtype))
        return bk_err_set(e, BK_E_INPUT, "%s: only a floating-point value has a mean",
                          bk_operand_text(text, g, op, 0));
    const int64_t n = bk_elements(x) + 1;
    const bk_dim dim = bk_fixed(n);
    bk_status st = bk_shape_need(g, op, 2, "sums and their number", 1, &n, e);
    if (st == BK_OK) st = bk_shape_need_dtype(g, op, 2, x->dtype, e);
    bk_shape_like(&out[0], x);
    bk_shape_set(&out[1], x->dtype, 1, &dim);
    return st;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis, "the mean is one of whole values; reduce it first", e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = 2 * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_running_mean, c->out[0].p, c->upd[0].p, c->in[0].p,
                 bk_elements(c->in[0].v), bk_call_beta(c, 0));
    return BK_OK;
}

const bk_op_rules bk_running_mean_rules = {.shape = shape, .spread = spread, .cost = cost, .cpu = cpu};
