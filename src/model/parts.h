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

/* pre_process.c: token ids to streams. Sets the rope tables and word_embeddings of the builder. */
bk_vid bk_build_pre_process(bk_builder *b);

/* attention_sublayer.c: x [S, B, C], normalised. */
bk_branch bk_build_self_attention(bk_builder *b, bk_vid x);

/* mlp_sublayer.c: x [S, B, C], normalised. */
bk_branch bk_build_dense_mlp(bk_builder *b, bk_vid x);

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

/* post_process.c: what ends the last layer (streams to one stream, final norm), with the tag as it stands. */
bk_vid bk_build_boundary(bk_builder *b, bk_vid x);

/* post_process.c: output layer, losses and metrics, of hidden [S, B, C]. */
void bk_build_post_process(bk_builder *b, bk_vid hidden);

/* post_process.c: output layer at the last position alone, and the op that hands "logits" to the host. */
void bk_build_next_logits(bk_builder *b, bk_vid hidden);

#endif
