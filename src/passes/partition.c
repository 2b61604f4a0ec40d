/* Makes regions: what the schedule orders.
 *
 * Ops join the region of their tag, scope and lane in plain order. An op may not join a region from which one
 * of its own dependences follows through another region (the two would wait for each other); it opens a new
 * region of the same tag instead. So regions can be ordered, and they are: a region stands after all that its
 * ops depend on. */
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/plain_order.h"
#include "passes/passes.h"

/* One region that accesses a value, in a list for each value. */
typedef struct {
    bk_rid region;
    bool writes;
    int32_t next;
} user;

typedef struct {
    bk_graph *g;
    bk_plain_order order;
    bk_rid *of;     /* for each op */
    int32_t *users; /* for each value: first user, BK_NONE */
    user *user;
    int64_t n_users, cap_users;
    bool *before; /* [a * cap + b]: region a must be done before b, transitively */
    int64_t cap;  /* regions at most */
    bk_rid *need; /* regions that the op at hand depends on, each once */
    int64_t n_need;
    bool *needed;  /* for each region: it is in `need` */
    bk_rid *after; /* scratch, for each region */
} partition;

static bk_tag region_tag(const bk_op *op)
{
    bk_tag tag = op->tag;
    if (tag.pass == BK_PASS_WGRAD) tag.pass = BK_PASS_BACKWARD; /* weight gradients run with their node */
    return tag;
}

static bool fits(const bk_region *r, const bk_op *op, bool epilogue)
{
    const bk_tag tag = region_tag(op);
    return r->tag.module == tag.module && r->tag.node == tag.node && r->tag.pass == tag.pass &&
           r->tag.layer == tag.layer && r->scope == op->scope && r->lane == op->lane &&
           r->epilogue == epilogue;
}

/* The regions whose work an op needs done: writers of what it reads, all users of what it writes. */
static void find_needs(partition *p, bk_oid o)
{
    const bk_graph *g = p->g;
    const bk_op *op = &g->op[o];
    while (p->n_need > 0) p->needed[p->need[--p->n_need]] = false;
    for (int k = 0; k < bk_n_operands(op); k++) {
        const bk_vid v = g->operand[op->first + k];
        for (int32_t u = v == BK_NONE ? BK_NONE : p->users[bk_root(g, v)]; u != BK_NONE;
             u = p->user[u].next) {
            const bk_rid r = p->user[u].region;
            if (p->needed[r] || !(p->user[u].writes || k >= op->n_in)) continue;
            p->needed[r] = true;
            p->need[p->n_need++] = r;
        }
    }
}

static bool may_join(const partition *p, bk_rid r)
{
    for (int64_t k = 0; k < p->n_need; k++)
        if (p->need[k] != r && p->before[r * p->cap + p->need[k]]) return false;
    return true;
}

/* Region a must be done before region r: whatever comes before a comes before r and whatever comes after r.
 */
static void put_before(partition *p, bk_rid a, bk_rid r)
{
    const int64_t n = p->g->n_regions;
    int64_t n_after = 0;
    p->after[n_after++] = r;
    for (bk_rid y = 0; y < n; y++)
        if (p->before[r * p->cap + y]) p->after[n_after++] = y;
    for (int64_t x = 0; x < n; x++) {
        if (x != a && !p->before[x * p->cap + a]) continue;
        for (int64_t k = 0; k < n_after; k++) p->before[x * p->cap + p->after[k]] = true;
    }
}

static bk_status join(partition *p, bk_oid o, bk_rid r)
{
    bk_graph *g = p->g;
    for (int64_t k = 0; k < p->n_need; k++)
        if (p->need[k] != r && !p->before[p->need[k] * p->cap + r]) put_before(p, p->need[k], r);
    p->of[o] = r;
    const bk_op *op = &g->op[o];
    for (int k = 0; k < bk_n_operands(op); k++) {
        if (g->operand[op->first + k] == BK_NONE) continue;
        const bk_vid v = bk_root(g, g->operand[op->first + k]);
        const bool writes = k >= op->n_in;
        bool known = false;
        for (int32_t u = p->users[v]; u != BK_NONE && !known; u = p->user[u].next)
            known = p->user[u].region == r && p->user[u].writes >= writes;
        if (known) continue;
        bk_status st;
        BK_VEC_PUSH(st, p->user, p->n_users, p->cap_users, (user){r, writes, p->users[v]});
        if (st != BK_OK) return st;
        p->users[v] = (int32_t)(p->n_users - 1);
    }
    return BK_OK;
}

/* Room for one more region in the matrix. */
static bk_status grow(partition *p)
{
    if (p->g->n_regions < p->cap) return BK_OK;
    const int64_t cap = p->cap ? 2 * p->cap : 64;
    bool *before = calloc((size_t)(cap * cap), 1);
    if (!before) return BK_E_MEM;
    for (int64_t a = 0; a < p->g->n_regions; a++)
        memcpy(before + a * cap, p->before + a * p->cap, (size_t)p->g->n_regions);
    free(p->before);
    p->before = before, p->cap = cap;
    return BK_OK;
}

