/* Inside src/model: the parameters of a hyper-connection and of the contraction that ends a block, with their
 * initial values (mHC, arXiv:2512.24880; the learned contraction is Megatron's and DeepSeek-V4's). N = n*n +
 * 2n rows: n for h_pre, n for h_post, n*n for h_res. */
#ifndef BK_MODEL_MHC_PARAMS_H
#define BK_MODEL_MHC_PARAMS_H

#include "model/builder.h"

typedef struct {
    bk_vid mapping;                          /* [N, n*C], Xavier uniform */
    bk_vid alpha_pre, alpha_post, alpha_res; /* [1], `gate` */
    bk_vid bias;                             /* [N], 0 */
} bk_mhc_params;

typedef struct {
    bk_vid fn;    /* [n, n*C], Xavier uniform */
    bk_vid base;  /* [n], 0 */
    bk_vid scale; /* [1], 1 */
} bk_mhc_head_params;

/* Appends them; `prefix` stands in front of each name, after the builder's own. */
bk_mhc_params bk_build_mhc_params(bk_builder *b, const char *prefix, int64_t n, int64_t C, double gate);
bk_mhc_head_params bk_build_mhc_head_params(bk_builder *b, const char *prefix, int64_t n, int64_t C);

#endif
