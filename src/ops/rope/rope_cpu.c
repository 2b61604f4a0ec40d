#include "ops/rope/rope_cpu.h"

#include <math.h>

void BK_R(bk_rope_table)(real *cos_table, real *sin_table, int64_t n_positions, int64_t first_position,
                         int64_t d, double base)
{
    const int64_t half = d / 2;
    for (int64_t s = 0; s < n_positions; s++)
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)(first_position + s) * pow(base, -2.0 * (double)i / (double)d);
            cos_table[s * half + i] = (real)cos(angle), sin_table[s * half + i] = (real)sin(angle);
        }
}

/* The dim up to which angles make at least so many turns within the original positions. */
static double dim_of_turns(double turns, int64_t d, double base, int64_t original)
{
    const double pi = 3.14159265358979323846;
    return (double)d * log((double)original / (2 * pi * turns)) / (2 * log(base));
}

void BK_R(bk_yarn_table)(real *cos_table, real *sin_table, int64_t n_positions, int64_t first_position,
                         int64_t d, double base, const bk_yarn *yarn)
{
    const int64_t half = d / 2;
    const double low = fmax(floor(dim_of_turns(yarn->beta_fast, d, base, yarn->original)), 0);
    double high = fmin(ceil(dim_of_turns(yarn->beta_slow, d, base, yarn->original)), (double)(d - 1));
    if (low == high) high += 0.001;
    for (int64_t i = 0; i < half; i++) {
        const double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        const double theta = pow(base, -2.0 * (double)i / (double)d) * (1 - ramp + ramp / yarn->factor);
        for (int64_t s = 0; s < n_positions; s++) {
            const double angle = (double)(first_position + s) * theta;
            cos_table[s * half + i] = (real)(yarn->concentration * cos(angle));
            sin_table[s * half + i] = (real)(yarn->concentration * sin(angle));
        }
    }
}

/* Where the two members of pair i stand. */
typedef struct {
    int64_t step, second; /* at i * step and i * step + second */
} pairs;

/* One head. With y == x the two layouts are alike, and each pair is read before it is written. */
static void rotate_head(real *y, pairs yp, const real *x, pairs xp, const real *cos_row, const real *sin_row,
                        int64_t half, real sign, int beta)
{
    for (int64_t i = 0; i < half; i++) {
        const real x0 = x[i * xp.step], x1 = x[i * xp.step + xp.second];
        const real c = cos_row[i], sn = sign * sin_row[i];
        const real r0 = x0 * c - x1 * sn, r1 = x1 * c + x0 * sn;
        real *y0 = y + i * yp.step, *y1 = y0 + yp.second;
        *y0 = beta ? *y0 + r0 : r0;
        *y1 = beta ? *y1 + r1 : r1;
    }
}

static void pass_through(real *y, const real *x, int64_t n, int beta)
{
    if (beta)
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
    else if (y != x)
        for (int64_t i = 0; i < n; i++) y[i] = x[i];
}

void BK_R(bk_rope_apply)(real *y, bk_heads ys, const real *x, bk_heads xs, const real *cos_table,
                         const real *sin_table, int64_t n_positions, int64_t n_samples, int64_t n_groups,
                         int64_t heads_per_group, int64_t first, int64_t d, int64_t hd, bk_rope_layout layout,
                         bool inverse, int beta)
{
    const int64_t half = d / 2, n_tokens = n_positions * n_samples;
    const pairs halves = {1, half}, interleaved = {2, 1};
    const bool reads_pairs = layout == BK_ROPE_INTERLEAVED || (layout == BK_ROPE_DEINTERLEAVE && !inverse);
    const bool writes_pairs = layout == BK_ROPE_INTERLEAVED || (layout == BK_ROPE_DEINTERLEAVE && inverse);
    const real sign = inverse ? -1 : 1;
#pragma omp parallel for schedule(static) if (n_tokens * n_groups * heads_per_group * hd > 1 << 14)
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t s = t / n_samples, b = t % n_samples;
        for (int64_t h = 0; h < n_groups * heads_per_group; h++) {
            const int64_t g = h / heads_per_group, r = h % heads_per_group;
            real *to = y + bk_heads_at(ys, s, b, g, r);
            const real *from = x + bk_heads_at(xs, s, b, g, r);
            pass_through(to, from, first, beta);
            rotate_head(to + first, writes_pairs ? interleaved : halves, from + first,
                        reads_pairs ? interleaved : halves, cos_table + s * half, sin_table + s * half, half,
                        sign, beta);
            pass_through(to + first + d, from + first + d, hd - first - d, beta);
        }
    }
}
