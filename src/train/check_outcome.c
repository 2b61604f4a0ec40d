#include "train/check_outcome.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

static bk_status append(bk_outcome *o, bk_outcome_row *row, bk_err *e)
{
    bk_status st = BK_E_MEM;
    if (row && row->name) BK_VEC_PUSH(st, o->row, o->n_rows, o->cap_rows, row);
    return st == BK_OK ? st : bk_err_set(e, st, "check: out of memory for what is compared");
}

bk_status bk_outcome_add(bk_outcome_row **out, bk_outcome *o, bk_outcome_class class_, int rank,
                         const int64_t *shape, bk_err *e, const char *name, ...)
{
    assert(rank <= BK_OUTCOME_MAX_RANK);
    bk_outcome_row *row = bk_arena_alloc(&o->arena, 1, sizeof *row);
    if (!row) return append(o, NULL, e);
    va_list ap;
    va_start(ap, name);
    *row = (bk_outcome_row){
        .name = bk_arena_vprintf(&o->arena, name, ap), .class_ = class_, .rank = rank, .n = 1};
    va_end(ap);
    for (int d = 0; d < rank; d++) row->shape[d] = shape[d], row->n *= shape[d];
    row->data = bk_arena_alloc(&o->arena, row->n, sizeof *row->data);
    if (!row->data) row->name = NULL;
    const bk_status st = append(o, row, e);
    if (st == BK_OK) *out = row;
    return st;
}

bk_status bk_outcome_add_input(bk_outcome *o, const char *name, bk_err *e)
{
    bk_outcome_row *row = bk_arena_alloc(&o->arena, 1, sizeof *row);
    if (row) *row = (bk_outcome_row){.name = bk_arena_strdup(&o->arena, name), .class_ = BK_OUTCOME_INPUT};
    return append(o, row, e);
}

const bk_outcome_row *bk_outcome_find(const bk_outcome *o, const char *name)
{
    for (int64_t k = 0; k < o->n_rows; k++)
        if (strcmp(o->row[k]->name, name) == 0) return o->row[k];
    return NULL;
}

void bk_outcome_free(bk_outcome *o)
{
    free(o->row);
    bk_arena_free(&o->arena);
    *o = (bk_outcome){0};
}
