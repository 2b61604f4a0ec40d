/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011).
 *
 * A draw is a pure function of what it is for: (seed, purpose, layer, site) make the key, (sample number in
 * the run, position in the sample, element / 4) make the counter, element % 4 picks the word. So a draw does
 * not depend on layout, schedule or micro-batch, and a replay repeats it. */
#ifndef BK_BASE_PHILOX_H
#define BK_BASE_PHILOX_H

#include <stdint.h>

typedef enum { BK_RNG_DROPOUT = 1, BK_RNG_INIT, BK_RNG_DATA, BK_RNG_SAMPLE, BK_RNG_CHECK } bk_rng_purpose;

typedef struct {
    uint32_t k[2];
} bk_rng_key;

static inline uint64_t bk_mix64(uint64_t z) /* the finaliser of splitmix64: a bijection */
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* `site` tells draws of one layer apart (attention probabilities, hidden dropout after attention, ...) or is
 * the hash of a parameter's name. */
static inline bk_rng_key bk_rng_key_make(uint64_t seed, bk_rng_purpose purpose, uint32_t layer, uint64_t site)
{
    uint64_t z = bk_mix64(seed + UINT64_C(0x9e3779b97f4a7c15));
    z = bk_mix64(z ^ ((uint64_t)purpose << 32 | layer));
    z = bk_mix64(z ^ site);
    return (bk_rng_key){{(uint32_t)z, (uint32_t)(z >> 32)}};
}

static inline void bk_philox(uint32_t out[4], bk_rng_key key, uint32_t c0, uint32_t c1, uint32_t c2,
                             uint32_t c3)
{
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t m0 = (uint64_t)c0 * 0xD2511F53u, m1 = (uint64_t)c2 * 0xCD9E8D57u;
        const uint32_t hi0 = (uint32_t)(m0 >> 32), hi1 = (uint32_t)(m1 >> 32);
        c0 = hi1 ^ c1 ^ k0, c1 = (uint32_t)m1;
        c2 = hi0 ^ c3 ^ k1, c3 = (uint32_t)m0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The four words of elements 4*block .. 4*block+3 of one position of one sample. */
static inline void bk_rng_block(uint32_t out[4], bk_rng_key key, uint64_t sample, uint32_t position,
                                uint32_t block)
{
    bk_philox(out, key, block, position, (uint32_t)sample, (uint32_t)(sample >> 32));
}

/* Uniform in (0, 1), never 0 or 1. */
static inline double bk_rng_unit(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

/* Dropout: an element is kept when its word is at least this; p in [0, 1). */
static inline uint32_t bk_dropout_threshold(double p)
{
    return (uint32_t)(p * 0x1p32);
}

#endif
