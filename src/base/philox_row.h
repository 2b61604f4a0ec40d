/* The draws of many consecutive elements of one position, several blocks at a time so that they become vector
 * code. Word for word those of bk_rng_block. */
#ifndef BK_BASE_PHILOX_ROW_H
#define BK_BASE_PHILOX_ROW_H

#include <stdint.h>
#include "base/philox.h"

#define BK_RNG_ROW 64 /* words that one call gives */

/* out[i] = word of element first + i, for i in 0 .. BK_RNG_ROW - 1; first is a multiple of 4. */
static inline void bk_rng_row(uint32_t out[BK_RNG_ROW], bk_rng_key key, uint64_t sample, uint32_t position,
                              uint64_t first)
{
    enum { N = BK_RNG_ROW / 4 };
    uint32_t c0[N], c1[N], c2[N], c3[N], k0 = key.k[0], k1 = key.k[1];
    for (uint32_t i = 0; i < N; i++)
        c0[i] = (uint32_t)(first / 4) + i, c1[i] = position, c2[i] = (uint32_t)sample,
        c3[i] = (uint32_t)(sample >> 32);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < N; i++) {
            const uint64_t m0 = (uint64_t)c0[i] * 0xD2511F53u, m1 = (uint64_t)c2[i] * 0xCD9E8D57u;
            c0[i] = (uint32_t)(m1 >> 32) ^ c1[i] ^ k0, c1[i] = (uint32_t)m1;
            c2[i] = (uint32_t)(m0 >> 32) ^ c3[i] ^ k1, c3[i] = (uint32_t)m0;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < N; i++)
        out[4 * i] = c0[i], out[4 * i + 1] = c1[i], out[4 * i + 2] = c2[i], out[4 * i + 3] = c3[i];
}

#endif
