/* What can be seen of a hyper-connection at work: how far its mixing matrices are from doubly stochastic,
 * from the identity (streams that do not mix) and from uniform (streams that become one), and how large each
 * stream is. Axes and layouts as in mhc_cpu.h. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>

/* worst [2]: over all tokens the largest
 *     row error     max over src of |sum over dst of h_res[t,src,dst] - 1|
 *     column error  max over dst of |sum over src of h_res[t,src,dst] - 1|
 * mean [2 + n]: over all tokens the mean of
 *     |h_res[t] - I| and |h_res[t] - 1/n|  (Frobenius norms; sqrt(n - 1) lies between I and 1/n)
 *     |x[t,j]|                             (Euclidean norm over the channels, for each stream j)
 * All zero without tokens. A NaN in a token makes what it enters NaN, the largest too. Sums run in double,
 * in an order that depends on the sizes alone. work: scratch of T * (4 + n). */
void BK_R(bk_mhc_health)(real *worst, real *mean, const real *h_res, const real *x, double *work, int64_t T,
                         int64_t n, int64_t C);
