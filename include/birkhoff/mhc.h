/* birkhoff/mhc.h: the operators of manifold-constrained hyper-connections (mHC, arXiv:2512.24880), forward
 * and backward. Compiles as C17 and C++17.
 *
 * A residual path of n streams x is read, mixed and written around each sublayer F:
 *     h_pre, h_post, h_res = map(x)        a = aggregate(x, h_pre)        y = F(a)
 *     x_next = h_res^T x + h_post (y + bias)                              (post)
 * expand makes n streams of one activation, contract makes one activation of n streams.
 *
 * Axes and layouts, all dense, last axis fastest:
 *     T tokens >= 0, n streams 1..BK_MHC_MAX_STREAMS, C channels >= 1, K = n*C, N = n*n + 2n
 *     x, x_next, dx, dx_next  [T, n, C]   a, y, h, da, dy, dh  [T, C]
 *     h_pre, h_post           [T, n]      h_res [T, n, n] = [t, source, destination]
 *     W [N, K], bias [N]: rows 0..n-1 pre, n..2n-1 post, 2n + source*n + destination residual
 *     V [n, K]
 *
 * Types: streams and activations have the call's dtype. Coefficients (h_*, p, q, w, m, rho), parameters and
 * their gradients are double for BK_MHC_F64 and float otherwise.
 *
 * Contract: the caller owns all memory; nothing is allocated, no state is kept between calls, and the bits of
 * a result do not depend on the number of threads. Outputs stand first and must not overlap inputs. A flag
 * `add_*` of 0 writes an output without reading it, 1 adds to what is there. Every function checks its
 * arguments before it touches memory and returns a status; on failure outputs are unchanged and the call's
 * message says what was wrong. With T = 0, per-token pointers may be NULL, and parameter gradients become
 * zero (add 0) or stay (add 1). Functions may be called from several threads at once on disjoint outputs. */
#ifndef BIRKHOFF_MHC_H
#define BIRKHOFF_MHC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BK_MHC_MAX_STREAMS 16

/* Raised when a struct or a signature below changes. */
#define BK_MHC_ABI_VERSION 1

typedef enum bk_mhc_status {
    BK_MHC_OK = 0,
    BK_MHC_E_ARGUMENT = 1,    /* a null pointer, a value out of range */
    BK_MHC_E_SIZE = 2,        /* T, n and C make an array larger than 2^62 bytes */
    BK_MHC_E_WORKSPACE = 3,   /* the workspace is missing or too small */
    BK_MHC_E_UNSUPPORTED = 4, /* this build has no such backend or dtype */
    BK_MHC_E_DEVICE = 5       /* the device refused the work */
} bk_mhc_status;

typedef enum bk_mhc_dtype {
    BK_MHC_F32 = 1,
    BK_MHC_F64 = 2,
    BK_MHC_BF16 = 3 /* streams and activations only */
} bk_mhc_dtype;

typedef enum bk_mhc_backend { BK_MHC_CPU = 1, BK_MHC_CUDA = 2 } bk_mhc_backend;

typedef enum bk_mhc_op {
    BK_MHC_EXPAND = 1,
    BK_MHC_EXPAND_BWD,
    BK_MHC_MAP,
    BK_MHC_MAP_BWD,
    BK_MHC_AGGREGATE,
    BK_MHC_AGGREGATE_BWD,
    BK_MHC_POST,
    BK_MHC_POST_BWD,
    BK_MHC_CONTRACT,
    BK_MHC_CONTRACT_BWD
} bk_mhc_op;

/* What all operators share. Fill with zeros, then set the fields: struct_size to sizeof(bk_mhc_call), which
 * lets a later library add fields. */
typedef struct bk_mhc_call {
    size_t struct_size;
    bk_mhc_backend backend;
    bk_mhc_dtype dtype;
    int64_t T, n, C;
    void *stream;    /* queue of the device, for BK_MHC_CUDA; NULL for BK_MHC_CPU */
    void *workspace; /* scratch, aligned as a double; may be NULL where bk_mhc_workspace_size says 0 */
    size_t workspace_bytes;
    char *message; /* NULL, or receives one sentence, cut at message_bytes, when a call fails */
    size_t message_bytes;
} bk_mhc_call;

/* Dropout of post: element e = i*C + c of token t = s*B + b is kept when word e%4 of
 * Philox4x32-10(key, counter = {e/4, position of s, sample of b low, high}) is at least floor(p 2^32), and is
 * then scaled by 1/(1-p). So a mask depends on sample, position and element alone, and a replay repeats it.
 */
typedef struct bk_mhc_dropout {
    double p; /* in [0, 1) */
    uint32_t key[2];
    int64_t S, B;             /* T = S*B, sequence-major */
    const int64_t *samples;   /* [B] number of each sequence in the run, >= 0 */
    const int64_t *positions; /* [S] place in its sequence, 0..2^32-1; NULL means 0..S-1 */
} bk_mhc_dropout;

/* BK_MHC_ABI_VERSION of the library, to be compared with the header's. */
int bk_mhc_abi_version(void);

/* *bytes = the workspace that `op` needs for the call's backend, dtype and sizes (its workspace fields are
 * not read); `iterations` is read for BK_MHC_MAP and BK_MHC_MAP_BWD alone. */
bk_mhc_status bk_mhc_workspace_size(size_t *bytes, const bk_mhc_call *call, bk_mhc_op op, int64_t iterations);

