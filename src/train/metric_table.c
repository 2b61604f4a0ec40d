#include "train/metric_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/element.h"
#include "model/model.h"

static bk_metric *find(const bk_metric_table *t, const char *name)
{
    for (int64_t k = 0; k < t->n; k++)
        if (strcmp(t->row[k].name, name) == 0) return &t->row[k];
    return NULL;
}

const bk_metric *bk_metric_find(const bk_metric_table *t, const char *name)
{
    return find(t, name);
}

bool bk_metric_is_scalar(const bk_metric *m)
{
    const char *ignored;
    return m->n == 1 && !bk_metric_part(&ignored, m->name);
}

static bk_status add_row(bk_metric **out, bk_metric_table *t, const char *name, int64_t n)
{
    bk_status st;
    const bk_metric row = {.name = strdup(name), .n = n, .x = calloc((size_t)n, sizeof *row.x)};
    st = row.name && row.x ? BK_OK : BK_E_MEM;
    if (st == BK_OK) BK_VEC_PUSH(st, t->row, t->n, t->cap, row);
    if (st != BK_OK) free(row.name), free(row.x);
    *out = st == BK_OK ? &t->row[t->n - 1] : NULL;
    return st;
}

bk_status bk_metric_put(bk_metric_table *t, const char *name, const bk_value *v, const void *src,
                        double scale, bk_err *e)
{
    bk_metric *row = find(t, name);
    const bk_status st = row ? BK_OK : add_row(&row, t, name, bk_elements(v));
    if (st != BK_OK) return bk_err_set(e, st, "metrics: out of memory");
    bk_elements_load(row->x, v->dtype, src, row->n);
    for (int64_t k = 0; k < row->n; k++) row->x[k] *= scale;
    return BK_OK;
}

void bk_metric_table_free(bk_metric_table *t)
{
    for (int64_t k = 0; k < t->n; k++) free(t->row[k].name), free(t->row[k].x);
    free(t->row);
    *t = (bk_metric_table){0};
}
