/* What happens once a step: global norm, clip factor, AdamW. */
#include <stdio.h>
#include <stdlib.h>

#include "passes/passes.h"

static const bk_tag step_tag = {BK_MODULE_DECODER, BK_NODE_STEP, BK_PASS_STEP, BK_NONE};

static bk_status feed_scalar(bk_vid *out, bk_graph *g, const char *name, bk_dtype dtype, bk_err *e)
{
    const bk_value proto = {
        .name = name, .dtype = dtype, .kind = BK_INPUT, .scope = BK_STEP, .rank = 1, .dim = {{1, 0}}};
    bk_status st = bk_value_add(out, g, &proto, e);
    return st == BK_OK ? bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_feed, .into = *out + 1}, e) : st;
}

/* A parameter that no gradient reaches still reports an exact zero. */
static bk_status complete_gradients(bk_graph *g, bk_err *e)
{
    bk_status st = BK_OK;
    for (int64_t p = 0; p < g->n_params && st == BK_OK; p++) {
        if (g->param[p].grad != BK_NONE) continue;
        bk_value acc = g->value[g->param[p].value];
        acc.kind = BK_GRADIENT, acc.scope = BK_STEP;
        st = bk_value_add(&g->param[p].grad, g, &acc, e);
        if (st == BK_OK)
            st = bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_fill, .into = g->param[p].grad + 1}, e);
    }
    return st;
}

static bk_status add_norm(bk_vid *norm, bk_graph *g, bk_err *e)
{
    bk_vid *grad = malloc((size_t)g->n_params * sizeof *grad);
    if (!grad) return bk_err_set(e, BK_E_MEM, "step: out of memory");
    for (int64_t p = 0; p < g->n_params; p++) grad[p] = g->param[p].grad;
    bk_status st = bk_op_add(
        norm, g,
        &(bk_op_spec){.kind = BK_OP_grad_norm, .in = grad, .n_in = (int)g->n_params, .name = "grad_norm"}, e);
    free(grad);
    return st;
}

static bk_status add_moment(bk_vid *out, bk_graph *g, const char *moment, bk_pid p, bk_err *e)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", moment, g->param[p].name);
    bk_value proto = g->value[g->param[p].grad];
    proto.name = name, proto.kind = BK_STATE, proto.scope = BK_RUN;
    return bk_value_add(out, g, &proto, e);
}

bk_status bk_pass_step(bk_graph *g, const bk_step_options *o, bk_err *e)
{
    g->tag = step_tag;
    bk_vid lr, step, norm, scale[2];
    bk_status st = BK_OK;
    BK_TRY(feed_scalar(&lr, g, "learning_rate", BK_F64, e));
    BK_TRY(feed_scalar(&step, g, "step", BK_I64, e));
    BK_TRY(complete_gradients(g, e));
    BK_TRY(add_norm(&norm, g, e));
    BK_TRY(bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &norm, .n_in = 1}, e));
    const bk_vid decides[] = {norm, o->excess ? *o->excess : BK_NONE};
    BK_TRY(bk_op_add(scale, g,
                     &(bk_op_spec){.kind = BK_OP_clip_scale,
                                   .in = decides,
                                   .n_in = o->excess ? 2 : 1,
                                   .name = "clip",
                                   .attr = {{.f = o->clip_grad}}},
                     e));
    for (int k = 0; k < o->n_biases; k++) {
        const bk_vid in[] = {o->biases[k].counts, scale[1]};
        bk_vid bias = o->biases[k].bias;
        BK_TRY(bk_op_add(NULL, g,
                         &(bk_op_spec){.kind = BK_OP_expert_bias_update,
                                       .in = in,
                                       .n_in = 2,
                                       .upd = &bias,
                                       .n_upd = 1,
                                       .attr = {{.f = o->bias_update_rate}}},
                         e));
    }
    for (bk_pid p = 0; p < g->n_params; p++) {
        bk_vid upd[3] = {g->param[p].value};
        BK_TRY(add_moment(&upd[1], g, "exp_avg", p, e));
        BK_TRY(add_moment(&upd[2], g, "exp_avg_sq", p, e));
        const bk_vid in[] = {g->param[p].grad, lr, step, scale[0], scale[1]};
        const double decay = g->param[p].decay ? o->weight_decay : 0.0;
        BK_TRY(
            bk_op_add(NULL, g,
                      &(bk_op_spec){.kind = BK_OP_adamw,
                                    .in = in,
                                    .n_in = 5,
                                    .upd = upd,
                                    .n_upd = 3,
                                    .attr = {{.f = o->beta1}, {.f = o->beta2}, {.f = o->eps}, {.f = decay}}},
                      e));
    }
done:
    return st;
}
