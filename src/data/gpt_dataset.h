/* One part of one data set as Megatron's GPTDataset orders it.
 *
 *     documents   the part's sequences, once an epoch, shuffled: read one after the other they are a stream
 *     sample i    tokens [i*s, i*s + s] of the stream: s inputs, and the same shifted by one as labels; it
 *                 crosses the borders of sequences, and shares one token with sample i + 1
 *     shuffle     number j in the run gives sample shuffle[j]
 *
 * Both orders come from one MT19937, seeded alike for every part. The last epoch is shuffled apart from the
 * others if less than 80 % of it is needed, so that the repetitions stay at the end. */
#ifndef BK_DATA_GPT_DATASET_H
#define BK_DATA_GPT_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/sampler.h"
#include "data/sequences.h"
#include "data/source.h"

typedef struct {
    int64_t begin, end; /* sequences [begin, end) of a data set */
} bk_sequence_range;

typedef struct {
    int64_t seq_length; /* s >= 1 */
    int64_t n_samples;  /* at least so many will be asked for; 0: those of one epoch */
    int64_t seed;       /* in [0, 2^32) */
    int64_t vocab_size; /* every token read is below it */
    bool mask_eod;      /* mask 0 where the input is `eod` */
    int32_t eod;
} bk_gpt_options;

typedef struct {
    bk_sequences sequences;
    bk_gpt_options options;
    int64_t n_epochs;
    int64_t n_apart; /* samples before the last epoch if that is shuffled apart, else n_samples */
    int64_t n_documents, n_samples;
    int64_t *documents; /* [n_documents]: sequences, n_epochs times those of the part */
    int64_t *first; /* [n_documents + 1]: tokens of the stream before each document; the last is their sum */
    int64_t *shuffle; /* [n_samples] */
} bk_gpt_dataset;

/* Cuts n_sequences in proportion to the weights of a split, in Megatron's arithmetic: the weights normalised
 * and summed in double, borders rounded half to even. A range may come out empty. Errors: those of
 * bk_split_weights. */
bk_status bk_split_sequences(bk_sequence_range out[BK_N_PARTS], const char *split, int64_t n_sequences,
                             bk_err *e);

/* Samples that a run of Megatron's asks of each part: it evaluates after each eval_interval-th iteration and
 * at the end, on fresh samples each time. Errors: BK_E_INPUT a number does not fit 64 bits. */
bk_status bk_gpt_n_samples(int64_t out[BK_N_PARTS], int64_t train_iters, int64_t eval_interval,
                           int64_t eval_iters, int64_t global_batch, bk_err *e);

/* Makes the data set of one part; `part` is for messages. What `sequences` views must outlive it. Unlike
 * Megatron, a part that holds no whole sample is refused, not repeated until it does.
 * `*out` is written on success only and is the caller's: bk_gpt_dataset_free. Errors: BK_E_INPUT bad options,
 * no sequences, no tokens, or less than s + 1 tokens in the part; BK_E_MEM. */
bk_status bk_gpt_dataset_make(bk_gpt_dataset *out, const bk_sequences *sequences, bk_sequence_range range,
                              bk_part part, const bk_gpt_options *options, bk_err *e);

void bk_gpt_dataset_free(bk_gpt_dataset *ds); /* of zeros: fine */

/* Where sample i of the stream (0 <= i <= n_samples: the last gives where a further one would begin) starts:
 * an index into `documents`, an offset in tokens. Megatron stores these pairs as its sample index. */
void bk_gpt_dataset_start(int64_t *document, int64_t *offset, const bk_gpt_dataset *ds, int64_t sample);

/* As bk_source.get. */
bk_status bk_gpt_dataset_get(int32_t *tokens, int32_t *labels, float *mask, const bk_gpt_dataset *ds,
                             int64_t sample_number, bk_err *e);

bk_source bk_gpt_dataset_source(const bk_gpt_dataset *ds);

#endif
