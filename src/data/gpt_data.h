/* All of a run's data in Megatron's form: the data sets of a data_path, or mock data, cut into parts, each
 * part a source. */
#ifndef BK_DATA_GPT_DATA_H
#define BK_DATA_GPT_DATA_H

#include <stdint.h>

#include "base/err.h"
#include "data/gpt_dataset.h"

typedef struct bk_gpt_data bk_gpt_data;

/* Opens the indexed data sets that `words` name ("path ..." or "weight path ..."); none: mock data, whose
 * split is BK_MOCK_SPLIT. options.n_samples is not read: n_samples says what is wanted of each part, 0 that
 * the part is not made. Several paths without weights are mixed in proportion to their sizes: as long as one
 * epoch suffices each sample comes once, and beyond that the data sets repeat. Errors: those of
 * bk_indexed_open, bk_blend_parse and bk_gpt_dataset_make, the path in front. */
bk_status bk_gpt_data_open(bk_gpt_data **out, const char *const *words, int64_t n_words, const char *split,
                           const int64_t n_samples[BK_N_PARTS], const bk_gpt_options *options, bk_err *e);

void bk_gpt_data_close(bk_gpt_data *d); /* NULL is fine */

/* The source of a part, with ctx NULL if none was wanted. Borrowed. */
bk_source bk_gpt_data_source(const bk_gpt_data *d, bk_part part);

/* Tokens of all data sets, all parts, one epoch; documents likewise. */
int64_t bk_gpt_data_n_tokens(const bk_gpt_data *d);
int64_t bk_gpt_data_n_documents(const bk_gpt_data *d);

#endif
