/* Makes regions: what the schedule orders. */
#include <stdlib.h>

#include "base/vec.h"
#include "passes/passes.h"

static bool same_region(const bk_region *r, const bk_op *op, bk_tag tag, bool epilogue)
{
    return r->tag.module == tag.module && r->tag.node == tag.node && r->tag.pass == tag.pass &&
           r->tag.layer == tag.layer && r->scope == op->scope && r->lane == op->lane &&
           r->epilogue == epilogue;
}

/* For each op of scope step: does it depend on anything that a micro-batch writes? */
static void find_epilogue(bool *epilogue, bool *late_value, const bk_graph *g)
{
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        if (op->scope != BK_MICRO) continue;
        for (int k = 0; k < op->n_upd; k++) late_value[bk_root(g, bk_upds(g, op)[k])] = true;
    }
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        if (op->scope == BK_MICRO) continue;
        for (int k = 0; k < op->n_in && !epilogue[o]; k++)
            epilogue[o] = bk_ins(g, op)[k] != BK_NONE && late_value[bk_root(g, bk_ins(g, op)[k])];
        for (int k = 0; k < op->n_out && epilogue[o]; k++) late_value[bk_root(g, bk_outs(g, op)[k])] = true;
        for (int k = 0; k < op->n_upd && epilogue[o]; k++) late_value[bk_root(g, bk_upds(g, op)[k])] = true;
    }
}

/* The region of each op; new regions in the order of their first ops. */
static bk_status assign_regions(bk_rid *of, bk_graph *g, const bool *epilogue, bk_err *e)
{
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        bk_tag tag = op->tag;
        if (tag.pass == BK_PASS_WGRAD) tag.pass = BK_PASS_BACKWARD; /* weight gradients run with their node */
        of[o] = BK_NONE;
        for (int64_t r = g->n_regions - 1; r >= 0 && of[o] == BK_NONE; r--)
            if (same_region(&g->region[r], op, tag, epilogue[o])) of[o] = (bk_rid)r;
        if (of[o] != BK_NONE) continue;
        bk_status st;
        const bk_region fresh = {.tag = tag, .scope = op->scope, .lane = op->lane, .epilogue = epilogue[o]};
        BK_VEC_PUSH(st, g->region, g->n_regions, g->cap_regions, fresh);
        if (st != BK_OK) return bk_err_set(e, st, "partition: out of memory");
        of[o] = (bk_rid)(g->n_regions - 1);
    }
    return BK_OK;
}

bk_status bk_pass_partition(bk_graph *g, bk_err *e)
{
    const size_t no = (size_t)g->n_ops + 1, nv = (size_t)g->n_values + 1;
    bool *epilogue = calloc(no, 1), *late = calloc(nv, 1);
    bk_rid *of = malloc(no * sizeof *of);
    bk_status st = epilogue && late && of ? BK_OK : bk_err_set(e, BK_E_MEM, "partition: out of memory");
    if (st != BK_OK) goto done;
    g->n_regions = g->n_region_ops = 0;
    find_epilogue(epilogue, late, g);
    BK_TRY(assign_regions(of, g, epilogue, e));
    st = bk_vec_grow(&g->region_op, &g->cap_region_ops, 0, g->n_ops, sizeof *g->region_op);
    if (st != BK_OK) {
        bk_err_set(e, st, "partition: out of memory");
        goto done;
    }
    for (int64_t r = 0; r < g->n_regions; r++) {
        g->region[r].first = (int32_t)g->n_region_ops;
        for (int64_t o = 0; o < g->n_ops; o++)
            if (of[o] == r) g->region_op[g->n_region_ops++] = (bk_oid)o;
        g->region[r].n_ops = (int32_t)g->n_region_ops - g->region[r].first;
    }
done:
    free(epilogue), free(late), free(of);
    return st;
}
