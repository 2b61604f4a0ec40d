/* The data of a run: whatever data_path names, as a source for training and one for validation.
 *
 *     nothing                     the C headers of this machine, read as bytes
 *     mock_data                   Megatron's mock data
 *     markov:ORDER:SYMBOLS        a seeded Markov chain whose entropy is known
 *     [weight] prefix ...         Megatron's data sets prefix.bin, prefix.idx
 *     anything else               files and folders of text, read as bytes */
#ifndef BK_TRAIN_RUN_DATA_H
#define BK_TRAIN_RUN_DATA_H

#include "config/config.h"
#include "data/gpt_data.h"
#include "data/markov.h"
#include "data/ngram.h"
#include "data/text.h"
#include "layout/layout.h"

/* What is read when data_path is not given: text that every machine with a C compiler has. */
#define BK_DEFAULT_DATA_PATH    "/usr/include"
#define BK_DEFAULT_DATA_PATTERN "*.h"

typedef enum { BK_DATA_TEXT, BK_DATA_INDEXED, BK_DATA_MOCK, BK_DATA_MARKOV } bk_data_kind;

/* Must stay where it was opened: its sources point into it. */
typedef struct {
    bk_data_kind kind;
    bk_source train, valid; /* valid.ctx is NULL where there is no validation */
    int64_t n_train_tokens,
        n_valid_tokens; /* of the parts; of a Megatron data set: n_train_tokens has all parts */
    int64_t n_documents;
    bk_text_report text_report; /* of text */
    bool has_ngram;
    bk_ngram_report ngram; /* of text and chains: losses of simple models on the validation part */
    /* Owned. */
    bk_text text;
    bk_markov markov;
    uint16_t *drawn; /* tokens of the chain */
    bk_sampler sampler[BK_N_PARTS];
    bk_gpt_data *gpt;
} bk_run_data;

/* Opens the data of a resolved configuration. BK_E_INPUT, BK_E_IO for data that cannot be used: unreadable,
 * too short, tokens outside the vocabulary, a split without training data. The caller frees in any case. */
bk_status bk_run_data_open(bk_run_data *d, const bk_config *c, const bk_layout *l, bk_err *e);
void bk_run_data_close(bk_run_data *d); /* {0} is fine */

#endif
