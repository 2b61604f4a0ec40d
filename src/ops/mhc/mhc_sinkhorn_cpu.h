/* The Sinkhorn projection of a group of LANES tokens, one token a lane: entry (src, dst) of all of them is
 * the vector at m[(src*n + dst)*LANES]. Lanes never mix, so a NaN stays in its token. Internal to the mHC
 * kernels. */
#include "ops/mhc/mhc_vec.h"

/* m: logits in, doubly stochastic matrices out. `iterations` >= 1. */
void BK_R(bk_mhc_sinkhorn)(real *m, int n, int64_t iterations);

/* g: gradient of the matrices in, of the logits out. `logits` as given to the forward; they are overwritten.
 * scratch: bk_mhc_sinkhorn_scratch(n, iterations, sizeof(real)) scalars. */
void BK_R(bk_mhc_sinkhorn_bwd)(real *g, real *logits, int n, int64_t iterations, real *scratch);
