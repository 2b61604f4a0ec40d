/* The Mersenne Twister MT19937 and the shuffle of NumPy's legacy RandomState, draw for draw: what orders
 * Megatron's data sets. */
#ifndef BK_DATA_MT19937_H
#define BK_DATA_MT19937_H

#include <stdint.h>

typedef struct {
    uint32_t state[624];
    int at; /* words of `state` that are used up */
} bk_mt19937;

/* RandomState(seed). */
void bk_mt19937_seed(bk_mt19937 *rng, uint32_t seed);

uint32_t bk_mt19937_next(bk_mt19937 *rng);

/* Uniform in [0, max]: draws under the smallest mask of ones that covers max, until one is not above max. */
uint64_t bk_mt19937_bounded(bk_mt19937 *rng, uint64_t max);

/* RandomState.shuffle of a one-dimensional array. */
void bk_mt19937_shuffle(int64_t *items, bk_mt19937 *rng, int64_t n);

#endif
