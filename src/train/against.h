/* A model, or one hyper-connection, run on the parameters and inputs of a file of reference vectors.
 *
 * A model file: metadata "config" (JSON, Megatron's older option names), in.tokens, in.labels, in.loss_mask,
 * param.*; compared are out.loss, out.token_loss, act.layerI, grad.*, and rope tables
 * (against_rope.h). With train.* also ten steps of AdamW on
 * train.tokensK [batch, seq + 1], labels being the tokens one further on: train.loss, train.grad_norm,
 * train.final.*.
 *
 * Parameters may have a second spelling (bk_param.alias); what stands in one tensor is split by
 * against_fused.h before.
 *
 * An operator file: metadata "config" with n, C, T and sinkhorn_iterations; tensors as against_op.c lists
 * them. */
#ifndef BK_TRAIN_AGAINST_H
#define BK_TRAIN_AGAINST_H

#include "config/config.h"
#include "data/safetensors.h"
#include "ir/types.h"
#include "train/check_outcome.h"

/* Whether the file is about one hyper-connection and not about a model. */
bool bk_against_is_op(const bk_st *file);

/* Reads a model file's options into an initialised configuration, which is then open for further settings and
 * bk_config_resolve: first what the files leave to their reader (no padding of the vocabulary; the recipe of
 * the ten steps), then the file's own. `name` stands for the file in messages. */
bk_status bk_against_config(bk_config *c, const bk_st *file, const char *name, bk_err *e);

/* Runs a model file under a resolved configuration in `real` (BK_F32 or BK_F64). Errors: BK_E_INPUT where
 * tensors are missing, of another shape, or parameters that the model does not have. */
bk_status bk_against_model(bk_outcome *out, const bk_st *file, const bk_config *c, bk_dtype real, bk_err *e);

/* Runs an operator file. */
bk_status bk_against_op(bk_outcome *out, const bk_st *file, bk_dtype real, bk_err *e);

#endif
