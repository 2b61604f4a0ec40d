/* Files that hold tensors of fused layers, which the model has apart: the down projections of multi-latent
 * attention as linear_qkv_down_proj, rows of queries first. */
#ifndef BK_TRAIN_AGAINST_FUSED_H
#define BK_TRAIN_AGAINST_FUSED_H

#include "config/config.h"
#include "data/safetensors.h"

/* Splits every such tensor (param.*, grad.*, train.final.*) into those of the model, in memory. BK_E_INPUT
 * names one that has not the rows of the configuration, or stands beside the others. */
bk_status bk_against_split_fused(bk_st *file, const bk_config *c, bk_err *e);

#endif
