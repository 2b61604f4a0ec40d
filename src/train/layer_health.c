#include "train/layer_health.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "model/model.h"

/* The layer of a metric whose part begins at `part`, behind a dot; NULL without memory. */
static bk_layer_health *layer_of(bk_health *h, const char *name, const char *part)
{
    bk_layer_health fresh = {0};
    bk_status st;
    assert(part > name && part - name <= BK_LAYER_NAME_LEN);
    memcpy(fresh.name, name, (size_t)(part - name - 1));
    for (int64_t k = 0; k < h->n; k++)
        if (strcmp(h->row[k].name, fresh.name) == 0) return &h->row[k];
    BK_VEC_PUSH(st, h->row, h->n, h->cap, fresh);
    return st == BK_OK ? &h->row[h->n - 1] : NULL;
}

static void take_counts(bk_expert_health *x, const bk_metric *counts)
{
    x->n = counts->n;
    for (int64_t k = 0; k < counts->n; k++) {
        const int64_t n = (int64_t)counts->x[k];
        if (k == 0 || n < x->least) x->least = n;
        if (k == 0 || n > x->most) x->most = n;
        x->dead += n == 0;
        x->tokens += n;
    }
}

static void take_router(bk_expert_health *x, const char *what, const bk_metric *m)
{
    if (strcmp(what, BK_METRIC_TOKENS) == 0) {
        take_counts(x, m);
    } else {
        assert(m->n == 1 && x->n_losses < BK_MAX_ROUTER_LOSSES);
        x->loss[x->n_losses].name = what;
        x->loss[x->n_losses++].value = m->x[0];
    }
}

static void take_hc(bk_hc_health *x, const char *what, const bk_metric *m)
{
    if (strcmp(what, BK_METRIC_WORST) == 0) {
        x->row_error = m->x[0], x->column_error = m->x[1];
    } else {
        assert(strcmp(what, BK_METRIC_HEALTH) == 0 && m->n > 2);
        x->from_identity = m->x[0], x->from_uniform = m->x[1];
        x->stream_norm = m->x + 2, x->n_streams = m->n - 2;
    }
}

bk_status bk_health_read(bk_health *out, const bk_metric_table *t, bk_err *e)
{
    bk_health h = {0};
    for (int64_t k = 0; k < t->n; k++) {
        const bk_metric *m = &t->row[k];
        const char *what, *part = bk_metric_part(&what, m->name);
        if (!part) continue;
        bk_layer_health *layer = layer_of(&h, m->name, part);
        if (!layer) {
            bk_health_free(&h);
            return bk_err_set(e, BK_E_MEM, "metrics: out of memory");
        }
        if (strncmp(part, BK_PART_ROUTER, strlen(BK_PART_ROUTER)) == 0)
            take_router(&layer->experts, what, m);
        else if (strncmp(part, BK_PART_MLP_HC, strlen(BK_PART_MLP_HC)) == 0)
            take_hc(&layer->mlp, what, m);
        else
            take_hc(&layer->attention, what, m);
    }
    *out = h;
    return BK_OK;
}

void bk_health_free(bk_health *h)
{
    free(h->row);
    *h = (bk_health){0};
}
