/* The draws of many consecutive elements of one position, several blocks at a time so that they become vector
 * code. Word for word those of bk_rng_block. */
#ifndef BK_BASE_PHILOX_ROW_H
#define BK_BASE_PHILOX_ROW_H

#include <stdint.h>
#include <string.h>
#include "base/philox.h"

#define BK_RNG_ROW 64 /* words that one call gives */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bk_rng_row stores two words as one number");

/* Eight 32-bit numbers, each in the low half of 64 bits, so that their products are at hand. */
typedef uint64_t bk_rng_lanes __attribute__((vector_size(64), aligned(8)));

/* out[i] = word of element first + i, for i in 0 .. BK_RNG_ROW - 1; first is a multiple of 4. */
static inline void bk_rng_row(uint32_t out[BK_RNG_ROW], bk_rng_key key, uint64_t sample, uint32_t position,
                              uint64_t first)
{
    const bk_rng_lanes zero = {0}, count = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t half = 0; half < BK_RNG_ROW / 32; half++) {
        const uint32_t block = (uint32_t)(first / 4) + 8 * half;
        bk_rng_lanes c0 = (count + block) & UINT32_MAX, c1 = zero + position;
        bk_rng_lanes c2 = zero + (sample & UINT32_MAX), c3 = zero + (sample >> 32);
        uint32_t k0 = key.k[0], k1 = key.k[1];
        for (int round = 0; round < 10; round++) {
            const bk_rng_lanes m0 = c0 * 0xD2511F53u, m1 = c2 * 0xCD9E8D57u;
            c0 = (m1 >> 32) ^ c1 ^ k0, c1 = m1 & UINT32_MAX;
            c2 = (m0 >> 32) ^ c3 ^ k1, c3 = m0 & UINT32_MAX;
            k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
        }
        /* Words 0 and 1 of a block make one 64-bit number, 2 and 3 the next: their order in memory. */
        const bk_rng_lanes low = c0 | c1 << 32, high = c2 | c3 << 32;
        const bk_rng_lanes lower = __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
        const bk_rng_lanes upper = __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
        memcpy(out + 32 * half, &lower, sizeof lower);
        memcpy(out + 32 * half + 16, &upper, sizeof upper);
    }
}

#endif
