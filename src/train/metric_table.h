/* What a step hands over beside its loss and its gradient norm: rows of numbers with a name. */
#ifndef BK_TRAIN_METRIC_TABLE_H
#define BK_TRAIN_METRIC_TABLE_H

#include "ir/graph.h"

typedef struct {
    char *name;
    int64_t n;
    double *x; /* [n] */
} bk_metric;

/* {0} is empty. The table owns its rows; they stand in the order in which they came first. */
typedef struct {
    bk_metric *row;
    int64_t n, cap;
} bk_metric_table;

/* The elements of `v` (floating-point or integer), which stand at `src`, times `scale`, under `name`; they
 * take the place of what had that name. BK_E_MEM. */
bk_status bk_metric_put(bk_metric_table *t, const char *name, const bk_value *v, const void *src,
                        double scale, bk_err *e);

/* Whether the row is one number that is not of a single layer. */
bool bk_metric_is_scalar(const bk_metric *m);

/* The row of that name, or NULL. */
const bk_metric *bk_metric_find(const bk_metric_table *t, const char *name);

void bk_metric_table_free(bk_metric_table *t); /* {0} is fine; the table is empty afterwards */

#endif
