#include "model/builder.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void bk_build_at(bk_builder *b, int64_t layer, bk_node node)
{
    assert(layer == BK_NONE || (layer >= 0 && layer <= INT16_MAX));
    b->g->tag = (bk_tag){.module = (uint8_t)b->module,
                         .node = (uint8_t)node,
                         .pass = BK_PASS_FORWARD,
                         .layer = (int16_t)layer};
}

void bk_build_names(bk_builder *b, const char *values, const char *params)
{
    assert(strlen(values) < BK_PREFIX_LEN && strlen(params) < BK_PREFIX_LEN);
    snprintf(b->values, sizeof b->values, "%s", values);
    snprintf(b->params, sizeof b->params, "%s", params);
}

/* Names are written in this folder, so one that does not fit is our mistake. */
static const char *join(char buf[BK_NAME_LEN], const char *prefix, const char *name, const char *suffix)
{
    const int n = snprintf(buf, BK_NAME_LEN, "%s%s%s", prefix, name, suffix);
    assert(n > 0 && n < BK_NAME_LEN);
    (void)n;
    return buf;
}

void bk_build_op(bk_vid *out, bk_builder *b, const bk_op_spec *spec)
{
    char name[BK_NAME_LEN];
    bk_op_spec s = *spec;
    while (s.n_in > bk_ops[s.kind].in_min && s.in[s.n_in - 1] == BK_NONE) s.n_in--;
    if (s.name) s.name = join(name, b->values, spec->name, "");
    if (b->st == BK_OK) b->st = bk_op_add(out, b->g, &s, b->e);
    const int n_out = s.n_out ? s.n_out : bk_ops[s.kind].out_min;
    for (int i = 0; b->st != BK_OK && out && i < n_out; i++) out[i] = BK_NONE;
}

bk_vid bk_build_op1(bk_builder *b, const bk_op_spec *spec)
{
    assert(bk_ops[spec->kind].out_min == 1 && spec->n_out <= 1);
    bk_vid out;
    bk_build_op(&out, b, spec);
    return out;
}

bk_vid bk_build_view(bk_builder *b, const char *name, bk_vid base, int rank, const int64_t *dim,
                     const int64_t *stride, int64_t offset)
{
    char full[BK_NAME_LEN];
    bk_vid out = BK_NONE;
    join(full, b->values, name, "");
    if (b->st == BK_OK) b->st = bk_view_add(&out, b->g, full, base, rank, dim, stride, offset, b->e);
    return b->st == BK_OK ? out : BK_NONE;
}

bk_vid bk_build_input(bk_builder *b, const char *name, bk_dtype dtype, bk_scope scope, int rank,
                      const int64_t *dim)
{
    bk_value v = {.name = name, .dtype = dtype, .kind = BK_INPUT, .scope = scope, .rank = rank};
    for (int d = 0; d < rank; d++) v.dim[d] = (bk_dim){.size = dim[d]};
    bk_vid out = BK_NONE;
    if (b->st == BK_OK) b->st = bk_value_add(&out, b->g, &v, b->e);
    if (b->st == BK_OK)
        b->st = bk_op_add(NULL, b->g, &(bk_op_spec){.kind = BK_OP_feed, .name = name, .into = 1 + out}, b->e);
    return b->st == BK_OK ? out : BK_NONE;
}

bk_vid bk_build_param(bk_builder *b, const bk_param *row)
{
    char name[BK_NAME_LEN], alias[BK_NAME_LEN];
    bk_param p = *row;
    p.name = join(name, b->params, row->name, "");
    p.alias = row->alias ? join(alias, b->params, row->alias, "") : NULL;
    p.dtype = b->g->real;
    p.decay = p.rank >= 2;
    bk_vid out =
        b->module == BK_MODULE_MTP && b->st == BK_OK ? bk_value_find(b->g, BK_PARAM, p.name) : BK_NONE;
    if (out != BK_NONE) return out;
    if (b->st == BK_OK) b->st = bk_param_add(&out, b->g, &p, b->e);
    return b->st == BK_OK ? out : BK_NONE;
}

bk_vid bk_build_state(bk_builder *b, const char *prefix, const char *name, bk_scope scope, bk_dtype dtype,
                      int64_t n)
{
    char full[BK_NAME_LEN];
    if (b->st != BK_OK) return BK_NONE;
    const bk_value v = {.name = join(full, prefix, name, ""),
                        .dtype = dtype,
                        .kind = BK_STATE,
                        .scope = scope,
                        .rank = 1,
                        .dim = {{.size = n}},
                        .param = BK_NONE};
    bk_vid out = bk_value_find(b->g, BK_STATE, full);
    if (out == BK_NONE) b->st = bk_value_add(&out, b->g, &v, b->e);
    return b->st == BK_OK ? out : BK_NONE;
}

bk_linear_params bk_build_linear_params(bk_builder *b, const char *name, int64_t n_out, int64_t n_in,
                                        double std, bool has_bias, bk_param_class class_)
{
    char weight[BK_NAME_LEN], bias[BK_NAME_LEN];
    bk_linear_params p = {.bias = BK_NONE};
    p.weight = bk_build_param(b, &(bk_param){.name = join(weight, name, ".weight", ""),
                                             .rank = 2,
                                             .shape = {n_out, n_in},
                                             .class_ = class_,
                                             .init = BK_INIT_NORMAL,
                                             .init_arg = std});
    if (has_bias)
        p.bias = bk_build_param(b, &(bk_param){.name = join(bias, name, ".bias", ""),
                                               .rank = 1,
                                               .shape = {n_out},
                                               .class_ = class_,
                                               .init = BK_INIT_ZERO});
    return p;
}

static bk_vid norm_param(bk_builder *b, const char *param, const char *alias, const char *which,
                         int64_t width, bk_init_rule init)
{
    char name[BK_NAME_LEN], second[BK_NAME_LEN];
    return bk_build_param(b, &(bk_param){.name = join(name, param, ".", which),
                                         .alias = alias ? join(second, alias, "_", which) : NULL,
                                         .rank = 1,
                                         .shape = {width},
                                         .class_ = BK_CLASS_NORM,
                                         .init = init});
}

bk_vid bk_build_norm(bk_builder *b, const char *name, bk_vid x, const char *param, const char *alias)
{
    bk_vid out[3]; /* the output, then the statistics that the backward reads */
    if (b->st != BK_OK) return BK_NONE;
    const bk_attr eps = {.f = b->c->layernorm_epsilon};
    const bk_value *in = &b->g->value[x];
    const int64_t width = in->dim[in->rank - 1].size;
    const bk_vid gain = norm_param(b, param, alias, "weight", width, BK_INIT_ONE);
    if (b->c->normalization == BK_NORM_RMS) {
        bk_build_op(out, b, &(bk_op_spec){BK_OP_rmsnorm, BK_IN(x, gain), .name = name, .attr = {eps}});
    } else {
        const bk_vid shift = norm_param(b, param, alias, "bias", width, BK_INIT_ZERO);
        bk_build_op(out, b,
                    &(bk_op_spec){BK_OP_layernorm, BK_IN(x, gain, shift), .name = name, .attr = {eps}});
    }
    return out[0];
}

double bk_build_dropout(const bk_builder *b, double p)
{
    return b->train ? p : 0;
}
