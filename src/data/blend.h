/* Several sources mixed by weight, in the order of Megatron's BlendedDataset. */
#ifndef BK_DATA_BLEND_H
#define BK_DATA_BLEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/source.h"

/* A data_path taken apart. */
typedef struct {
    const char **paths; /* [n]; the strings are borrowed */
    double *weights;    /* [n], sum 1; NULL: no weights were given */
    int n;
} bk_blend_paths;

/* "path ..." or "weight path ...": the latter if there is an even number of words and every first of two is a
 * number. Errors: BK_E_INPUT no words, numbers in some of these places only, a weight that is negative or not
 * finite, a sum of 0; BK_E_MEM. */
bk_status bk_blend_parse(bk_blend_paths *out, const char *const *words, int64_t n_words, bk_err *e);
void bk_blend_paths_free(bk_blend_paths *p); /* of zeros: fine */

typedef struct {
    bk_source *sources; /* [n_sources] views */
    int n_sources;
    int64_t n_samples;
    int32_t *which; /* [n_samples] the source of each sample */
    int64_t *index; /* [n_samples] and its number there */
} bk_blend;

/* Samples to build a source with: enough for its share of n_samples, which the rule may overrun a little. */
int64_t bk_blend_share(int64_t n_samples, double weight);

/* Sample t goes to the source that lacks most of its share: the largest w * max(t, 1) - used, the first of
 * equals. There are sum(ceil(n_samples * w)) samples in all.
 *   sources, weights  [n_sources]  weights sum to 1; sources are copied, and what they view must stay
 * Errors: BK_E_INPUT a source holds less than its share; BK_E_MEM. */
bk_status bk_blend_make(bk_blend *out, const bk_source *sources, const double *weights, int n_sources,
                        int64_t n_samples, bk_err *e);

/* Every sample of every source once: weights are the sizes, and the rule skips what is exhausted. Of sources
 * that never end: BK_E_INPUT. */
bk_status bk_blend_make_exhaustive(bk_blend *out, const bk_source *sources, int n_sources, bk_err *e);

void bk_blend_free(bk_blend *b); /* of zeros: fine */

bk_source bk_blend_source(const bk_blend *b);

#endif
