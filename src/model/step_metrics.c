/* What the model reports of a step beside its gradients: states that gather over the micro-batches, and the
 * ops that hand them to the host. */
#include <stdio.h>
#include <string.h>

#include "model/parts.h"

static const char prefix[] = "metric.";
/* Behind the prefix; a mean is what says nothing. */
static const char *const how[BK_N_METRIC_KINDS] = {
    [BK_METRIC_MEAN] = "", [BK_METRIC_SUM] = "sum.", [BK_METRIC_MAX] = "max."};

const char *bk_metric_of(bk_metric_kind *kind, const char *value)
{
    const size_t n = strlen(prefix);
    if (strncmp(value, prefix, n) != 0) return NULL;
    *kind = BK_METRIC_MEAN;
    for (int k = 0; k < BK_N_METRIC_KINDS; k++)
        if (strncmp(value + n, how[k], strlen(how[k])) == 0) *kind = (bk_metric_kind)k;
    return value + n + strlen(how[*kind]);
}

const char *bk_metric_part(const char **figure, const char *name)
{
    static const char *const parts[] = {BK_PART_ROUTER, BK_PART_ATTENTION_HC, BK_PART_MLP_HC};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const char *part = strstr(name, parts[k]);
        if (part) return *figure = part + strlen(parts[k]), part;
    }
    return NULL;
}

bk_vid bk_build_metric(bk_builder *b, bk_metric_kind kind, const char *name, bk_vid term)
{
    char front[BK_NAME_LEN];
    if (b->st != BK_OK) return BK_NONE;
    const bk_value *v = &b->g->value[term];
    snprintf(front, sizeof front, "%s%s", prefix, how[kind]);
    bk_vid state = bk_build_state(b, front, name, BK_STEP, v->dtype, bk_elements(v));
    bk_build_op(NULL, b,
                &(bk_op_spec){kind == BK_METRIC_MAX ? BK_OP_acc_max : BK_OP_acc, BK_IN(term), .upd = &state,
                              .n_upd = 1});
    return state;
}

/* Depths of multi-token prediction that share a layer gather in one state. */
static bk_vid share_of_depth(bk_builder *b, bk_vid term)
{
    if (b->module != BK_MODULE_MTP || !b->c->mtp_use_repeated_layer || b->c->mtp_num_layers == 1) return term;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_scale, BK_IN(term), .name = "metric.share",
                                         .attr = {{.f = 1 / (double)b->c->mtp_num_layers}}});
}

bk_vid bk_build_layer_metric(bk_builder *b, bk_metric_kind kind, const char *name, bk_vid term)
{
    char full[BK_NAME_LEN];
    snprintf(full, sizeof full, "%s%s", b->params, name);
    return bk_build_metric(b, kind, full, kind == BK_METRIC_MEAN ? share_of_depth(b, term) : term);
}

void bk_build_fetch_metrics(bk_builder *b)
{
    const bk_tag tag = b->g->tag;
    bk_build_at(b, BK_NONE, BK_NODE_STEP);
    b->g->tag.pass = BK_PASS_STEP;
    const int64_t n = b->g->n_values;
    for (bk_vid v = 0; v < n && b->st == BK_OK; v++) {
        const bk_value *x = &b->g->value[v];
        bk_metric_kind ignored;
        if (x->kind == BK_STATE && x->scope == BK_STEP && bk_metric_of(&ignored, x->name))
            bk_build_op(NULL, b, &(bk_op_spec){BK_OP_fetch, BK_IN(v), .name = "metric"});
    }
    b->g->tag = tag;
}
