/* A task is one block of keys of one group. It goes through the blocks of queries from its own to the last,
 * and in each through the group's heads, with delta[i] = do[i] . o[i]:
 *
 *     p  = exp(scale q k^T - lse)       dv += drop(p)^T do
 *     dp = drop(do v^T)
 *     ds = p * (dp - delta)             dk += ds^T (scale q)      dq += scale ds k
 *
 * dk and dv stay in the task. A block of dq gets a term from every task below it; the terms are added in the
 * order of key blocks, each task waiting for its turn. Tasks are handed out in an order in which a task waits
 * for earlier ones alone, so the earliest unfinished task never waits. */
#include "ops/attention/attention_block_cpu.h"

#include <sched.h>
#include "base/realmath.h"
#include "base/tally.h"

typedef struct {
    _Alignas(64) real k[BLOCK * MAX_DIM]; /* [keys][d padded] */
    real k_t[MAX_DIM * BLOCK];            /* [d][keys] */
    real v_t[MAX_DIM * BLOCK];            /* [dv][keys] */
    real q[BLOCK * MAX_DIM];              /* [queries][d padded], scaled */
    real dout[BLOCK * MAX_DIM];           /* [queries][dv padded] */
    real dk[BLOCK * MAX_DIM], dv[BLOCK * MAX_DIM];
    real p[BLOCK * BLOCK], ds[BLOCK * BLOCK]; /* [queries][keys] */
} tiles;

/* The tensors of a call, and its workspace. */
typedef struct {
    real *dq, *dk, *dv;
    const real *dout, *q, *k, *v, *lse;
    bk_heads dqs, dks, dvs, douts, qs, ks, vs;
    const bk_attention_args *args;
    int beta_q, beta_k, beta_v;
    real *dq_acc;  /* [B, heads, blocks][BLOCK][d padded] */
    real *delta;   /* [B, heads, S] */
    int32_t *turn; /* [B, heads, blocks]: key blocks already added to dq_acc */
} call;

int64_t BK_R(bk_attention_bwd_madds)(int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t d,
                                     int64_t dv)
{
    const int64_t full = n_positions / BLOCK, rest = n_positions % BLOCK;
    const int64_t pairs = full * (full + 1) / 2 * BLOCK * BLOCK + rest * (full * BLOCK + rest);
    return n_samples * n_heads * pairs * (3 * d + 2 * dv);
}

static int64_t acc_size(int64_t n_positions, int64_t n_seqs, int64_t d)
{
    return n_seqs * n_blocks(n_positions) * BLOCK * pad_up(d);
}

int64_t BK_R(bk_attention_bwd_workspace)(int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t d)
{
    const int64_t n_seqs = n_samples * n_heads;
    return (acc_size(n_positions, n_seqs, d) + n_seqs * n_positions) * (int64_t)sizeof(real) +
           n_seqs * n_blocks(n_positions) * (int64_t)sizeof(int32_t);
}

static void find_delta(real *delta, const real *dout, bk_heads douts, const real *o, bk_heads os,
                       const bk_attention_args *a)
{
    const int64_t n_heads = a->n_groups * a->heads_per_group;
#pragma omp parallel for schedule(static) if (worth_threads(a))
    for (int64_t row = 0; row < a->n_samples * n_heads * a->n_positions; row++) {
        const int64_t s = row % a->n_positions, h = row / a->n_positions % n_heads;
        const int64_t b = row / a->n_positions / n_heads, g = h / a->heads_per_group,
                      r = h % a->heads_per_group;
        const real *x = dout + bk_heads_at(douts, s, b, g, r), *y = o + bk_heads_at(os, s, b, g, r);
        double acc = 0;
        for (int64_t c = 0; c < a->dv; c++) acc += (double)x[c] * (double)y[c];
        delta[row] = (real)acc;
    }
}

