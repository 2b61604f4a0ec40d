/* What attention's forward and backward share: copies of strided rows into tiles, the mask of the diagonal,
 * and the dropout draws. A tile has BK_ATTENTION_BLOCK rows; sizes inside it are rounded up to PAD, which
 * every vector length and register tile divides, and the copies fill up with zeros. */
#ifndef BK_ATTENTION_BLOCK_CPU_H
#define BK_ATTENTION_BLOCK_CPU_H

#include <string.h>
#include "base/heads.h"
#include "base/philox_row.h"
#include "base/tile.h"
#include "ops/attention/attention_cpu.h"

enum { BLOCK = BK_ATTENTION_BLOCK, MAX_DIM = BK_ATTENTION_MAX_DIM, PAD = 16 };
_Static_assert(PAD % BK_VEC_LEN == 0 && PAD % BK_TILE_ROWS == 0 && BLOCK % PAD == 0 && BLOCK == BK_RNG_ROW,
               "tiles divide blocks, and one row of draws fills a block");

static inline int64_t pad_up(int64_t n)
{
    return (n + PAD - 1) / PAD * PAD;
}

static inline int64_t n_blocks(int64_t n_positions)
{
    return (n_positions + BLOCK - 1) / BLOCK;
}

static inline int64_t block_rows(int64_t n_positions, int64_t block)
{
    const int64_t left = n_positions - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* Whether a call is long enough to wake the other threads. */
static inline bool worth_threads(const bk_attention_args *a)
{
    const int64_t n_heads = a->n_samples * a->n_groups * a->heads_per_group;
    return n_heads * a->n_positions * (a->first_query + a->n_positions) * (a->d + a->dv) > 1 << 18;
}

/* to[pad_up(rows)][ld] = factor * from, zeros outside rows x cols. */
static inline void load_rows(real *to, int64_t ld, const real *from, int64_t stride, int64_t rows,
                             int64_t cols, real factor)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < cols; c++) to[i * ld + c] = factor * from[i * stride + c];
        for (int64_t c = cols; c < ld; c++) to[i * ld + c] = 0;
    }
    memset(to + rows * ld, 0, (size_t)((pad_up(rows) - rows) * ld) * sizeof *to);
}

/* to[cols][BLOCK] = factor * from transposed, zeros from `rows` to pad_up(rows). */
static inline void load_transposed(real *to, const real *from, int64_t stride, int64_t rows, int64_t cols,
                                   real factor)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < cols; c++) to[c * BLOCK + i] = factor * from[i * stride + c];
    for (int64_t c = 0; c < cols; c++)
        for (int64_t i = rows; i < pad_up(rows); i++) to[c * BLOCK + i] = 0;
}

/* keep[j] = 0 or 1/(1 - p) for the probabilities of query `position` and keys first_key .. first_key + BLOCK
 * - 1 of head h. */
static inline void dropout_row(real keep[BLOCK], const bk_attention_args *a, int64_t b, int64_t h,
                               int64_t position, int64_t first_key)
{
    /* One block of four words more than a row: the first element need not be a multiple of four. */
    uint32_t words[BLOCK + 4];
    const uint64_t first = (uint64_t)(first_key + a->n_positions * h), aligned = first & ~(uint64_t)3;
    const uint64_t sample = (uint64_t)a->samples[b];
    bk_rng_row(words, a->key, sample, (uint32_t)position, aligned);
    if (first != aligned)
        bk_rng_block(words + BLOCK, a->key, sample, (uint32_t)position, (uint32_t)(aligned / 4) + BLOCK / 4);
    const uint32_t threshold = bk_dropout_threshold(a->dropout), *from = words + (first - aligned);
    const real scale = (real)(1 / (1 - a->dropout));
    for (int j = 0; j < BLOCK; j++) keep[j] = from[j] >= threshold ? scale : 0;
}

#endif
