#include "data/markov.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

enum { TABLES = 1, TOKENS = 2 }; /* sites of the draws */

static bk_status check_options(const bk_markov_options *o, bk_err *e)
{
    int64_t n = o->n_symbols;
    if (o->order != 1 && o->order != 2)
        return bk_err_set(e, BK_E_INPUT, "a Markov chain of order %d: expected 1 or 2", o->order);
    if (n < 2 || n > 4096 || (o->order == 2 && n > 256))
        return bk_err_set(e, BK_E_INPUT,
                          "a Markov chain of order %d over %" PRId64
                          " symbols: expected 2 to %d, so that its table has at most 2^24 numbers",
                          o->order, n, o->order == 2 ? 256 : 4096);
    if (!(o->sharpness >= 0 && o->sharpness <= 64))
        return bk_err_set(e, BK_E_INPUT, "a Markov chain of sharpness %g: expected 0 to 64", o->sharpness);
    return BK_OK;
}

static void draw_tables(bk_markov *m)
{
    const int64_t V = m->options.n_symbols;
    const bk_rng_key key = bk_rng_key_make(m->options.seed, BK_RNG_DATA, TABLES, 0);
    for (int64_t ctx = 0; ctx < m->n_contexts; ctx++) {
        double *row = m->p + ctx * V, sum = 0;
        for (int64_t c = 0; c < V; c++) {
            uint32_t word[4];
            bk_rng_block(word, key, (uint64_t)ctx, 0, (uint32_t)(c / 4));
            row[c] = exp(m->options.sharpness * bk_rng_unit(word[c % 4]));
            sum += row[c];
        }
        for (int64_t c = 0; c < V; c++) row[c] /= sum;
    }
}

/* The context after token c. */
static int64_t follow(const bk_markov *m, int64_t ctx, int64_t c)
{
    const int64_t V = m->options.n_symbols;
    return (ctx * V + c) % m->n_contexts;
}

/* Power iteration on the contexts, from the uniform distribution. */
static bk_status find_stationary(bk_markov *m, bk_err *e)
{
    const int64_t V = m->options.n_symbols, n = m->n_contexts;
    double *next = malloc((size_t)n * sizeof *next), change = 1;
    if (!next) return bk_err_set(e, BK_E_MEM, "no memory for a Markov chain of %" PRId64 " contexts", n);
    for (int64_t i = 0; i < n; i++) m->stationary[i] = 1.0 / (double)n;
    /* A step's rounding moves about 1e-16 in all. */
    for (int step = 0; step < 10000 && change > 1e-15; step++) {
        double sum = 0;
        memset(next, 0, (size_t)n * sizeof *next);
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < V; c++) next[follow(m, i, c)] += m->stationary[i] * m->p[i * V + c];
        for (int64_t i = 0; i < n; i++) sum += next[i];
        change = 0;
        for (int64_t i = 0; i < n; i++) {
            next[i] /= sum;
            change += fabs(next[i] - m->stationary[i]);
        }
        memcpy(m->stationary, next, (size_t)n * sizeof *next);
    }
    free(next);
    /* Where rounding goes round in a cycle, it does so far below this. */
    if (change <= 1e-12) return BK_OK;
    return bk_err_set(e, BK_E_CHECK,
                      "the Markov chain of seed %" PRIu64
                      " does not settle in 10,000 steps; lower its sharpness",
                      m->options.seed);
}

static double row_entropy(const double *p, int64_t n)
{
    double h = 0;
    for (int64_t i = 0; i < n; i++)
        if (p[i] > 0) h -= p[i] * log(p[i]);
    return h;
}

static double chain_entropy(const bk_markov *m)
{
    const int64_t V = m->options.n_symbols;
    double h = 0;
    for (int64_t i = 0; i < m->n_contexts; i++) h += m->stationary[i] * row_entropy(m->p + i * V, V);
    return h;
}

/* Contexts that agree in their latest order - 1 tokens are one: their rows are averaged, weighted by how
 * often each context comes. `row` has room for V numbers. */
static double lower_entropy(const bk_markov *m, double *row)
{
    const int64_t V = m->options.n_symbols, n_lower = m->n_contexts / V;
    double h = 0;
    for (int64_t low = 0; low < n_lower; low++) {
        double weight = 0;
        memset(row, 0, (size_t)V * sizeof *row);
        for (int64_t ctx = low; ctx < m->n_contexts; ctx += n_lower) {
            weight += m->stationary[ctx];
            for (int64_t c = 0; c < V; c++) row[c] += m->stationary[ctx] * m->p[ctx * V + c];
        }
        if (weight <= 0) continue;
        for (int64_t c = 0; c < V; c++) row[c] /= weight;
        h += weight * row_entropy(row, V);
    }
    return h;
}

bk_status bk_markov_make(bk_markov *out, const bk_markov_options *options, bk_err *e)
{
    bk_markov m = {.options = *options};
    double *row = NULL;
    bk_status st = BK_OK;
    BK_TRY(check_options(options, e));
    m.n_contexts = options->order == 1 ? options->n_symbols : options->n_symbols * options->n_symbols;
    m.p = malloc((size_t)(m.n_contexts * options->n_symbols) * sizeof *m.p);
    m.stationary = malloc((size_t)m.n_contexts * sizeof *m.stationary);
    row = malloc((size_t)options->n_symbols * sizeof *row);
    if (!m.p || !m.stationary || !row) {
        st = bk_err_set(e, BK_E_MEM, "no memory for a Markov chain of %" PRId64 " contexts", m.n_contexts);
        goto done;
    }
    draw_tables(&m);
    BK_TRY(find_stationary(&m, e));
    m.entropy = chain_entropy(&m);
    m.lower_entropy = lower_entropy(&m, row);
    *out = m;
    m = (bk_markov){0};
done:
    free(row);
    bk_markov_free(&m);
    return st;
}

void bk_markov_free(bk_markov *m)
{
    free(m->p);
    free(m->stationary);
    *m = (bk_markov){0};
}

/* The index whose share of [0, 1) holds u; rounding leaves a rest for the last. */
static int64_t pick(const double *p, int64_t n, double u)
{
    int64_t i = 0;
    for (double upto = p[0]; u >= upto && i < n - 1; upto += p[i]) i++;
    return i;
}

void bk_markov_draw(uint16_t *tokens, const bk_markov *m, int64_t n)
{
    const int64_t V = m->options.n_symbols;
    const bk_rng_key key = bk_rng_key_make(m->options.seed, BK_RNG_DATA, TOKENS, 0);
    uint32_t word[4];
    bk_rng_block(word, key, 0, 1, 0);
    int64_t ctx = pick(m->stationary, m->n_contexts, bk_rng_unit(word[0])); /* of the first `order` tokens */
    for (int64_t t = 0; t < n; t++) {
        int64_t token = m->options.order == 2 && t == 0 ? ctx / V : ctx % V;
        if (t >= m->options.order) {
            bk_rng_block(word, key, (uint64_t)t, 0, 0);
            token = pick(m->p + ctx * V, V, bk_rng_unit(word[0]));
            ctx = follow(m, ctx, token);
        }
        tokens[t] = (uint16_t)token;
    }
}
