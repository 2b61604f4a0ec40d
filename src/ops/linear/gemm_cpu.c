/* Blocks: for each stretch of k, for each panel of rows of op(a), for each panel of columns of op(b), the two
 * panels are packed (op(a) once for all panels of columns), then each item, a few slivers of rows by the
 * panel of columns, runs the register tile:
 *
 *     op(a) panel  [slivers][k][ROWS]     a sliver stays in the first-level cache
 *     op(b) panel  [strips][k][STRIP]     stays in the second level; a strip passes all slivers of an item
 *
 * Packing pads with zeros to whole tiles, so edges take the same path as the interior; an edge tile goes
 * through a buffer. */
#include "ops/linear/gemm_cpu.h"

#include <limits.h>
#include <string.h>
#include <cblas.h>
#include "base/tally.h"
#include "base/tile.h"
#include "base/transpose.h"

#define STRIP BK_TILE_COLS
/* As many rows as registers hold beside a row of b; no more than a transposition gives at a time. */
#if BK_VEC_BYTES == 64 && !defined BK_REAL_F64
#define ROWS 12
#else
#define ROWS (BK_TILE_ROWS < BK_VEC_LEN ? BK_TILE_ROWS : BK_VEC_LEN)
#endif
#define K_BLOCK  256
#define N_PANEL  512
#define M_PANEL  (168 * ROWS)
#define ROW_ITEM (2 * ROWS)
#define AHEAD    32 /* rows that packing asks for in advance: they lie too far apart to be foreseen */

typedef struct {
    const real *p;
    int64_t row, col; /* strides: element (i, j) of the operand as it enters the product */
} operand;

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Elements of a packed sliver: a transposition stores up to a vector past the last row. */
static int64_t sliver_size(int64_t n_k)
{
    return n_k * ROWS + BK_VEC_LEN;
}

/* Elements of a panel of op(a). */
static int64_t rows_size(int64_t m, int64_t k)
{
    return min64(round_up(m, ROWS), M_PANEL) / ROWS * sliver_size(min64(k, K_BLOCK));
}

int64_t BK_R(bk_gemm_workspace)(int64_t m, int64_t n, int64_t k)
{
    const int64_t strips = min64(round_up(n, STRIP), N_PANEL) * min64(k, K_BLOCK);
    return (strips + rows_size(m, k)) * (int64_t)sizeof(real);
}

/* One strip of op(b): to[kk][STRIP]. */
static void pack_strip(real *to, operand b, int64_t k0, int64_t n_k, int64_t j0, int64_t n_cols)
{
    const real *from = b.p + k0 * b.row + j0 * b.col;
    int64_t done = 0;
    if (n_cols == STRIP && b.col == 1) {
        for (int64_t kk = 0; kk < n_k; kk++) {
            __builtin_prefetch(from + (kk + AHEAD) * b.row);
            __builtin_prefetch(from + (kk + AHEAD) * b.row + STRIP - 1);
            memcpy(to + kk * STRIP, from + kk * b.row, STRIP * sizeof *to);
        }
        return;
    }
    if (n_cols < STRIP) memset(to, 0, (size_t)(n_k * STRIP) * sizeof *to);
    if (n_cols == STRIP && b.row == 1)
        for (; done + BK_VEC_LEN <= n_k; done += BK_VEC_LEN)
            for (int64_t v = 0; v < STRIP; v += BK_VEC_LEN)
                bk_transpose(to + done * STRIP + v, STRIP, from + v * b.col + done, b.col, BK_VEC_LEN);
    for (int64_t j = 0; j < n_cols; j++)
        for (int64_t kk = done; kk < n_k; kk++) to[kk * STRIP + j] = from[kk * b.row + j * b.col];
}

/* One sliver of op(a): to[kk][ROWS]; what follows it, up to sliver_size, may be written too. */
static void pack_sliver(real *to, operand a, int64_t i0, int64_t n_rows, int64_t k0, int64_t n_k)
{
    const real *from = a.p + i0 * a.row + k0 * a.col;
    int64_t done = 0;
    if (n_rows < ROWS) memset(to, 0, (size_t)(n_k * ROWS) * sizeof *to);
    if (a.row == 1 && n_rows == ROWS) {
        for (int64_t kk = 0; kk < n_k; kk++) {
            __builtin_prefetch(from + (kk + AHEAD) * a.col);
            memcpy(to + kk * ROWS, from + kk * a.col, ROWS * sizeof *to);
        }
        return;
    }
    /* Rows of the result overlap: each writes over what the one before it stored past its end. */
    if (a.col == 1 && n_rows == ROWS)
        for (; done + BK_VEC_LEN <= n_k; done += BK_VEC_LEN)
            bk_transpose(to + done * ROWS, ROWS, from + done, a.row, ROWS);
    for (int64_t kk = done; kk < n_k; kk++)
        for (int64_t i = 0; i < n_rows; i++) to[kk * ROWS + i] = from[i * a.row + kk * a.col];
}

static void edge_tile(real *c, int64_t ldc, const real *a, const real *b, int64_t rows, int64_t cols,
                      int64_t n_k, bool add)
{
    real tile[ROWS * STRIP];
    bk_tile_rows(tile, STRIP, a, 1, ROWS, b, STRIP, n_k, false, ROWS, 2);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            real *to = c + i * ldc + j;
            *to = add ? *to + tile[i * STRIP + j] : tile[i * STRIP + j];
        }
}

