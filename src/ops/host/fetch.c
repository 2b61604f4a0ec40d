/* fetch: hands input 0 to the host (bk_host.fetch): losses, norms, whatever a step reports. */
#include "ops/rules.h"

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    (void)out, (void)g, (void)op, (void)e;
    return BK_OK;
}

/* Any spread: each rank reports what it holds. */
static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    (void)out, (void)g, (void)op, (void)axis, (void)e;
    return BK_OK;
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    const bk_value *v = c->in[0].v;
    if (!c->host || !c->host->fetch)
        return bk_err_set(e, BK_E_INPUT, "value %s: the program was started without a host that takes it",
                          v->name);
    return c->host->fetch(c->host->ctx, v, c->micro, c->in[0].p, e);
}

const bk_op_rules bk_fetch_rules = {.shape = shape, .spread = spread, .cpu = cpu};
