/* From the streams of the last layer to the losses. */
#include "model/mhc_params.h"
#include "model/parts.h"

bk_vid bk_build_boundary(bk_builder *b, bk_vid x)
{
    const bk_config *c = b->c;
    if (c->enable_mhc_connections) {
        const bk_mhc_head_params p =
            bk_build_mhc_head_params(b, "hc_head_", c->mhc_num_residual_streams, c->hidden_size);
        bk_vid out[4]; /* one stream, and three values for the backward */
        bk_build_op(out, b,
                    &(bk_op_spec){BK_OP_mhc_contract, BK_IN(x, p.fn, p.base, p.scale), .name = "contracted",
                                  .attr = {{.f = c->layernorm_epsilon}}});
        x = out[0];
    }
    return bk_build_norm(b, "final_norm", x, "final_layernorm", NULL);
}

static bk_vid output_layer(bk_builder *b, bk_vid hidden)
{
    const bk_config *c = b->c;
    bk_vid weight = b->word_embeddings;
    if (c->untie_embeddings_and_output_weights)
        weight = bk_build_linear_params(b, "output_layer", c->padded_vocab_size, c->hidden_size,
                                        c->init_method_std, false, BK_CLASS_OUTPUT)
                     .weight;
    b->output_weight = weight;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(hidden, weight), .name = "logits"});
}

void bk_build_next_logits(bk_builder *b, bk_vid hidden)
{
    const int64_t S = b->l->seq, B = b->l->micro_batch, C = b->c->hidden_size;
    bk_build_at(b, BK_NONE, BK_NODE_POST_PROCESS);
    bk_build_names(b, "", "");
    const bk_vid last = bk_build_view(b, "hidden.last", hidden, 3, (const int64_t[]){1, B, C},
                                      (const int64_t[]){B * C, C, 1}, (S - 1) * B * C);
    b->io->logits = output_layer(b, last);
    bk_build_op(NULL, b, &(bk_op_spec){BK_OP_fetch, BK_IN(b->io->logits), .name = "logits"});
}

void bk_build_post_process(bk_builder *b, bk_vid hidden)
{
    bk_model_io *io = b->io;
    const int64_t tokens[] = {b->l->micro_batch, b->l->seq};
    bk_build_at(b, BK_NONE, BK_NODE_POST_PROCESS);
    bk_build_names(b, "", "");
    io->labels = bk_build_input(b, "labels", BK_I32, BK_MICRO, 2, tokens);
    io->loss_mask = bk_build_input(b, "loss_mask", b->g->real, BK_MICRO, 2, tokens);
    bk_build_loss_seed(b);

    io->logits = output_layer(b, hidden);

    bk_vid entropy[2], mean[3]; /* losses, log of the sums; mean, sum, number of tokens */
    bk_build_op(entropy, b,
                &(bk_op_spec){BK_OP_cross_entropy, BK_IN(io->logits, io->labels), .name = "token_loss"});
    bk_build_op(mean, b, &(bk_op_spec){BK_OP_masked_mean, BK_IN(entropy[0], io->loss_mask), .name = "loss"});
    io->token_loss = entropy[0], io->loss = mean[0];

    bk_build_loss(b, io->loss, 1);
    io->loss_sum = bk_build_metric(b, BK_METRIC_SUM, "loss_sum", mean[1]);
    io->n_tokens = bk_build_metric(b, BK_METRIC_SUM, "n_tokens", mean[2]);
}
