#include "train/run_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/indexed.h"

enum { DEFAULT_MAX_BYTES = 4 << 20, MARKOV_TOKENS = 1 << 20, MAX_NGRAM_VOCAB = 1024 };

static bk_status need_vocab(const bk_config *c, int64_t n, const char *what, bk_err *e)
{
    if (c->vocab_size >= n) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "vocab_size %lld is less than the %lld tokens of %s; set vocab_size to %lld",
                      (long long)c->vocab_size, (long long)n, what, (long long)n);
}

/* Samplers over one array of tokens, and what simple models make of it. */
static bk_status open_tokens(bk_run_data *d, const bk_config *c, const uint16_t *data, int64_t n_tokens,
                             bk_err *e)
{
    const bk_tokens tokens = {data, 2, n_tokens};
    const bk_sampler_options so = {
        .seq_length = c->seq_length, .split = c->split, .seed = (uint64_t)c->seed, .shuffle = true};
    bk_token_range part[BK_N_PARTS];
    bk_status st = BK_OK;
    BK_TRY(bk_sampler_make(&d->sampler[BK_PART_TRAIN], tokens, BK_PART_TRAIN, &so, e));
    d->train = bk_sampler_source(&d->sampler[BK_PART_TRAIN]);
    BK_TRY(bk_split_parse(part, c->split, n_tokens, e));
    d->n_train_tokens = part[BK_PART_TRAIN].end - part[BK_PART_TRAIN].begin;
    if (c->eval_iters == 0 || bk_range_n_samples(part[BK_PART_VALID], c->seq_length) == 0) goto done;
    BK_TRY(bk_sampler_make(&d->sampler[BK_PART_VALID], tokens, BK_PART_VALID, &so, e));
    d->valid = bk_sampler_source(&d->sampler[BK_PART_VALID]);
    d->n_valid_tokens = part[BK_PART_VALID].end - part[BK_PART_VALID].begin;
    d->has_ngram = c->vocab_size <= MAX_NGRAM_VOCAB;
    if (d->has_ngram)
        BK_TRY(bk_ngram_loss(&d->ngram, tokens, part[BK_PART_TRAIN], part[BK_PART_VALID], c->vocab_size, e));
done:
    return st;
}

static bk_status open_text(bk_run_data *d, const bk_config *c, bk_err *e)
{
    static const char *const default_path = BK_DEFAULT_DATA_PATH;
    const bool given = c->data_path.n > 0;
    const bk_text_options options = {.suffix = given ? NULL : BK_DEFAULT_DATA_PATTERN,
                                     .max_bytes = given ? 0 : DEFAULT_MAX_BYTES,
                                     .seq_length = c->seq_length};
    bk_status st = bk_text_load(&d->text, given ? c->data_path.items : &default_path,
                                given ? (int)c->data_path.n : 1, &options, &d->text_report, e);
    if (st != BK_OK && !given) bk_err_prefix(e, "no data_path is given, and its default fails: ");
    if (st != BK_OK) return st;
    d->n_documents = d->text_report.n_files;
    st = need_vocab(c, BK_TEXT_VOCAB, "text read as bytes", e);
    return st == BK_OK ? open_tokens(d, c, d->text.tokens, d->text.n_tokens, e) : st;
}

static bool is_markov(const bk_config *c)
{
    return c->data_path.n == 1 && strncmp(c->data_path.items[0], "markov:", 7) == 0;
}

static bk_status open_markov(bk_run_data *d, const bk_config *c, bk_err *e)
{
    int order, symbols, end = 0;
    const char *path = c->data_path.items[0];
    if (sscanf(path, "markov:%d:%d%n", &order, &symbols, &end) != 2 || path[end])
        return bk_err_set(e, BK_E_INPUT,
                          "data_path %.100s: a chain is markov:ORDER:SYMBOLS, for example markov:2:16", path);
    const bk_markov_options o = {
        .order = order, .n_symbols = symbols, .seed = (uint64_t)c->seed, .sharpness = BK_MARKOV_SHARPNESS};
    bk_status st = need_vocab(c, symbols, "the chain", e);
    if (st == BK_OK) st = bk_markov_make(&d->markov, &o, e);
    if (st != BK_OK) return st;
    d->drawn = malloc(MARKOV_TOKENS * sizeof *d->drawn);
    if (!d->drawn) return bk_err_set(e, BK_E_MEM, "data: out of memory");
    bk_markov_draw(d->drawn, &d->markov, MARKOV_TOKENS);
    d->n_documents = 1;
    return open_tokens(d, c, d->drawn, MARKOV_TOKENS, e);
}

/* A word of data_path names a data set of Megatron's if there is an index of that name. */
static bool is_indexed(const bk_config *c)
{
    for (int64_t k = 0; k < c->data_path.n; k++)
        if (bk_indexed_exists(c->data_path.items[k])) return true;
    return false;
}

static bk_status open_gpt(bk_run_data *d, const bk_config *c, const bk_layout *l, bk_err *e)
{
    int64_t n_samples[BK_N_PARTS];
    double weight[BK_N_PARTS];
    bk_status st =
        bk_gpt_n_samples(n_samples, c->train_iters, c->eval_interval, c->eval_iters, l->global_batch, e);
    if (st == BK_OK) st = bk_split_weights(weight, c->split, e);
    if (st != BK_OK) return st;
    n_samples[BK_PART_TEST] = 0;
    /* A split that gives validation nothing asks for none. Mock data have a split of their own. */
    if (!c->mock_data && !(weight[BK_PART_VALID] > 0)) n_samples[BK_PART_VALID] = 0;
    const int64_t eod = c->vocab_size - 1; /* of mock data; nothing else looks at it */
    const bk_gpt_options o = {
        .seq_length = c->seq_length, .seed = c->seed, .vocab_size = c->vocab_size, .eod = (int32_t)eod};
    st = bk_gpt_data_open(&d->gpt, c->data_path.items, c->mock_data ? 0 : c->data_path.n, c->split, n_samples,
                          &o, e);
    if (st != BK_OK) return st;
    d->train = bk_gpt_data_source(d->gpt, BK_PART_TRAIN),
    d->valid = bk_gpt_data_source(d->gpt, BK_PART_VALID);
    d->n_train_tokens = bk_gpt_data_n_tokens(d->gpt), d->n_documents = bk_gpt_data_n_documents(d->gpt);
    return BK_OK;
}

bk_status bk_run_data_open(bk_run_data *d, const bk_config *c, const bk_layout *l, bk_err *e)
{
    *d = (bk_run_data){.kind = c->mock_data    ? BK_DATA_MOCK
                               : is_markov(c)  ? BK_DATA_MARKOV
                               : is_indexed(c) ? BK_DATA_INDEXED
                                               : BK_DATA_TEXT};
    switch (d->kind) {
    case BK_DATA_MOCK:
    case BK_DATA_INDEXED:
        return open_gpt(d, c, l, e);
    case BK_DATA_MARKOV:
        return open_markov(d, c, e);
    case BK_DATA_TEXT:
        break;
    }
    return open_text(d, c, e);
}

void bk_run_data_close(bk_run_data *d)
{
    bk_gpt_data_close(d->gpt);
    bk_markov_free(&d->markov);
    bk_text_free(&d->text);
    free(d->drawn);
    *d = (bk_run_data){0};
}
