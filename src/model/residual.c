/* The residual path around a sublayer: a plain addition, or a hyper-connection (mHC, arXiv:2512.24880), which
 * aggregates n streams to the sublayer's input and mixes them while it distributes the output. */
#include <stdio.h>

#include "model/mhc_params.h"
#include "model/parts.h"

/* "attn" and "map" to "attn.map". */
static const char *under(char buf[BK_NAME_LEN], const char *node, const char *name)
{
    snprintf(buf, BK_NAME_LEN, "%s.%s", node, name);
    return buf;
}

static void measure(bk_builder *b, const char *node, const char *param, bk_vid h_res, bk_vid x)
{
    char name[BK_NAME_LEN];
    bk_vid health[2]; /* the worst, the mean */
    if (!b->measure) return;
    bk_build_op(health, b,
                &(bk_op_spec){BK_OP_mhc_health, BK_IN(h_res, x), .name = under(name, node, "health")});
    snprintf(name, sizeof name, "%s%s", param, BK_METRIC_WORST);
    bk_build_layer_metric(b, BK_METRIC_MAX, name, health[0]);
    snprintf(name, sizeof name, "%s%s", param, BK_METRIC_HEALTH);
    bk_build_layer_metric(b, BK_METRIC_MEAN, name, health[1]);
}

bk_vid bk_build_residual_open(bk_residual *out, bk_builder *b, const bk_layer_spec *spec, const char *node,
                              const char *param, bk_vid x)
{
    *out = (bk_residual){.x = x, .h_res = BK_NONE, .h_post = BK_NONE};
    if (!spec->hyper) return x;
    char name[BK_NAME_LEN];
    const bk_mhc_params p = bk_build_mhc_params(b, param, b->c->mhc_num_residual_streams, b->c->hidden_size,
                                                b->c->mhc_init_gating_factor);
    bk_vid map[5]; /* h_pre, h_post, h_res, and two values for the backward */
    bk_build_op(map, b,
                &(bk_op_spec){BK_OP_mhc_map,
                              BK_IN(x, p.mapping, p.alpha_pre, p.alpha_post, p.alpha_res, p.bias),
                              .name = under(name, node, "map"), .attr = {{b->c->mhc_sinkhorn_iterations}}});
    out->h_post = map[1], out->h_res = map[2];
    measure(b, node, param, out->h_res, x);
    return bk_build_op1(
        b, &(bk_op_spec){BK_OP_mhc_aggregate, BK_IN(x, map[0]), .name = under(name, node, "aggregate")});
}

bk_vid bk_build_residual_close(bk_builder *b, const bk_layer_spec *spec, const char *node, bk_site site,
                               const bk_residual *r, bk_branch branch)
{
    char name[BK_NAME_LEN];
    const double p = bk_build_dropout(b, b->c->hidden_dropout);
    const bk_vid samples = bk_build_samples(b, p);
    if (!spec->hyper)
        return bk_build_op1(b, &(bk_op_spec){BK_OP_residual_add, BK_IN(r->x, branch.y, branch.bias, samples),
                                             .name = under(name, node, "out"),
                                             .attr = {BK_DROPOUT(b, p, site)}});
    return bk_build_op1(b, &(bk_op_spec){BK_OP_mhc_post,
                                         BK_IN(r->x, r->h_res, r->h_post, branch.y, branch.bias, samples),
                                         .name = under(name, node, "out"), .attr = {BK_DROPOUT(b, p, site)}});
}
