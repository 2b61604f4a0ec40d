/* add_n: the sum of its inputs, in their order. */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    for (int k = 0; k < op->n_in; k++)
        if (!bk_in(g, op, k))
            return bk_err_set(e, BK_E_INPUT, "input %d is absent; leave it out of the list", k);
    return bk_shape_elementwise(out, g, op, op->n_in, e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, op->n_in, true, e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = (op->n_in - 1) * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_vid dout = bk_grad_of(c, bk_outs(c->g, &c->g->op[id])[0]);
    const int n_in = c->g->op[id].n_in;
    bk_status st = BK_OK;
    for (int k = 0; k < n_in && st == BK_OK; k++)
        st = bk_grad_add(c, bk_ins(c->g, &c->g->op[id])[k], dout, e);
    return st;
}

/* The kernel takes an array of pointers; a long list goes in parts, each with the sum so far in front, which
 * is the same order of additions. */
static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    enum { PART = 16 };
    const float *f32[PART];
    const double *f64[PART];
    const int64_t n = bk_elements(c->out[0].v);
    const bool wide = bk_call_f64(c);
    for (int k = 0; k < c->op->n_in;) {
        int m = 0;
        if (k > 0) f32[m] = c->out[0].p, f64[m] = c->out[0].p, m++;
        for (; m < PART && k < c->op->n_in; m++, k++) f32[m] = c->in[k].p, f64[m] = c->in[k].p;
        if (wide)
            bk_add_n_f64(c->out[0].p, f64, m, n);
        else
            bk_add_n_f32(c->out[0].p, f32, m, n);
    }
    return BK_OK;
}

const bk_op_rules bk_add_n_rules = {.shape = shape, .spread = spread, .cost = cost, .grad = grad, .cpu = cpu};
