/* Causal self-attention with grouped queries. The projection's output row holds, for each of the G groups, R
 * query heads, one key head and one value head of hd dims; queries, keys and values are views of it:
 *
 *     qkv [S, B, G * (R + 2) * hd]     | q q .. q | k | v | q q .. q | k | v | ...
 *       q [S, B, G, R, hd]     k, v [S, B, G, hd] */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "model/parts.h"

static bk_vid group_view(bk_builder *b, const char *name, bk_vid qkv, int64_t first_head, int64_t n_heads)
{
    const int64_t G = b->c->num_query_groups, R = b->c->num_attention_heads / G, hd = b->c->kv_channels;
    const int64_t group = (R + 2) * hd, row = G * group;
    const int64_t S = b->l->seq, B = b->l->micro_batch;
    if (n_heads > 0)
        return bk_build_view(b, name, qkv, 5, (const int64_t[]){S, B, G, n_heads, hd},
                             (const int64_t[]){B * row, row, group, hd, 1}, first_head * hd);
    return bk_build_view(b, name, qkv, 4, (const int64_t[]){S, B, G, hd},
                         (const int64_t[]){B * row, row, group, 1}, first_head * hd);
}

static bk_vid rotate(bk_builder *b, const char *name, bk_vid x)
{
    if (b->rope_cos == BK_NONE) return x;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_rope, BK_IN(x, b->rope_cos, b->rope_sin), .name = name,
                                         .attr = {{b->c->rotary_interleaved}, {0}}});
}

/* The keys or values of all tokens so far, and an op that appends those of the new ones. */
static bk_vid append_to_cache(bk_builder *b, const char *which, bk_vid x)
{
    bk_vid cache = BK_NONE;
    char name[BK_NAME_LEN];
    if (b->st != BK_OK) return BK_NONE;
    snprintf(name, sizeof name, BK_CACHE "%s.layer%d", which, (int)b->g->tag.layer);
    bk_value v = {
        .name = name, .dtype = b->g->real, .kind = BK_STATE, .scope = BK_RUN, .rank = 4, .param = BK_NONE};
    /* What a step finds in the cache is counted by its position. */
    v.dim[0] = (bk_dim){.size = b->c->seq_length, .count = 1 + b->io->position};
    for (int d = 1; d < 4; d++) v.dim[d] = (bk_dim){.size = b->g->value[x].dim[d].size};
    b->st = bk_value_add(&cache, b->g, &v, b->e);
    bk_build_op(NULL, b,
                &(bk_op_spec){BK_OP_cache_append, BK_IN(x, b->io->position), .upd = &cache, .n_upd = 1});
    return b->st == BK_OK ? cache : BK_NONE;
}

/* softmax(q k^T) v, the heads side by side: [S, B, H * hd]. */
static bk_vid attend(bk_builder *b, bk_vid q, bk_vid k, bk_vid v)
{
    const bk_attr scale = {.f = 1 / sqrt((double)b->c->kv_channels)};
    if (b->generate) {
        k = append_to_cache(b, "k", k), v = append_to_cache(b, "v", v);
        return bk_build_op1(b, &(bk_op_spec){BK_OP_attention_cached, BK_IN(q, k, v, b->io->position),
                                             .name = "attn.context", .attr = {scale}});
    }
    const double p = bk_build_dropout(b, b->c->attention_dropout);
    bk_vid out[2]; /* and the logarithms of the softmax sums */
    bk_build_op(out, b,
                &(bk_op_spec){BK_OP_attention, BK_IN(q, k, v, bk_build_samples(b, p)), .name = "attn.context",
                              .attr = {scale, BK_DROPOUT(b, p, BK_SITE_ATTENTION_PROBS)}});
    return out[0];
}

bk_branch bk_build_self_attention(bk_builder *b, bk_vid x)
{
    const bk_config *c = b->c;
    const int64_t C = c->hidden_size, G = c->num_query_groups, H = c->num_attention_heads,
                  hd = c->kv_channels;
    assert(H % G == 0);
    const int64_t R = H / G;
    const bk_linear_params in =
        bk_build_linear_params(b, "self_attention.linear_qkv", (H + 2 * G) * hd, C, c->init_method_std,
                               c->add_bias_linear || c->add_qkv_bias, BK_CLASS_ATTENTION);
    const bk_vid qkv =
        bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(x, in.weight, in.bias), .name = "attn.qkv"});
    const bk_vid q = rotate(b, "attn.q.rotated", group_view(b, "attn.q", qkv, 0, R));
    const bk_vid k = rotate(b, "attn.k.rotated", group_view(b, "attn.k", qkv, R, 0));
    const bk_vid v = group_view(b, "attn.v", qkv, R + 1, 0);

    const bk_vid context = attend(b, q, k, v);
    const bk_linear_params out = bk_build_linear_params(
        b, "self_attention.linear_proj", C, H * hd, c->init_method_std / sqrt(2.0 * (double)c->num_layers),
        c->add_bias_linear, BK_CLASS_ATTENTION);
    const bk_vid y =
        bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(context, out.weight), .name = "attn.proj"});
    return (bk_branch){y, out.bias};
}
