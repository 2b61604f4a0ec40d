/* feed: output 0, a value that exists already, is written by the host (bk_host.feed). */
#include "ops/rules.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_vid v = bk_outs(g, op)[0];
    if (v == BK_NONE) return bk_err_set(e, BK_E_INPUT, "feed needs the value that it writes");
    bk_shape_like(&out[0], &g->value[v]);
    return BK_OK;
}

/* Whoever declares an input states its spread. */
static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    (void)e;
    out[0] = g->value[bk_outs(g, op)[0]].spread[axis];
    return BK_OK;
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    const bk_value *v = c->out[0].v;
    if (!c->host || !c->host->feed)
        return bk_err_set(e, BK_E_INPUT, "input %s: the program was started without a host that feeds it",
                          v->name);
    return c->host->feed(c->host->ctx, v, c->micro, c->out[0].p, e);
}

const bk_op_rules bk_feed_rules = {.shape = shape, .spread = spread, .cpu = cpu};
