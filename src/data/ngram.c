/* Counts are kept for the pairs that occur, in a hash table with open addressing, so that a large vocabulary
 * costs nothing by itself. */
#include "data/ngram.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/philox.h"

typedef struct {
    uint64_t pair; /* a * V + b + 1; 0: the slot is free */
    int64_t n;
} slot;

typedef struct {
    int64_t vocab_size;
    int64_t *labels, *contexts; /* [V] how often each token is a label, and the token before one */
    int64_t n_labels;
    slot *slots;
    int64_t n_pairs, n_slots; /* n_slots is a power of two */
} model;

typedef struct {
    double unigram, bigram; /* sums of -log p */
    int64_t n;
} score;

static bk_status no_memory(bk_err *e)
{
    return bk_err_set(e, BK_E_MEM, "no memory to count pairs of tokens");
}

static slot *find(const model *m, uint64_t pair)
{
    const uint64_t mask = (uint64_t)m->n_slots - 1;
    uint64_t at = bk_mix64(pair) & mask;
    while (m->slots[at].pair != 0 && m->slots[at].pair != pair) at = (at + 1) & mask;
    return &m->slots[at];
}

static bk_status grow(model *m, bk_err *e)
{
    const model old = *m;
    m->n_slots = old.n_slots > 0 ? 2 * old.n_slots : 1024;
    m->slots = calloc((size_t)m->n_slots, sizeof *m->slots);
    if (!m->slots) {
        *m = old;
        return no_memory(e);
    }
    for (int64_t i = 0; i < old.n_slots; i++)
        if (old.slots[i].pair != 0) *find(m, old.slots[i].pair) = old.slots[i];
    free(old.slots);
    return BK_OK;
}

static bk_status init(model *m, int64_t vocab_size, bk_err *e)
{
    *m = (model){.vocab_size = vocab_size};
    if (vocab_size < 1 || vocab_size > INT32_MAX)
        return bk_err_set(e, BK_E_INPUT, "a vocabulary of %" PRId64 " tokens: expected 1 to 2^31 - 1",
                          vocab_size);
    m->labels = calloc((size_t)vocab_size, sizeof *m->labels);
    m->contexts = calloc((size_t)vocab_size, sizeof *m->contexts);
    return m->labels && m->contexts ? grow(m, e) : no_memory(e);
}

static void release(model *m)
{
    free(m->labels);
    free(m->contexts);
    free(m->slots);
}

static uint64_t pair_of(const model *m, int32_t a, int32_t b)
{
    return (uint64_t)a * (uint64_t)m->vocab_size + (uint64_t)b + 1;
}

/* One label b after the token a. */
static bk_status count(model *m, int32_t a, int32_t b, bk_err *e)
{
    if (2 * m->n_pairs >= m->n_slots) {
        const bk_status st = grow(m, e);
        if (st != BK_OK) return st;
    }
    slot *s = find(m, pair_of(m, a, b));
    m->n_pairs += s->pair == 0;
    *s = (slot){pair_of(m, a, b), s->n + 1};
    m->labels[b]++, m->contexts[a]++, m->n_labels++;
    return BK_OK;
}

static void add_loss(score *sum, const model *m, int32_t a, int32_t b)
{
    const double add = BK_NGRAM_ADD, all = add * (double)m->vocab_size;
    sum->unigram -= log(((double)m->labels[b] + add) / ((double)m->n_labels + all));
    sum->bigram -= log(((double)find(m, pair_of(m, a, b))->n + add) / ((double)m->contexts[a] + all));
    sum->n++;
}

/* Counts pairs if `sum` is NULL, else adds their losses. mask NULL: all count. */
static bk_status take(model *m, score *sum, const int32_t *tokens, const int32_t *labels, const float *mask,
                      int64_t n, bk_err *e)
{
    for (int64_t t = 0; t < n; t++) {
        const int64_t V = m->vocab_size;
        if (mask && mask[t] <= 0) continue;
        if (tokens[t] < 0 || tokens[t] >= V || labels[t] < 0 || labels[t] >= V)
            return bk_err_set(e, BK_E_INPUT,
                              "tokens %" PRId32 " and %" PRId32 " are not both in the vocabulary of %" PRId64,
                              tokens[t], labels[t], V);
        if (sum)
            add_loss(sum, m, tokens[t], labels[t]);
        else {
            const bk_status st = count(m, tokens[t], labels[t], e);
            if (st != BK_OK) return st;
        }
    }
    return BK_OK;
}

