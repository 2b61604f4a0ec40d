/* adamw: one step of a parameter. Inputs gradient, lr f64 [1], step number i64 [1], coef f64 [1], apply i32
 * [1]; updates the parameter and its moments m and v, all of the gradient's shape. apply 0 changes nothing.
 */
#include "ops/rules.h"

#define BK_BOTH "ops/optimizer/optimizer_cpu.h"
#include "base/real_both.h"

enum { BETA1, BETA2, EPS, DECAY };
enum { GRAD, LR, STEP, COEF, APPLY };
enum { FLOPS_OF_ELEMENT = 15 };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    static const struct {
        const char *what;
        bk_dtype dtype;
    } scalars[] = {[LR] = {"the learning rate", BK_F64},
                   [STEP] = {"the step number", BK_I64},
                   [COEF] = {"the clip coefficient", BK_F64},
                   [APPLY] = {"the apply flag", BK_I32}};
    bk_status st = BK_OK;
    for (int k = LR; k <= APPLY; k++) {
        BK_TRY(bk_shape_need(g, op, k, scalars[k].what, 1, (const int64_t[]){1}, e));
        BK_TRY(bk_shape_need_dtype(g, op, k, scalars[k].dtype, e));
    }
    BK_TRY(bk_shape_elementwise(out, g, op, 1, e));
done:
    return st;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_as_param(out, g, op, axis, 1, e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FLOPS_OF_ELEMENT * bk_elements(bk_in(g, op, GRAD));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_op *op = c->op;
    BK_REAL_CALL(bk_call_f64(c), bk_adamw, c->upd[0].p, c->upd[1].p, c->upd[2].p, c->in[GRAD].p,
                 bk_elements(c->in[GRAD].v), *(const double *)c->in[LR].p, bk_attr_f(op, BETA1),
                 bk_attr_f(op, BETA2), bk_attr_f(op, EPS), bk_attr_f(op, DECAY),
                 *(const int64_t *)c->in[STEP].p, *(const double *)c->in[COEF].p,
                 *(const int32_t *)c->in[APPLY].p != 0);
    return BK_OK;
}

const bk_op_rules bk_adamw_rules = {.shape = shape, .spread = spread, .cost = cost, .cpu = cpu};
