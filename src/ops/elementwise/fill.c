/* fill: every element of output 0, a value that exists already, becomes `value` (seeds of the backward pass,
 * zeros). */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

enum { VALUE };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_vid v = bk_outs(g, op)[0];
    if (v == BK_NONE) return bk_err_set(e, BK_E_INPUT, "fill needs the value that it writes");
    if (g->value[v].dtype == BK_BF16)
        return bk_err_set(e, BK_E_INPUT, "%s is bf16, which fill does not write", g->value[v].name);
    bk_shape_like(&out[0], &g->value[v]);
    return BK_OK;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    (void)e;
    out[0] = g->value[bk_outs(g, op)[0]].spread[axis];
    return BK_OK;
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_value *v = c->out[0].v;
    const int64_t n = bk_elements(v);
    const double value = bk_attr_f(c->op, VALUE);
    int32_t *i32 = c->out[0].p;
    int64_t *i64 = c->out[0].p;
    if (v->dtype == BK_I32)
        for (int64_t i = 0; i < n; i++) i32[i] = (int32_t)value;
    else if (v->dtype == BK_I64)
        for (int64_t i = 0; i < n; i++) i64[i] = (int64_t)value;
    else
        BK_REAL_CALL(v->dtype == BK_F64, bk_fill, c->out[0].p, n, value);
    return BK_OK;
}

const bk_op_rules bk_fill_rules = {.shape = shape, .spread = spread, .cpu = cpu};
