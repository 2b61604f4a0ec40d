/* What balances the load of experts: counts, losses of the router, the bias. Logits are [T, E] (T = S*B
 * tokens, E experts), token t is of sample t % B. Counts are [Q, E], Q = B for each sequence by itself, or 1;
 * token t belongs to row t % Q. Sums run in double, in an order that depends on the sizes alone. */
#ifndef BK_R
#include "base/real.h"
#endif
#include "ops/moe/score.h"

/* counts[q, e] = number of elements of index [T, k] in the tokens of q that are e; exact up to 2^24 in float.
 * Returns -1, or the first element of index that is no expert. */
int64_t BK_R(bk_count_experts)(real *counts, const int32_t *index, int64_t n_tokens, int64_t topk,
                               int64_t n_rows, int64_t experts);

/* state [n + 1]: the sums of all x [n] so far and how many there were; beta 0 begins anew, whatever stands
 * there. mean [n] = sums / number. */
void BK_R(bk_running_mean)(real *mean, real *state, const real *x, int64_t n, int beta);

/* loss[0] = mean over q of E / (k N_q^2) sum_e counts[q, e] sum_(t in q) P[t, e], where N_q = sum_e counts[q,
 * e] / k is the number of tokens that were counted, of which these may be a part (W. Fedus, B. Zoph, N.
 * Shazeer, "Switch Transformers", 2022, 2.2). P is the softmax of the logits, or s / (sum s + 1e-20) of the
 * other scores s. What counts no token gives 0. Of r only experts, topk and score are read; work is scratch
 * of T + Q. */
void BK_R(bk_aux_loss_fwd)(real *loss, const real *logits, const real *counts, double *work, int64_t n_tokens,
                           int64_t n_rows, bk_route r);

/* dlogits [T, E] (added to if beta is 1) from dloss[0]; the counts are constants. work is scratch of Q. */
void BK_R(bk_aux_loss_bwd)(real *dlogits, const real *dloss, const real *logits, const real *counts,
                           double *work, int64_t n_tokens, int64_t n_rows, bk_route r, int beta);

/* loss[0] = mean over tokens of (ln sum_e exp(l_e))^2, 0 without tokens (B. Zoph et al., "ST-MoE", 2022, 3).
 * At least one expert; work is scratch of T. */
void BK_R(bk_z_loss_fwd)(real *loss, const real *logits, double *work, int64_t n_tokens, int64_t experts);

/* dlogits [T, E] (added to if beta is 1) from dloss[0]. */
void BK_R(bk_z_loss_bwd)(real *dlogits, const real *dloss, const real *logits, int64_t n_tokens,
                         int64_t experts, int beta);

/* bias[e] += rate * sign(mean(counts) - counts[e]) (L. Wang et al., "Auxiliary-Loss-Free Load Balancing
 * Strategy for Mixture-of-Experts", 2024). */
void BK_R(bk_expert_bias)(real *bias, const real *counts, int64_t experts, double rate);
