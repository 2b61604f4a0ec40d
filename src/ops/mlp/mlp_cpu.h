/* Activations of the feed-forward layer. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdbool.h>
#include <stdint.h>

/* a[T, f] = silu(gate) * up, h [T, 2f]: of each row the first f are gate, the next f up.
 * silu(x) = x / (1 + exp(-x)) (Shazeer, "GLU variants improve Transformer", 2020). */
void BK_R(bk_swiglu_fwd)(real *a, const real *h, int64_t n_tokens, int64_t f);

/* dh [T, 2f] (added to if beta is 1) from da [T, f] and h. dh may be h (beta 0). */
void BK_R(bk_swiglu_bwd)(real *dh, const real *da, const real *h, int64_t n_tokens, int64_t f, int beta);

/* y[n] = x Phi(x); with tanh_form 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel,
 * 2016). y may be x. */
void BK_R(bk_gelu_fwd)(real *y, const real *x, int64_t n, bool tanh_form);

/* dx[n] (added to if beta is 1) from dy and x. dx may be dy (beta 0). */
void BK_R(bk_gelu_bwd)(real *dx, const real *dy, const real *x, int64_t n, bool tanh_form, int beta);
