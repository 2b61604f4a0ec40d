/* The choice of experts. Logits are [T, E] (T tokens, E experts), what is chosen [T, k]. */
#ifndef BK_R
#include "base/real.h"
#endif
#include "ops/moe/score.h"

/* probs, index [T, k]: the k experts of each token in ascending order and their probabilities. Chosen are the
 * largest scores plus bias [E] (NULL: none; it does not enter the probabilities), of equal ones the lowest
 * expert; a score that is not a number is the smallest. With groups, a group's score is the sum of its
 * topk / group_topk largest scores (probabilities with pre_softmax), and only experts of the best group_topk
 * groups are chosen (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, 2.1.2). Probabilities, times scaling:
 *
 *     softmax             exp(l_i) / sum exp(l), over the chosen or, with pre_softmax, over all experts
 *     others, k > 1       s_i / (sum of the chosen s + 1e-20)
 *     others, k = 1       s_i
 *
 * group_score is scratch of T * groups elements. */
void BK_R(bk_router_fwd)(real *probs, int32_t *index, const real *logits, const real *bias, real *group_score,
                         int64_t n_tokens, bk_route r);

/* dlogits [T, E] (added to if beta is 1) from dprobs [T, k], the logits and the chosen experts, among which
 * no gradient chooses. Returns -1, or the first element of index that is no expert; nothing is written then.
 */
int64_t BK_R(bk_router_bwd)(real *dlogits, const real *dprobs, const real *logits, const int32_t *index,
                            int64_t n_tokens, bk_route r, int beta);
