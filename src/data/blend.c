#include "data/blend.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/machine.h"
#include "base/size.h"

/* A number that fills the whole word. */
static bool read_number(double *out, const char *word)
{
    char *end;
    *out = strtod(word, &end);
    return end != word && *end == '\0';
}

static bk_status check_weights(double *weights, const char *const *words, int n, bk_err *e)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(weights[i]) || weights[i] < 0)
            return bk_err_set(e, BK_E_INPUT, "data_path: weight '%.100s' must be a number of 0 or more",
                              words[2 * i]);
        sum += weights[i];
    }
    if (!(sum > 0) || !isfinite(sum))
        return bk_err_set(e, BK_E_INPUT, "data_path: the weights sum to %g, expected more than 0", sum);
    for (int i = 0; i < n; i++) weights[i] /= sum;
    return BK_OK;
}

bk_status bk_blend_parse(bk_blend_paths *out, const char *const *words, int64_t n_words, bk_err *e)
{
    bk_blend_paths p = {0};
    bk_status st = BK_OK;
    int n_numbers = 0;
    if (n_words < 1 || n_words > INT32_MAX)
        return bk_err_set(e, BK_E_INPUT,
                          "data_path: %" PRId64 " words, expected paths, or a weight before each path",
                          n_words);
    p.paths = calloc((size_t)n_words, sizeof *p.paths);
    p.weights = calloc((size_t)n_words, sizeof *p.weights);
    if (!p.paths || !p.weights) {
        st = bk_err_set(e, BK_E_MEM, "data_path: out of memory");
        goto done;
    }
    if (n_words % 2 == 0)
        for (int64_t i = 0; i < n_words; i += 2) n_numbers += read_number(&p.weights[i / 2], words[i]);
    if (n_numbers > 0 && n_numbers < n_words / 2) {
        st = bk_err_set(e, BK_E_INPUT,
                        "data_path: %d of %" PRId64 " paths have a weight; give all of them one, or none",
                        n_numbers, n_words / 2);
        goto done;
    }
    p.n = (int)(n_numbers > 0 ? n_words / 2 : n_words);
    for (int i = 0; i < p.n; i++) p.paths[i] = words[n_numbers > 0 ? 2 * i + 1 : i];
    if (n_numbers > 0) {
        BK_TRY(check_weights(p.weights, words, p.n, e));
    } else {
        free(p.weights);
        p.weights = NULL;
    }
    *out = p;
    p = (bk_blend_paths){0};
done:
    bk_blend_paths_free(&p);
    return st;
}

void bk_blend_paths_free(bk_blend_paths *p)
{
    free(p->paths);
    free(p->weights);
    *p = (bk_blend_paths){0};
}

/* ceil(n * weight), for the total; not above what double can count exactly. */
static int64_t target(int64_t n_samples, double weight)
{
    return (int64_t)ceil((double)n_samples * weight);
}

int64_t bk_blend_share(int64_t n_samples, double weight)
{
    return (int64_t)ceil((double)target(n_samples, weight) * 1.005);
}

/* Copies the sources, makes room for n samples and the counts `used`. */
static bk_status prepare(bk_blend *b, int64_t **used, const bk_source *sources, int n_sources, int64_t n,
                         bk_err *e)
{
    int64_t bytes;
    *b = (bk_blend){.n_sources = n_sources, .n_samples = n};
    if (n_sources < 1 || n < 1)
        return bk_err_set(e, BK_E_INPUT, "a blend of %d data sets and %" PRId64 " samples is empty",
                          n_sources, n);
    b->sources = calloc((size_t)n_sources, sizeof *b->sources);
    *used = calloc((size_t)n_sources, sizeof **used);
    const int64_t each = (int64_t)(sizeof *b->index + sizeof *b->which);
    if (bk_mul64(&bytes, n, each) && bytes < bk_available_memory()) {
        b->index = malloc((size_t)n * sizeof *b->index);
        b->which = malloc((size_t)n * sizeof *b->which);
    }
    if (!b->sources || !*used || !b->index || !b->which)
        return bk_err_set(e, BK_E_MEM, "no memory to blend %" PRId64 " samples; train for fewer steps", n);
    for (int i = 0; i < n_sources; i++) b->sources[i] = sources[i];
    return BK_OK;
}

