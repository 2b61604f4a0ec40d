#include "ops/mhc/mhc_health_cpu.h"

#include <math.h>

#include "base/lanes.h"

enum { ROW, COLUMN, IDENTITY, UNIFORM, STREAM }; /* a token's figures; one STREAM for each of them */

/* The larger one; a NaN is larger than any number. */
static inline double larger(double a, double b)
{
    return a <= b || isnan(b) ? b : a;
}

/* The largest |sum - 1| over n lines of the matrix, whose elements are `step` apart. */
static double line_error(const real *h, int64_t n, int64_t line_step, int64_t step)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += (double)h[i * line_step + j * step];
        most = larger(most, fabs(sum - 1));
    }
    return most;
}

/* |h - m|, m with one value on the diagonal and one beside it. */
static double distance(const real *h, int64_t n, double on, double beside)
{
    double sum = 0;
    for (int64_t i = 0; i < n * n; i++) {
        const double d = (double)h[i] - (i % (n + 1) == 0 ? on : beside);
        sum += d * d;
    }
    return sqrt(sum);
}

static double norm(const real *x, int64_t C)
{
    double sum;
    BK_LANES_SUM(sum, c, C, (double)x[c] * (double)x[c]);
    return sqrt(sum);
}

void BK_R(bk_mhc_health)(real *worst, real *mean, const real *h_res, const real *x, double *work, int64_t T,
                         int64_t n, int64_t C)
{
    const int64_t width = STREAM + n;
#pragma omp parallel for schedule(static) if (T * n * C > 1 << 14)
    for (int64_t t = 0; t < T; t++) {
        const real *h = h_res + t * n * n;
        double *w = work + t * width;
        w[ROW] = line_error(h, n, n, 1);
        w[COLUMN] = line_error(h, n, 1, n);
        w[IDENTITY] = distance(h, n, 1, 0);
        w[UNIFORM] = distance(h, n, 1 / (double)n, 1 / (double)n);
        for (int64_t j = 0; j < n; j++) w[STREAM + j] = norm(x + (t * n + j) * C, C);
    }
    for (int k = ROW; k <= COLUMN; k++) {
        double most = 0;
        for (int64_t t = 0; t < T; t++) most = larger(most, work[t * width + k]);
        worst[k] = (real)most;
    }
    for (int64_t k = IDENTITY; k < width; k++) {
        double sum;
        BK_LANES_SUM(sum, t, T, work[t * width + k]);
        mean[k - IDENTITY] = (real)(T > 0 ? sum / (double)T : 0);
    }
}
