/* Causal self-attention with grouped queries. The projection's output row holds, for each of the G groups, R
 * query heads, one key head and one value head of hd dims; queries, keys and values are views of it:
 *
 *     qkv [S, B, G * (R + 2) * hd]     | q q .. q | k | v | q q .. q | k | v | ...
 *       q [S, B, G, R, hd]     k, v [S, B, G, hd] */
#include <assert.h>
#include <math.h>

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
    if (b->io->rope_cos == BK_NONE) return x;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_rope, BK_IN(x, b->io->rope_cos, b->io->rope_sin), .name = name,
                                         .attr = {{b->c->rotary_interleaved}, {0}}});
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

    const bk_vid context = bk_build_core_attention(b, q, k, v, 1 / sqrt((double)hd));
    return bk_build_attention_out(b, context, H * hd);
}
