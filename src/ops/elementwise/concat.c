/* concat: y [S, B, C + D] = a [S, B, C] beside b [S, B, D]. The gradients are the two parts of dy, copied. */
#include "base/size.h"
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/strided_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_op inputs = *op; /* the output's width is a sum */
    inputs.n_out = 0;
    int64_t width;
    const bk_status st = bk_shape_pattern(NULL, g, &inputs, "sbc,sbd", e);
    if (st != BK_OK) return st;
    const bk_value *a = bk_in(g, op, 0);
    if (!bk_add64(&width, a->dim[2].size, bk_in(g, op, 1)->dim[2].size))
        return bk_err_set(e, BK_E_MEM, "the width of the output overflows");
    bk_shape_set(out, a->dtype, 3, (const bk_dim[]){a->dim[0], a->dim[1], bk_fixed(width)});
    return BK_OK;
}

/* A part of each width would not be a part of the whole. */
static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbC,sbD>sbE", e);
}

static bk_status part_grad(bk_grad_ctx *c, bk_vid x, bk_vid dy, int64_t offset, bk_err *e)
{
    if (!bk_grad_wanted(c, x)) return BK_OK;
    const bk_value v = c->g->value[x], d = c->g->value[dy];
    const int64_t dim[] = {v.dim[0].size, v.dim[1].size, v.dim[2].size};
    bk_vid part, dx;
    bk_status st = bk_view_add(&part, c->g, "concat.part", dy, 3, dim, d.stride, d.offset + offset, e);
    if (st == BK_OK) st = bk_op1(&dx, c->g, e, BK_OP_copy, "concat.dx", (.n_out = 1), part);
    return st == BK_OK ? bk_grad_add(c, x, dx, e) : st;
}

static bk_status grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE) return BK_OK;
    const int64_t first = c->g->value[op.in[0]].dim[2].size;
    const bk_status st = part_grad(c, op.in[0], dy, 0, e);
    return st == BK_OK ? part_grad(c, op.in[1], dy, first, e) : st;
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_value *y = c->out[0].v;
    const size_t size = (size_t)bk_dtype_bytes(y->dtype);
    int64_t first = 0;
    for (int k = 0; k < 2; k++) {
        const bk_value *x = c->in[k].v;
        const int64_t dim[] = {x->dim[0].size, x->dim[1].size, x->dim[2].size};
        void *to = (char *)c->out[0].p + (size_t)first * size;
        if (bk_elements(x) > 0)
            BK_REAL_CALL(bk_call_f64(c), bk_strided_acc, to, c->in[k].p, 3, dim, y->stride, x->stride, 0);
        first += dim[2];
    }
    return BK_OK;
}

const bk_op_rules bk_concat_rules = {.shape = shape, .spread = spread, .grad = grad, .cpu = cpu};
