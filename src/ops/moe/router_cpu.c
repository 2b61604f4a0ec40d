#include "ops/moe/router_cpu.h"

#include "base/lanes.h"
#include "ops/moe/score_cpu.h"

#define FEW 4096 /* logits for which threads are not worth while */

/* Without this, comparisons with a NaN would depend on the order in which experts are seen. */
BK_INLINE real not_nan(real x)
{
    return x != x ? -(real)INFINITY : x;
}

/* The best experts so far, best first, in memory of the caller. */
typedef struct {
    real *key;
    int32_t *id;
    int64_t n, room;
} best;

/* Experts are offered in ascending order, so that of equal keys the lowest expert stands first. */
static inline void offer(best *b, real key, int64_t id)
{
    if (b->n == b->room && !(key > b->key[b->room - 1])) return;
    int64_t at = b->n < b->room ? b->n++ : b->room - 1;
    for (; at > 0 && key > b->key[at - 1]; at--) b->key[at] = b->key[at - 1], b->id[at] = b->id[at - 1];
    b->key[at] = key, b->id[at] = (int32_t)id;
}

static inline real choice_key(const bk_route *r, const real *row, const real *bias, int64_t e)
{
    const real s = bk_score(r->score, row[e]);
    return not_nan(bias ? s + bias[e] : s);
}

/* The score of each group: of its experts' largest keys, for which `b` is scratch. */
static void score_groups(real *group_score, const bk_route *r, const real *row, const real *bias, best b)
{
    const int64_t width = r->experts / r->groups;
    const bool pre = r->score == BK_SCORE_SOFTMAX && r->pre_softmax;
    const real max = pre ? bk_lanes_max(row, r->experts) : 0;
    b.room = r->topk / r->group_topk;
    for (int64_t g = 0; g < r->groups; g++) {
        double sum = 0;
        b.n = 0;
        for (int64_t e = g * width; e < (g + 1) * width; e++)
            offer(&b, pre ? not_nan(bk_exp(row[e] - max)) : choice_key(r, row, bias, e), e);
        for (int64_t i = 0; i < b.n; i++) sum += (double)b.key[i];
        group_score[g] = not_nan((real)sum);
    }
}

static bool group_kept(const real *score, const bk_route *r, int64_t group)
{
    int64_t better = 0;
    for (int64_t h = 0; h < r->groups; h++)
        better += score[h] > score[group] || (score[h] == score[group] && h < group);
    return better < r->group_topk;
}

static void choose(best *b, const bk_route *r, const real *row, const real *bias, real *group_score)
{
    const int64_t groups = r->groups > 0 ? r->groups : 1, width = r->experts / groups;
    if (r->groups > 0) score_groups(group_score, r, row, bias, *b);
    for (int64_t g = 0; g < groups; g++)
        if (r->groups == 0 || group_kept(group_score, r, g))
            for (int64_t e = g * width; e < (g + 1) * width; e++) offer(b, choice_key(r, row, bias, e), e);
}

static void sort_ascending(int32_t *id, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const int32_t x = id[i];
        int64_t at = i;
        for (; at > 0 && id[at - 1] > x; at--) id[at] = id[at - 1];
        id[at] = x;
    }
}

/* What the weights of a row are divided by, and the logit that is taken off before exp. */
typedef struct {
    double sum;
    real max;
} norm;

static norm norm_of(const bk_route *r, const real *row, const int32_t *id)
{
    norm n = {0};
    if (r->score != BK_SCORE_SOFTMAX) {
        for (int64_t i = 0; i < r->topk; i++) n.sum += (double)bk_score(r->score, row[id[i]]);
        n.sum = r->topk > 1 ? n.sum + BK_SCORE_TINY : 1;
    } else if (r->pre_softmax) {
        n.max = bk_lanes_max(row, r->experts);
        BK_LANES_SUM(n.sum, e, r->experts, (double)bk_exp(row[e] - n.max));
    } else {
        n.max = row[id[0]];
        for (int64_t i = 1; i < r->topk; i++) n.max = row[id[i]] > n.max ? row[id[i]] : n.max;
        for (int64_t i = 0; i < r->topk; i++) n.sum += (double)bk_exp(row[id[i]] - n.max);
    }
    return n;
}

/* The probability of a logit before scaling. */
static inline double share(const bk_route *r, norm n, real x)
{
    const real weight = r->score == BK_SCORE_SOFTMAX ? bk_exp(x - n.max) : bk_score(r->score, x);
    return (double)weight / n.sum;
}

void BK_R(bk_router_fwd)(real *probs, int32_t *index, const real *logits, const real *bias, real *group_score,
                         int64_t n_tokens, bk_route r)
{
#pragma omp parallel for schedule(static) if (n_tokens * r.experts > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real *row = logits + t * r.experts;
        real *p = probs + t * r.topk; /* holds the keys until the choice is made */
        best b = {.key = p, .id = index + t * r.topk, .room = r.topk};
        choose(&b, &r, row, bias, r.groups > 0 ? group_score + t * r.groups : group_score);
        sort_ascending(b.id, r.topk);
        const norm n = norm_of(&r, row, b.id);
        for (int64_t i = 0; i < r.topk; i++) p[i] = (real)(r.scaling * share(&r, n, row[b.id[i]]));
    }
}

/* dl_e = p_e (g_e - sum g p) for both softmaxes, g_e = 0 where e is not chosen. */
static void softmax_row_bwd(real *to, const real *g, const real *row, const int32_t *id, const bk_route *r)
{
    const norm n = norm_of(r, row, id);
    double dot = 0;
    for (int64_t i = 0; i < r->topk; i++) dot += (double)g[i] * share(r, n, row[id[i]]);
    if (r->pre_softmax) {
        const real all = (real)(-r->scaling * dot / n.sum);
        BK_SIMD
        for (int64_t e = 0; e < r->experts; e++) to[e] += all * bk_exp(row[e] - n.max);
        dot = 0;
    }
    for (int64_t i = 0; i < r->topk; i++)
        to[id[i]] += (real)(r->scaling * share(r, n, row[id[i]]) * ((double)g[i] - dot));
}

/* Of p_i = s_i / sum: dl_i = s'_i (g_i - sum g p) / sum. */
static void score_row_bwd(real *to, const real *g, const real *row, const int32_t *id, const bk_route *r)
{
    const norm n = norm_of(r, row, id);
    double dot = 0;
    for (int64_t i = 0; i < r->topk && r->topk > 1; i++) dot += (double)g[i] * share(r, n, row[id[i]]);
    for (int64_t i = 0; i < r->topk; i++)
        to[id[i]] +=
            (real)(r->scaling * (double)bk_score_slope(r->score, row[id[i]]) * ((double)g[i] - dot) / n.sum);
}

int64_t BK_R(bk_router_bwd)(real *dlogits, const real *dprobs, const real *logits, const int32_t *index,
                            int64_t n_tokens, bk_route r, int beta)
{
    for (int64_t i = 0; i < n_tokens * r.topk; i++)
        if (index[i] < 0 || index[i] >= r.experts) return i;
#pragma omp parallel for schedule(static) if (n_tokens * r.experts > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        real *to = dlogits + t * r.experts;
        const real *g = dprobs + t * r.topk, *row = logits + t * r.experts;
        const int32_t *id = index + t * r.topk;
        if (!beta)
            for (int64_t e = 0; e < r.experts; e++) to[e] = 0;
        if (r.score == BK_SCORE_SOFTMAX)
            softmax_row_bwd(to, g, row, id, &r);
        else
            score_row_bwd(to, g, row, id, &r);
    }
    return -1;
}
