#include "ops/embed/embed_cpu.h"

#include <string.h>

#define COLS 64 /* columns that a thread takes at a time in the backward */

static int64_t first_outside(const int32_t *ids, int64_t n, int64_t n_vocab)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab) return i;
    return -1;
}

int64_t BK_R(bk_embed_word_fwd)(real *y, const real *w, const int32_t *tokens, int64_t n_positions,
                                int64_t n_samples, int64_t width, int64_t n_vocab)
{
    const int64_t n_tokens = n_positions * n_samples, bad = first_outside(tokens, n_tokens, n_vocab);
    if (bad >= 0) return bad;
#pragma omp parallel for schedule(static) if (n_tokens * width > 1 << 14)
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t s = t / n_samples, b = t % n_samples;
        memcpy(y + t * width, w + tokens[b * n_positions + s] * width, (size_t)width * sizeof *y);
    }
    return -1;
}

int64_t BK_R(bk_embed_word_bwd)(real *dw, const real *dy, const int32_t *tokens, int64_t n_positions,
                                int64_t n_samples, int64_t width, int64_t n_vocab, int beta)
{
    const int64_t n_tokens = n_positions * n_samples, bad = first_outside(tokens, n_tokens, n_vocab);
    if (bad >= 0) return bad;
        /* Each thread owns columns: two tokens of one id never meet in two threads. */
#pragma omp parallel for schedule(static) if (n_tokens * width > 1 << 14)
    for (int64_t c0 = 0; c0 < width; c0 += COLS) {
        const int64_t cols = width - c0 < COLS ? width - c0 : COLS;
        if (!beta)
            for (int64_t v = 0; v < n_vocab; v++) memset(dw + v * width + c0, 0, (size_t)cols * sizeof *dw);
        for (int64_t t = 0; t < n_tokens; t++) {
            const int64_t s = t / n_samples, b = t % n_samples;
            real *to = dw + tokens[b * n_positions + s] * width + c0;
            const real *from = dy + t * width + c0;
            for (int64_t c = 0; c < cols; c++) to[c] += from[c];
        }
    }
    return -1;
}

void BK_R(bk_embed_position_fwd)(real *y, const real *x, const real *p, int64_t n_positions,
                                 int64_t n_samples, int64_t width)
{
#pragma omp parallel for schedule(static) if (n_positions * n_samples * width > 1 << 14)
    for (int64_t t = 0; t < n_positions * n_samples; t++) {
        const real *row = p + t / n_samples * width;
        for (int64_t c = 0; c < width; c++) y[t * width + c] = x[t * width + c] + row[c];
    }
}

void BK_R(bk_embed_position_bwd)(real *dp, const real *dy, int64_t n_positions, int64_t n_samples,
                                 int64_t width, int64_t n_rows, int beta)
{
#pragma omp parallel for schedule(static) if (n_positions * n_samples * width > 1 << 14)
    for (int64_t s = 0; s < n_positions; s++) {
        real *to = dp + s * width;
        if (!beta) memset(to, 0, (size_t)width * sizeof *to);
        for (int64_t b = 0; b < n_samples; b++) {
            const real *from = dy + (s * n_samples + b) * width;
            for (int64_t c = 0; c < width; c++) to[c] += from[c];
        }
    }
    if (!beta && n_rows > n_positions)
        memset(dp + n_positions * width, 0, (size_t)((n_rows - n_positions) * width) * sizeof *dp);
}
