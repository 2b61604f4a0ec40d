/* Global gradient norm and AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019). */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdbool.h>
#include <stdint.h>

/* The sum of g[i]^2: chunks of fixed size in double, then the chunks in their order. */
double BK_R(bk_sumsq)(const real *g, int64_t n);

/* What gradients are multiplied by: clip / (norm + 1e-6) where that is below 1, else 1. clip 0 means no
 * clipping. */
double BK_R(bk_clip_coef)(double norm, double clip);

/* One step, number `step` counted from 1, on n elements:
 *     g' = coef * g    m = b1 m + (1 - b1) g'    v = b2 v + (1 - b2) g'^2
 *     p -= lr * ((m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps) + wd * p)
 * apply false leaves all as it is (a step that overflowed). */
void BK_R(bk_adamw)(real *p, real *m, real *v, const real *g, int64_t n, double lr, double beta1,
                    double beta2, double eps, double wd, int64_t step, double coef, bool apply);
