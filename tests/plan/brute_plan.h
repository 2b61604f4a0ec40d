/* What a plan must keep, found again by trying everything: from every access of every op in issue order,
 * without the planner's or the checker's code. */
#ifndef TESTS_BRUTE_PLAN_H
#define TESTS_BRUTE_PLAN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* One access: bytes of the arena, by whom, when in issue order. */
typedef struct {
    int64_t lo, hi, pos;
    int32_t item, micro; /* micro: BK_NONE where the instance belongs to the step or the run */
    bk_oid op;
    bk_vid root; /* BK_NONE: the op's scratch memory */
    bool write;
} brute_access;

typedef struct {
    brute_access *a;
    int64_t n;
} brute_list;

static inline brute_list brute_accesses(const bk_plan *p)
{
    const bk_graph *g = p->g;
    int64_t most = 0, pos = 0;
    for (int64_t i = 0; i < p->s->n_items; i++) {
        const bk_region *r = &g->region[p->s->item[i].region];
        for (int32_t k = 0; k < r->n_ops; k++) {
            const bk_op *op = &g->op[g->region_op[r->first + k]];
            most += op->n_in + op->n_out + op->n_upd + 1;
        }
    }
    brute_list l = {malloc((size_t)(most + 1) * sizeof(brute_access)), 0};
    for (int64_t i = 0; i < p->s->n_items; i++) {
        const bk_item *it = &p->s->item[i];
        const bk_region *r = &g->region[it->region];
        for (int32_t k = 0; k < r->n_ops; k++, pos++) {
            const bk_oid o = g->region_op[r->first + k];
            const bk_op *op = &g->op[o];
            const int32_t n = op->n_in + op->n_out + op->n_upd;
            for (int32_t j = 0; j <= n; j++) {
                const bk_vid v = j < n ? g->operand[op->first + j] : BK_NONE;
                if (j < n && v == BK_NONE) continue;
                const bk_vid root = j < n ? bk_root(g, v) : BK_NONE;
                const bk_place *place = j < n ? &p->place[root] : &p->work[o];
                if (place->space == BK_SPACE_NONE) continue;
                const int64_t at = bk_plan_address(p, place, it->micro);
                const bool own = j < n ? g->value[root].scope == BK_MICRO : it->micro != BK_NONE;
                l.a[l.n++] = (brute_access){.lo = at,
                                            .hi = at + place->bytes,
                                            .pos = pos,
                                            .item = (int32_t)i,
                                            .micro = own ? it->micro : BK_NONE,
                                            .op = o,
                                            .root = root,
                                            .write = j >= op->n_in};
            }
        }
    }
    return l;
}

/* A value, or scratch memory, from its first access to its last. */
typedef struct {
    brute_access first;
    int64_t from, to;
} brute_life;

static inline bool brute_same(const brute_access *a, const brute_access *b)
{
    return a->root == b->root && a->micro == b->micro && (a->root != BK_NONE || a->op == b->op);
}

/* True if op o may compute `to` on the bytes of `from`, by the row of its kind. */
static inline bool brute_in_place(const bk_graph *g, bk_oid o, bk_vid from, bk_vid to)
{
    const bk_op *op = &g->op[o];
    const bk_op_info *row = &bk_ops[op->kind];
    const int in = op->folded ? bk_addend_place(op) : row->alias_in, out = op->folded ? 0 : row->alias_out;
    return in >= 0 && in < op->n_in && out >= 0 && bk_ins(g, op)[in] == from && bk_outs(g, op)[out] == to;
}

/* No two lives meet in time and in bytes, except where an op works in place; all bytes are inside and
 * aligned. Gives the number of pairs that share bytes. */
static inline int64_t brute_check_bytes(const bk_plan *p)
{
    const brute_list l = brute_accesses(p);
    brute_life *life = malloc((size_t)(l.n + 1) * sizeof *life);
    int64_t n = 0, n_shared = 0;
    for (int64_t k = 0; k < l.n; k++) {
        const brute_access *a = &l.a[k];
        if (a->lo % BK_ALIGN_BYTES != 0 || a->lo < 0 || a->hi > bk_plan_bytes(p))
            fail_msg("outside the arena");
        int64_t j = 0;
        while (j < n && !brute_same(&life[j].first, a)) j++;
        if (j == n) life[n++] = (brute_life){*a, a->pos, a->pos};
        life[j].to = a->pos;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            const brute_life *x = &life[i], *y = &life[j];
            if (i == j || x->first.lo >= y->first.hi || y->first.lo >= x->first.hi) continue;
            const bool run = x->first.hi <= p->run_bytes || y->first.hi <= p->run_bytes;
            n_shared++;
            if (!run && (x->to < y->from || y->to < x->from)) continue;
            const brute_life *from = x->to <= y->from ? x : y, *to = from == x ? y : x;
            if (!run && from->to == to->from && from->first.lo == to->first.lo &&
                from->first.hi == to->first.hi &&
                brute_in_place(p->g, to->first.op, from->first.root, to->first.root))
                continue;
            fail_msg("%s and %s are alive at once in the same bytes",
                     x->first.root == BK_NONE ? "scratch memory" : p->g->value[x->first.root].name,
                     y->first.root == BK_NONE ? "scratch memory" : p->g->value[y->first.root].name);
        }
    free(life), free(l.a);
    return n_shared;
}

/* done[i * n + j]: item i is done before item j starts, by the lanes and all waits but one (-1: all). */
static inline bool *brute_happens(const bk_plan *p, int64_t without)
{
    const int64_t n = p->s->n_items;
    bool *done = calloc((size_t)(n * n + 1), 1);
    int64_t last[BK_N_LANES];
    for (int k = 0; k < BK_N_LANES; k++) last[k] = -1;
    for (int64_t i = 0; i < n; i++) {
        const int lane = p->s->item[i].lane;
        if (last[lane] >= 0) done[last[lane] * n + i] = true;
        last[lane] = i;
    }
    for (int64_t k = 0; k < p->n_waits; k++)
        if (k != without) done[p->wait[k].before * n + p->wait[k].after] = true;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n && done[i * n + k]; j++)
                if (done[k * n + j]) done[i * n + j] = true;
    return done;
}

/* Items that touch the same bytes, one of them writing, follow each other as they are issued. */
static inline void brute_check_waits(const bk_plan *p)
{
    const int64_t n = p->s->n_items;
    const brute_list l = brute_accesses(p);
    bool *done = brute_happens(p, -1);
    for (int64_t i = 0; i < n; i++) assert_false(done[i * n + i]);
    for (int64_t x = 0; x < l.n; x++)
        for (int64_t y = x + 1; y < l.n; y++) {
            const brute_access *a = &l.a[x], *b = &l.a[y];
            if (a->item == b->item || a->lo >= b->hi || b->lo >= a->hi || !(a->write || b->write)) continue;
            if (!done[a->item * n + b->item])
                fail_msg("items %d and %d use the same bytes in either order", (int)a->item, (int)b->item);
        }
    free(done), free(l.a);
}

#endif
