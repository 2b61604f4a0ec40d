#include "data/mt19937.h"

enum { N = 624, M = 397 };

void bk_mt19937_seed(bk_mt19937 *rng, uint32_t seed)
{
    rng->state[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        const uint32_t last = rng->state[i - 1];
        rng->state[i] = 1812433253u * (last ^ last >> 30) + i;
    }
    rng->at = N;
}

static uint32_t twist(uint32_t high, uint32_t low)
{
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
}

static void refill(bk_mt19937 *rng)
{
    uint32_t *s = rng->state;
    for (int i = 0; i < N; i++) s[i] = s[(i + M) % N] ^ twist(s[i], s[(i + 1) % N]);
    rng->at = 0;
}

uint32_t bk_mt19937_next(bk_mt19937 *rng)
{
    if (rng->at == N) refill(rng);
    uint32_t y = rng->state[rng->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

uint64_t bk_mt19937_bounded(bk_mt19937 *rng, uint64_t max)
{
    if (max == 0) return 0; /* nothing is drawn */
    const uint64_t mask = UINT64_MAX >> __builtin_clzll(max);
    uint64_t value;
    do {
        value = bk_mt19937_next(rng);
        if (max > UINT32_MAX) value = value << 32 | bk_mt19937_next(rng);
        value &= mask;
    } while (value > max);
    return value;
}

void bk_mt19937_shuffle(int64_t *items, bk_mt19937 *rng, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        const uint64_t j = bk_mt19937_bounded(rng, (uint64_t)i);
        const int64_t kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}