/* The next sample's source among those with used[i] < most[i] (most NULL: all). -1: none. */
static int choose(const double *weights, const int64_t *used, const int64_t *most, int n_sources, int64_t t)
{
    const double count = t > 1 ? (double)t : 1.0;
    int best = -1;
    double best_lack = 0;
    for (int i = 0; i < n_sources; i++) {
        /* volatile: rounded before the subtraction, as the reference does it. A fused multiply-add would
         * break ties by the product's rounding error, and order the data by the kind of processor. */
        const volatile double due = weights[i] * count;
        const double lack = due - (double)used[i];
        if ((most && used[i] >= most[i]) || (best >= 0 && !(lack > best_lack))) continue;
        best = i, best_lack = lack;
    }
    return best;
}

static void assign(bk_blend *b, int64_t *used, const double *weights, const int64_t *most)
{
    for (int64_t t = 0; t < b->n_samples; t++) {
        const int i = choose(weights, used, most, b->n_sources, t);
        b->which[t] = i;
        b->index[t] = used[i]++;
    }
}

bk_status bk_blend_make(bk_blend *out, const bk_source *sources, const double *weights, int n_sources,
                        int64_t n_samples, bk_err *e)
{
    bk_blend b = {0};
    int64_t *used = NULL, n = 0;
    bk_status st = BK_OK;
    for (int i = 0; i < n_sources; i++) n += target(n_samples, weights[i]);
    BK_TRY(prepare(&b, &used, sources, n_sources, n, e));
    assign(&b, used, weights, NULL);
    for (int i = 0; i < n_sources; i++) {
        if (used[i] <= sources[i].n_samples) continue;
        st = bk_err_set(e, BK_E_INPUT,
                        "a blend of %" PRId64 " samples takes %" PRId64
                        " from data set %d, which has %" PRId64,
                        n, used[i], i, sources[i].n_samples);
        goto done;
    }
    *out = b;
    b = (bk_blend){0};
done:
    free(used);
    bk_blend_free(&b);
    return st;
}

bk_status bk_blend_make_exhaustive(bk_blend *out, const bk_source *sources, int n_sources, bk_err *e)
{
    bk_blend b = {0};
    int64_t *used = NULL, *most = calloc((size_t)n_sources + 1, sizeof *most), n = 0;
    double *weights = calloc((size_t)n_sources + 1, sizeof *weights);
    bk_status st = BK_OK;
    if (!most || !weights) {
        st = bk_err_set(e, BK_E_MEM, "no memory to blend %d data sets", n_sources);
        goto done;
    }
    for (int i = 0; i < n_sources; i++) {
        most[i] = sources[i].n_samples;
        if (most[i] == INT64_MAX || !bk_add64(&n, n, most[i])) {
            st = bk_err_set(e, BK_E_INPUT, "data set %d of the blend never ends: give weights", i);
            goto done;
        }
    }
    BK_TRY(prepare(&b, &used, sources, n_sources, n, e));
    for (int i = 0; i < n_sources; i++) weights[i] = (double)most[i] / (double)n;
    assign(&b, used, weights, most);
    *out = b;
    b = (bk_blend){0};
done:
    free(used);
    free(most);
    free(weights);
    bk_blend_free(&b);
    return st;
}

void bk_blend_free(bk_blend *b)
{
    free(b->sources);
    free(b->which);
    free(b->index);
    *b = (bk_blend){0};
}

static bk_status view_get(int32_t *tokens, int32_t *labels, float *mask, const void *ctx,
                          int64_t sample_number, bk_err *e)
{
    const bk_blend *b = ctx;
    if (sample_number < 0 || sample_number >= b->n_samples)
        return bk_err_set(e, BK_E_INPUT, "sample %" PRId64 " is asked for, but the blend has %" PRId64,
                          sample_number, b->n_samples);
    return bk_source_get(tokens, labels, mask, &b->sources[b->which[sample_number]], b->index[sample_number],
                         e);
}

bk_source bk_blend_source(const bk_blend *b)
{
    return (bk_source){.ctx = b, .n_samples = b->n_samples, .get = view_get};
}
