/* The register tile of all matrix products on the CPU: BK_TILE_ROWS rows by one or two vectors of columns,
 * summed over k in order in registers. Each element goes through the same operations wherever it stands in
 * the tile, so a caller that pads its operands with zeros gets bits that do not depend on the place. */
#ifndef BK_BASE_TILE_H
#define BK_BASE_TILE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"

#if defined __AVX512F__
#define BK_VEC_BYTES 64
#define BK_TILE_ROWS 8
#elif defined __AVX__
#define BK_VEC_BYTES 32
#define BK_TILE_ROWS 4 /* 8 accumulators: there are 16 registers */
#else
#define BK_VEC_BYTES 16
#define BK_TILE_ROWS 4
#endif
#define BK_TILE_MAX_ROWS 14
#define BK_VEC_LEN       (BK_VEC_BYTES / (int)sizeof(real))
#define BK_TILE_COLS     (2 * BK_VEC_LEN)

#ifdef __clang__
#define BK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define BK_UNROLL _Pragma("GCC unroll 16")
#endif

/* A vector at any address of a real. */
typedef real bk_vec __attribute__((vector_size(BK_VEC_BYTES), aligned(sizeof(real)), may_alias));

/* c[i, j] (+)= sum over kk of a[i, kk] b[kk, j], for n_rows rows and n_vec vectors of columns. a[i, kk] is
 * a[i * a_row + kk * a_k]. n_rows <= BK_TILE_MAX_ROWS and n_vec, 1 or 2, are constants at the call. */
__attribute__((always_inline)) static inline void bk_tile_rows(real *c, int64_t ldc, const real *a,
                                                               int64_t a_row, int64_t a_k, const real *b,
                                                               int64_t ldb, int64_t k, bool add,
                                                               const int n_rows, const int n_vec)
{
    bk_vec acc[BK_TILE_MAX_ROWS][2] = {0};
    for (int64_t kk = 0; kk < k; kk++) {
        const bk_vec b0 = *(const bk_vec *)(b + kk * ldb);
        const bk_vec b1 = n_vec == 2 ? *(const bk_vec *)(b + kk * ldb + BK_VEC_LEN) : b0;
        BK_UNROLL
        for (int i = 0; i < n_rows; i++) {
            const real x = a[i * a_row + kk * a_k];
            acc[i][0] += x * b0;
            if (n_vec == 2) acc[i][1] += x * b1;
        }
    }
    BK_UNROLL
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < n_vec; v++) {
            bk_vec *to = (bk_vec *)(c + i * ldc + v * BK_VEC_LEN);
            if (add) acc[i][v] += *to;
            *to = acc[i][v];
        }
}

/* The same with BK_TILE_ROWS rows. */
__attribute__((always_inline)) static inline void bk_tile(real *c, int64_t ldc, const real *a, int64_t a_row,
                                                          int64_t a_k, const real *b, int64_t ldb, int64_t k,
                                                          bool add, const int n_vec)
{
    bk_tile_rows(c, ldc, a, a_row, a_k, b, ldb, k, add, BK_TILE_ROWS, n_vec);
}

/* The same for m rows and n columns, multiples of BK_TILE_ROWS and BK_VEC_LEN. */
__attribute__((always_inline)) static inline void bk_tile_product(real *c, int64_t ldc, const real *a,
                                                                  int64_t a_row, int64_t a_k, const real *b,
                                                                  int64_t ldb, int64_t m, int64_t n,
                                                                  int64_t k, bool add)
{
    int64_t j = 0;
    for (; j + BK_TILE_COLS <= n; j += BK_TILE_COLS)
        for (int64_t i = 0; i < m; i += BK_TILE_ROWS)
            bk_tile(c + i * ldc + j, ldc, a + i * a_row, a_row, a_k, b + j, ldb, k, add, 2);
    if (j < n)
        for (int64_t i = 0; i < m; i += BK_TILE_ROWS)
            bk_tile(c + i * ldc + j, ldc, a + i * a_row, a_row, a_k, b + j, ldb, k, add, 1);
}

#endif
