/* stop: y = x, through which no gradient flows. */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_elementwise(out, g, op, 1, e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, 1, true, e);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    if (c->out[0].p != c->in[0].p) /* the plan may give the output the bytes of the input */
        BK_REAL_CALL(bk_call_f64(c), bk_copy, c->out[0].p, c->in[0].p, bk_elements(c->in[0].v));
    return BK_OK;
}

const bk_op_rules bk_stop_rules = {.shape = shape, .spread = spread, .cpu = cpu};
