#include "ops/optimizer/optimizer_cpu.h"

#include <math.h>
#include "base/lanes.h"
#include "base/realmath.h"

#define CHUNK  16384 /* elements of one partial sum */
#define CHUNKS 256   /* partial sums at a time */

double BK_R(bk_sumsq)(const real *g, int64_t n)
{
    double total = 0;
    for (int64_t first = 0; first < n; first += (int64_t)CHUNK * CHUNKS) {
        double part[CHUNKS];
        const int64_t left = (n - first + CHUNK - 1) / CHUNK, n_chunks = left < CHUNKS ? left : CHUNKS;
#pragma omp parallel for schedule(static) if (n_chunks > 1)
        for (int64_t j = 0; j < n_chunks; j++) {
            const int64_t start = first + j * CHUNK, len = n - start < CHUNK ? n - start : CHUNK;
            const real *x = g + start;
            BK_LANES_SUM(part[j], i, len, (double)x[i] * (double)x[i]);
        }
        for (int64_t j = 0; j < n_chunks; j++) total += part[j];
    }
    return total;
}

double BK_R(bk_clip_coef)(double norm, double clip)
{
    const double coef = clip / (norm + 1e-6);
    return clip > 0 && coef < 1 ? coef : 1;
}

void BK_R(bk_adamw)(real *p, real *m, real *v, const real *g, int64_t n, double lr, double beta1,
                    double beta2, double eps, double wd, int64_t step, double coef, bool apply)
{
    if (!apply) return;
    const real b1 = (real)beta1, b2 = (real)beta2, a1 = (real)(1 - beta1), a2 = (real)(1 - beta2);
    const real fix1 = (real)(1 - pow(beta1, (double)step)), fix2 = (real)(1 - pow(beta2, (double)step));
    const real rate = (real)lr, decay = (real)wd, floor = (real)eps, clip = (real)coef;
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t i0 = 0; i0 < n; i0 += CHUNK) {
        const int64_t end = i0 + CHUNK < n ? i0 + CHUNK : n;
        BK_SIMD
        for (int64_t i = i0; i < end; i++) {
            const real gi = clip * g[i];
            m[i] = b1 * m[i] + a1 * gi;
            v[i] = b2 * v[i] + a2 * gi * gi;
            const real root = bk_sqrt(v[i] / fix2);
            p[i] -= rate * (m[i] / fix1 / (root + floor) + decay * p[i]);
        }
    }
}
