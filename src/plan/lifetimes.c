/* When each value is alive, and which values share a block because one is computed in place of the other. */
#include <stdlib.h>

#include "base/vec.h"
#include "plan/build.h"

/* Positions of ops. Every micro-batch of a chunk issues the same regions, so the first one gives the
 * timeline. */
static bk_status find_positions(bk_build *b, bk_err *e)
{
    const bk_graph *g = b->g;
    int64_t step_pos = 0, *chunk_pos = calloc((size_t)b->p->n_chunks + 1, sizeof *chunk_pos);
    bool micro_seen = false;
    if (!chunk_pos) return bk_err_set(e, BK_E_MEM, "plan: out of memory");
    for (int64_t o = 0; o < g->n_ops; o++) b->pos[o] = -1;
    for (int64_t i = 0; i < b->s->n_items; i++) {
        const bk_item *it = &b->s->item[i];
        const bk_region *r = &g->region[it->region];
        if (it->micro > 0) continue;
        if (it->micro == 0 && !micro_seen) b->micro_pos = step_pos++, micro_seen = true;
        for (int32_t k = 0; k < r->n_ops; k++) {
            const bk_oid o = g->region_op[r->first + k];
            b->pos[o] = it->micro == 0 ? chunk_pos[it->chunk]++ : step_pos++;
            b->chunk_of[o] = it->chunk;
        }
    }
    free(chunk_pos);
    return BK_OK;
}

static void touch(bk_life *l, int64_t pos)
{
    if (l->first < 0 || pos < l->first) l->first = pos;
    if (pos > l->last) l->last = pos;
}

static void find_lives(bk_build *b)
{
    const bk_graph *g = b->g;
    for (int64_t v = 0; v < g->n_values; v++) b->life[v] = (bk_life){-1, -1};
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        for (int32_t k = 0; k < bk_n_operands(op) && b->pos[o] >= 0; k++) {
            const bk_vid v = g->operand[op->first + k];
            if (v == BK_NONE) continue;
            const bk_vid root = bk_root(g, v);
            const bool collapsed = g->value[root].scope == BK_STEP && op->scope == BK_MICRO;
            touch(&b->life[root], collapsed ? b->micro_pos : b->pos[o]);
        }
    }
}

bk_vid bk_alias_source(bk_vid *out, const bk_graph *g, const bk_op *op)
{
    const bk_op_info *info = &bk_ops[op->kind];
    const int in = op->folded ? bk_addend_place(op) : info->alias_in, o = op->folded ? 0 : info->alias_out;
    if (in < 0 || in >= op->n_in || o < 0 || o >= op->n_out) return BK_NONE;
    *out = bk_outs(g, op)[o];
    return bk_ins(g, op)[in];
}

/* In place: the source is an activation of the same scope and size whose last reader is this op, which reads
 * it once and whole. */
static bool in_place(const bk_build *b, bk_oid o, bk_vid from, bk_vid to)
{
    const bk_graph *g = b->g;
    const bk_value *x = &g->value[from], *y = &g->value[to];
    if (x->base != BK_NONE || y->base != BK_NONE || x->kind != BK_ACTIVATION || x->scope != y->scope)
        return false;
    if (x->scope != g->op[o].scope || bk_value_bytes(x) != bk_value_bytes(y)) return false;
    if (b->life[from].last != b->pos[o] || b->life[to].first != b->pos[o]) return false;
    int n = 0;
    for (int32_t k = 0; k < bk_n_operands(&g->op[o]); k++) {
        const bk_vid v = g->operand[g->op[o].first + k];
        n += v != BK_NONE && bk_root(g, v) == from;
    }
    return n == 1;
}

static bk_status new_block(int32_t *out, bk_build *b, bk_life life, int64_t bytes, bk_scope scope,
                           int16_t chunk, bk_err *e)
{
    bk_status st;
    const bk_block x = {.life = life,
                        .bytes = bytes,
                        .space = scope == BK_MICRO ? BK_SPACE_SLOT : BK_SPACE_STEP,
                        .chunk = chunk};
    BK_VEC_PUSH(st, b->block, b->n_blocks, b->cap_blocks, x);
    *out = (int32_t)(b->n_blocks - 1);
    return st == BK_OK ? st : bk_err_set(e, st, "plan: out of memory");
}

/* Values take blocks in plain order of the ops that write them, so a source has its block before its heir. */
static bk_status make_blocks(bk_build *b, bk_err *e)
{
    const bk_graph *g = b->g;
    bk_status st = BK_OK;
    for (int64_t v = 0; v < g->n_values; v++) b->block_of[v] = BK_NONE;
    for (int64_t o = 0; o < g->n_ops && st == BK_OK; o++) {
        const bk_op *op = &g->op[o];
        b->work_of[o] = BK_NONE;
        if (b->pos[o] < 0) continue;
        bk_vid heir = BK_NONE;
        const bk_vid from = bk_alias_source(&heir, g, op);
        if (from != BK_NONE && b->block_of[from] != BK_NONE && b->block_of[heir] == BK_NONE &&
            in_place(b, (bk_oid)o, from, heir)) {
            b->block_of[heir] = b->block_of[from];
            b->block[b->block_of[from]].life.last = b->life[heir].last;
        }
        for (int32_t k = 0; k < bk_n_operands(op) && st == BK_OK; k++) {
            const bk_vid v =
                g->operand[op->first + k] == BK_NONE ? BK_NONE : bk_root(g, g->operand[op->first + k]);
            if (v == BK_NONE || b->block_of[v] != BK_NONE || g->value[v].scope == BK_RUN) continue;
            const int16_t chunk = g->value[v].scope == BK_MICRO ? b->chunk_of[o] : 0;
            st = new_block(&b->block_of[v], b, b->life[v], bk_value_bytes(&g->value[v]), g->value[v].scope,
                           chunk, e);
        }
        const int64_t work =
            bk_ops[op->kind].rules->workspace ? bk_ops[op->kind].rules->workspace(g, op, &b->p->target) : 0;
        if (work > 0 && st == BK_OK)
            st = new_block(&b->work_of[o], b, (bk_life){b->pos[o], b->pos[o]}, work, op->scope,
                           b->chunk_of[o], e);
    }
    return st;
}

bk_status bk_build_lifetimes(bk_build *b, bk_err *e)
{
    const bk_status st = find_positions(b, e);
    if (st != BK_OK) return st;
    find_lives(b);
    return make_blocks(b, e);
}
