/* A data set holds the order of the documents with the tokens before each, and the order of the samples.
 * Where a sample starts is searched when it is asked for: sample i begins at token i*s of the stream. */
#include "data/gpt_dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/size.h"
#include "data/mt19937.h"

bk_status bk_split_sequences(bk_sequence_range out[BK_N_PARTS], const char *split, int64_t n_sequences,
                             bk_err *e)
{
    double weight[BK_N_PARTS], sum = 0, upto = 0;
    const bk_status st = bk_split_weights(weight, split, e);
    if (st != BK_OK) return st;
    for (int i = 0; i < BK_N_PARTS; i++) sum += weight[i];
    int64_t begin = 0;
    for (int i = 0; i < BK_N_PARTS; i++) {
        upto += weight[i] / sum;
        /* The shares may sum to a little more or less than 1; less never shows, since the border is rounded.
         */
        const double border = rint(upto * (double)n_sequences);
        const int64_t end = border >= (double)n_sequences ? n_sequences : (int64_t)border;
        out[i] = (bk_sequence_range){begin, end};
        begin = end;
    }
    return BK_OK;
}

bk_status bk_gpt_n_samples(int64_t out[BK_N_PARTS], int64_t train_iters, int64_t eval_interval,
                           int64_t eval_iters, int64_t global_batch, bk_err *e)
{
    const int64_t n_evaluations = eval_interval > 0 ? train_iters / eval_interval + 1 : 1;
    int64_t train, valid, test;
    if (!bk_mul64(&train, train_iters, global_batch) || !bk_mul64(&test, eval_iters, global_batch) ||
        !bk_mul64(&valid, n_evaluations, test))
        return bk_err_set(e, BK_E_INPUT,
                          "%" PRId64 " iterations of %" PRId64
                          " samples are more samples than 64 bits can count",
                          train_iters, global_batch);
    out[BK_PART_TRAIN] = train, out[BK_PART_VALID] = valid, out[BK_PART_TEST] = test;
    return BK_OK;
}

static bk_status check_options(const bk_sequences *sequences, const bk_gpt_options *o, bk_err *e)
{
    if (o->seq_length < 1 || o->seq_length >= INT64_C(1) << 40 || o->n_samples < 0 || o->vocab_size < 1)
        return bk_err_set(e, BK_E_INPUT,
                          "%s: sequence length %" PRId64 ", %" PRId64 " samples and a vocabulary of %" PRId64
                          " must be positive",
                          sequences->name, o->seq_length, o->n_samples, o->vocab_size);
    if (o->seed < 0 || o->seed > UINT32_MAX)
        return bk_err_set(e, BK_E_INPUT,
                          "%s: seed %" PRId64 " cannot order the data, expected 0 to 4294967295",
                          sequences->name, o->seed);
    return BK_OK;
}

/* The tokens of the range, which hold at least one sample. */
static bk_status count_tokens(int64_t *out, const bk_sequences *sequences, bk_sequence_range range,
                              bk_part part, const bk_gpt_options *o, bk_err *e)
{
    int64_t n = 0;
    for (int64_t i = range.begin; i < range.end; i++) {
        if (!bk_add64(&n, n, sequences->length(sequences->ctx, i)))
            return bk_err_set(e, BK_E_INPUT, "%s: more tokens than 64 bits can count", sequences->name);
    }
    *out = n;
    if (n > o->seq_length) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "%s: no %s data: it has %" PRId64 " of %" PRId64 " sequences, with %" PRId64
                      " tokens, and one sample needs one more than the sequence length of %" PRId64
                      "; change the split, give more data or lower the sequence length",
                      sequences->name, bk_part_name(part), range.end - range.begin, sequences->n_sequences, n,
                      o->seq_length);
}

/* Epochs, samples, documents. per_epoch: tokens. The least number of epochs with epochs * per_epoch >=
 * n_samples * s + 1 is found by division, so it takes no time however many there are. */
