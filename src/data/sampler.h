/* From an array of tokens to the samples of a run.
 *
 *     part        |<------- train ------->|<-- validation -->|<- test ->|     contiguous ranges of tokens
 *     samples     |0 . . . S|
 *                           |S . . . 2S|        sample i covers tokens [i*S, i*S + S] of its part: S inputs,
 *                                               and the same shifted by one as labels
 *
 * Sample i shares one token with sample i + 1, so every token but the first (and a tail shorter than S) is a
 * label exactly once an epoch. The order of an epoch is a permutation computed from (seed, part, epoch) by a
 * cipher over Philox: nothing is stored, and a sample is a pure function of its number in the run. */
#ifndef BK_DATA_SAMPLER_H
#define BK_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/source.h"

typedef enum { BK_PART_TRAIN, BK_PART_VALID, BK_PART_TEST, BK_N_PARTS } bk_part;

/* An array of tokens, borrowed: uint16 (token_bytes 2) or int32 (token_bytes 4), aligned to its element. */
typedef struct {
    const void *data;
    int token_bytes;
    int64_t n_tokens;
} bk_tokens;

typedef struct {
    int64_t begin, end; /* tokens [begin, end) of the array */
} bk_token_range;

typedef struct {
    int64_t seq_length; /* S >= 1 */
    const char *split;  /* "949,50,1": weights of train, validation, test; those left out are 0; NULL: "1" */
    uint64_t seed;
    bool shuffle;  /* else every epoch runs through the part in order */
    bool mask_eod; /* mask 0 where the input is `eod`: nothing is learned across the border of documents */
    int32_t eod;
} bk_sampler_options;

typedef struct {
    bk_tokens tokens;
    bk_token_range range;
    bk_sampler_options options;
    bk_part part;
    int64_t n_samples; /* in an epoch: floor((tokens of the part - 1) / S), at least 1 */
} bk_sampler;

const char *bk_part_name(bk_part part); /* "training", "validation", "test" */

/* The weights of a split, those left out 0. Errors: BK_E_INPUT the text is not one to three weights >= 0,
 * separated by commas, with a positive sum. */
bk_status bk_split_weights(double out[BK_N_PARTS], const char *split, bk_err *e);

/* Parses a split and cuts [0, n_tokens) in proportion to its weights, each border rounded to the nearest
 * token. A range may come out empty. Errors: those of bk_split_weights. */
bk_status bk_split_parse(bk_token_range out[BK_N_PARTS], const char *split, int64_t n_tokens, bk_err *e);

/* Samples in a range; 0 if it is shorter than S + 1. */
int64_t bk_range_n_samples(bk_token_range range, int64_t seq_length);

/* Makes the sampler of one part. It owns nothing; `tokens.data` must outlive it, options.split need not.
 * Errors: BK_E_INPUT bad options, or the part holds no sample; the message says whether the split gives the
 * part nothing or the data are too short. Ask bk_split_parse first where a part without data is fine. */
bk_status bk_sampler_make(bk_sampler *out, bk_tokens tokens, bk_part part, const bk_sampler_options *options,
                          bk_err *e);

/* The sample with this number (>= 0) in the run; epoch = number / n_samples.
 *   tokens, labels  [S]  labels[t] is the token after tokens[t]
 *   mask            [S]  1 where the label counts, else 0
 * Any of the three may be NULL. */
void bk_sampler_get(int32_t *tokens, int32_t *labels, float *mask, const bk_sampler *s,
                    int64_t sample_number);

/* Which sample of the part that is: in [0, n_samples). */
int64_t bk_sampler_index(const bk_sampler *s, int64_t sample_number);

/* The sampler as a source without end, of which epoch after epoch can be asked. Borrowed. */
bk_source bk_sampler_source(const bk_sampler *s);

#endif
