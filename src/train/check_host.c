#include "train/check_host.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/element.h"

void bk_check_host_feed(bk_check_host *h, const char *name, const double *data)
{
    assert(h->n_feeds < BK_CHECK_MAX_FEEDS);
    h->feed[h->n_feeds++] = (bk_check_feed){name, data};
}

bk_status bk_check_host_tap(bk_check_host *h, bk_vid v, double *data, bk_err *e)
{
    bk_status st;
    BK_VEC_PUSH(st, h->tap, h->n_taps, h->cap_taps, (bk_check_tap){v, data});
    return st == BK_OK ? st : bk_err_set(e, st, "check: out of memory");
}

bk_status bk_check_host_keep(bk_check_host *h, bk_outcome *o, bk_vid v, bk_outcome_class class_,
                             const char *name, bk_err *e)
{
    const bk_value *value = &h->g->value[v];
    int64_t shape[BK_MAX_DIMS];
    bk_outcome_row *row;
    for (int d = 0; d < value->rank; d++) shape[d] = value->dim[d].size;
    const bk_status st = bk_outcome_add(&row, o, class_, value->rank, shape, e, "%s", name);
    return st == BK_OK ? bk_check_host_tap(h, v, row->data, e) : st;
}

void bk_check_host_free(bk_check_host *h)
{
    free(h->tap);
    *h = (bk_check_host){0};
}

static int64_t start(const bk_value *v, int64_t micro)
{
    return micro == BK_NONE ? 0 : micro * bk_elements(v);
}

static bk_status feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const bk_check_host *h = ctx;
    for (int k = 0; k < h->n_feeds; k++) {
        if (strcmp(h->feed[k].name, v->name) != 0) continue;
        bk_elements_store(dst, v->dtype, h->feed[k].data + start(v, micro), bk_elements(v));
        return BK_OK;
    }
    return bk_err_set(e, BK_E_CHECK, "check: the program asks for the input %s, which check does not have",
                      v->name);
}

static bk_status fetch(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    (void)e;
    const bk_check_host *h = ctx;
    const bk_vid id = (bk_vid)(v - h->g->value);
    for (int64_t k = 0; k < h->n_taps; k++)
        if (h->tap[k].v == id)
            bk_elements_load(h->tap[k].data + start(v, micro), v->dtype, src, bk_elements(v));
    return BK_OK;
}

bk_host bk_check_host_of(bk_check_host *h)
{
    return (bk_host){.ctx = h, .feed = feed, .fetch = fetch};
}

bk_vid bk_check_probe(const bk_graph *g, int k)
{
    for (int64_t o = 0; o < g->n_ops; o++)
        if (g->op[o].kind == BK_OP_fetch && g->op[o].scope == BK_MICRO && k-- == 0)
            return bk_ins(g, &g->op[o])[0];
    return BK_NONE;
}
