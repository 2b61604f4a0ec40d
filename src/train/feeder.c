#include "train/feeder.h"

#include <stdlib.h>
#include <string.h>

#include "ir/element.h"
#include "model/model.h"

static void put_real(void *dst, int64_t i, double x, bk_dtype dtype)
{
    bk_elements_store((char *)dst + i * bk_dtype_bytes(dtype), dtype, &x, 1);
}

/* The source gives tokens, labels and mask of a sample together; each input takes its own. */
static bk_status feed_samples(bk_feed *f, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const int64_t seq = f->seq;
    bk_status st = BK_OK;
    for (int64_t b = 0; st == BK_OK && b < f->micro_batch; b++) {
        const int64_t number = f->first_sample + micro * f->micro_batch + b;
        int32_t *row = (int32_t *)dst + b * seq;
        if (strcmp(v->name, "tokens") == 0)
            st = bk_source_get(row, NULL, NULL, &f->source, number, e);
        else if (strcmp(v->name, "labels") == 0)
            st = bk_source_get(NULL, row, NULL, &f->source, number, e);
        else {
            st = bk_source_get(NULL, NULL, f->mask, &f->source, number, e);
            for (int64_t s = 0; st == BK_OK && s < seq; s++)
                put_real(dst, b * seq + s, (double)f->mask[s], v->dtype);
        }
    }
    return st;
}

static bk_status feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    bk_feed *f = ctx;
    if (strcmp(v->name, "tokens") == 0 || strcmp(v->name, "labels") == 0 || strcmp(v->name, "loss_mask") == 0)
        return feed_samples(f, v, micro, dst, e);
    else if (strcmp(v->name, "samples") == 0)
        for (int64_t b = 0; b < f->micro_batch; b++)
            ((int64_t *)dst)[b] = f->first_sample + micro * f->micro_batch + b;
    else if (strcmp(v->name, "loss_seed") == 0)
        put_real(dst, 0, 1.0 / (double)f->n_micro, v->dtype);
    else if (strcmp(v->name, "learning_rate") == 0)
        *(double *)dst = f->learning_rate;
    else if (strcmp(v->name, "step") == 0)
        *(int64_t *)dst = f->step;
    else
        return bk_err_set(e, BK_E_CHECK, "train: nobody feeds the input %s", v->name);
    return BK_OK;
}

static bk_status fetch_metric(bk_feed *f, bk_metric_kind kind, const char *name, const bk_value *v,
                              const void *src, bk_err *e)
{
    const double scale = kind == BK_METRIC_MEAN ? 1 / (double)f->n_micro : 1;
    if (strcmp(name, "loss_sum") == 0)
        bk_elements_load(&f->loss_sum, v->dtype, src, 1);
    else if (strcmp(name, "n_tokens") == 0)
        bk_elements_load(&f->n_tokens, v->dtype, src, 1);
    else if (strcmp(name, "routed_excess") == 0)
        f->routed_excess = *(const int64_t *)src;
    else
        return bk_metric_put(f->metrics, name, v, src, scale, e);
    return BK_OK;
}

static bk_status fetch(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    (void)micro;
    bk_feed *f = ctx;
    bk_metric_kind kind;
    const char *metric = bk_metric_of(&kind, v->name);
    if (metric) return fetch_metric(f, kind, metric, v, src, e);
    if (strcmp(v->name, "grad_norm") != 0)
        return bk_err_set(e, BK_E_CHECK, "train: nobody takes the value %s", v->name);
    bk_elements_load(&f->grad_norm, v->dtype, src, 1);
    return BK_OK;
}

bk_host bk_feed_host(bk_feed *f)
{
    return (bk_host){.ctx = f, .feed = feed, .fetch = fetch};
}

void bk_feed_free(bk_feed *f)
{
    free(f->mask);
    bk_metric_table_free(&f->trained);
    bk_metric_table_free(&f->measured);
    *f = (bk_feed){0};
}
