/* Blocks: for each stretch of k, for each panel of columns, pack the panel of op(b) once (shared); then each
 * item (a block of rows by a group of strips) packs its rows of op(a) and runs the register tile. Packing
 * pads with zeros to whole tiles, so edges take the same path as the interior; an edge tile goes through a
 * buffer. */
#include "ops/linear/gemm_cpu.h"

#include <limits.h>
#include <string.h>
#include <cblas.h>
#include "base/tally.h"
#include "base/tile.h"

#define STRIP     BK_TILE_COLS
#define K_BLOCK   256
#define N_PANEL   1024
#define ROW_BLOCK 64

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

int64_t BK_R(bk_gemm_workspace)(int64_t n, int64_t k)
{
    return min64(round_up(n, STRIP), N_PANEL) * min64(k, K_BLOCK) * (int64_t)sizeof(real);
}

/* One strip of op(b): to[kk][STRIP]. */
static void pack_strip(real *to, operand b, int64_t k0, int64_t n_k, int64_t j0, int64_t n_cols)
{
    const real *from = b.p + k0 * b.row + j0 * b.col;
    if (n_cols < STRIP) memset(to, 0, (size_t)(n_k * STRIP) * sizeof *to);
    if (b.col == 1)
        for (int64_t kk = 0; kk < n_k; kk++)
            memcpy(to + kk * STRIP, from + kk * b.row, (size_t)n_cols * sizeof *to);
    else
        for (int64_t j = 0; j < n_cols; j++)
            for (int64_t kk = 0; kk < n_k; kk++) to[kk * STRIP + j] = from[kk * b.row + j * b.col];
}

/* A block of rows of op(a), in slivers of BK_TILE_ROWS: to[sliver][kk][BK_TILE_ROWS]. */
static void pack_rows(real *to, operand a, int64_t i0, int64_t n_rows, int64_t k0, int64_t n_k)
{
    for (int64_t s = 0; s < n_rows; s += BK_TILE_ROWS, to += n_k * BK_TILE_ROWS) {
        const real *from = a.p + (i0 + s) * a.row + k0 * a.col;
        const int64_t rows = min64(BK_TILE_ROWS, n_rows - s);
        if (rows == BK_TILE_ROWS) {
            for (int64_t kk = 0; kk < n_k; kk++)
                for (int64_t i = 0; i < BK_TILE_ROWS; i++)
                    to[kk * BK_TILE_ROWS + i] = from[i * a.row + kk * a.col];
            continue;
        }
        memset(to, 0, (size_t)(n_k * BK_TILE_ROWS) * sizeof *to);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t kk = 0; kk < n_k; kk++) to[kk * BK_TILE_ROWS + i] = from[i * a.row + kk * a.col];
    }
}

static void edge_tile(real *c, int64_t ldc, const real *a, const real *b, int64_t rows, int64_t cols,
                      int64_t n_k, bool add)
{
    real tile[BK_TILE_ROWS * STRIP];
    bk_tile(tile, STRIP, a, 1, BK_TILE_ROWS, b, STRIP, n_k, false, 2);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            real *to = c + i * ldc + j;
            *to = add ? *to + tile[i * STRIP + j] : tile[i * STRIP + j];
        }
}

/* c[rows, cols] from a packed block of rows and packed strips. */
static void multiply_block(real *c, int64_t ldc, const real *rows_packed, const real *strips, int64_t n_rows,
                           int64_t n_cols, int64_t n_k, bool add)
{
    for (int64_t j = 0; j < n_cols; j += STRIP) {
        const real *b = strips + j * n_k;
        for (int64_t i = 0; i < n_rows; i += BK_TILE_ROWS) {
            const real *a = rows_packed + i * n_k;
            const int64_t rows = min64(BK_TILE_ROWS, n_rows - i), cols = min64(STRIP, n_cols - j);
            if (rows == BK_TILE_ROWS && cols == STRIP)
                bk_tile(c + i * ldc + j, ldc, a, 1, BK_TILE_ROWS, b, STRIP, n_k, add, 2);
            else
                edge_tile(c + i * ldc + j, ldc, a, b, rows, cols, n_k, add);
        }
    }
}

/* Few rows: more than one item per block of rows, or there is no work for several threads. */
static int64_t columns_per_item(int64_t m, int64_t n_cols)
{
    const int64_t groups = m > 4 * ROW_BLOCK ? 1 : m > ROW_BLOCK ? 2 : 8;
    return round_up((n_cols + groups - 1) / groups, STRIP);
}

static void multiply_panel(real *c, int64_t ldc, operand a, operand b, real *panel, int64_t m, int64_t j0,
                           int64_t n_cols, int64_t k0, int64_t n_k, bool add)
{
    const int64_t per_item = columns_per_item(m, n_cols), groups = (n_cols + per_item - 1) / per_item;
    const int64_t n_items = (m + ROW_BLOCK - 1) / ROW_BLOCK * groups;
#pragma omp parallel if (m * n_cols * n_k > 1 << 18)
    {
#pragma omp for schedule(static)
        for (int64_t j = 0; j < n_cols; j += STRIP)
            pack_strip(panel + j * n_k, b, k0, n_k, j0 + j, min64(STRIP, n_cols - j));
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < n_items; item++) {
            _Alignas(64) real rows_packed[ROW_BLOCK * K_BLOCK];
            const int64_t i0 = item / groups * ROW_BLOCK, j = item % groups * per_item;
            const int64_t n_rows = min64(ROW_BLOCK, m - i0);
            pack_rows(rows_packed, a, i0, n_rows, k0, n_k);
            multiply_block(c + i0 * ldc + j0 + j, ldc, rows_packed, panel + j * n_k, n_rows,
                           min64(per_item, n_cols - j), n_k, add);
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
    const operand oa = {a, trans_a ? 1 : lda, trans_a ? lda : 1},
                  ob = {b, trans_b ? 1 : ldb, trans_b ? ldb : 1};
    for (int64_t k0 = 0; k0 < k; k0 += K_BLOCK)
        for (int64_t j0 = 0; j0 < n; j0 += N_PANEL)
            multiply_panel(c, ldc, oa, ob, workspace, m, j0, min64(N_PANEL, n - j0), k0,
                           min64(K_BLOCK, k - k0), beta || k0 > 0);
}
