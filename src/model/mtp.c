/* Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2; with hyper-connections as in Megatron):
 * depth k = 1 .. D predicts the token k places further on than the model does.
 *
 *     tokens, labels, mask moved left by k -> e = embedding (the model's table)
 *     with mHC     u[stream] = e_proj(enorm(e)) + h_proj(hnorm(x[stream]))     x: streams before contraction
 *     without      u         = eh_proj [enorm(e) | hnorm(h)]                   h: after the final norm
 *     x = one transformer layer (u);  h = final norm (contracted x);  logits by the model's output layer
 *
 * Depth k + 1 reads the x (h) of depth k. It exists in training alone. */
#include <inttypes.h>
#include <stdio.h>

#include "model/parts.h"

/* Parameters of depth k stand under mtp.layers.(k-1), or all under mtp.layers.0. */
static void names_of(bk_builder *b, int64_t depth, const char *inner)
{
    char values[BK_PREFIX_LEN], params[BK_PREFIX_LEN];
    const int64_t layer = b->c->mtp_use_repeated_layer ? 0 : depth - 1;
    snprintf(values, sizeof values, "mtp.%" PRId64 ".", depth - 1);
    snprintf(params, sizeof params, "mtp.layers.%" PRId64 ".%s", layer, inner);
    bk_build_names(b, values, params);
}

static bk_vid stop(bk_builder *b, const char *name, bk_vid x)
{
    if (!b->c->mtp_detach_heads) return x;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_stop, BK_IN(x), .name = name});
}

static bk_vid shifted(bk_builder *b, const char *name, bk_vid x, int64_t depth)
{
    return bk_build_op1(b, &(bk_op_spec){BK_OP_shift, BK_IN(x), .name = name, .attr = {{depth}}});
}

static bk_vid project(bk_builder *b, const char *name, const char *param, bk_vid x, int64_t n_in)
{
    const bk_linear_params p =
        bk_build_linear_params(b, param, b->c->hidden_size, n_in, b->c->init_method_std, false, BK_CLASS_MLP);
    return bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(x, p.weight), .name = name});
}

static bk_vid embed(bk_builder *b, bk_vid table, int64_t depth)
{
    const double p = bk_build_dropout(b, b->c->hidden_dropout);
    const bk_vid tokens = shifted(b, "tokens", b->io->tokens, depth);
    const bk_vid e =
        bk_build_op1(b, &(bk_op_spec){BK_OP_embedding, BK_IN(table, tokens), .name = "embedding"});
    if (p == 0) return e;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_dropout, BK_IN(e, b->io->samples), .name = "embedding.dropped",
                                         .attr = {BK_DROPOUT(b, p, BK_SITE_EMBEDDING)}});
}

/* h_proj of every stream: a product of S * B * n rows. */
static bk_vid project_streams(bk_builder *b, bk_vid x)
{
    const int64_t S = b->l->seq, B = b->l->micro_batch, C = b->c->hidden_size,
                  n = b->c->mhc_num_residual_streams;
    const bk_vid rows = bk_build_view(b, "hnorm.rows", x, 3, (const int64_t[]){S, B * n, C},
                                      (const int64_t[]){B * n * C, C, 1}, 0);
    const bk_vid h = project(b, "h_proj", "h_proj", rows, C);
    return bk_build_view(b, "h_proj.streams", h, 4, (const int64_t[]){S, B, n, C},
                         (const int64_t[]){B * n * C, n * C, C, 1}, 0);
}

/* The input of the layer, of the embedding and the streams (without mHC the hidden state) of the depth
 * before. */
static bk_vid combine(bk_builder *b, bk_vid e, bk_vid x)
{
    const int64_t C = b->c->hidden_size;
    const bk_vid a = bk_build_norm(b, "enorm", e, "enorm", NULL),
                 h = bk_build_norm(b, "hnorm", x, "hnorm", NULL);
    if (!b->c->enable_mhc_connections) {
        const bk_vid both = bk_build_op1(b, &(bk_op_spec){BK_OP_concat, BK_IN(a, h), .name = "concat"});
        return project(b, "eh_proj", "eh_proj", both, 2 * C);
    }
    const bk_vid u = project(b, "e_proj", "e_proj", a, C);
    const bk_vid streams = bk_build_op1(b, &(bk_op_spec){BK_OP_mhc_expand, BK_IN(u), .name = "e_proj.streams",
                                                         .attr = {{b->c->mhc_num_residual_streams}}});
    return bk_build_op1(
        b, &(bk_op_spec){BK_OP_add_n, BK_IN(streams, project_streams(b, h)), .name = "combined"});
}

/* Logits and loss of a depth, whose labels and mask are those of the model moved on. */
static void predict(bk_builder *b, bk_vid hidden, bk_vid weight, int64_t depth)
{
    char name[BK_NAME_LEN];
    bk_vid entropy[2], mean[3];
    const bk_vid labels = shifted(b, "labels", b->io->labels, depth);
    const bk_vid mask = shifted(b, "loss_mask", b->io->loss_mask, depth);
    const bk_vid logits =
        bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(hidden, weight), .name = "logits"});
    bk_build_op(entropy, b, &(bk_op_spec){BK_OP_cross_entropy, BK_IN(logits, labels), .name = "token_loss"});
    bk_build_op(mean, b, &(bk_op_spec){BK_OP_masked_mean, BK_IN(entropy[0], mask), .name = "loss"});
    bk_build_loss(b, mean[0], b->c->mtp_loss_scaling_factor / (double)b->c->mtp_num_layers);
    snprintf(name, sizeof name, "mtp_%" PRId64 " loss", depth);
    bk_build_metric(b, BK_METRIC_MEAN, name, mean[0]);
}

void bk_build_mtp(bk_builder *b, const bk_layer_spec *spec, bk_vid streams)
{
    const bool hyper = b->c->enable_mhc_connections;
    b->module = BK_MODULE_MTP;
    names_of(b, 1, "");
    bk_build_at(b, 0, BK_NODE_ATTN);
    const bk_vid table = stop(b, "word_embeddings", b->word_embeddings);
    const bk_vid weight =
        b->output_weight == b->word_embeddings ? table : stop(b, "output_weight", b->output_weight);
    bk_vid x = stop(b, "streams", hyper ? streams : b->io->hidden);
    for (int64_t depth = 1; depth <= b->c->mtp_num_layers && b->st == BK_OK; depth++) {
        bk_build_at(b, depth - 1, BK_NODE_ATTN);
        names_of(b, depth, "");
        x = combine(b, embed(b, table, depth), x);
        names_of(b, depth, "transformer_layer.");
        x = bk_build_layer(b, spec, depth - 1, x);
        bk_build_at(b, depth - 1, BK_NODE_MTP_POST_PROCESS);
        names_of(b, depth, "");
        const bk_vid hidden = bk_build_boundary(b, x);
        if (!hyper) x = hidden;
        bk_build_at(b, depth - 1, BK_NODE_POST_PROCESS);
        predict(b, hidden, weight, depth);
    }
    b->module = BK_MODULE_DECODER;
}
