/* Sinkhorn, forward and backward, in the order of operations that defines H_res:
 *     row softmax + EPS, columns, then (rows, columns) iterations-1 times, each divisor being the sum + EPS.
 *
 * The backward is that of the finite sequence. It keeps the divisors of every step and walks back from the
 * final matrix, which is undone by M_before = M_after * divisor: n numbers a step instead of n*n. The softmax
 * is kept itself, because its entries may be smaller than the rounding of the EPS added to them. */
#include "ops/mhc/mhc_sinkhorn_cpu.h"

#include "base/realmath.h"

#define EPS ((real)1e-6)

enum { MAX_ENTRIES = BK_MHC_MAX_STREAMS * BK_MHC_MAX_STREAMS };

/* Softmax of each row over dst, the row's maximum subtracted first: finite for any finite logits. */
INLINE void softmax_rows(int n, vec *m)
{
    for (int j = 0; j < n; j++) {
        real e[BK_MHC_MAX_STREAMS][LANES], top[LANES];
        for (int i = 0; i < n; i++) AT(e[i]) = m[j * n + i];
        for (int l = 0; l < LANES; l++) top[l] = e[0][l];
        for (int i = 1; i < n; i++)
            for (int l = 0; l < LANES; l++) top[l] = e[i][l] > top[l] ? e[i][l] : top[l];
        vec sum = {0};
        for (int i = 0; i < n; i++) {
            for (int l = 0; l < LANES; l++) e[i][l] = bk_exp(e[i][l] - top[l]);
            sum += AT_CONST(e[i]);
        }
        for (int i = 0; i < n; i++) m[j * n + i] = AT_CONST(e[i]) / sum;
    }
}

/* One normalisation: entry (a, b) is m[a*sa + b*sb], divided by EPS + the sum over b. Columns: a is dst
 * (stride 1) and b is src (stride n); rows: the reverse. `divisors` [n] may be NULL. */
INLINE void normalise(int n, vec *m, int sa, int sb, vec *divisors)
{
    for (int a = 0; a < n; a++) {
        vec sum = m[a * sa];
        for (int b = 1; b < n; b++) sum += m[a * sa + b * sb];
        sum += EPS;
        if (divisors) divisors[a] = sum;
        const vec inverse = (real)1 / sum;
        for (int b = 0; b < n; b++) m[a * sa + b * sb] *= inverse;
    }
}

/* Gradient of one normalisation, with m its output; leaves in m its input. */
INLINE void normalise_bwd(int n, vec *g, vec *m, int sa, int sb, const vec *divisors)
{
    for (int a = 0; a < n; a++) {
        vec dot = g[a * sa] * m[a * sa];
        for (int b = 1; b < n; b++) dot += g[a * sa + b * sb] * m[a * sa + b * sb];
        const vec divisor = divisors[a], inverse = (real)1 / divisor;
        for (int b = 0; b < n; b++) {
            g[a * sa + b * sb] = (g[a * sa + b * sb] - dot) * inverse;
            m[a * sa + b * sb] *= divisor;
        }
    }
}

INLINE void forward(int n, real *io, int64_t iterations)
{
    vec m[MAX_ENTRIES];
    for (int e = 0; e < n * n; e++) m[e] = AT_CONST(io + e * LANES);
    softmax_rows(n, m);
    for (int e = 0; e < n * n; e++) m[e] += EPS;
    normalise(n, m, 1, n, NULL);
    for (int64_t k = 1; k < iterations; k++) {
        normalise(n, m, n, 1, NULL);
        normalise(n, m, 1, n, NULL);
    }
    for (int e = 0; e < n * n; e++) AT(io + e * LANES) = m[e];
}

INLINE void backward(int n, real *grad, real *logits, int64_t iterations, real *scratch)
{
    vec m[MAX_ENTRIES], g[MAX_ENTRIES];
    vec *divisors = (vec *)scratch;
    for (int e = 0; e < n * n; e++) m[e] = AT_CONST(logits + e * LANES);
    softmax_rows(n, m);
    for (int e = 0; e < n * n; e++) {
        AT(logits + e * LANES) = m[e];
        m[e] += EPS;
    }
    normalise(n, m, 1, n, divisors);
    for (int64_t k = 1; k < iterations; k++) {
        normalise(n, m, n, 1, divisors + (2 * k - 1) * n);
        normalise(n, m, 1, n, divisors + 2 * k * n);
    }

    for (int e = 0; e < n * n; e++) g[e] = AT_CONST(grad + e * LANES);
    for (int64_t k = iterations - 1; k > 0; k--) {
        normalise_bwd(n, g, m, 1, n, divisors + 2 * k * n);
        normalise_bwd(n, g, m, n, 1, divisors + (2 * k - 1) * n);
    }
    normalise_bwd(n, g, m, 1, n, divisors);
    for (int j = 0; j < n; j++) {
        const real *soft = logits + j * n * LANES;
        vec dot = {0};
        for (int i = 0; i < n; i++) dot += g[j * n + i] * AT_CONST(soft + i * LANES);
        for (int i = 0; i < n; i++)
            AT(grad + (j * n + i) * LANES) = AT_CONST(soft + i * LANES) * (g[j * n + i] - dot);
    }
}

void BK_R(bk_mhc_sinkhorn)(real *m, int n, int64_t iterations)
{
    BK_MHC_BY_N(n, forward, m, iterations);
}

void BK_R(bk_mhc_sinkhorn_bwd)(real *g, real *logits, int n, int64_t iterations, real *scratch)
{
    BK_MHC_BY_N(n, backward, g, logits, iterations, scratch);
}
