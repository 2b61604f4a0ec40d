#include "ops/moe/balance_cpu.h"

#include "base/lanes.h"
#include "ops/moe/score_cpu.h"

#define FEW 4096 /* logits for which threads are not worth while */

int64_t BK_R(bk_count_experts)(real *counts, const int32_t *index, int64_t n_tokens, int64_t topk,
                               int64_t n_rows, int64_t experts)
{
    for (int64_t i = 0; i < n_rows * experts; i++) counts[i] = 0;
    for (int64_t i = 0; i < n_tokens * topk; i++) {
        if (index[i] < 0 || index[i] >= experts) return i;
        counts[i / topk % n_rows * experts + index[i]] += 1;
    }
    return -1;
}

void BK_R(bk_running_mean)(real *mean, real *state, const real *x, int64_t n, int beta)
{
    const real number = (beta ? state[n] : 0) + 1;
    for (int64_t i = 0; i < n; i++) {
        state[i] = (beta ? state[i] : 0) + x[i];
        mean[i] = state[i] / number;
    }
    state[n] = number;
}

/* What a token's logits are weighed by: P_e = weight / sum. */
typedef struct {
    real max;
    double sum;
} weights;

static inline real weight_of(int score, real x, real max)
{
    return score == BK_SCORE_SOFTMAX ? bk_exp(x - max) : bk_score(score, x);
}

static inline weights weigh(const real *row, int64_t experts, int score)
{
    weights w = {0};
    const real max = score == BK_SCORE_SOFTMAX ? bk_lanes_max(row, experts) : 0;
    BK_LANES_SUM(w.sum, e, experts, (double)weight_of(score, row[e], max));
    w.max = max;
    if (score != BK_SCORE_SOFTMAX) w.sum += BK_SCORE_TINY;
    return w;
}

/* sum_e counts_e P_e of a token. */
static inline double count_share(const real *row, const real *counts, int64_t experts, int score, weights w)
{
    double dot;
    BK_LANES_SUM(dot, e, experts, (double)counts[e] * (double)weight_of(score, row[e], w.max));
    return dot / w.sum;
}

/* The factor of each q: E / (Q k N^2). */
static void factors(double *factor, const real *counts, int64_t n_rows, const bk_route *r)
{
    for (int64_t q = 0; q < n_rows; q++) {
        double sum;
        BK_LANES_SUM(sum, e, r->experts, (double)counts[q * r->experts + e]);
        factor[q] = sum == 0 ? 0 : (double)r->experts * (double)r->topk / (sum * sum) / (double)n_rows;
    }
}

void BK_R(bk_aux_loss_fwd)(real *loss, const real *logits, const real *counts, double *work, int64_t n_tokens,
                           int64_t n_rows, bk_route r)
{
    double *factor = work + n_tokens, sum;
    factors(factor, counts, n_rows, &r);
#pragma omp parallel for schedule(static) if (n_tokens * r.experts > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real *row = logits + t * r.experts;
        const weights w = weigh(row, r.experts, r.score);
        work[t] =
            factor[t % n_rows] * count_share(row, counts + t % n_rows * r.experts, r.experts, r.score, w);
    }
    BK_LANES_SUM(sum, t, n_tokens, work[t]);
    loss[0] = (real)sum;
}

/* dP_e / dl_j summed with the counts: P_j (c_j - sum c P), for scores with s'_j / sum for P_j. */
void BK_R(bk_aux_loss_bwd)(real *dlogits, const real *dloss, const real *logits, const real *counts,
                           double *work, int64_t n_tokens, int64_t n_rows, bk_route r, int beta)
{
    const bool softmax = r.score == BK_SCORE_SOFTMAX;
    factors(work, counts, n_rows, &r);
#pragma omp parallel for schedule(static) if (n_tokens * r.experts > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real *row = logits + t * r.experts, *c = counts + t % n_rows * r.experts;
        real *to = dlogits + t * r.experts;
        const weights w = weigh(row, r.experts, r.score);
        const double dot = count_share(row, c, r.experts, r.score, w);
        const double f = (double)dloss[0] * work[t % n_rows] / w.sum;
        for (int64_t e = 0; e < r.experts; e++) {
            const real slope = softmax ? bk_exp(row[e] - w.max) : bk_score_slope(r.score, row[e]);
            to[e] = (beta ? to[e] : 0) + (real)(f * (double)slope * ((double)c[e] - dot));
        }
    }
}

static inline double log_sum(weights w)
{
    return (double)w.max + log(w.sum);
}

void BK_R(bk_z_loss_fwd)(real *loss, const real *logits, double *work, int64_t n_tokens, int64_t experts)
{
    double sum;
#pragma omp parallel for schedule(static) if (n_tokens * experts > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        const double lse = log_sum(weigh(logits + t * experts, experts, BK_SCORE_SOFTMAX));
        work[t] = lse * lse;
    }
    BK_LANES_SUM(sum, t, n_tokens, work[t]);
    loss[0] = (real)(n_tokens > 0 ? sum / (double)n_tokens : 0);
}

void BK_R(bk_z_loss_bwd)(real *dlogits, const real *dloss, const real *logits, int64_t n_tokens,
                         int64_t experts, int beta)
{
#pragma omp parallel for schedule(static) if (n_tokens * experts > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real *row = logits + t * experts;
        real *to = dlogits + t * experts;
        const weights w = weigh(row, experts, BK_SCORE_SOFTMAX);
        const real f = (real)((double)dloss[0] * 2 * log_sum(w) / ((double)n_tokens * w.sum));
        BK_SIMD
        for (int64_t e = 0; e < experts; e++) to[e] = (beta ? to[e] : 0) + f * bk_exp(row[e] - w.max);
    }
}

void BK_R(bk_expert_bias)(real *bias, const real *counts, int64_t experts, double rate)
{
    double sum;
    BK_LANES_SUM(sum, e, experts, (double)counts[e]);
    const double mean = sum / (double)experts;
    for (int64_t e = 0; e < experts; e++) {
        const double below = mean - (double)counts[e];
        bias[e] += (real)(rate * (double)((below > 0) - (below < 0)));
    }
}
