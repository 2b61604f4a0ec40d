/* What the forward and the backward of the mapping share. Internal to the mHC kernels. */
#include "ops/mhc/mhc_vec.h"

#include <math.h>

#ifdef BK_REAL_F64
#define EXP  exp
#define SQRT sqrt
#else
#define EXP  expf
#define SQRT sqrtf
#endif

/* Constants of the method, not options: added to the root mean square, and to h_pre. */
#define RMS_EPS ((real)1e-6)
#define PRE_EPS ((real)1e-6)

/* exp of a non-positive argument alone, so that neither sign overflows. */
INLINE real sigmoid(real z)
{
    const real e = EXP(z < 0 ? z : -z);
    return (z < 0 ? e : (real)1) / (1 + e);
}

/* Parameters of one mapping. */
typedef struct {
    real alpha_pre, alpha_post, alpha_res;
    const real *bias;
    int n;
} gates;
