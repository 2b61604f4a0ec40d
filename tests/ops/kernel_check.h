/* Helpers of the kernel tests: inputs, comparisons, finite differences. Include after cmocka.h. */
#ifndef BK_TESTS_KERNEL_CHECK_H
#define BK_TESTS_KERNEL_CHECK_H

#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/philox.h"

/* Runs the statement with 1, 2 and 3 threads, then sets the number back. */
#define WITH_THREADS(...)                                                                                    \
    do {                                                                                                     \
        const int threads_before = omp_get_max_threads();                                                    \
        for (int n_threads = 1; n_threads <= 3; n_threads++) {                                               \
            omp_set_num_threads(n_threads);                                                                  \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
        omp_set_num_threads(threads_before);                                                                 \
    } while (0)

static inline double draw(uint64_t seed, int64_t i) /* uniform in (-1, 1) */
{
    return (double)(bk_mix64(seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)i) >> 11) * 0x1p-52 - 1;
}

/* n doubles in (-1, 1); at least one, so that the pointer can be freed and is never NULL. 64-byte aligned. */
static inline double *random_f64(int64_t n, uint64_t seed)
{
    double *x = aligned_alloc(64, ((size_t)n * sizeof *x + 64) / 64 * 64);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = draw(seed, i);
    return x;
}

static inline float *to_f32(const double *x, int64_t n)
{
    float *y = aligned_alloc(64, ((size_t)n * sizeof *y + 64) / 64 * 64);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++) y[i] = (float)x[i];
    return y;
}

/* The same values, rounded to float: float and double kernels then see equal inputs. */
static inline void round_to_f32(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (double)(float)x[i];
}

static inline void *workspace(int64_t bytes)
{
    void *p = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, ((size_t)bytes + 64) / 64 * 64); /* NaNs: a kernel must not read what it did not write */
    return p;
}

static inline void check_near(const double *got, const double *want, int64_t n, double tol)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tol * (1 + fabs(want[i]))))
            fail_msg("element %lld: got %.17g, want %.17g", (long long)i, got[i], want[i]);
}

static inline void check_near_f32(const float *got, const double *want, int64_t n, double tol)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tol * (1 + fabs(want[i]))))
            fail_msg("element %lld: got %.9g, want %.9g", (long long)i, (double)got[i], want[i]);
}

static inline double dot(const double *a, const double *b, int64_t n)
{
    double acc = 0;
    for (int64_t i = 0; i < n; i++) acc += a[i] * b[i];
    return acc;
}

/* Compares grad[i], every step-th of n, with the derivative of loss() in x[i] by the five-point rule. Its
 * error is about h^4 f'''''/30 + eps |loss| / h, which is below 1e-10 for the smooth functions of order one
 * here. */
static inline void check_gradient(double (*loss)(void *), void *context, double *x, const double *grad,
                                  int64_t n, int64_t step)
{
    const int threads_before = omp_get_max_threads();
    omp_set_num_threads(1); /* thousands of tiny calls */
    const double h = 1e-3;
    for (int64_t i = 0; i < n; i += step) {
        const double at = x[i];
        x[i] = at + h;
        double d = 8 * loss(context);
        x[i] = at - h, d -= 8 * loss(context);
        x[i] = at + 2 * h, d -= loss(context);
        x[i] = at - 2 * h, d += loss(context);
        x[i] = at, d /= 12 * h;
        if (!(fabs(grad[i] - d) <= 1e-9 * (1 + fabs(d))))
            fail_msg("gradient %lld: got %.12g, finite differences %.12g", (long long)i, grad[i], d);
    }
    omp_set_num_threads(threads_before);
}

#endif
