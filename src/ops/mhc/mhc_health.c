/* mhc_health(h_res [S,B,n,n], x [S,B,n,C]; worst [2], mean [2+n]): how a hyper-connection is doing, as in
 * mhc_health_cpu.h; for the eyes of whoever trains, so no gradient passes. Outputs are two since they combine
 * differently: the worst of micro-batches is their largest, the mean their mean. */
#define BK_BOTH "ops/mhc/mhc_health_cpu.h"
#include "base/real_both.h"
#include "ops/mhc/mhc_rules.h"

enum { ERRORS = 2, DISTANCES = 2 };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_mhc_need_streams(g, op, 1, e);
    if (st != BK_OK) return st;
    const bk_value *x = bk_in(g, op, 1);
    const int64_t n = x->dim[2].size, like_x[] = {x->dim[0].size, x->dim[1].size, n, n};
    st = bk_shape_need(g, op, 0, "h_res [S, B, n, n]", 4, like_x, e);
    for (int k = 0; k < 2 && st == BK_OK; k++) st = bk_shape_need_dtype(g, op, k, bk_rule_real(g, op), e);
    const bk_dim worst = bk_fixed(ERRORS), mean = bk_fixed(DISTANCES + n);
    if (st != BK_OK) return st;
    bk_shape_set(&out[0], x->dtype, 1, &worst);
    bk_shape_set(&out[1], x->dtype, 1, &mean);
    return BK_OK;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis, "a largest error is no sum over ranks", e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = 8 * bk_elements(bk_in(g, op, 0)) + 2 * bk_elements(bk_in(g, op, 1));
    out->bytes = bk_cost_bytes(g, op);
}

/* The figures of each token. */
static int64_t workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, 1));
    return d.T * (ERRORS + DISTANCES + d.n) * (int64_t)sizeof(double);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->in[1].v);
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_health, c->out[0].p, c->out[1].p, c->in[0].p, c->in[1].p, c->work,
                 d.T, d.n, d.C);
    return BK_OK;
}

const bk_op_rules bk_mhc_health_rules = {
    .shape = shape, .spread = spread, .cost = cost, .workspace = workspace, .cpu = cpu};
