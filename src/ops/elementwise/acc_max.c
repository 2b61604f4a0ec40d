/* acc_max: update = the larger of update and input, element by element; the first update of a step assigns.
 * A NaN is larger than any number. */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *x = bk_in(g, op, 0);
    if (x->dtype != BK_F32 && x->dtype != BK_F64 && x->dtype != BK_I64)
        return bk_err_set(e, BK_E_INPUT, "%s is %s; the largest is kept of f32, f64 and i64 alone", x->name,
                          bk_dtype_names[x->dtype]);
    return bk_shape_elementwise(out, g, op, 1, e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, 1, false, e);
}

static void acc_max_i64(int64_t *to, const int64_t *x, int64_t n, int beta)
{
    for (int64_t i = 0; i < n; i++)
        if (!beta || x[i] > to[i]) to[i] = x[i];
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_value *v = c->in[0].v;
    const int beta = bk_call_beta(c, 0);
    if (v->dtype == BK_I64)
        acc_max_i64(c->upd[0].p, c->in[0].p, bk_elements(v), beta);
    else
        BK_REAL_CALL(v->dtype == BK_F64, bk_acc_max, c->upd[0].p, c->in[0].p, bk_elements(v), beta);
    return BK_OK;
}

const bk_op_rules bk_acc_max_rules = {.shape = shape, .spread = spread, .cpu = cpu};
