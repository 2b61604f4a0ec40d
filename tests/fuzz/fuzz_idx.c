/* Any bytes given to the reader of indexed data sets: no crash, no read outside them, and what is accepted
 * keeps the promises of data/indexed.h, for a bk_gpt_dataset built over it as well. The first byte says how
 * many bytes at the end are the .bin; the rest is the .idx. Seeds: corpus_idx/. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/gpt_dataset.h"
#include "data/indexed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int promise)
{
    if (!promise) abort();
}

/* Every token can be read, and those in the vocabulary are. */
static void read_all(const bk_indexed *x)
{
    int64_t n = 0;
    for (int64_t i = 0; i < bk_indexed_n_sequences(x); i++) {
        const int64_t length = bk_indexed_length(x, i);
        require(length >= 0 && length <= 255);
        n += length;
        for (int64_t t = 0; t < length; t++) {
            int32_t token = -1;
            const bk_status st = bk_indexed_read(&token, x, i, t, 1, 1000, NULL);
            require(st == BK_OK ? token >= 0 && token < 1000 : st == BK_E_INPUT && token == -1);
        }
        require(bk_indexed_read(NULL, x, i, length, 1, 1000, NULL) == BK_E_INPUT);
    }
    require(n == bk_indexed_n_tokens(x));
    require(bk_indexed_document(x, 0) == 0);
    for (int64_t i = 0; i < bk_indexed_n_documents(x); i++)
        require(bk_indexed_document(x, i) <= bk_indexed_document(x, i + 1));
    require(bk_indexed_document(x, bk_indexed_n_documents(x)) == bk_indexed_n_sequences(x));
}

static void read_samples(const bk_indexed *x)
{
    const bk_sequences sequences = bk_indexed_sequences(x);
    const bk_gpt_options options = {.seq_length = 3, .n_samples = 40, .vocab_size = 1000, .mask_eod = true};
    bk_gpt_dataset ds;
    if (bk_gpt_dataset_make(&ds, &sequences, (bk_sequence_range){0, sequences.n_sequences}, BK_PART_TRAIN,
                            &options, NULL) != BK_OK) {
        require(bk_indexed_n_tokens(x) < 4);
        return;
    }
    require(ds.n_samples >= 40);
    for (int64_t i = 0; i < ds.n_samples; i++) {
        int32_t tokens[3], labels[3];
        float mask[3];
        if (bk_gpt_dataset_get(tokens, labels, mask, &ds, i, NULL) == BK_OK)
            require(tokens[1] == labels[0] && tokens[2] == labels[1] &&
                    mask[0] == (tokens[0] == 0 ? 0.0f : 1.0f));
    }
    bk_gpt_dataset_free(&ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size - 1 < data[0]) return 0;
    const size_t n_bin = data[0], n_idx = size - 1 - n_bin;
    /* Copies of their own, so that a read past either is seen. */
    uint8_t *idx = malloc(n_idx + 1), *bin = malloc(n_bin + 1);
    bk_indexed *x = NULL;
    bk_err e = {0};
    if (idx && bin) {
        uint8_t *const idx_end = memcpy(idx + 1, data + 1, n_idx); /* odd addresses */
        uint8_t *const bin_end = memcpy(bin + 1, data + 1 + n_idx, n_bin);
        if (bk_indexed_from_memory(&x, idx_end, (int64_t)n_idx, bin_end, (int64_t)n_bin, "fuzz", &e) ==
            BK_OK) {
            read_all(x);
            read_samples(x);
        } else {
            require(x == NULL && e.msg[0] != '\0');
        }
    }
    bk_indexed_free(x);
    free(idx);
    free(bin);
    return 0;
}
