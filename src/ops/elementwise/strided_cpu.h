/* Copies between tensors whose strides are not those of dense ones. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>

/* out = x (beta 0) or out += x (beta 1), element by element: up to 5 dims, strides in elements, rank 0 is one
 * element. out and x do not overlap. */
void BK_R(bk_strided_acc)(real *out, const real *x, int rank, const int64_t *dim, const int64_t *out_stride,
                          const int64_t *x_stride, int beta);
