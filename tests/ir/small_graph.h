/* A small model as the passes leave it: embedding, norm, a fused projection that rope and attention read
 * through views, a linear with two uses of its input, the loss; backward, step graph and regions. The text
 * form of it is small.ir. */
#ifndef TESTS_IR_SMALL_GRAPH_H
#define TESTS_IR_SMALL_GRAPH_H

#include "passes/passes.h"

enum { SG_S = 4, SG_B = 2, SG_C = 8, SG_V = 16, SG_G = 2, SG_D = 4 };

static bk_status sg_param(bk_vid *out, bk_graph *g, const char *name, bk_param_class class_, int rank,
                          int64_t n, int64_t k, bk_err *e)
{
    const bk_param row = {.name = name,
                          .rank = rank,
                          .shape = {n, k},
                          .dtype = BK_F32,
                          .class_ = class_,
                          .init = rank == 2 ? BK_INIT_NORMAL : BK_INIT_ONE,
                          .init_arg = rank == 2 ? 0.02 : 0,
                          .decay = rank == 2};
    return bk_param_add(out, g, &row, e);
}

static bk_status sg_input(bk_vid *out, bk_graph *g, const char *name, bk_dtype dtype, bk_err *e)
{
    const bk_value proto = {.name = name,
                            .dtype = dtype,
                            .kind = BK_INPUT,
                            .scope = BK_MICRO,
                            .rank = 2,
                            .dim = {{SG_B, 0}, {SG_S, 0}}};
    bk_status st = bk_value_add(out, g, &proto, e);
    return st == BK_OK ? bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_feed, .into = *out + 1}, e) : st;
}

/* out = h + projection of the attention over h. */
static bk_status sg_attention(bk_vid *out, bk_graph *g, bk_vid h, bk_err *e)
{
    enum { WIDTH = SG_G * SG_D };
    const int64_t q_dim[] = {SG_S, SG_B, SG_G, 1, SG_D},
                  q_stride[] = {SG_B * 3 * WIDTH, 3 * WIDTH, SG_D, SG_D, 1};
    const int64_t k_dim[] = {SG_S, SG_B, SG_G, SG_D}, k_stride[] = {SG_B * 3 * WIDTH, 3 * WIDTH, SG_D, 1};
    bk_vid gain, w_qkv, w_out, normed[2], qkv, q, k, v, table[2], qr, kr, o[2], proj;
    bk_status st;
    BK_TRY(sg_param(&gain, g, "layers.0.norm.weight", BK_CLASS_NORM, 1, SG_C, 0, e));
    BK_TRY(sg_param(&w_qkv, g, "layers.0.qkv.weight", BK_CLASS_ATTENTION, 2, 3 * WIDTH, SG_C, e));
    BK_TRY(sg_param(&w_out, g, "layers.0.proj.weight", BK_CLASS_ATTENTION, 2, SG_C, WIDTH, e));
    BK_TRY(bk_op1(normed, g, e, BK_OP_rmsnorm, "normed", (.attr = {{.f = 1e-5}}), h, gain));
    BK_TRY(bk_op1(&qkv, g, e, BK_OP_linear, "qkv", (.n_out = 1), normed[0], w_qkv));
    BK_TRY(bk_view_add(&q, g, "q", qkv, 5, q_dim, q_stride, 0, e));
    BK_TRY(bk_view_add(&k, g, "k", qkv, 4, k_dim, k_stride, WIDTH, e));
    BK_TRY(bk_view_add(&v, g, "v", qkv, 4, k_dim, k_stride, 2 * WIDTH, e));
    BK_TRY(bk_op_add(table, g,
                     &(bk_op_spec){.kind = BK_OP_rope_table,
                                   .name = "rope",
                                   .attr = {{.i = SG_S}, {.i = SG_D}, {.f = 1e4}}},
                     e));
    BK_TRY(bk_op1(&qr, g, e, BK_OP_rope, "q_rot", (.n_out = 1), q, table[0], table[1]));
    BK_TRY(bk_op1(&kr, g, e, BK_OP_rope, "k_rot", (.n_out = 1), k, table[0], table[1]));
    BK_TRY(bk_op1(o, g, e, BK_OP_attention, "attn", (.attr = {{.f = 0.5}}), qr, kr, v));
    BK_TRY(bk_op1(&proj, g, e, BK_OP_linear, "proj", (.n_out = 1), o[0], w_out));
    BK_TRY(bk_op1(out, g, e, BK_OP_residual_add, "h1", (.n_out = 1), h, proj));
done:
    return st;
}

/* The losses's mean over logits that reuse the embedding table. */
static bk_status sg_loss(bk_vid *loss, bk_graph *g, bk_vid h, bk_vid table, bk_vid labels, bk_vid mask,
                         bk_err *e)
{
    bk_vid logits, losses[2], mean[3];
    bk_status st;
    BK_TRY(bk_op1(&logits, g, e, BK_OP_linear, "logits", (.n_out = 1), h, table));
    BK_TRY(bk_op1(losses, g, e, BK_OP_cross_entropy, "losses", (.n_out = 2), logits, labels));
    BK_TRY(bk_op1(mean, g, e, BK_OP_masked_mean, "loss", (.n_out = 3), losses[0], mask));
    BK_TRY(bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_fetch, .in = mean, .n_in = 1}, e));
    *loss = mean[0];
done:
    return st;
}

static bk_status sg_build(bk_graph **out, bk_err *e)
{
    const bk_step_options options = {
        .clip_grad = 1.0, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    bk_graph *g = NULL;
    bk_vid tokens, labels, mask, table, h0, h1, loss, one;
    bk_status st = bk_graph_new(&g, BK_F32, e);
    if (st != BK_OK) return st;
    g->tag.node = BK_NODE_PRE_PROCESS;
    BK_TRY(sg_input(&tokens, g, "tokens", BK_I32, e));
    BK_TRY(sg_input(&labels, g, "labels", BK_I32, e));
    BK_TRY(sg_input(&mask, g, "loss_mask", BK_F32, e));
    BK_TRY(sg_param(&table, g, "embedding.weight", BK_CLASS_EMBEDDING, 2, SG_V, SG_C, e));
    BK_TRY(bk_op1(&h0, g, e, BK_OP_embedding, "h0", (.n_out = 1), table, tokens));
    g->tag.node = BK_NODE_ATTN, g->tag.layer = 0;
    BK_TRY(sg_attention(&h1, g, h0, e));
    g->tag.node = BK_NODE_POST_PROCESS, g->tag.layer = BK_NONE;
    BK_TRY(sg_loss(&loss, g, h1, table, labels, mask, e));
    {
        const bk_value seed = {
            .name = "seed", .dtype = BK_F32, .kind = BK_INPUT, .scope = BK_STEP, .rank = 1, .dim = {{1, 0}}};
        BK_TRY(bk_value_add(&one, g, &seed, e));
    }
    BK_TRY(bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_feed, .into = one + 1}, e));
    BK_TRY(bk_pass_autodiff(g, &(bk_seed){loss, one}, 1, e));
    BK_TRY(bk_pass_accumulate(g, e));
    BK_TRY(bk_pass_step(g, &options, e));
    BK_TRY(bk_pass_partition(g, e));
done:
    if (st == BK_OK)
        *out = g;
    else
        bk_graph_free(g);
    return st;
}

#endif
