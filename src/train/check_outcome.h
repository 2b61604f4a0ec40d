/* What a run of ours gave, under the names that reference files use, in double. */
#ifndef BK_TRAIN_CHECK_OUTCOME_H
#define BK_TRAIN_CHECK_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* Which tolerance applies (train/compare.c has the table). */
typedef enum {
    BK_OUTCOME_INPUT, /* read from the file: nothing to compare, and no data */
    BK_OUTCOME_LOSS,
    BK_OUTCOME_ACTIVATION,
    BK_OUTCOME_GRADIENT,
    BK_OUTCOME_COUNT,     /* whole numbers */
    BK_OUTCOME_OP_OUTPUT, /* of one operator alone */
    BK_OUTCOME_OP_GRADIENT,
    BK_OUTCOME_TRAIN_METRIC, /* one number for each step */
    BK_OUTCOME_TRAIN_PARAM,
    BK_N_OUTCOME_CLASSES
} bk_outcome_class;

enum { BK_OUTCOME_MAX_RANK = 5 };

typedef struct {
    const char *name;
    bk_outcome_class class_;
    int rank;
    int64_t shape[BK_OUTCOME_MAX_RANK];
    int64_t n; /* elements */
    double *data;
} bk_outcome_row;

/* {0} is empty. Rows do not move: their data may be written to from elsewhere while rows are added. */
typedef struct {
    bk_arena arena;
    bk_outcome_row **row;
    int64_t n_rows, cap_rows;
} bk_outcome;

/* Appends a row with data of zeros. `name` is printf's format. */
bk_status bk_outcome_add(bk_outcome_row **out, bk_outcome *o, bk_outcome_class class_, int rank,
                         const int64_t *shape, bk_err *e, const char *name, ...)
    __attribute__((format(printf, 7, 8)));

/* Says that the file's tensor of this name was read as an input. */
bk_status bk_outcome_add_input(bk_outcome *o, const char *name, bk_err *e);

/* NULL if there is none. */
const bk_outcome_row *bk_outcome_find(const bk_outcome *o, const char *name);

void bk_outcome_free(bk_outcome *o); /* {0} is fine */

#endif
