/* What `birkhoff check` found: a row for each thing that was compared, as lines that people read. */
#ifndef BK_TRAIN_CHECK_REPORT_H
#define BK_TRAIN_CHECK_REPORT_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

typedef struct {
    const char *name;
    double error;     /* relative; NaN where nothing could be computed */
    double tolerance; /* relative, of this row; NaN where there is none */
    bool ok;
    const char *note; /* why the row is out of the ordinary; or NULL */
} bk_check_row;

/* {0} is the empty report. */
typedef struct {
    bk_arena arena; /* owns the names */
    bk_check_row *row;
    int64_t n_rows, cap_rows;
    int64_t n_failed;
} bk_check_report;

/* Appends a row; name and note are copied. */
bk_status bk_check_report_add(bk_check_report *r, const bk_check_row *row, bk_err *e);

/* The row of a name, or NULL. Borrowed until the next row is added. */
const bk_check_row *bk_check_report_find(const bk_check_report *r, const char *name);

/* A header, the rows in aligned columns, and the verdict. */
void bk_check_report_print(bk_str *out, const bk_check_report *r);

void bk_check_report_free(bk_check_report *r); /* {0} is fine */

#endif
