/* Token ids to streams: embedding, learned positions, dropout, expansion; and the rope tables, which depend
 * on no micro-batch and are computed once a step. */
#include "model/parts.h"

static bk_vid embedding_table(bk_builder *b, const char *name, int64_t n_rows)
{
    return bk_build_param(b, &(bk_param){.name = name,
                                         .rank = 2,
                                         .shape = {n_rows, b->c->hidden_size},
                                         .class_ = BK_CLASS_EMBEDDING,
                                         .init = BK_INIT_NORMAL,
                                         .init_arg = b->c->embedding_init_method_std});
}

static void rope_tables(bk_builder *b)
{
    const int64_t dims = (int64_t)((double)b->c->kv_channels * b->c->rotary_percent);
    bk_vid table[2];
    bk_build_op(table, b,
                &(bk_op_spec){BK_OP_rope_table, BK_IN(b->io->position), .name = "rope",
                              .attr = {{b->l->seq}, {dims}, {.f = b->c->rotary_base}}});
    b->io->rope_cos = table[0], b->io->rope_sin = table[1];
}

bk_vid bk_build_pre_process(bk_builder *b)
{
    const bk_config *c = b->c;
    const int64_t ids[] = {b->l->micro_batch, b->l->seq};
    const double p = bk_build_dropout(b, c->hidden_dropout);
    bk_build_at(b, BK_NONE, BK_NODE_PRE_PROCESS);
    bk_build_names(b, "", "embedding.");
    b->io->tokens = bk_build_input(b, "tokens", BK_I32, bk_build_batch_scope(b), 2, ids);
    if (b->generate)
        b->io->position = bk_build_input(b, "position", BK_I64, BK_STEP, 1, (const int64_t[]){1});
    if (p > 0 || bk_build_dropout(b, c->attention_dropout) > 0)
        b->io->samples = bk_build_input(b, "samples", BK_I64, BK_MICRO, 1, ids);

    b->word_embeddings = embedding_table(b, "word_embeddings.weight", c->padded_vocab_size);
    bk_vid x = bk_build_op1(
        b, &(bk_op_spec){BK_OP_embedding, BK_IN(b->word_embeddings, b->io->tokens), .name = "embedding"});
    if (c->position_embedding_type == BK_POSITION_LEARNED) {
        const bk_vid table = embedding_table(b, "position_embeddings.weight", c->max_position_embeddings);
        x = bk_build_op1(b, &(bk_op_spec){BK_OP_add_pos, BK_IN(x, table, b->io->position),
                                          .name = "embedding.positioned"});
    }
    if (c->multi_latent_attention)
        bk_build_mla_rope_tables(b);
    else if (c->position_embedding_type == BK_POSITION_ROPE)
        rope_tables(b);
    if (p > 0)
        x = bk_build_op1(b,
                         &(bk_op_spec){BK_OP_dropout, BK_IN(x, b->io->samples), .name = "embedding.dropped",
                                       .attr = {BK_DROPOUT(b, p, BK_SITE_EMBEDDING)}});
    if (c->enable_mhc_connections)
        x = bk_build_op1(b, &(bk_op_spec){BK_OP_mhc_expand, BK_IN(x), .name = "streams",
                                          .attr = {{c->mhc_num_residual_streams}}});
    return x;
}
