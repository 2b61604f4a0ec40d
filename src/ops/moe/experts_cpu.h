/* What experts do with their rows beside their matrix products. R rows. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>

#include "ops/moe/activation.h"

/* a [R, f] = p[r] act(h [R, f or 2f]). */
void BK_R(bk_expert_act_fwd)(real *a, const real *h, const real *probs, int64_t n_rows, int64_t f,
                             bk_expert_activation act);
/* dh, and dprobs[r] = <da[r], act(h[r])>, from da [R, f]. `scratch` has R * f elements. */
void BK_R(bk_expert_act_bwd)(real *dh, real *dprobs, const real *da, const real *h, const real *probs,
                             int64_t n_rows, int64_t f, bk_expert_activation act, real *scratch);

/* y [n, N] = x + p[r] bias [N], p 1 where probs is NULL. y may be x. */
void BK_R(bk_rows_bias_fwd)(real *y, const real *x, const real *probs, const real *bias, int64_t n_rows,
                            int64_t width);
/* dbias [N] (added to if beta is 1) = sum over rows, in their order, of p[r] dy[r]. */
void BK_R(bk_rows_bias_bwd)(real *dbias, const real *dy, const real *probs, int64_t n_rows, int64_t width,
                            int beta);
/* dprobs[r] = <dy[r], bias>. */
void BK_R(bk_rows_bias_probs)(real *dprobs, const real *dy, const real *bias, int64_t n_rows, int64_t width);

/* out [T, C] = y sigmoid(z [T]). */
void BK_R(bk_sigmoid_gate_fwd)(real *out, const real *y, const real *z, int64_t n_tokens, int64_t width);
/* dy = dout sigmoid(z), dz = <dout, y> sigmoid'(z). dy may be dout. */
void BK_R(bk_sigmoid_gate_bwd)(real *dy, real *dz, const real *dout, const real *y, const real *z,
                               int64_t n_tokens, int64_t width);
