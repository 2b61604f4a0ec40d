#include "train/against_file.h"

#include <inttypes.h>
#include <string.h>

#include "ir/element.h"
#include "train/check_host.h"
#include "train/compare.h"

static bk_status find(const bk_st_tensor **out, const bk_st *file, const char *name, int rank,
                      const int64_t *shape, bk_err *e)
{
    const bk_st_tensor *t = *out = bk_st_find(file, name);
    char found[BK_SHAPE_LEN], wanted[BK_SHAPE_LEN];
    if (!t)
        return bk_err_set(e, BK_E_INPUT, "tensor %.200s is missing; its shape would be %s", name,
                          bk_shape_text(wanted, rank, shape));
    bool same = t->rank == rank;
    for (int d = 0; same && d < rank; d++) same = t->shape[d] == shape[d];
    if (same) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "tensor %.200s has shape %s, and the configuration asks for %s", name,
                      bk_shape_text(found, t->rank, t->shape), bk_shape_text(wanted, rank, shape));
}

static void read_ints(double *out, const bk_st_tensor *t)
{
    const size_t size = (size_t)bk_st_dtype_size(t->dtype);
    const int64_t n = bk_st_n_elems(t);
    for (int64_t k = 0; k < n; k++) {
        int32_t narrow = 0;
        int64_t wide = 0;
        const char *at = (const char *)t->data + (size_t)k * size; /* aligned to nothing */
        if (t->dtype == BK_ST_I32)
            memcpy(&narrow, at, size), wide = narrow;
        else
            memcpy(&wide, at, size);
        out[k] = (double)wide;
    }
}

bk_status bk_against_read(double **out, bk_outcome *o, const bk_st *file, const char *name, int rank,
                          const int64_t *shape, bk_err *e)
{
    const bk_st_tensor *t;
    bk_status st = find(&t, file, name, rank, shape, e);
    if (st != BK_OK) return st;
    *out = bk_arena_alloc(&o->arena, bk_st_n_elems(t), sizeof **out);
    if (!*out) return bk_err_set(e, BK_E_MEM, "check: out of memory for tensor %.200s", name);
    if (t->dtype == BK_ST_I32 || t->dtype == BK_ST_I64)
        read_ints(*out, t);
    else
        st = bk_st_to_f64(*out, t, e);
    return st == BK_OK ? bk_outcome_add_input(o, name, e) : st;
}

bk_status bk_against_load(bk_exec *x, const bk_plan *p, bk_pid param, bk_outcome *o, const bk_st *file,
                          const char *name, bk_err *e)
{
    const bk_param *row = &p->g->param[param];
    const bk_value *v = &p->g->value[row->value];
    double *data;
    const bk_status st = bk_against_read(&data, o, file, name, row->rank, row->shape, e);
    if (st == BK_OK) bk_elements_store(bk_exec_value(x, p, row->value), v->dtype, data, bk_elements(v));
    return st;
}

bk_status bk_against_no_other_params(const bk_outcome *o, const bk_st *file, bk_err *e)
{
    for (int64_t k = 0; k < bk_st_count(file); k++) {
        const bk_st_tensor *t = bk_st_at(file, k);
        if (strncmp(t->name, "param.", 6) == 0 && !bk_outcome_find(o, t->name))
            return bk_err_set(e, BK_E_INPUT, "tensor %.200s: the configured model has no such parameter",
                              t->name);
    }
    return BK_OK;
}
