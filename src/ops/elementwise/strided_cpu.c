#include "ops/elementwise/strided_cpu.h"

enum { DIMS = 5 };

static void row(real *restrict out, const real *restrict x, int64_t n, int64_t out_stride, int64_t x_stride,
                int beta)
{
    if (out_stride == 1 && x_stride == 1) { /* the compiler's vectors need to see the ones */
        if (beta)
            for (int64_t i = 0; i < n; i++) out[i] += x[i];
        else
            for (int64_t i = 0; i < n; i++) out[i] = x[i];
    } else if (beta) {
        for (int64_t i = 0; i < n; i++) out[i * out_stride] += x[i * x_stride];
    } else {
        for (int64_t i = 0; i < n; i++) out[i * out_stride] = x[i * x_stride];
    }
}

void BK_R(bk_strided_acc)(real *out, const real *x, int rank, const int64_t *dim, const int64_t *out_stride,
                          const int64_t *x_stride, int beta)
{
    int64_t n[DIMS], so[DIMS], sx[DIMS]; /* padded in front with dims of size 1 */
    for (int d = 0; d < DIMS; d++) {
        const int from = d - (DIMS - rank);
        n[d] = from < 0 ? 1 : dim[from];
        so[d] = from < 0 ? 0 : out_stride[from];
        sx[d] = from < 0 ? 0 : x_stride[from];
    }
    const int64_t rows = n[0] * n[1] * n[2] * n[3];
#pragma omp parallel for schedule(static) if (rows * n[DIMS - 1] > 1 << 14)
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = r, at_out = 0, at_x = 0;
        for (int d = DIMS - 2; d >= 0; d--) {
            const int64_t i = rest % n[d];
            rest /= n[d], at_out += i * so[d], at_x += i * sx[d];
        }
        row(out + at_out, x + at_x, n[DIMS - 1], so[DIMS - 1], sx[DIMS - 1], beta);
    }
}
