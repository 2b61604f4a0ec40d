/* Causal grouped-query attention in blocks, with a running softmax (Dao et al., "FlashAttention", 2022); no
 * matrix of S x S exists at any time.
 *
 *   p[i, j] = softmax over j <= i of scale * q[i] . k[j]
 *   o[i]    = sum over j of drop(p[i, j]) * v[j]
 *   lse[i]  = ln of the sum over j <= i of exp(scale * q[i] . k[j])
 *
 * S positions, B samples, G groups of R query heads that share one key and one value head; head h = g*R + r.
 * q and k have d dims, v and o have dv. Every tensor but lse is given with the strides of base/heads.h (k and
 * v ignore .r).
 *
 * Dropout keeps p[i, j] of head h of sample b where word (j + S*h) of position i of samples[b]
 * (base/philox.h) reaches bk_dropout_threshold(p), and scales by 1/(1 - p). With p = 0 key and samples are
 * not read.
 *
 * The bits of a head's result depend on that head (backward: on its group) alone, not on B, G or the number
 * of threads. d and dv are at most BK_ATTENTION_MAX_DIM; the tiles of a thread stand on its stack (below 1.5
 * MiB). */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>
#include "base/heads.h"
#include "base/philox.h"

#define BK_ATTENTION_BLOCK   64 /* query rows and key rows of a block */
#define BK_ATTENTION_MAX_DIM 256
/* Of the softmax, for each pair of query and key of a head: an exponential and a handful of multiplications.
 */
#define BK_ATTENTION_PAIR_FLOPS 8

#ifndef BK_ATTENTION_CPU_TYPES
#define BK_ATTENTION_CPU_TYPES
typedef struct {
    int64_t n_positions, n_samples, n_groups, heads_per_group; /* S, B, G, R */
    int64_t first_query; /* forward alone: query i stands at position first_query + i, and keys begin at 0 */
    int64_t d, dv;       /* dims of q and k, of v and o */
    double scale;
    double dropout;         /* p in [0, 1) */
    bk_rng_key key;         /* of this layer's attention dropout */
    const int64_t *samples; /* [B] number of each sample in the run */
} bk_attention_args;
#endif

/* Multiply-adds that one call does and adds to bk_tally_madds: whole blocks on and below the diagonal, the
 * last block cut at S. */
int64_t BK_R(bk_attention_fwd_madds)(int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t d,
                                     int64_t dv);
int64_t BK_R(bk_attention_bwd_madds)(int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t d,
                                     int64_t dv);

/* Bytes of workspace (64-byte aligned) of the backward; the forward needs none. */
int64_t BK_R(bk_attention_bwd_workspace)(int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t d);

/* o, and lse [B, G*R, S], which the backward reads; lse may be NULL. With first_query > 0 there are
 * first_query + S keys and values, of which query i sees the first first_query + i + 1. The bits of a row do
 * not depend on where the queries before it were computed. */
void BK_R(bk_attention_fwd)(real *o, bk_heads os, real *lse, const real *q, bk_heads qs, const real *k,
                            bk_heads ks, const real *v, bk_heads vs, const bk_attention_args *args);

/* dq, dk, dv from dout (the gradient of o); each is added to if its beta is 1. The outputs must overlap
 * neither each other nor an input. dk and dv are summed over query blocks from the first to the last, within
 * a block over the group's heads; dq over key blocks from the first to the last. */
void BK_R(bk_attention_bwd)(real *dq, bk_heads dqs, real *dk, bk_heads dks, real *dv, bk_heads dvs,
                            const real *dout, bk_heads douts, const real *q, bk_heads qs, const real *k,
                            bk_heads ks, const real *v, bk_heads vs, const real *o, bk_heads os,
                            const real *lse, const bk_attention_args *args, int beta_q, int beta_k,
                            int beta_v, void *workspace);
