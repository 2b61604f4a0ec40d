/* Gradients, with h = gain * dy and xh the normalised row:
 *   RMSNorm    dx = rstd * (h - xh * mean(h * xh))
 *   LayerNorm  dx = rstd * (h - mean(h) - xh * mean(h * xh))
 *   dgamma = sum over tokens of dy * xh, dbeta = sum over tokens of dy
 * The parameter sums go through at most PARTS partial rows, each of a fixed stretch of tokens. RMSNorm is the
 * case mean = 0 of one code. */
#include "ops/norm/norm_cpu.h"

#include <math.h>
#include <string.h>
#include "base/lanes.h"

#define PARTS 64

typedef struct {
    int64_t n_tokens, width, n_parts, per_part;
    real shift;
} shape;

static shape shape_of(int64_t n_tokens, int64_t width, double gamma_shift)
{
    const int64_t per_part = (n_tokens + PARTS - 1) / PARTS;
    return (shape){.n_tokens = n_tokens,
                   .width = width,
                   .per_part = per_part,
                   .n_parts = per_part ? (n_tokens + per_part - 1) / per_part : 0,
                   .shift = (real)gamma_shift};
}

int64_t BK_R(bk_norm_bwd_workspace)(int64_t n_tokens, int64_t width)
{
    return 2 * shape_of(n_tokens, width, 0).n_parts * width * (int64_t)sizeof(real);
}

static inline real gain_at(const real *gamma, real shift, int64_t c)
{
    return gamma ? gamma[c] + shift : 1;
}

static void normalise_row(real *y, const real *x, const real *gamma, const real *beta, real mean, real rstd,
                          real shift, int64_t width)
{
    if (!gamma)
        for (int64_t c = 0; c < width; c++) y[c] = (x[c] - mean) * rstd;
    else
        for (int64_t c = 0; c < width; c++) y[c] = (x[c] - mean) * rstd * (gamma[c] + shift);
    if (beta)
        for (int64_t c = 0; c < width; c++) y[c] += beta[c];
}

void BK_R(bk_rmsnorm_fwd)(real *y, real *rstd, const real *x, const real *gamma, int64_t n_tokens,
                          int64_t width, double eps, double gamma_shift)
{
#pragma omp parallel for schedule(static) if (n_tokens * width > 1 << 14)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real *row = x + t * width;
        double sumsq;
        BK_LANES_SUM(sumsq, c, width, (double)row[c] * (double)row[c]);
        rstd[t] = (real)(1 / sqrt(sumsq / (double)width + eps));
        normalise_row(y + t * width, row, gamma, NULL, 0, rstd[t], (real)gamma_shift, width);
    }
}

void BK_R(bk_layernorm_fwd)(real *y, real *mean, real *rstd, const real *x, const real *gamma,
                            const real *beta, int64_t n_tokens, int64_t width, double eps, double gamma_shift)
{
#pragma omp parallel for schedule(static) if (n_tokens * width > 1 << 14)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real *row = x + t * width;
        double sum, var;
        BK_LANES_SUM(sum, c, width, (double)row[c]);
        const double mu = sum / (double)width;
        BK_LANES_SUM(var, c, width, ((double)row[c] - mu) * ((double)row[c] - mu));
        mean[t] = (real)mu;
        rstd[t] = (real)(1 / sqrt(var / (double)width + eps));
        normalise_row(y + t * width, row, gamma, beta, mean[t], rstd[t], (real)gamma_shift, width);
    }
}

/* One token: its terms of dgamma and dbeta, then dx (which may lie on dy). */
static void token_bwd(real *dx, real *part_gamma, real *part_beta, const real *dy, const real *x,
                      const real *gamma, real mean, real rstd, int centred, const shape *n, int beta_x)
{
    const int64_t width = n->width;
    const real shift = n->shift;
    double sum_h = 0, sum_hx;
    if (centred) BK_LANES_SUM(sum_h, c, width, (double)(dy[c] * gain_at(gamma, shift, c)));
    BK_LANES_SUM(sum_hx, c, width,
                 (double)(dy[c] * gain_at(gamma, shift, c)) * (double)((x[c] - mean) * rstd));
    const real mean_h = (real)(sum_h / (double)width), mean_hx = (real)(sum_hx / (double)width);
    if (part_gamma)
        for (int64_t c = 0; c < width; c++) part_gamma[c] += dy[c] * ((x[c] - mean) * rstd);
    if (part_beta)
        for (int64_t c = 0; c < width; c++) part_beta[c] += dy[c];
    for (int64_t c = 0; c < width; c++) {
        const real xh = (x[c] - mean) * rstd;
        const real g = rstd * (dy[c] * gain_at(gamma, shift, c) - mean_h - xh * mean_hx);
        dx[c] = beta_x ? dx[c] + g : g;
    }
}

static void fold_parts(real *out, const real *parts, const shape *n, int beta)
{
    if (!out) return;
#pragma omp parallel for schedule(static) if (n->width > 1024)
    for (int64_t c = 0; c < n->width; c++) {
        double acc = beta ? (double)out[c] : 0;
        for (int64_t i = 0; i < n->n_parts; i++) acc += (double)parts[i * n->width + c];
        out[c] = (real)acc;
    }
}

/* mean NULL: RMSNorm. */
static void norm_bwd(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x, const real *gamma,
                     const real *mean, const real *rstd, shape n, int beta_x, int beta_w, real *parts)
{
    real *gamma_parts = dgamma ? parts : NULL,
         *beta_parts = dbeta && parts ? parts + n.n_parts * n.width : NULL;
#pragma omp parallel for schedule(static) if (n.n_tokens * n.width > 1 << 14)
    for (int64_t i = 0; i < n.n_parts; i++) {
        real *pg = gamma_parts ? gamma_parts + i * n.width : NULL;
        real *pb = beta_parts ? beta_parts + i * n.width : NULL;
        if (pg) memset(pg, 0, (size_t)n.width * sizeof *pg);
        if (pb) memset(pb, 0, (size_t)n.width * sizeof *pb);
        const int64_t end = (i + 1) * n.per_part < n.n_tokens ? (i + 1) * n.per_part : n.n_tokens;
        for (int64_t t = i * n.per_part; t < end; t++)
            token_bwd(dx + t * n.width, pg, pb, dy + t * n.width, x + t * n.width, gamma, mean ? mean[t] : 0,
                      rstd[t], mean != NULL, &n, beta_x);
    }
    fold_parts(dgamma, gamma_parts, &n, beta_w);
    fold_parts(dbeta, beta_parts, &n, beta_w);
}

void BK_R(bk_rmsnorm_bwd)(real *dx, real *dgamma, const real *dy, const real *x, const real *gamma,
                          const real *rstd, int64_t n_tokens, int64_t width, double gamma_shift, int beta_x,
                          int beta_w, void *workspace)
{
    norm_bwd(dx, dgamma, NULL, dy, x, gamma, NULL, rstd, shape_of(n_tokens, width, gamma_shift), beta_x,
             beta_w, workspace);
}

void BK_R(bk_layernorm_bwd)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x,
                            const real *gamma, const real *mean, const real *rstd, int64_t n_tokens,
                            int64_t width, double gamma_shift, int beta_x, int beta_w, void *workspace)
{
    norm_bwd(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, shape_of(n_tokens, width, gamma_shift), beta_x,
             beta_w, workspace);
}