static bk_status assign_regions(partition *p)
{
    bk_graph *g = p->g;
    bk_status st = BK_OK;
    for (int64_t o = 0; o < g->n_ops && st == BK_OK; o++) {
        const bk_op *op = &g->op[o];
        bk_rid r = BK_NONE;
        int64_t k = g->n_regions - 1;
        for (; k >= 0 && !fits(&g->region[k], op, p->order.late[o]); k--) continue;
        find_needs(p, (bk_oid)o);
        if (k >= 0 && may_join(p, (bk_rid)k)) r = (bk_rid)k;
        if (r == BK_NONE) {
            st = grow(p);
            const bk_region fresh = {
                .tag = region_tag(op), .scope = op->scope, .lane = op->lane, .epilogue = p->order.late[o]};
            if (st == BK_OK) BK_VEC_PUSH(st, g->region, g->n_regions, g->cap_regions, fresh);
            r = (bk_rid)(g->n_regions - 1);
        }
        if (st == BK_OK) st = join(p, (bk_oid)o, r);
    }
    return st;
}

/* Orders the regions: of those whose predecessors are placed, the first made comes first. */
static bk_status order_regions(partition *p)
{
    bk_graph *g = p->g;
    const int64_t n = g->n_regions;
    bk_region *sorted = malloc((size_t)(n + 1) * sizeof *sorted);
    bk_rid *to = malloc((size_t)(n + 1) * sizeof *to);
    int64_t *left = calloc((size_t)n + 1, sizeof *left); /* predecessors that are not placed */
    if (!sorted || !to || !left) {
        free(sorted), free(to), free(left);
        return BK_E_MEM;
    }
    for (int64_t r = 0; r < n; r++) to[r] = BK_NONE;
    for (int64_t a = 0; a < n; a++)
        for (int64_t r = 0; r < n; r++) left[r] += p->before[a * p->cap + r];
    for (int64_t placed = 0; placed < n; placed++) {
        bk_rid next = 0;
        while (to[next] != BK_NONE || left[next] > 0) next++;
        for (int64_t r = 0; r < n; r++) left[r] -= p->before[next * p->cap + r];
        to[next] = (bk_rid)placed;
        sorted[placed] = g->region[next];
    }
    memcpy(g->region, sorted, (size_t)n * sizeof *sorted);
    for (int64_t o = 0; o < g->n_ops; o++) p->of[o] = to[p->of[o]];
    free(sorted), free(to), free(left);
    return BK_OK;
}

static bk_status list_ops(partition *p)
{
    bk_graph *g = p->g;
    bk_status st = bk_vec_grow(&g->region_op, &g->cap_region_ops, 0, g->n_ops, sizeof *g->region_op);
    if (st != BK_OK) return st;
    for (int64_t o = 0; o < g->n_ops; o++) g->region[p->of[o]].n_ops++;
    for (int64_t r = 0; r < g->n_regions; r++) {
        g->region[r].first = (int32_t)g->n_region_ops;
        g->n_region_ops += g->region[r].n_ops;
        g->region[r].n_ops = 0;
    }
    for (int64_t o = 0; o < g->n_ops; o++) {
        bk_region *r = &g->region[p->of[o]];
        g->region_op[r->first + r->n_ops++] = (bk_oid)o;
    }
    return BK_OK;
}

bk_status bk_pass_partition(bk_graph *g, bk_err *e)
{
    const size_t no = (size_t)g->n_ops + 1, nv = (size_t)g->n_values + 1;
    partition p = {.g = g,
                   .of = malloc(no * sizeof *p.of),
                   .users = malloc(nv * sizeof *p.users),
                   .need = malloc(no * sizeof *p.need), /* regions are no more than ops */
                   .needed = calloc(no, 1),
                   .after = malloc(no * sizeof *p.after)};
    bk_status st = p.of && p.users && p.need && p.needed && p.after ? BK_OK : BK_E_MEM;
    g->n_regions = g->n_region_ops = 0;
    if (st == BK_OK) st = bk_plain_order_make(&p.order, g, NULL);
    if (st == BK_OK) {
        for (int64_t v = 0; v < g->n_values; v++) p.users[v] = BK_NONE;
        st = assign_regions(&p);
    }
    if (st == BK_OK) st = order_regions(&p);
    if (st == BK_OK) st = list_ops(&p);
    bk_plain_order_free(&p.order);
    free(p.of), free(p.users), free(p.user), free(p.before), free(p.need), free(p.needed), free(p.after);
    return st == BK_OK ? st : bk_err_set(e, st, "partition: out of memory");
}
