#include "train/check_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

bk_status bk_check_report_add(bk_check_report *r, const bk_check_row *row, bk_err *e)
{
    bk_check_row own = *row;
    own.name = bk_arena_strdup(&r->arena, row->name);
    own.note = row->note ? bk_arena_strdup(&r->arena, row->note) : NULL;
    bk_status st = BK_E_MEM;
    if (own.name && (own.note || !row->note)) BK_VEC_PUSH(st, r->row, r->n_rows, r->cap_rows, own);
    if (st != BK_OK) return bk_err_set(e, st, "check: out of memory for the report");
    r->n_failed += !own.ok;
    return BK_OK;
}

const bk_check_row *bk_check_report_find(const bk_check_report *r, const char *name)
{
    for (int64_t k = 0; k < r->n_rows; k++)
        if (strcmp(r->row[k].name, name) == 0) return &r->row[k];
    return NULL;
}

static void append_number(bk_str *out, double x)
{
    if (isnan(x))
        bk_str_append(out, "        -");
    else
        bk_str_appendf(out, "%9.1e", x);
}

void bk_check_report_print(bk_str *out, const bk_check_report *r)
{
    int width = 8;
    for (int64_t k = 0; k < r->n_rows; k++) {
        const int len = (int)strlen(r->row[k].name);
        if (len > width) width = len;
    }
    bk_str_appendf(out, "%-*s     error  allowed\n", width, "compared");
    for (int64_t k = 0; k < r->n_rows; k++) {
        const bk_check_row *row = &r->row[k];
        bk_str_appendf(out, "%-*s ", width, row->name);
        append_number(out, row->error);
        append_number(out, row->tolerance);
        bk_str_appendf(out, "  %s%s%s\n", row->ok ? "ok" : "FAIL", row->note ? "  " : "",
                       row->note ? row->note : "");
    }
    if (r->n_rows == 0)
        bk_str_append(out, "nothing was compared\n");
    else if (r->n_failed == 0)
        bk_str_appendf(out, "passed: %" PRId64 " of %" PRId64 "\n", r->n_rows, r->n_rows);
    else
        bk_str_appendf(out, "FAILED: %" PRId64 " of %" PRId64 "\n", r->n_failed, r->n_rows);
}

void bk_check_report_free(bk_check_report *r)
{
    free(r->row);
    bk_arena_free(&r->arena);
    *r = (bk_check_report){0};
}
