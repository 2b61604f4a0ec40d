/* The keys of multi-latent attention: each head has a part of its own and one that all heads share.
 *
 *   key [S, B, G, n + p]   n dims of the head's own, then p shared dims, at strides ks
 *   own [S, B, G, n]       at strides ns
 *   shared [S, B, p]       at the strides .s and .b of ps
 *
 * S positions, B samples, G heads. Heads lie at the strides of base/heads.h, and .r is not read. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>
#include "base/heads.h"

/* key = [own | shared, the same for each head]. key overlaps neither input. */
void BK_R(bk_mla_key)(real *key, bk_heads ks, const real *own, bk_heads ns, const real *shared, bk_heads ps,
                      int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t n, int64_t p);

/* d_own and d_shared from d_key: that of the shared part is the sum over the heads, from the first to the
 * last. The outputs overlap neither each other nor the input. */
void BK_R(bk_mla_key_bwd)(real *d_own, bk_heads ns, real *d_shared, bk_heads ps, const real *d_key,
                          bk_heads ks, int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t n,
                          int64_t p);
