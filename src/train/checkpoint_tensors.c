#include "train/checkpoint_tensors.h"

#include <stdlib.h>
#include <string.h>

#define OPTIMIZER_PREFIX "optimizer.state."
#define MTP_PREFIX       "mtp." /* multi-token prediction exists in training alone */

static const struct {
    bk_dtype dtype;
    bk_st_dtype stored;
} dtypes[] = {{BK_F32, BK_ST_F32},
              {BK_F64, BK_ST_F64},
              {BK_BF16, BK_ST_BF16},
              {BK_I32, BK_ST_I32},
              {BK_I64, BK_ST_I64}};
_Static_assert(sizeof dtypes / sizeof *dtypes == BK_N_DTYPES, "every dtype can be stored");

bool bk_checkpoint_is_in(bk_checkpoint_part part, const char *name)
{
    return part == BK_CHECKPOINT_ALL || (strncmp(name, OPTIMIZER_PREFIX, strlen(OPTIMIZER_PREFIX)) != 0 &&
                                         strncmp(name, MTP_PREFIX, strlen(MTP_PREFIX)) != 0);
}

/* A state that belongs to a parameter is the optimizer's; others (a router's bias) are the model's. */
static bool is_moment(const bk_value *v)
{
    return v->kind == BK_STATE && v->param != BK_NONE;
}

static bool is_stored(const bk_value *v, bk_checkpoint_part part)
{
    if (v->scope != BK_RUN || v->base != BK_NONE) return false;
    if (v->kind == BK_PARAM) return true;
    if (v->kind != BK_STATE || strncmp(v->name, BK_CACHE, strlen(BK_CACHE)) == 0) return false;
    return part == BK_CHECKPOINT_ALL || !is_moment(v);
}

static const char *stored_name(bk_arena *a, const bk_value *v)
{
    return bk_arena_printf(a, "%s%s", is_moment(v) ? OPTIMIZER_PREFIX : "", v->name);
}

typedef struct {
    const char *name;
    bk_vid v;
} entry;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static bk_st_tensor tensor_of(const bk_value *v, const char *name, const void *data)
{
    bk_st_tensor t = {.name = name, .rank = v->rank, .bytes = bk_value_bytes(v), .data = data};
    for (int d = 0; d < v->rank; d++) t.shape[d] = v->dim[d].size;
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
        if (dtypes[k].dtype == v->dtype) t.dtype = dtypes[k].stored;
    return t;
}

bk_status bk_checkpoint_tensors_of(bk_checkpoint_tensors *out, const bk_session *s, bk_checkpoint_part part,
                                   bk_err *e)
{
    const bk_program *prog = &s->program[0];
    bk_checkpoint_tensors t = {0};
    entry *list = bk_arena_alloc(&t.arena, prog->g->n_values, sizeof *list);
    bool ok = list != NULL;
    for (bk_vid v = 0; ok && v < prog->g->n_values; v++) {
        if (!is_stored(&prog->g->value[v], part)) continue;
        list[t.n] = (entry){stored_name(&t.arena, &prog->g->value[v]), v};
        ok = list[t.n++].name != NULL;
    }
    t.tensor = bk_arena_alloc(&t.arena, t.n, sizeof *t.tensor);
    t.data = bk_arena_alloc(&t.arena, t.n, sizeof *t.data);
    if (!ok || !t.tensor || !t.data) {
        bk_arena_free(&t.arena);
        return bk_err_set(e, BK_E_MEM, "no memory for the list of a checkpoint's tensors");
    }
    qsort(list, (size_t)t.n, sizeof *list, by_name);
    for (int64_t i = 0; i < t.n; i++) {
        t.data[i] = bk_exec_value(s->exec, prog->p, list[i].v);
        t.tensor[i] = tensor_of(&prog->g->value[list[i].v], list[i].name, t.data[i]);
    }
    *out = t;
    return BK_OK;
}

void bk_checkpoint_tensors_free(bk_checkpoint_tensors *t)
{
    bk_arena_free(&t->arena);
    *t = (bk_checkpoint_tensors){0};
}