static bk_status count_epochs(bk_gpt_dataset *ds, int64_t per_epoch, int64_t n_sequences, bk_err *e)
{
    const int64_t s = ds->options.seq_length, wanted = ds->options.n_samples;
    int64_t needed = 1, total = 0;
    if (!bk_mul64(&needed, wanted, s) || !bk_add64(&needed, needed, 1)) goto too_many;
    ds->n_epochs = wanted == 0 ? 1 : (needed - 1) / per_epoch + 1;
    if (!bk_mul64(&total, ds->n_epochs, per_epoch) || !bk_mul64(&ds->n_documents, ds->n_epochs, n_sequences))
        goto too_many;
    ds->n_samples = (total - 1) / s;
    ds->n_apart = ds->n_samples;
    if (ds->n_epochs > 1) {
        const int64_t before = ((ds->n_epochs - 1) * per_epoch - 1) / s;
        const int64_t enough = (int64_t)(0.8 * (double)((per_epoch - 1) / s));
        if (wanted - before < enough) ds->n_apart = before;
    }
    return BK_OK;
too_many:
    return bk_err_set(e, BK_E_INPUT,
                      "%s: %" PRId64 " samples of %" PRId64 " tokens are more than 64 bits can count",
                      ds->sequences.name, wanted, s);
}

/* Room for the three arrays, if the machine has it: pages are taken when they are first written to, so malloc
 * alone would promise what is not there. */
static bk_status alloc_orders(bk_gpt_dataset *ds, bk_err *e)
{
    const int64_t word = (int64_t)sizeof(int64_t), n_documents = ds->n_documents, n_samples = ds->n_samples;
    int64_t n, bytes;
    const bool fits = bk_mul64(&n, n_documents, 2) && bk_add64(&n, n, n_samples) &&
                      bk_mul64(&bytes, n, word) && bytes < bk_available_memory();
    if (fits) {
        ds->documents = malloc((size_t)(n_documents * word));
        ds->first = malloc((size_t)(n_documents * word + word));
        ds->shuffle = malloc((size_t)(n_samples * word));
    }
    if (ds->documents && ds->first && ds->shuffle) return BK_OK;
    return bk_err_set(e, BK_E_MEM,
                      "%s: no memory to order %" PRId64 " documents (%" PRId64 " epochs) and %" PRId64
                      " samples; train for fewer steps",
                      ds->sequences.name, n_documents, ds->n_epochs, n_samples);
}

static void order_documents(bk_gpt_dataset *ds, bk_mt19937 *rng, bk_sequence_range range)
{
    const int64_t n = range.end - range.begin;
    for (int64_t epoch = 0; epoch < ds->n_epochs; epoch++)
        for (int64_t i = 0; i < n; i++) ds->documents[epoch * n + i] = range.begin + i;
    const int64_t n_together = ds->n_apart < ds->n_samples ? ds->n_documents - n : ds->n_documents;
    bk_mt19937_shuffle(ds->documents, rng, n_together);
    bk_mt19937_shuffle(ds->documents + n_together, rng, ds->n_documents - n_together);
    ds->first[0] = 0;
    for (int64_t i = 0; i < ds->n_documents; i++)
        ds->first[i + 1] = ds->first[i] + ds->sequences.length(ds->sequences.ctx, ds->documents[i]);
}

static void order_samples(bk_gpt_dataset *ds, bk_mt19937 *rng)
{
    for (int64_t i = 0; i < ds->n_samples; i++) ds->shuffle[i] = i;
    bk_mt19937_shuffle(ds->shuffle, rng, ds->n_apart);
    bk_mt19937_shuffle(ds->shuffle + ds->n_apart, rng, ds->n_samples - ds->n_apart);
}

bk_status bk_gpt_dataset_make(bk_gpt_dataset *out, const bk_sequences *sequences, bk_sequence_range range,
                              bk_part part, const bk_gpt_options *options, bk_err *e)
{
    bk_gpt_dataset ds = {.sequences = *sequences, .options = *options};
    bk_mt19937 rng;
    int64_t per_epoch = 0;
    bk_status st = BK_OK;
    BK_TRY(check_options(sequences, options, e));
    BK_TRY(count_tokens(&per_epoch, sequences, range, part, options, e));
    BK_TRY(count_epochs(&ds, per_epoch, range.end - range.begin, e));
    BK_TRY(alloc_orders(&ds, e));
    bk_mt19937_seed(&rng, (uint32_t)options->seed);
    order_documents(&ds, &rng, range);
    order_samples(&ds, &rng);
    *out = ds;
    ds = (bk_gpt_dataset){0};
done:
    bk_gpt_dataset_free(&ds);
    return st;
}

