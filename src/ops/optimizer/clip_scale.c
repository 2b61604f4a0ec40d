/* clip_scale: from the norm f64 [1], coef f64 [1] that gradients are multiplied by and apply i32 [1], whether
 * the step is taken: not when the norm is infinite or no number, nor when the excess i64 [1], if there is
 * one, is above 0. */
#include "ops/rules.h"

#include <math.h>

#define BK_BOTH "ops/optimizer/optimizer_cpu.h"
#include "base/real_both.h"

enum { CLIP };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "1:d,1:l>1:d,1:i", e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis, "ranks would clip differently; reduce the norm first", e);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const double norm = *(const double *)c->in[0].p;
    *(double *)c->out[0].p = bk_clip_coef_f64(norm, bk_attr_f(c->op, CLIP));
    const int64_t *excess = bk_call_in(c, 1);
    *(int32_t *)c->out[1].p = isfinite(norm) && !(excess && *excess > 0) ? 1 : 0;
    return BK_OK;
}

const bk_op_rules bk_clip_scale_rules = {.shape = shape, .spread = spread, .cpu = cpu};