/* From scores (p) and do v^T (ds) to drop(p) and the gradient of the scores. */
static void softmax_bwd(tiles *t, const call *x, int64_t b, int64_t h, int64_t i0, int64_t j0, int64_t rows,
                        int64_t n_keys)
{
    const bk_attention_args *a = x->args;
    const int64_t seq = (b * a->n_groups * a->heads_per_group + h) * a->n_positions + i0;
    for (int64_t i = 0; i < rows; i++) {
        real *p = t->p + i * BLOCK, *ds = t->ds + i * BLOCK;
        const real lse = x->lse[seq + i], delta = x->delta[seq + i];
        BK_SIMD
        for (int64_t j = 0; j < n_keys; j++) p[j] = bk_exp(p[j] - lse);
        for (int64_t j = i0 + i - j0 + 1; j < n_keys; j++) p[j] = 0;
        if (a->dropout > 0) {
            real keep[BLOCK];
            dropout_row(keep, a, b, h, i0 + i, j0);
            for (int64_t j = 0; j < n_keys; j++) ds[j] = p[j] * (ds[j] * keep[j] - delta), p[j] *= keep[j];
        } else {
            for (int64_t j = 0; j < n_keys; j++) ds[j] = p[j] * (ds[j] - delta);
        }
    }
}

static void wait_turn(const int32_t *turn, int64_t want)
{
    for (int spins = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != want; spins++)
        if (spins > 1000) sched_yield();
}

static void store_rows(real *to, int64_t stride, const real *from, int64_t ld, int64_t rows, int64_t cols,
                       real factor, int beta)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < cols; c++) {
            const real value = factor * from[i * ld + c];
            to[i * stride + c] = beta ? to[i * stride + c] + value : value;
        }
}

/* Adds ds k to the block of dq; the task of the diagonal adds last and hands the block out. */
static void add_dq(const tiles *t, const call *x, int64_t b, int64_t g, int64_t r, int64_t i, int64_t j,
                   int64_t rows, int64_t n_keys)
{
    const bk_attention_args *a = x->args;
    const int64_t ld = pad_up(a->d), h = g * a->heads_per_group + r;
    const int64_t at = (b * a->n_groups * a->heads_per_group + h) * n_blocks(a->n_positions) + i;
    real *acc = x->dq_acc + at * BLOCK * ld;
    wait_turn(x->turn + at, j);
    bk_tile_product(acc, ld, t->ds, BLOCK, 1, t->k, ld, pad_up(rows), ld, n_keys, j > 0);
    if (i == j)
        store_rows(x->dq + bk_heads_at(x->dqs, i * BLOCK, b, g, r), x->dqs.s, acc, ld, rows, a->d,
                   (real)a->scale, x->beta_q);
    __atomic_store_n(x->turn + at, (int32_t)(j + 1), __ATOMIC_RELEASE);
}

/* One block of queries of one head against the task's keys. */
static void query_block(tiles *t, const call *x, int64_t b, int64_t g, int64_t r, int64_t i, int64_t j,
                        int64_t n_keys)
{
    const bk_attention_args *a = x->args;
    const int64_t rows = block_rows(a->n_positions, i), m = pad_up(rows), n = pad_up(n_keys);
    const int64_t ld_k = pad_up(a->d), ld_v = pad_up(a->dv), i0 = i * BLOCK, j0 = j * BLOCK;
    load_rows(t->q, ld_k, x->q + bk_heads_at(x->qs, i0, b, g, r), x->qs.s, rows, a->d, (real)a->scale);
    load_rows(t->dout, ld_v, x->dout + bk_heads_at(x->douts, i0, b, g, r), x->douts.s, rows, a->dv, 1);
    bk_tile_product(t->p, BLOCK, t->q, ld_k, 1, t->k_t, BLOCK, m, n, a->d, false);
    bk_tile_product(t->ds, BLOCK, t->dout, ld_v, 1, t->v_t, BLOCK, m, n, a->dv, false);
    softmax_bwd(t, x, b, g * a->heads_per_group + r, i0, j0, rows, n_keys);
    bk_tile_product(t->dv, ld_v, t->p, 1, BLOCK, t->dout, ld_v, n, ld_v, rows, true);
    bk_tile_product(t->dk, ld_k, t->ds, 1, BLOCK, t->q, ld_k, n, ld_k, rows, true);
    add_dq(t, x, b, g, r, i, j, rows, n_keys);
}

