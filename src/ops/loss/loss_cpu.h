/* Cross entropy over the vocabulary and the mean over unmasked tokens. Logits are [S, B, V], what belongs to
 * a token (labels, mask, losses) is [B, S]. Indices are 64-bit: S*B*V may pass 2^31. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>

/* loss[b, s] = lse[b, s] - logits[s, b, labels[b, s]], lse = ln sum exp(logits[s, b, :]). Returns -1, or the
 * index in `labels` of the first label outside 0 .. V-1; nothing is written then. */
int64_t BK_R(bk_cross_entropy_fwd)(real *loss, real *lse, const real *logits, const int32_t *labels,
                                   int64_t n_positions, int64_t n_samples, int64_t n_vocab);

/* dlogits[s, b, :] = (exp(logits - lse) - onehot(label)) * dloss[b, s], added to if beta is 1. dlogits may be
 * logits (beta 0). The labels are those that the forward accepted. */
void BK_R(bk_cross_entropy_bwd)(real *dlogits, const real *logits, const real *lse, const int32_t *labels,
                                const real *dloss, int64_t n_positions, int64_t n_samples, int64_t n_vocab,
                                int beta);

/* n[0] = sum of mask, sum[0] = sum of x * mask, mean[0] = sum / max(n, 1), over `count` elements. Summed in
 * double in fixed chunks. */
void BK_R(bk_masked_mean_fwd)(real *mean, real *sum, real *n, const real *x, const real *mask, int64_t count);

/* dx[i] = mask[i] * dmean[0] / max(n[0], 1), added to if beta is 1. */
void BK_R(bk_masked_mean_bwd)(real *dx, const real *mask, const real *n, const real *dmean, int64_t count,
                              int beta);
