/* Inside src/model: the parts of the model, in the order in which data passes through them. Axis letters as
 * in ir/types.h; "streams" is [S, B, n, C], and [S, B, C] without hyper-connections. */
#ifndef BK_MODEL_PARTS_H
#define BK_MODEL_PARTS_H

#include "model/builder.h"
#include "model/layer_spec.h"

/* What a sublayer hands to the residual path: y [S, B, C], and a bias [C] that is added to it there (so that
 * bias, dropout and addition are one op), or BK_NONE. */
typedef struct {
    bk_vid y, bias;
} bk_branch;

/* pre_process.c: token ids to streams. Sets the rope tables of the io and word_embeddings of the
 * builder. */
bk_vid bk_build_pre_process(bk_builder *b);

/* attention_sublayer.c: x [S, B, C], normalised. */
bk_branch bk_build_self_attention(bk_builder *b, bk_vid x);

/* mla_sublayer.c: x [S, B, C], normalised. */
bk_branch bk_build_mla(bk_builder *b, bk_vid x);
/* mla_sublayer.c: the rope tables of the io as multi-latent attention turns by them. */
void bk_build_mla_rope_tables(bk_builder *b);

/* core_attention.c: softmax(scale * q k^T) v of q [S, B, G, R, d], k [S, B, G, d], v [S, B, G, dv], the heads
 * side by side: [S, B, G * R * dv]. In generation k and v go to the layer's caches first. */
bk_vid bk_build_core_attention(bk_builder *b, bk_vid q, bk_vid k, bk_vid v, double scale);
/* core_attention.c: linear_proj of the context, `width` wide. */
bk_branch bk_build_attention_out(bk_builder *b, bk_vid context, int64_t width);

/* mlp_sublayer.c: x [S, B, C], normalised. */
bk_branch bk_build_dense_mlp(bk_builder *b, bk_vid x);
/* mlp_sublayer.c: the same with parameters `part`.linear_fc1 and `part`.linear_fc2, `inner` wide between
 * them. */
bk_branch bk_build_feed_forward(bk_builder *b, const char *part, bk_vid x, int64_t inner, bool has_bias);
/* mlp_sublayer.c: rows of the first projection's weight, and standard deviation of the second's. */
int64_t bk_build_fc1_width(const bk_builder *b, int64_t inner);
double bk_build_output_std(const bk_builder *b);

/* moe_sublayer.c: x [S, B, C], normalised. Begins in the node as it stands (router and permutation) and goes
 * on in node mlp, with several ranks of experts in moe_dispatch, mlp and moe_combine. */
bk_branch bk_build_moe(bk_builder *b, bk_vid x);

/* moe_router.c: which experts each token uses, and the losses of that choice. */
typedef struct {
    bk_vid probs, index; /* [S, B, k] */
} bk_routing;
bk_routing bk_build_router(bk_builder *b, bk_vid x);

/* losses.c: notes what a layer chose, in training; at most BK_LAYER_CHOICES of each layer. */
enum { BK_LAYER_CHOICES = 5 }; /* experts, their rows, counts of three losses */
void bk_build_choice(bk_builder *b, bk_vid choice);

/* Where a residual path branches off: kept from open to close. */
typedef struct {
    bk_vid x;             /* the streams */
    bk_vid h_res, h_post; /* mixing of the streams and distribution of the branch; BK_NONE without mHC */
} bk_residual;

/* residual.c: from the streams to the input [S, B, C] of the sublayer, and from its output back to the
 * streams. `node` is "attn" or "mlp"; `param` stands in front of the names of the hyper-connection's
 * parameters. */
bk_vid bk_build_residual_open(bk_residual *out, bk_builder *b, const bk_layer_spec *spec, const char *node,
                              const char *param, bk_vid x);
bk_vid bk_build_residual_close(bk_builder *b, const bk_layer_spec *spec, const char *node, bk_site site,
                               const bk_residual *r, bk_branch branch);

/* transformer_layer.c: one layer of the builder's module, under the builder's names; streams to streams. */
bk_vid bk_build_layer(bk_builder *b, const bk_layer_spec *spec, int64_t layer, bk_vid x);

/* losses.c: the input "loss_seed", in training. */
void bk_build_loss_seed(bk_builder *b);
/* losses.c: one more scalar [1] of a micro-batch to minimise, times `coeff`; nothing but in training. */
void bk_build_loss(bk_builder *b, bk_vid value, double coeff);
/* losses.c: the upstream gradients of all losses, when io.loss_seed is there. */
void bk_build_seeds(bk_builder *b);
/* step_metrics.c: adds `term` [n] of each micro-batch to the state [n] of that metric, which is made at the
 * first call, and gives it. */
bk_vid bk_build_metric(bk_builder *b, bk_metric_kind kind, const char *name, bk_vid term);
/* step_metrics.c: the same for a metric of the layer whose names the builder has. Depths that share a layer
 * share it. */
bk_vid bk_build_layer_metric(bk_builder *b, bk_metric_kind kind, const char *name, bk_vid term);
/* step_metrics.c: ops that hand every metric of the step to the host at its end. */
void bk_build_fetch_metrics(bk_builder *b);
/* losses.c: the sum of all losses times their coefficients, with the tag as it stands; none without training.
 */
bk_status bk_build_objective(bk_vid *out, bk_graph *g, const bk_model_io *io, bk_err *e);

/* mtp.c: multi-token prediction after `streams`, those of the last decoder layer, whose spec its layers
 * share. Labels, mask, word_embeddings, output_weight and io.hidden are there. */
void bk_build_mtp(bk_builder *b, const bk_layer_spec *spec, bk_vid streams);

/* post_process.c: what ends the last layer of a module (streams to one stream, final norm), with tag and
 * names as they stand. */
bk_vid bk_build_boundary(bk_builder *b, bk_vid x);

/* post_process.c: output layer, losses and metrics, of hidden [S, B, C]. */
void bk_build_post_process(bk_builder *b, bk_vid hidden);

/* post_process.c: output layer at the last position alone, and the op that hands "logits" to the host. */
void bk_build_next_logits(bk_builder *b, bk_vid hidden);

#endif
