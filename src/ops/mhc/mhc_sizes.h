/* Sizes and counts of the mHC kernels that do not depend on the scalar type: what a caller allocates and what
 * a cost rule charges. T tokens, n streams of width C, K = n*C, N = n*n + 2n mapping rows. Arguments must be
 * in range (n in 1..BK_MHC_MAX_STREAMS, the products representable); the public API checks them. */
#ifndef BK_OPS_MHC_SIZES_H
#define BK_OPS_MHC_SIZES_H

#include <stdint.h>

#include "birkhoff/mhc.h"

enum {
    BK_MHC_MAX_ROWS = BK_MHC_MAX_STREAMS * (BK_MHC_MAX_STREAMS + 2),
    BK_MHC_TOKEN_CHUNK = 64, /* tokens summed into one partial parameter gradient */
    BK_MHC_MAX_SLOTS = 64,   /* chunks that may be worked on at once: bounds the scratch, not the result */
    BK_MHC_LANE_BYTES = 64,  /* widest vector: tokens of a Sinkhorn group times the scalar's size */
};

static inline int64_t bk_mhc_rows(int64_t n)
{
    return n * n + 2 * n;
}

/* Multiply-adds of the projections, which the kernels add to bk_tally_madds. */
static inline int64_t bk_mhc_map_madds(int64_t T, int64_t n, int64_t C)
{
    return T * bk_mhc_rows(n) * n * C;
}

static inline int64_t bk_mhc_map_bwd_madds(int64_t T, int64_t n, int64_t C)
{
    return 2 * bk_mhc_map_madds(T, n, C); /* data gradient and weight gradient */
}

static inline int64_t bk_mhc_contract_madds(int64_t T, int64_t n, int64_t C)
{
    return T * n * n * C;
}

static inline int64_t bk_mhc_contract_bwd_madds(int64_t T, int64_t n, int64_t C)
{
    return 2 * bk_mhc_contract_madds(T, n, C);
}

static inline int64_t bk_mhc_chunks(int64_t T)
{
    return T / BK_MHC_TOKEN_CHUNK + (T % BK_MHC_TOKEN_CHUNK != 0);
}

static inline int64_t bk_mhc_slots(int64_t T)
{
    const int64_t chunks = bk_mhc_chunks(T);
    return chunks < BK_MHC_MAX_SLOTS ? chunks : BK_MHC_MAX_SLOTS;
}

/* Scalars of one slot's Sinkhorn scratch: the divisors of every step, for one group of tokens. */
static inline int64_t bk_mhc_sinkhorn_scratch(int64_t n, int64_t iterations, int64_t scalar_bytes)
{
    return 2 * iterations * n * (BK_MHC_LANE_BYTES / scalar_bytes);
}

/* Bytes of workspace of bk_mhc_map_bwd: the projected gradient [T, N], the norm term [T], a partial sum of
 * bias and alpha gradients for each token chunk, and the Sinkhorn scratch. */
static inline int64_t bk_mhc_map_bwd_workspace(int64_t T, int64_t n, int64_t iterations, int64_t scalar_bytes)
{
    const int64_t N = bk_mhc_rows(n);
    return scalar_bytes * (T * (N + 1) + bk_mhc_chunks(T) * (N + 3) +
                           bk_mhc_slots(T) * bk_mhc_sinkhorn_scratch(n, iterations, scalar_bytes));
}

/* Bytes of workspace of bk_mhc_contract_bwd: the projected gradient [T, n], the norm term [T], the weight
 * gradient [T, n], and a partial sum of base and scale gradients for each token chunk. */
static inline int64_t bk_mhc_contract_bwd_workspace(int64_t T, int64_t n, int64_t scalar_bytes)
{
    return scalar_bytes * (T * (2 * n + 1) + bk_mhc_chunks(T) * (n + 1));
}

#endif
