/* expert_bias_update: raises the bias [E] of the experts that counts [E] of the step find too seldom chosen,
 * and lowers that of the others, by `rate`. apply i32 [1] of clip_scale: 0 changes nothing. */
#include "ops/rules.h"

#define BK_BOTH "ops/moe/balance_cpu.h"
#include "base/real_both.h"

enum { RATE };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "e,1:i+e", e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis,
                               "the bias would differ between ranks; reduce the counts first", e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = 4 * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    if (*(const int32_t *)c->in[1].p == 0) return BK_OK;
    BK_REAL_CALL(bk_call_f64(c), bk_expert_bias, c->upd[0].p, c->in[0].p, bk_elements(c->in[0].v),
                 bk_attr_f(c->op, RATE));
    return BK_OK;
}

const bk_op_rules bk_expert_bias_update_rules = {.shape = shape, .spread = spread, .cost = cost, .cpu = cpu};