/* One block of keys of one group: returns its multiply-adds. */
static int64_t key_block(const call *x, int64_t b, int64_t g, int64_t j)
{
    tiles t;
    const bk_attention_args *a = x->args;
    const int64_t n_keys = block_rows(a->n_positions, j), j0 = j * BLOCK;
    const int64_t ld_k = pad_up(a->d), ld_v = pad_up(a->dv);
    const real *k = x->k + bk_heads_at(x->ks, j0, b, g, 0), *v = x->v + bk_heads_at(x->vs, j0, b, g, 0);
    int64_t madds = 0;
    load_rows(t.k, ld_k, k, x->ks.s, n_keys, a->d, 1);
    load_transposed(t.k_t, k, x->ks.s, n_keys, a->d, 1);
    load_transposed(t.v_t, v, x->vs.s, n_keys, a->dv, 1);
    memset(t.dk, 0, (size_t)(pad_up(n_keys) * ld_k) * sizeof *t.dk);
    memset(t.dv, 0, (size_t)(pad_up(n_keys) * ld_v) * sizeof *t.dv);
    for (int64_t i = j; i < n_blocks(a->n_positions); i++)
        for (int64_t r = 0; r < a->heads_per_group; r++) {
            query_block(&t, x, b, g, r, i, j, n_keys);
            madds += block_rows(a->n_positions, i) * n_keys * (3 * a->d + 2 * a->dv);
        }
    store_rows(x->dk + bk_heads_at(x->dks, j0, b, g, 0), x->dks.s, t.dk, ld_k, n_keys, a->d, 1, x->beta_k);
    store_rows(x->dv + bk_heads_at(x->dvs, j0, b, g, 0), x->dvs.s, t.dv, ld_v, n_keys, a->dv, 1, x->beta_v);
    return madds;
}

void BK_R(bk_attention_bwd)(real *dq, bk_heads dqs, real *dk, bk_heads dks, real *dv, bk_heads dvs,
                            const real *dout, bk_heads douts, const real *q, bk_heads qs, const real *k,
                            bk_heads ks, const real *v, bk_heads vs, const real *o, bk_heads os,
                            const real *lse, const bk_attention_args *args, int beta_q, int beta_k,
                            int beta_v, void *workspace)
{
    const int64_t n_seqs = args->n_samples * args->n_groups * args->heads_per_group;
    const int64_t n_pairs = args->n_samples * args->n_groups, n_k = n_blocks(args->n_positions);
    real *dq_acc = workspace, *delta = dq_acc + acc_size(args->n_positions, n_seqs, args->d);
    int32_t *turn = (int32_t *)(void *)(delta + n_seqs * args->n_positions);
    const call x = {.dq = dq,
                    .dk = dk,
                    .dv = dv,
                    .dout = dout,
                    .q = q,
                    .k = k,
                    .v = v,
                    .lse = lse,
                    .dqs = dqs,
                    .dks = dks,
                    .dvs = dvs,
                    .douts = douts,
                    .qs = qs,
                    .ks = ks,
                    .vs = vs,
                    .args = args,
                    .beta_q = beta_q,
                    .beta_k = beta_k,
                    .beta_v = beta_v,
                    .dq_acc = dq_acc,
                    .delta = delta,
                    .turn = turn};
    if (n_seqs * n_k == 0) return;
    memset(turn, 0, (size_t)(n_seqs * n_k) * sizeof *turn);
    find_delta(delta, dout, douts, o, os, args);
    int64_t madds = 0;
    /* The first block of keys has the most queries: longest tasks first, and neighbours in time are of
     * different groups, which do not wait for each other. */
#pragma omp parallel for schedule(monotonic : dynamic, 1) reduction(+ : madds) if (worth_threads(args))
    for (int64_t task = 0; task < n_k * n_pairs; task++)
        madds += key_block(&x, task % n_pairs / args->n_groups, task % args->n_groups, task / n_pairs);
    bk_tally_madds += madds;
}