static bk_status report(bk_ngram_report *out, const model *m, const score *sum, bk_err *e)
{
    if (m->n_labels == 0 || sum->n == 0)
        return bk_err_set(e, BK_E_INPUT,
                          "%" PRId64 " labels to train on and %" PRId64 " held out: both need at least one",
                          m->n_labels, sum->n);
    *out = (bk_ngram_report){.unigram = sum->unigram / (double)sum->n,
                             .bigram = sum->bigram / (double)sum->n,
                             .n_train = m->n_labels,
                             .n_held_out = sum->n};
    return BK_OK;
}

static bk_status take_range(model *m, score *sum, bk_tokens tokens, bk_token_range range, bk_err *e)
{
    const uint16_t *narrow = tokens.data;
    const int32_t *full = tokens.data;
    if (range.begin < 0 || range.end > tokens.n_tokens || range.end - range.begin < 2)
        return bk_err_set(e, BK_E_INPUT,
                          "tokens %" PRId64 " to %" PRId64 " of %" PRId64 ": expected a range of two or more",
                          range.begin, range.end, tokens.n_tokens);
    for (int64_t t = range.begin; t < range.end - 1; t++) {
        const int32_t pair[2] = {tokens.token_bytes == 2 ? narrow[t] : full[t],
                                 tokens.token_bytes == 2 ? narrow[t + 1] : full[t + 1]};
        const bk_status st = take(m, sum, &pair[0], &pair[1], NULL, 1, e);
        if (st != BK_OK) return st;
    }
    return BK_OK;
}

bk_status bk_ngram_loss(bk_ngram_report *out, bk_tokens tokens, bk_token_range train, bk_token_range held_out,
                        int64_t vocab_size, bk_err *e)
{
    model m;
    score sum = {0};
    bk_status st = BK_OK;
    BK_TRY(init(&m, vocab_size, e));
    BK_TRY(take_range(&m, NULL, tokens, train, e));
    BK_TRY(take_range(&m, &sum, tokens, held_out, e));
    BK_TRY(report(out, &m, &sum, e));
done:
    release(&m);
    return st;
}

static bk_status take_source(model *m, score *sum, const bk_source *source, int64_t n_samples, int32_t *rows,
                             float *mask, int64_t seq_length, bk_err *e)
{
    bk_status st = BK_OK;
    int32_t *labels = rows + seq_length;
    for (int64_t i = 0; st == BK_OK && i < n_samples; i++) {
        st = bk_source_get(rows, labels, mask, source, i, e);
        if (st == BK_OK) st = take(m, sum, rows, labels, mask, seq_length, e);
    }
    return st;
}

bk_status bk_ngram_source_loss(bk_ngram_report *out, const bk_source *train, int64_t n_train_samples,
                               const bk_source *held_out, int64_t n_held_out_samples, int64_t seq_length,
                               int64_t vocab_size, bk_err *e)
{
    model m;
    score sum = {0};
    bk_status st = BK_OK;
    int32_t *rows = calloc((size_t)seq_length, 2 * sizeof *rows);
    float *mask = calloc((size_t)seq_length, sizeof *mask);
    BK_TRY(init(&m, vocab_size, e));
    if (!rows || !mask) {
        st = no_memory(e);
        goto done;
    }
    BK_TRY(take_source(&m, NULL, train, n_train_samples, rows, mask, seq_length, e));
    BK_TRY(take_source(&m, &sum, held_out, n_held_out_samples, rows, mask, seq_length, e));
    BK_TRY(report(out, &m, &sum, e));
done:
    release(&m);
    free(rows);
    free(mask);
    return st;
}
