/* A square of vectors transposed in registers. */
#ifndef BK_BASE_TRANSPOSE_H
#define BK_BASE_TRANSPOSE_H

#include "base/tile.h"

/* Indices that interleave the lower halves, and the upper halves, of two vectors. */
#if BK_VEC_BYTES == 64 && !defined BK_REAL_F64
#define BK_LOWER_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define BK_UPPER_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif BK_VEC_BYTES == 64 || (BK_VEC_BYTES == 32 && !defined BK_REAL_F64)
#define BK_LOWER_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define BK_UPPER_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#elif BK_VEC_BYTES == 32 || !defined BK_REAL_F64
#define BK_LOWER_HALVES 0, 4, 1, 5
#define BK_UPPER_HALVES 2, 6, 3, 7
#else
#define BK_LOWER_HALVES 0, 2
#define BK_UPPER_HALVES 1, 3
#endif

/* to[kk * to_row + i] = from[i * from_row + kk] for kk < BK_VEC_LEN and i < n_rows, a constant of at most
 * BK_VEC_LEN. Whole vectors are stored, in the order of kk: where n_rows is less, something is written past
 * each row of `to`. */
__attribute__((always_inline)) static inline void bk_transpose(real *to, int64_t to_row, const real *from,
                                                               int64_t from_row, const int n_rows)
{
    bk_vec x[BK_VEC_LEN], y[BK_VEC_LEN];
    BK_UNROLL
    for (int i = 0; i < BK_VEC_LEN; i++)
        x[i] = i < n_rows ? *(const bk_vec *)(from + i * from_row) : (bk_vec){0};
    /* Each round puts side by side what stands half the rows apart. */
    BK_UNROLL
    for (int round = 1; round < BK_VEC_LEN; round *= 2) {
        BK_UNROLL
        for (int i = 0; i < BK_VEC_LEN / 2; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + BK_VEC_LEN / 2], BK_LOWER_HALVES);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + BK_VEC_LEN / 2], BK_UPPER_HALVES);
        }
        BK_UNROLL
        for (int i = 0; i < BK_VEC_LEN; i++) x[i] = y[i];
    }
    BK_UNROLL
    for (int i = 0; i < BK_VEC_LEN; i++) *(bk_vec *)(to + i * to_row) = x[i];
}

#endif
