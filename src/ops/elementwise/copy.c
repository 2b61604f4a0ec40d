/* copy: output = input. acc: update += input. Both work on views with strides of their own. */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"
#define BK_BOTH "ops/elementwise/strided_cpu.h"
#include "base/real_both.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *x = bk_in(g, op, 0);
    if (x->dtype != BK_F32 && x->dtype != BK_F64)
        return bk_err_set(e, BK_E_INPUT, "%s is %s; only f32 and f64 can be copied and added", x->name,
                          bk_dtype_names[x->dtype]);
    return bk_shape_elementwise(out, g, op, 1, e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, 1, true, e);
}

static void write_or_add(const bk_arg *to, const bk_arg *x, bool f64, int beta)
{
    const bk_value *v = x->v;
    int64_t dim[BK_MAX_DIMS] = {0};
    for (int d = 0; d < v->rank; d++) dim[d] = v->dim[d].size;
    if (bk_is_dense(v) && bk_is_dense(to->v))
        BK_REAL_CALL(f64, bk_acc, to->p, x->p, bk_elements(v), beta);
    else
        BK_REAL_CALL(f64, bk_strided_acc, to->p, x->p, v->rank, dim, to->v->stride, v->stride, beta);
}

static bk_status copy_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    return bk_grad_add(c, op.in[0], bk_grad_of(c, op.out[0]), e);
}

static bk_status copy_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    write_or_add(&c->out[0], &c->in[0], bk_call_f64(c), 0);
    return BK_OK;
}

static bk_status acc_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    write_or_add(&c->upd[0], &c->in[0], bk_call_f64(c), bk_call_beta(c, 0));
    return BK_OK;
}

const bk_op_rules bk_copy_rules = {.shape = shape, .spread = spread, .grad = copy_grad, .cpu = copy_cpu};
const bk_op_rules bk_acc_rules = {.shape = shape, .spread = spread, .cpu = acc_cpu};
