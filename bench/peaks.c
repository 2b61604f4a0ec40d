#include "peaks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <omp.h>

#include "base/machine.h"

#define BK_REAL_F32 1
#include "base/tile.h"

enum { RUNS = 8, CHAINS = 12, COPY_BYTES = 512 << 20 };

/* Enough independent chains to hide the latency of an FMA, all in registers. Returns a sum, so that the work
 * cannot be left out. */
static float fma_chains(int64_t n)
{
    bk_vec acc[CHAINS], x, y;
    for (int l = 0; l < BK_VEC_LEN; l++) x[l] = 0.999f, y[l] = 1e-3f;
    BK_UNROLL
    for (int i = 0; i < CHAINS; i++) acc[i] = y * (float)i;
    for (int64_t k = 0; k < n; k++) {
        BK_UNROLL
        for (int i = 0; i < CHAINS; i++) acc[i] = acc[i] * x + y;
    }
    BK_UNROLL
    for (int i = 1; i < CHAINS; i++) acc[0] += acc[i];
    return acc[0][0];
}

static double thread_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double fma_rate(void)
{
    const int64_t n = 1 << 20;
    double best = 0;
    volatile float sink = 0;
    for (int r = 0; r < RUNS; r++) {
        double rate = 0;
#pragma omp parallel
        {
            const double start = thread_now();
            const float sum = fma_chains(n);
            const double own = 2.0 * CHAINS * BK_VEC_LEN * (double)n / (thread_now() - start);
#pragma omp critical
            rate += own, sink = sink + sum;
        }
        if (rate > best) best = rate;
    }
    return best;
}

static double copy_rate(void)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    double best = 0;
    if (from && to) memset(from, 1, COPY_BYTES), memset(to, 2, COPY_BYTES); /* first touch */
    for (int r = 0; from && to && r < RUNS; r++) {
        double rate = 0;
#pragma omp parallel
        {
            const size_t piece = COPY_BYTES / (size_t)omp_get_num_threads(),
                         at = piece * (size_t)omp_get_thread_num();
            const double start = thread_now();
            memcpy(to + at, from + at, piece);
            const double own = 2.0 * (double)piece / (thread_now() - start);
#pragma omp critical
            rate += own;
        }
        if (rate > best) best = rate;
    }
    free(from), free(to);
    return best;
}

bk_peaks bk_peaks_measure(void)
{
    return (bk_peaks){.fma_flops = fma_rate(), .copy_bytes = copy_rate()};
}
