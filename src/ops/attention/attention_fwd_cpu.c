/* A task is one block of queries of one head. It holds q transposed, so that scores come out as st[key,
 * query]: maxima, exponentials and sums over keys then run down the rows, with a vector of queries side by
 * side. */
#include "ops/attention/attention_block_cpu.h"

#include "base/realmath.h"
#include "base/tally.h"

typedef struct {
    _Alignas(64) real q_t[MAX_DIM * BLOCK]; /* [d][BLOCK], scaled */
    real k[BLOCK * MAX_DIM];                /* [keys][d padded] */
    real v[BLOCK * MAX_DIM];                /* [keys][dv padded] */
    real acc[BLOCK * MAX_DIM];              /* [queries][dv padded] */
    real st[BLOCK * BLOCK];                 /* [keys][queries]: scores, then probabilities */
    real max[BLOCK], sum[BLOCK], shrink[BLOCK];
} tiles;

int64_t BK_R(bk_attention_fwd_madds)(int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t d,
                                     int64_t dv)
{
    const int64_t full = n_positions / BLOCK, rest = n_positions % BLOCK;
    const int64_t pairs = full * (full + 1) / 2 * BLOCK * BLOCK + rest * (full * BLOCK + rest);
    return n_samples * n_heads * pairs * (d + dv);
}

/* `ahead`: by how many positions the first query is past the first key. */
static void mask_future(real *st, int64_t n_keys, int64_t n_queries, int64_t ahead)
{
    for (int64_t j = ahead + 1; j < n_keys; j++)
        for (int64_t i = 0; i < j - ahead && i < n_queries; i++) st[j * BLOCK + i] = (real)-INFINITY;
}

/* Scores to exp(score - max so far); what was summed before shrinks by exp(old max - new max). */
static void softmax_step(tiles *t, int64_t n_keys, int64_t n_queries)
{
    real max[BLOCK], sum[BLOCK];
    for (int64_t i = 0; i < n_queries; i++) max[i] = t->max[i], sum[i] = 0;
    for (int64_t j = 0; j < n_keys; j++) {
        const real *row = t->st + j * BLOCK;
        for (int64_t i = 0; i < n_queries; i++) max[i] = row[i] > max[i] ? row[i] : max[i];
    }
    for (int64_t j = 0; j < n_keys; j++) {
        real *row = t->st + j * BLOCK;
        BK_SIMD
        for (int64_t i = 0; i < n_queries; i++) {
            row[i] = bk_exp(row[i] - max[i]);
            sum[i] += row[i];
        }
    }
    for (int64_t i = 0; i < n_queries; i++) {
        t->shrink[i] = bk_exp(t->max[i] - max[i]);
        t->sum[i] = t->sum[i] * t->shrink[i] + sum[i];
        t->max[i] = max[i];
    }
}

static void drop(real *st, const bk_attention_args *a, int64_t b, int64_t h, int64_t i0, int64_t j0,
                 int64_t n_keys, int64_t n_queries)
{
    for (int64_t i = 0; i < n_queries; i++) {
        real keep[BLOCK];
        dropout_row(keep, a, b, h, i0 + i, j0);
        for (int64_t j = 0; j < n_keys; j++) st[j * BLOCK + i] *= keep[j];
    }
}

/* One block of queries: returns its multiply-adds. */
static int64_t query_block(real *o, int64_t o_stride, real *lse, const real *q, int64_t q_stride,
                           const real *k, int64_t k_stride, const real *v, int64_t v_stride,
                           const bk_attention_args *a, int64_t b, int64_t h, int64_t block)
{
    tiles t;
    const int64_t d = a->d, dv = a->dv, ld_k = pad_up(d), ld_v = pad_up(dv);
    const int64_t rows = block_rows(a->n_positions, block), n_queries = pad_up(rows);
    const int64_t first = a->first_query + block * BLOCK, last = first + rows - 1;
    int64_t madds = 0;
    load_transposed(t.q_t, q, q_stride, rows, d, (real)a->scale);
    memset(t.acc, 0, (size_t)(n_queries * ld_v) * sizeof *t.acc);
    for (int i = 0; i < BLOCK; i++) t.max[i] = (real)-INFINITY, t.sum[i] = 0;
    for (int64_t j = 0; j <= last / BLOCK; j++) {
        const int64_t n_keys = block_rows(a->first_query + a->n_positions, j);
        load_rows(t.k, ld_k, k + j * BLOCK * k_stride, k_stride, n_keys, d, 1);
        load_rows(t.v, ld_v, v + j * BLOCK * v_stride, v_stride, n_keys, dv, 1);
        bk_tile_product(t.st, BLOCK, t.k, ld_k, 1, t.q_t, BLOCK, pad_up(n_keys), n_queries, d, false);
        mask_future(t.st, n_keys, n_queries, first - j * BLOCK);
        softmax_step(&t, n_keys, n_queries);
        if (a->dropout > 0) drop(t.st, a, b, h, block * BLOCK, j * BLOCK, n_keys, rows);
        for (int64_t i = 0; i < n_queries; i++)
            for (int64_t c = 0; c < ld_v; c++) t.acc[i * ld_v + c] *= t.shrink[i];
        bk_tile_product(t.acc, ld_v, t.st, 1, BLOCK, t.v, ld_v, n_queries, ld_v, n_keys, true);
        madds += rows * n_keys * (d + dv);
    }
    for (int64_t i = 0; i < rows; i++) {
        const real over = 1 / t.sum[i];
        for (int64_t c = 0; c < dv; c++) o[i * o_stride + c] = t.acc[i * ld_v + c] * over;
        if (lse) lse[i] = (real)((double)t.max[i] + log((double)t.sum[i]));
    }
    return madds;
}

void BK_R(bk_attention_fwd)(real *o, bk_heads os, real *lse, const real *q, bk_heads qs, const real *k,
                            bk_heads ks, const real *v, bk_heads vs, const bk_attention_args *args)
{
    const int64_t n_heads = args->n_groups * args->heads_per_group, n_seqs = args->n_samples * n_heads;
    const int64_t n_q = n_blocks(args->n_positions);
    int64_t madds = 0;
    /* The last block of queries has the most keys: longest tasks first. */
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : madds) if (worth_threads(args))
    for (int64_t task = 0; task < n_q * n_seqs; task++) {
        const int64_t block = n_q - 1 - task / n_seqs, b = task % n_seqs / n_heads, h = task % n_heads;
        const int64_t g = h / args->heads_per_group, r = h % args->heads_per_group, s = block * BLOCK;
        madds += query_block(o + bk_heads_at(os, s, b, g, r), os.s,
                             lse ? lse + (b * n_heads + h) * args->n_positions + s : NULL,
                             q + bk_heads_at(qs, s, b, g, r), qs.s, k + bk_heads_at(ks, 0, b, g, 0), ks.s,
                             v + bk_heads_at(vs, 0, b, g, 0), vs.s, args, b, h, block);
    }
    bk_tally_madds += madds;
}
