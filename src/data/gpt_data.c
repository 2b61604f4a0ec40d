#include "data/gpt_data.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/size.h"
#include "data/blend.h"
#include "data/indexed.h"
#include "data/mock.h"

struct bk_gpt_data {
    int n_sets;
    bk_indexed **files; /* [n_sets]; NULL for mock data */
    bk_mock mock;
    bk_sequences *sets;                     /* [n_sets] */
    bk_sequence_range (*range)[BK_N_PARTS]; /* [n_sets] */
    bk_gpt_dataset *dataset[BK_N_PARTS];    /* [n_sets] */
    bk_blend blend[BK_N_PARTS];             /* used if n_sets > 1 */
    bk_source source[BK_N_PARTS];
};

static bk_status alloc_sets(bk_gpt_data *d, int n, bk_err *e)
{
    bool ok = true;
    d->n_sets = n;
    ok &= (d->files = calloc((size_t)n, sizeof *d->files)) != NULL;
    ok &= (d->sets = calloc((size_t)n, sizeof *d->sets)) != NULL;
    ok &= (d->range = calloc((size_t)n, sizeof *d->range)) != NULL;
    for (int part = 0; part < BK_N_PARTS; part++)
        ok &= (d->dataset[part] = calloc((size_t)n, sizeof *d->dataset[part])) != NULL;
    return ok ? BK_OK : bk_err_set(e, BK_E_MEM, "no memory for %d data sets", n);
}

static bk_status open_sets(bk_gpt_data *d, const bk_blend_paths *paths, const char *split, int32_t eod,
                           bk_err *e)
{
    bk_status st = alloc_sets(d, paths->n > 0 ? paths->n : 1, e);
    if (st != BK_OK) return st;
    if (paths->n == 0) {
        st = bk_mock_make(&d->mock, eod, e);
        if (st != BK_OK) return st;
        d->sets[0] = bk_mock_sequences(&d->mock);
        return bk_split_sequences(d->range[0], BK_MOCK_SPLIT, d->sets[0].n_sequences, e);
    }
    for (int i = 0; i < paths->n; i++) {
        st = bk_indexed_open(&d->files[i], paths->paths[i], e);
        if (st != BK_OK) return st;
        d->sets[i] = bk_indexed_sequences(d->files[i]);
        st = bk_split_sequences(d->range[i], split, d->sets[i].n_sequences, e);
        if (st != BK_OK) return st;
    }
    return BK_OK;
}

/* Makes set i of a part, anew if it was made before. */
static bk_status make_set(bk_gpt_data *d, bk_part part, int i, int64_t n_samples,
                          const bk_gpt_options *options, bk_err *e)
{
    bk_gpt_options o = *options;
    o.n_samples = n_samples;
    bk_gpt_dataset_free(&d->dataset[part][i]);
    return bk_gpt_dataset_make(&d->dataset[part][i], &d->sets[i], d->range[i][part], part, &o, e);
}

static bk_status blend_weighted(bk_gpt_data *d, bk_part part, const double *weights, int64_t wanted,
                                const bk_gpt_options *options, bk_source *views, bk_err *e)
{
    for (int i = 0; i < d->n_sets; i++) {
        const int64_t share = bk_blend_share(wanted, weights[i]);
        const bk_status st = make_set(d, part, i, share > 0 ? share : 1, options, e);
        if (st != BK_OK) return st;
        views[i] = bk_gpt_dataset_source(&d->dataset[part][i]);
    }
    return bk_blend_make(&d->blend[part], views, weights, d->n_sets, wanted, e);
}

