#include "train/against_rope.h"

#include <inttypes.h>
#include <string.h>

#include "train/compare.h"

const char *const bk_against_rope_probes[BK_AGAINST_ROPE_PROBES] = {"rope.cos", "rope.sin"};

/* 0 for cosines, 1 for sines, -1 for other tensors. */
static int table_of(const bk_st_tensor *t)
{
    static const char *const suffix[BK_AGAINST_ROPE_PROBES] = {".self_attention.rotary_pos_emb.cos_cached",
                                                               ".self_attention.rotary_pos_emb.sin_cached"};
    const size_t n = strlen(t->name);
    for (int k = 0; k < BK_AGAINST_ROPE_PROBES; k++) {
        const size_t end = strlen(suffix[k]);
        if (n > end && strcmp(t->name + n - end, suffix[k]) == 0) return k;
    }
    return -1;
}

bool bk_against_has_rope(const bk_st *file, const bk_config *c)
{
    bool any = false;
    for (int64_t k = 0; k < bk_st_count(file); k++) any = any || table_of(bk_st_at(file, k)) >= 0;
    return any && c->multi_latent_attention;
}

bk_status bk_against_rope_tap(bk_against_rope *out, bk_check_host *h, bk_outcome *o, bk_err *e)
{
    const bk_graph *g = h->g;
    bk_oid id = 0;
    while (g->op[id].kind != BK_OP_rope_table && g->op[id].kind != BK_OP_yarn_table) id++;
    bk_status st = BK_OK;
    for (int k = 0; k < BK_AGAINST_ROPE_PROBES && st == BK_OK; k++) {
        const bk_vid v = bk_outs(g, &g->op[id])[k];
        out->n_positions = g->value[v].dim[0].size, out->n_angles = g->value[v].dim[1].size;
        out->table[k] = bk_arena_alloc(&o->arena, bk_elements(&g->value[v]), sizeof *out->table[k]);
        st = out->table[k] ? bk_check_host_tap(h, v, out->table[k], e)
                           : bk_err_set(e, BK_E_MEM, "check: out of memory for the rope tables");
    }
    return st;
}

static bk_status keep(bk_outcome *o, const bk_against_rope *r, const bk_st_tensor *t, bk_err *e)
{
    const double *table = r->table[table_of(t)];
    const int64_t d = 2 * r->n_angles;
    char found[BK_SHAPE_LEN];
    if (t->rank != 4 || t->shape[0] > r->n_positions || t->shape[1] != 1 || t->shape[2] != 1 ||
        t->shape[3] != d)
        return bk_err_set(e, BK_E_INPUT,
                          "tensor %.200s has shape %s, and the model has a table of %" PRId64
                          " positions and %" PRId64 " dims",
                          t->name, bk_shape_text(found, t->rank, t->shape), r->n_positions, d);
    bk_outcome_row *row;
    const bk_status st = bk_outcome_add(&row, o, BK_OUTCOME_ACTIVATION, t->rank, t->shape, e, "%s", t->name);
    for (int64_t i = 0; st == BK_OK && i < row->n; i++)
        row->data[i] = table[i / d * r->n_angles + i % r->n_angles];
    return st;
}

bk_status bk_against_rope_keep(bk_outcome *o, const bk_against_rope *r, const bk_st *file, bk_err *e)
{
    bk_status st = BK_OK;
    for (int64_t k = 0; k < bk_st_count(file) && st == BK_OK; k++)
        if (table_of(bk_st_at(file, k)) >= 0) st = keep(o, r, bk_st_at(file, k), e);
    return st;
}
