/* Sums over the rows of a matrix: the gradient of a bias. */
#ifndef BK_BASE_COLUMN_SUM_H
#define BK_BASE_COLUMN_SUM_H

#include <stdint.h>
#include "base/real.h"

/* out[N] = sum over t of x[t, :], added to if beta is 1. In double, rows in their order; columns are shared
 * out among threads, so their number does not change a bit. */
static inline void bk_column_sum(real *out, const real *x, int64_t n_rows, int64_t n_cols, int beta)
{
    enum { COLS = 64 };
#pragma omp parallel for schedule(static) if (n_rows * n_cols > 1 << 14)
    for (int64_t c0 = 0; c0 < n_cols; c0 += COLS) {
        const int64_t width = n_cols - c0 < COLS ? n_cols - c0 : COLS;
        double acc[COLS] = {0};
        for (int64_t t = 0; t < n_rows; t++)
            for (int64_t c = 0; c < width; c++) acc[c] += (double)x[t * n_cols + c0 + c];
        for (int64_t c = 0; c < width; c++)
            out[c0 + c] = (real)(beta ? (double)out[c0 + c] + acc[c] : acc[c]);
    }
}

#endif