/* c[rows, cols] from packed slivers and strips. */
static void multiply_item(real *c, int64_t ldc, const real *slivers, const real *strips, int64_t n_rows,
                          int64_t n_cols, int64_t n_k, bool add)
{
    for (int64_t j = 0; j < n_cols; j += STRIP) {
        const real *b = strips + j * n_k;
        for (int64_t i = 0; i < n_rows; i += ROWS) {
            const real *a = slivers + i / ROWS * sliver_size(n_k);
            real *to = c + i * ldc + j;
            const int64_t rows = min64(ROWS, n_rows - i), cols = min64(STRIP, n_cols - j);
            if (rows == ROWS && cols == STRIP) {
                for (int r = 0; r < ROWS;
                     r++) { /* the tile ends with c; rows lie too far apart to be foreseen */
                    __builtin_prefetch(to + r * ldc, 1, 3);
                    __builtin_prefetch(to + r * ldc + STRIP - 1, 1, 3);
                }
                bk_tile_rows(to, ldc, a, 1, ROWS, b, STRIP, n_k, add, ROWS, 2);
            } else {
                edge_tile(to, ldc, a, b, rows, cols, n_k, add);
            }
        }
    }
}

/* What a product works on, and its two packed panels. */
typedef struct {
    real *c;
    int64_t ldc, m, n, k;
    operand a, b;
    real *slivers, *strips;
} product;

static void pack_rows(const product *p, int64_t i0, int64_t n_rows, int64_t k0, int64_t n_k)
{
#pragma omp for schedule(static)
    for (int64_t i = 0; i < n_rows; i += ROWS)
        pack_sliver(p->slivers + i / ROWS * sliver_size(n_k), p->a, i0 + i, min64(ROWS, n_rows - i), k0, n_k);
}

static void multiply_panels(const product *p, int64_t i0, int64_t n_rows, int64_t j0, int64_t n_cols,
                            int64_t k0, int64_t n_k, bool add)
{
#pragma omp for schedule(static)
    for (int64_t j = 0; j < n_cols; j += STRIP)
        pack_strip(p->strips + j * n_k, p->b, k0, n_k, j0 + j, min64(STRIP, n_cols - j));
    /* Few rows: more than one item per rows, or there is no work for several threads. */
    const int64_t groups = n_rows > 8 * ROW_ITEM ? 1 : 4,
                  per_item = round_up((n_cols + groups - 1) / groups, STRIP);
    const int64_t n_items = (n_rows + ROW_ITEM - 1) / ROW_ITEM * groups;
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < n_items; item++) {
        const int64_t i = item / groups * ROW_ITEM, j = item % groups * per_item;
        multiply_item(p->c + (i0 + i) * p->ldc + j0 + j, p->ldc, p->slivers + i / ROWS * sliver_size(n_k),
                      p->strips + j * n_k, min64(ROW_ITEM, n_rows - i), min64(per_item, n_cols - j), n_k,
                      add);
    }
}

static void multiply(const product *p, int beta)
{
#pragma omp parallel if (p->m * p->n * p->k > 1 << 18)
    for (int64_t k0 = 0; k0 < p->k; k0 += K_BLOCK) {
        const int64_t n_k = min64(K_BLOCK, p->k - k0);
        for (int64_t i0 = 0; i0 < p->m; i0 += M_PANEL) {
            const int64_t n_rows = min64(M_PANEL, p->m - i0);
            pack_rows(p, i0, n_rows, k0, n_k);
            for (int64_t j0 = 0; j0 < p->n; j0 += N_PANEL)
                multiply_panels(p, i0, n_rows, j0, min64(N_PANEL, p->n - j0), k0, n_k, beta || k0 > 0);
        }
    }
}

static void zero_rows(real *c, int64_t m, int64_t n, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++) memset(c + i * ldc, 0, (size_t)n * sizeof *c);
}

static bool fits_cblas(const int64_t sizes[6])
{
    for (int i = 0; i < 6; i++)
        if (sizes[i] > INT_MAX) return false;
    return true;
}

static void gemm_cblas(real *c, const real *a, const real *b, int m, int n, int k, bool trans_a, bool trans_b,
                       int lda, int ldb, int ldc, int beta)
{
    const CBLAS_TRANSPOSE ta = trans_a ? CblasTrans : CblasNoTrans, tb = trans_b ? CblasTrans : CblasNoTrans;
#ifdef BK_REAL_F64
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1.0, a, lda, b, ldb, (double)beta, c, ldc);
#else
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1.0f, a, lda, b, ldb, (float)beta, c, ldc);
#endif
}

void BK_R(bk_gemm)(real *c, const real *a, const real *b, int64_t m, int64_t n, int64_t k, bool trans_a,
                   bool trans_b, int64_t lda, int64_t ldb, int64_t ldc, int beta, bool deterministic,
                   void *workspace)
{
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        if (!beta) zero_rows(c, m, n, ldc);
        return;
    }
    bk_tally_madds += m * n * k;
    if (!deterministic && fits_cblas((const int64_t[]){m, n, k, lda, ldb, ldc})) {
        gemm_cblas(c, a, b, (int)m, (int)n, (int)k, trans_a, trans_b, (int)lda, (int)ldb, (int)ldc, beta);
        return;
    }
    const product p = {.c = c,
                       .ldc = ldc,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a = {a, trans_a ? 1 : lda, trans_a ? lda : 1},
                       .b = {b, trans_b ? 1 : ldb, trans_b ? ldb : 1},
                       .slivers = workspace,
                       .strips = (real *)workspace + rows_size(m, k)};
    multiply(&p, beta);
}
