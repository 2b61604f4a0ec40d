/* One sublayer of the public mHC operators, on arrays of either type, for the tests:
 *     map(x), a = aggregate(x), x_next = post(x, y, d), h = contract(s)
 * with the scalar  sum(a*da) + sum(x_next*g) + sum(h*dh)  differentiated by the backward operators.
 * Arrays are allocated apart, at their exact size, so that a sanitizer sees any step outside. */
#ifndef TESTS_MHC_SUBLAYER_H
#define TESTS_MHC_SUBLAYER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "birkhoff/mhc.h"

/* clang-format off */
#define ARRAYS(A) /* name, elements */ \
    /* inputs */ \
    A(X, T*n*C) A(W, N*n*C) A(ALPHA_PRE, 1) A(ALPHA_POST, 1) A(ALPHA_RES, 1) A(BIAS, N) A(Y, T*C) A(D, C) \
    A(S, T*n*C) A(V, n*n*C) A(SCALE, 1) A(BASE, n) \
    /* their gradients, in the same order */ \
    A(DX, T*n*C) A(DW, N*n*C) A(DALPHA_PRE, 1) A(DALPHA_POST, 1) A(DALPHA_RES, 1) A(DBIAS, N) A(DY, T*C) A(DD, C) \
    A(DS, T*n*C) A(DV, n*n*C) A(DSCALE, 1) A(DBASE, n) \
    /* outputs of the forward */ \
    A(H_PRE, T*n) A(H_POST, T*n) A(H_RES, T*n*n) A(A_, T*C) A(X_NEXT, T*n*C) A(H, T*C) \
    A(P, T*N) A(Q, T) A(W_, T*n) A(M, T*n) A(RHO, T) \
    /* upstream gradients, inner gradients */ \
    A(DA, T*C) A(G, T*n*C) A(DH, T*C) A(DH_PRE, T*n) A(DH_POST, T*n) A(DH_RES, T*n*n)

enum {
#define A(name, size) name,
    ARRAYS(A)
#undef A
    N_ARRAYS, N_INPUTS = DX
};
/* clang-format on */

typedef struct {
    bk_mhc_call call;
    int64_t iterations;
    double eps; /* of the contraction */
    const bk_mhc_dropout *dropout;
    void *v[N_ARRAYS];
    int64_t size[N_ARRAYS];
} sublayer;

static inline size_t scalar_size(const sublayer *s)
{
    return s->call.dtype == BK_MHC_F64 ? sizeof(double) : sizeof(float);
}

static inline double get(const sublayer *s, int array, int64_t i)
{
    return s->call.dtype == BK_MHC_F64 ? ((const double *)s->v[array])[i]
                                       : (double)((const float *)s->v[array])[i];
}

static inline void set(sublayer *s, int array, int64_t i, double value)
{
    if (s->call.dtype == BK_MHC_F64)
        ((double *)s->v[array])[i] = value;
    else
        ((float *)s->v[array])[i] = (float)value;
}

static inline void set_values(sublayer *s, int array, const double *values, size_t count)
{
    assert_int_equal(s->size[array], count);
    for (size_t i = 0; i < count; i++) set(s, array, (int64_t)i, values[i]);
}

/* Numbers in place of an array and its length. */
#define LIST(...) (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)

static inline void fill(sublayer *s, int array, double value)
{
    for (int64_t i = 0; i < s->size[array]; i++) set(s, array, i, value);
}

/* Uniform in (-scale, scale) + offset, rounded to bf16 so that float and double hold the same value. */
static inline void fill_random(sublayer *s, int array, double scale, double offset)
{
    const bk_rng_key key = bk_rng_key_make(1, BK_RNG_CHECK, (uint32_t)array, 0);
    for (int64_t i = 0; i < s->size[array]; i++) {
        uint32_t word[4], bits;
        bk_rng_block(word, key, 0, 0, (uint32_t)i);
        const float value = (float)(offset + scale * (2 * bk_rng_unit(word[0]) - 1));
        memcpy(&bits, &value, sizeof bits);
        bits = (bits + 0x8000u) & 0xffff0000u;
        float rounded;
        memcpy(&rounded, &bits, sizeof rounded);
        set(s, array, i, (double)rounded);
    }
}

/* All arrays start as NaN: what is not written shows. */
static inline sublayer sublayer_make(bk_mhc_dtype dtype, int64_t T, int64_t n, int64_t C, int64_t iterations)
{
    sublayer s = {.call = {.struct_size = sizeof(bk_mhc_call), .backend = BK_MHC_CPU, .dtype = dtype},
                  .iterations = iterations,
                  .eps = 1e-5};
    s.call.T = T, s.call.n = n, s.call.C = C;
    const int64_t N = n * n + 2 * n;
    const int64_t sizes[N_ARRAYS] = {
#define A(name, elements) [name] = (elements),
        ARRAYS(A)
#undef A
    };
    for (int i = 0; i < N_ARRAYS; i++) {
        s.size[i] = sizes[i];
        s.v[i] = malloc((size_t)sizes[i] * scalar_size(&s) + (sizes[i] == 0));
        assert_non_null(s.v[i]);
        fill(&s, i, (double)NAN);
    }
    size_t other = 0;
    assert_int_equal(bk_mhc_workspace_size(&s.call.workspace_bytes, &s.call, BK_MHC_MAP_BWD, iterations), 0);
    assert_int_equal(bk_mhc_workspace_size(&other, &s.call, BK_MHC_CONTRACT_BWD, iterations), 0);
    if (other > s.call.workspace_bytes) s.call.workspace_bytes = other;
    s.call.workspace = malloc(s.call.workspace_bytes + 1);
    assert_non_null(s.call.workspace);
    return s;
}