/* Each sample once, or, if that is not enough, the sizes as weights. `weights` is scratch. */
static bk_status blend_by_size(bk_gpt_data *d, bk_part part, double *weights, int64_t wanted,
                               const bk_gpt_options *options, bk_source *views, bk_err *e)
{
    int64_t n = 0;
    for (int i = 0; i < d->n_sets; i++) {
        const bk_status st = make_set(d, part, i, 0, options, e);
        if (st != BK_OK) return st;
        views[i] = bk_gpt_dataset_source(&d->dataset[part][i]);
        if (!bk_add64(&n, n, views[i].n_samples))
            return bk_err_set(e, BK_E_INPUT, "more samples than 64 bits can count");
    }
    if (wanted <= n) return bk_blend_make_exhaustive(&d->blend[part], views, d->n_sets, e);
    for (int i = 0; i < d->n_sets; i++) weights[i] = (double)views[i].n_samples / (double)n;
    return blend_weighted(d, part, weights, wanted, options, views, e);
}

static bk_status make_part(bk_gpt_data *d, bk_part part, const double *weights, int64_t wanted,
                           const bk_gpt_options *options, bk_err *e)
{
    if (d->n_sets == 1) {
        const bk_status st = make_set(d, part, 0, wanted, options, e);
        if (st == BK_OK) d->source[part] = bk_gpt_dataset_source(&d->dataset[part][0]);
        return st;
    }
    bk_status st = BK_OK;
    bk_source *views = calloc((size_t)d->n_sets, sizeof *views);
    double *scratch = calloc((size_t)d->n_sets, sizeof *scratch);
    if (!views || !scratch)
        st = bk_err_set(e, BK_E_MEM, "no memory for %d data sets", d->n_sets);
    else if (weights)
        st = blend_weighted(d, part, weights, wanted, options, views, e);
    else
        st = blend_by_size(d, part, scratch, wanted, options, views, e);
    if (st == BK_OK) d->source[part] = bk_blend_source(&d->blend[part]);
    free(views);
    free(scratch);
    return st;
}

bk_status bk_gpt_data_open(bk_gpt_data **out, const char *const *words, int64_t n_words, const char *split,
                           const int64_t n_samples[BK_N_PARTS], const bk_gpt_options *options, bk_err *e)
{
    bk_blend_paths paths = {0};
    bk_status st = BK_OK;
    bk_gpt_data *d = calloc(1, sizeof *d);
    if (!d) return bk_err_set(e, BK_E_MEM, "no memory for the data sets");
    if (n_words > 0) BK_TRY(bk_blend_parse(&paths, words, n_words, e));
    BK_TRY(open_sets(d, &paths, split, options->eod, e));
    for (int part = 0; part < BK_N_PARTS; part++) {
        if (n_samples[part] == 0) continue;
        BK_TRY(make_part(d, (bk_part)part, paths.weights, n_samples[part], options, e));
    }
    *out = d, d = NULL;
done:
    bk_blend_paths_free(&paths);
    bk_gpt_data_close(d);
    return st;
}

void bk_gpt_data_close(bk_gpt_data *d)
{
    if (!d) return;
    for (int part = 0; part < BK_N_PARTS; part++) {
        for (int i = 0; d->dataset[part] && i < d->n_sets; i++) bk_gpt_dataset_free(&d->dataset[part][i]);
        free(d->dataset[part]);
        bk_blend_free(&d->blend[part]);
    }
    for (int i = 0; d->files && i < d->n_sets; i++) bk_indexed_free(d->files[i]);
    bk_mock_free(&d->mock);
    free(d->files);
    free(d->sets);
    free(d->range);
    free(d);
}

bk_source bk_gpt_data_source(const bk_gpt_data *d, bk_part part)
{
    return d->source[part];
}

int64_t bk_gpt_data_n_tokens(const bk_gpt_data *d)
{
    int64_t n = 0;
    for (int i = 0; i < d->n_sets; i++) {
        if (d->files[i]) {
            n += bk_indexed_n_tokens(d->files[i]);
            continue;
        }
        const bk_sequences *q = &d->sets[i];
        for (int64_t k = 0; k < q->n_sequences; k++) n += q->length(q->ctx, k);
    }
    return n;
}

int64_t bk_gpt_data_n_documents(const bk_gpt_data *d)
{
    int64_t n = 0;
    for (int i = 0; i < d->n_sets; i++)
        n += d->files[i] ? bk_indexed_n_documents(d->files[i]) : d->sets[i].n_sequences;
    return n;
}
