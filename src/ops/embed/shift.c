/* shift: y[b, s] = x[b, s + by], 0 behind the end of the sequence; tokens, labels and masks [B, S] of a
 * prediction `by` places further on. Integers or reals; no gradient. */
#include <inttypes.h>
#include <string.h>

#include "ops/rules.h"

enum { BY };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_need(g, op, 0, "x [B, S]", 2, (const int64_t[]){-1, -1}, e);
    if (st != BK_OK) return st;
    if (bk_attr_i(op, BY) < 0)
        return bk_err_set(e, BK_E_INPUT, "by is %" PRId64 ", expected a number of places to the left",
                          bk_attr_i(op, BY));
    bk_shape_like(out, bk_in(g, op, 0));
    return BK_OK;
}

/* A sequence is needed whole: what comes in at its end is another rank's beginning. */
static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "bS>bS", e);
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const int64_t B = bk_arg_dim(&c->in[0], 0), S = bk_arg_dim(&c->in[0], 1), by = bk_attr_i(c->op, BY);
    const size_t size = (size_t)bk_dtype_bytes(c->in[0].v->dtype);
    const size_t gone = (size_t)(by < S ? by : S) * size, kept = (size_t)S * size - gone;
    for (int64_t b = 0; b < B && S > 0; b++) {
        const char *x = (const char *)c->in[0].p + (size_t)(b * S) * size;
        char *y = (char *)c->out[0].p + (size_t)(b * S) * size;
        memcpy(y, x + gone, kept);
        memset(y + kept, 0, gone); /* the bytes of 0 in every dtype */
    }
    return BK_OK;
}

const bk_op_rules bk_shift_rules = {.shape = shape, .spread = spread, .cpu = cpu};