static inline void sublayer_free(sublayer *s)
{
    for (int i = 0; i < N_ARRAYS; i++) free(s->v[i]);
    free(s->call.workspace);
}

/* Inputs and upstream gradients of ordinary size: streams near 1, logits near +-1. */
static inline void sublayer_randomise(sublayer *s)
{
    const double K = (double)(s->call.n * s->call.C);
    fill_random(s, X, 1.5, 0.2);
    fill_random(s, S, 1.5, -0.1);
    fill_random(s, W, 2 / sqrt(K), 0);
    fill_random(s, V, 2 / sqrt(K), 0);
    fill_random(s, ALPHA_PRE, 0.2, 0.8);
    fill_random(s, ALPHA_POST, 0.2, 0.7);
    fill_random(s, ALPHA_RES, 0.2, 0.9);
    fill_random(s, BIAS, 1, 0);
    fill_random(s, SCALE, 0.2, 0.8);
    fill_random(s, BASE, 1, 0);
    fill_random(s, Y, 1, 0);
    fill_random(s, D, 0.5, 0);
    fill_random(s, DA, 1, 0);
    fill_random(s, G, 1, 0);
    fill_random(s, DH, 1, 0);
}

static inline void sublayer_forward(sublayer *s)
{
    void **v = s->v;
    const bk_mhc_call *call = &s->call;
    assert_int_equal(0, bk_mhc_map(v[H_PRE], v[H_POST], v[H_RES], v[P], v[Q], call, v[X], v[W], v[ALPHA_PRE],
                                   v[ALPHA_POST], v[ALPHA_RES], v[BIAS], s->iterations));
    assert_int_equal(0, bk_mhc_aggregate(v[A_], call, v[X], v[H_PRE]));
    assert_int_equal(0, bk_mhc_post(v[X_NEXT], call, v[X], v[H_RES], v[H_POST], v[Y], v[D], s->dropout));
    assert_int_equal(0,
                     bk_mhc_contract(v[H], v[W_], v[M], v[RHO], call, v[S], v[V], v[SCALE], v[BASE], s->eps));
}

/* add: 1 adds to the gradients of inputs and parameters that are already there. */
static inline void sublayer_backward(sublayer *s, int add)
{
    void **v = s->v;
    const bk_mhc_call *call = &s->call;
    assert_int_equal(0, bk_mhc_post_bwd(v[DX], v[DH_RES], v[DH_POST], v[DY], v[DD], call, v[G], v[X],
                                        v[H_RES], v[H_POST], v[Y], v[D], s->dropout, add, add));
    assert_int_equal(0, bk_mhc_aggregate_bwd(v[DH_PRE], v[DX], call, v[DA], v[X], v[H_PRE], 1));
    assert_int_equal(0,
                     bk_mhc_map_bwd(v[DX], v[DW], v[DALPHA_PRE], v[DALPHA_POST], v[DALPHA_RES], v[DBIAS],
                                    call, v[DH_PRE], v[DH_POST], v[DH_RES], v[X], v[W], v[ALPHA_PRE],
                                    v[ALPHA_POST], v[ALPHA_RES], v[BIAS], v[P], v[Q], s->iterations, 1, add));
    assert_int_equal(0, bk_mhc_contract_bwd(v[DS], v[DV], v[DSCALE], v[DBASE], call, v[DH], v[S], v[V],
                                            v[SCALE], v[W_], v[M], v[RHO], s->eps, add, add));
}

static inline double sublayer_scalar(const sublayer *s)
{
    double sum = 0;
    for (int64_t i = 0; i < s->size[A_]; i++) sum += get(s, A_, i) * get(s, DA, i);
    for (int64_t i = 0; i < s->size[X_NEXT]; i++) sum += get(s, X_NEXT, i) * get(s, G, i);
    for (int64_t i = 0; i < s->size[H]; i++) sum += get(s, H, i) * get(s, DH, i);
    return sum;
}

static inline void assert_close(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("%.9g is not %.9g within %g", got, want, tolerance);
}

/* |got - want| <= tolerance for a whole array; the message names the element. */
static inline void assert_near(const sublayer *s, double tolerance, int array, const double *want,
                               size_t count)
{
    assert_int_equal(s->size[array], count);
    for (size_t i = 0; i < count; i++) {
        const double got = get(s, array, (int64_t)i);
        if (!(fabs(got - want[i]) <= tolerance))
            fail_msg("array %d element %zu is %.9g, not %.9g within %g", array, i, got, want[i], tolerance);
    }
}

/* Norm of the difference over norm of the reference. */
static inline double relative_error(const sublayer *s, int array, const double *want)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < s->size[array]; i++) {
        const double e = get(s, array, i) - want[i];
        difference += e * e, norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static inline void assert_same_bits(const sublayer *a, const sublayer *b)
{
    for (int i = 0; i < N_ARRAYS; i++)
        if (a->size[i] > 0 && memcmp(a->v[i], b->v[i], (size_t)a->size[i] * scalar_size(a)) != 0)
            fail_msg("array %d differs in its bits", i);
}

#endif