void bk_gpt_dataset_free(bk_gpt_dataset *ds)
{
    free(ds->documents);
    free(ds->first);
    free(ds->shuffle);
    *ds = (bk_gpt_dataset){0};
}

/* The last document that begins at or before this token of the stream: documents without tokens begin where
 * the next does, and are passed over. */
static int64_t document_of(const bk_gpt_dataset *ds, int64_t token)
{
    int64_t low = 0, high = ds->n_documents; /* first[low] <= token < first[high] */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (ds->first[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void bk_gpt_dataset_start(int64_t *document, int64_t *offset, const bk_gpt_dataset *ds, int64_t sample)
{
    const int64_t token = sample * ds->options.seq_length;
    *document = document_of(ds, token);
    *offset = token - ds->first[*document];
}

/* Tokens [token, token + n) of the stream. */
static bk_status read_stream(int32_t *out, const bk_gpt_dataset *ds, int64_t token, int64_t n, bk_err *e)
{
    const bk_sequences *q = &ds->sequences;
    for (int64_t d = document_of(ds, token); n > 0; d++) {
        const int64_t offset = token - ds->first[d], left = ds->first[d + 1] - token;
        const int64_t here = left < n ? left : n;
        const bk_status st = q->read(out, q->ctx, ds->documents[d], offset, here, ds->options.vocab_size, e);
        if (st != BK_OK) return st;
        out += here, token += here, n -= here;
    }
    return BK_OK;
}

/* Through a small buffer, since the tokens may not be asked for. */
static bk_status read_mask(float *mask, const bk_gpt_dataset *ds, int64_t token, bk_err *e)
{
    const int64_t s = ds->options.seq_length;
    int32_t buffer[512];
    enum { N_BUFFER = sizeof buffer / sizeof *buffer };
    for (int64_t t = 0; t < s; t += N_BUFFER) {
        const int64_t n = s - t < N_BUFFER ? s - t : N_BUFFER;
        const bk_status st = ds->options.mask_eod ? read_stream(buffer, ds, token + t, n, e) : BK_OK;
        if (st != BK_OK) return st;
        for (int64_t i = 0; i < n; i++)
            mask[t + i] = ds->options.mask_eod && buffer[i] == ds->options.eod ? 0.0f : 1.0f;
    }
    return BK_OK;
}

bk_status bk_gpt_dataset_get(int32_t *tokens, int32_t *labels, float *mask, const bk_gpt_dataset *ds,
                             int64_t sample_number, bk_err *e)
{
    if (sample_number < 0 || sample_number >= ds->n_samples)
        return bk_err_set(e, BK_E_INPUT,
                          "%s: sample %" PRId64 " is asked for, but the data were ordered for %" PRId64,
                          ds->sequences.name, sample_number, ds->n_samples);
    const int64_t s = ds->options.seq_length, token = ds->shuffle[sample_number] * s;
    bk_status st = BK_OK;
    if (tokens) st = read_stream(tokens, ds, token, s, e);
    if (labels && st == BK_OK) st = read_stream(labels, ds, token + 1, s, e);
    if (mask && st == BK_OK) st = read_mask(mask, ds, token, e);
    return st;
}

static bk_status view_get(int32_t *tokens, int32_t *labels, float *mask, const void *ctx,
                          int64_t sample_number, bk_err *e)
{
    return bk_gpt_dataset_get(tokens, labels, mask, ctx, sample_number, e);
}

bk_source bk_gpt_dataset_source(const bk_gpt_dataset *ds)
{
    return (bk_source){.ctx = ds, .n_samples = ds->n_samples, .get = view_get};
}
