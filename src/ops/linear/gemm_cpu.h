/* General matrix product, row-major. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdbool.h>
#include <stdint.h>

/* Bytes of workspace (64-byte aligned) that bk_gemm wants for a product of these sizes, no less for larger
 * ones; the same in both modes and for any number of threads. */
int64_t BK_R(bk_gemm_workspace)(int64_t m, int64_t n, int64_t k);

/* c = op(a) op(b), added to c if beta is 1 and written over it if beta is 0.
 *   c  [m, n]  rows ldc apart
 *   a  [m, k]  rows lda apart; with trans_a it is stored [k, m]
 *   b  [k, n]  rows ldb apart; with trans_b it is stored [n, k]
 * deterministic: the bits of c[i, j] depend on row i of op(a), column j of op(b), k and (beta 1) the old c[i,
 * j] alone: not on m, n, the place of the element, or the number of threads. Otherwise CBLAS does the
 * product, or the deterministic code where a size does not fit CBLAS's integer. k = 0 gives zeros (beta 0) or
 * leaves c as it is. c must not overlap a or b. Adds m*n*k to bk_tally_madds. */
void BK_R(bk_gemm)(real *c, const real *a, const real *b, int64_t m, int64_t n, int64_t k, bool trans_a,
                   bool trans_b, int64_t lda, int64_t ldb, int64_t ldc, int beta, bool deterministic,
                   void *workspace);
