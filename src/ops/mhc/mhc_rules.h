/* What the rules of the mHC ops share. Axes as in mhc_cpu.h; activations are [S, B, ...], T = S * B. */
#ifndef BK_OPS_MHC_RULES_H
#define BK_OPS_MHC_RULES_H

#include "ops/mhc/mhc_sizes.h"
#include "ops/rules.h"

/* The sizes in a value of streams [S, B, n, C]. */
typedef struct {
    int64_t T, n, C;
} bk_mhc_dims;

static inline bk_mhc_dims bk_mhc_dims_of(const bk_value *x)
{
    return (bk_mhc_dims){x->dim[0].size * x->dim[1].size, x->dim[2].size, x->dim[3].size};
}

/* Requires input k to be streams [S, B, n, C] with 1 <= n <= BK_MHC_MAX_STREAMS. */
static inline bk_status bk_mhc_need_streams(const bk_graph *g, const bk_op *op, int k, bk_err *e)
{
    const int64_t any[] = {-1, -1, -1, -1};
    const bk_status st = bk_shape_need(g, op, k, "streams [S, B, n, C]", 4, any, e);
    char text[BK_OPERAND_TEXT];
    if (st != BK_OK) return st;
    const int64_t n = bk_in(g, op, k)->dim[2].size;
    if (n >= 1 && n <= BK_MHC_MAX_STREAMS) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s has %lld streams, expected 1 to %d (mhc_num_residual_streams)",
                      bk_operand_text(text, g, op, k), (long long)n, BK_MHC_MAX_STREAMS);
}

#endif