/* x[t,j,c] = h[t,c] */
bk_mhc_status bk_mhc_expand(void *x, const bk_mhc_call *call, const void *h);

/* dh[t,c] (+)= sum_j dx[t,j,c] */
bk_mhc_status bk_mhc_expand_bwd(void *dh, const bk_mhc_call *call, const void *dx, int add_dh);

/* The three maps of a sublayer. With A = alpha_pre | alpha_post | alpha_res by row range,
 *     p[t,o] = sum_k W[o,k] x[t,k]      q[t] = sqrt(sum_k x[t,k]^2 / K)
 *     z[o]   = A[o] p[o] / (q + 1e-6) + bias[o]
 *     h_pre  = sigmoid(z) + 1e-6        h_post = 2 sigmoid(z)                h_res = Sinkhorn(z)
 * Sinkhorn with `iterations` >= 1: softmax over destinations, plus 1e-6; divide by column sums (over sources)
 * + 1e-6; then iterations-1 times by row sums + 1e-6 and column sums + 1e-6.
 *   p [T, N], q [T]: kept for map_bwd.   alpha_* [1]. */
bk_mhc_status bk_mhc_map(void *h_pre, void *h_post, void *h_res, void *p, void *q, const bk_mhc_call *call,
                         const void *x, const void *W, const void *alpha_pre, const void *alpha_post,
                         const void *alpha_res, const void *bias, int64_t iterations);

/* Gradients of map with respect to x and the parameters, from those of h_pre, h_post, h_res; the Sinkhorn
 * rounds are differentiated one by one. The norm's derivative at a token of zeros is taken as 0. dW [N, K],
 * dalpha_* [1], dbias [N]: one flag, add_params. Needs workspace. */
bk_mhc_status bk_mhc_map_bwd(void *dx, void *dW, void *dalpha_pre, void *dalpha_post, void *dalpha_res,
                             void *dbias, const bk_mhc_call *call, const void *dh_pre, const void *dh_post,
                             const void *dh_res, const void *x, const void *W, const void *alpha_pre,
                             const void *alpha_post, const void *alpha_res, const void *bias, const void *p,
                             const void *q, int64_t iterations, int add_dx, int add_params);

/* a[t,c] = sum_j h_pre[t,j] x[t,j,c] */
bk_mhc_status bk_mhc_aggregate(void *a, const bk_mhc_call *call, const void *x, const void *h_pre);

/* dh_pre[t,j] = sum_c da[t,c] x[t,j,c];   dx[t,j,c] (+)= h_pre[t,j] da[t,c] */
bk_mhc_status bk_mhc_aggregate_bwd(void *dh_pre, void *dx, const bk_mhc_call *call, const void *da,
                                   const void *x, const void *h_pre, int add_dx);

/* x_next[t,i,c] = sum_j h_res[t,j,i] x[t,j,c] + keep[t,i,c]/(1-p) h_post[t,i] (y[t,c] + bias[c])
 *   bias [C], coefficients' type: the sublayer's; NULL means 0.   dropout: NULL means none. */
bk_mhc_status bk_mhc_post(void *x_next, const bk_mhc_call *call, const void *x, const void *h_res,
                          const void *h_post, const void *y, const void *bias, const bk_mhc_dropout *dropout);

/* With gd = keep/(1-p) dx_next and u = y + bias:
 *     dx[t,j,c] (+)= sum_i h_res[t,j,i] dx_next[t,i,c]      dh_res[t,j,i] = sum_c x[t,j,c] dx_next[t,i,c]
 *     dh_post[t,i] = sum_c gd[t,i,c] u[t,c]                 dy[t,c] = sum_i h_post[t,i] gd[t,i,c]
 *     dbias[c] (+)= sum_t dy[t,c]
 * dbias may be NULL. bias and dropout as in the forward. */
bk_mhc_status bk_mhc_post_bwd(void *dx, void *dh_res, void *dh_post, void *dy, void *dbias,
                              const bk_mhc_call *call, const void *dx_next, const void *x, const void *h_res,
                              const void *h_post, const void *y, const void *bias,
                              const bk_mhc_dropout *dropout, int add_dx, int add_dbias);

/* The learned contraction:
 *     rho = 1/sqrt(sum_k x[t,k]^2 / K + eps)            m[j] = rho sum_k V[j,k] x[t,k]
 *     w[j] = sigmoid(m[j] scale + base[j]) + eps        h[t,c] = sum_j w[j] x[t,j,c]
 *   scale [1], base [n], eps > 0 (the layer norm's).   w [T, n], m [T, n], rho [T]: kept for contract_bwd. */
bk_mhc_status bk_mhc_contract(void *h, void *w, void *m, void *rho, const bk_mhc_call *call, const void *x,
                              const void *V, const void *scale, const void *base, double eps);

/* Gradients of contract. dV [n, K], dscale [1], dbase [n]: one flag, add_params. Needs workspace. */
bk_mhc_status bk_mhc_contract_bwd(void *dx, void *dV, void *dscale, void *dbase, const bk_mhc_call *call,
                                  const void *dh, const void *x, const void *V, const void *scale,
                                  const void *w, const void *m, const void *rho, double eps, int add_dx,
                                  int add_params);

#ifdef __cplusplus
}
#endif

#endif
