/* What every kind of attention ends with: the attention of queries, keys and values over the sequence, with
 * the caches of generation, and the output projection. */
#include <stdio.h>

#include "model/parts.h"

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

bk_vid bk_build_core_attention(bk_builder *b, bk_vid q, bk_vid k, bk_vid v, double factor)
{
    const bk_attr scale = {.f = factor};
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

bk_branch bk_build_attention_out(bk_builder *b, bk_vid context, int64_t width)
{
    const bk_linear_params out =
        bk_build_linear_params(b, "self_attention.linear_proj", b->c->hidden_size, width,
                               bk_build_output_std(b), b->c->add_bias_linear, BK_CLASS_ATTENTION);
    const bk_vid y =
        bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(context, out.weight), .name = "attn.proj"});
    return (bk_branch){y, out.bias};
}
