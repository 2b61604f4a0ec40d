/* Builds a plan from a schedule: lifetimes, offsets, waits, which updates assign, the peak and costs. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/vec.h"
#include "plan/build.h"

void bk_plan_free(bk_plan *p)
{
    if (!p) return;
    free(p->place), free(p->work), free(p->chunk), free(p->slot), free(p->wait), free(p->assign),
        free(p->at_peak);
    free(p);
}

int64_t bk_plan_address(const bk_plan *p, const bk_place *place, int32_t micro)
{
    switch (place->space) {
    case BK_SPACE_NONE:
        return -1;
    case BK_SPACE_RUN:
        return place->offset;
    case BK_SPACE_STEP:
        return p->run_bytes + place->offset;
    case BK_SPACE_SLOT:
        break;
    }
    const bk_chunk_block *c = &p->chunk[place->chunk];
    const int32_t slot = p->slot[(int64_t)place->chunk * p->s->n_micro + micro];
    return p->run_bytes + c->base + slot * bk_align_up(c->slot_bytes, BK_ALIGN_BYTES) + place->offset;
}

int64_t bk_plan_value_address(const bk_plan *p, bk_vid v, int32_t micro)
{
    const bk_value *x = &p->g->value[v];
    const int64_t at = bk_plan_address(p, &p->place[bk_root(p->g, v)], micro);
    return at < 0 ? at : at + x->offset * bk_dtype_bytes(x->dtype);
}

static int assign_order(const bk_assign *a, int32_t item, bk_oid op, int32_t upd)
{
    if (a->item != item) return a->item < item ? -1 : 1;
    if (a->op != op) return a->op < op ? -1 : 1;
    return a->upd < upd ? -1 : a->upd > upd;
}

bool bk_plan_assigns(const bk_plan *p, int32_t item, bk_oid op, int32_t upd)
{
    int64_t lo = 0, hi = p->n_assigns;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        const int order = assign_order(&p->assign[mid], item, op, upd);
        if (order == 0) return true;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

/* An accumulator is a value of scope step that nothing writes: its first update in a step assigns. */
static bk_status find_assigns(bk_build *b, bk_err *e)
{
    const bk_graph *g = b->g;
    bk_status st = BK_OK;
    bool *begun = calloc((size_t)g->n_values + 1, 1); /* written, or updated before */
    if (!begun) return bk_err_set(e, BK_E_MEM, "plan: out of memory");
    for (int64_t o = 0; o < g->n_ops; o++)
        for (int32_t k = 0; k < g->op[o].n_out; k++) begun[bk_root(g, bk_outs(g, &g->op[o])[k])] = true;
    for (int64_t i = 0; i < b->s->n_items && st == BK_OK; i++) {
        const bk_region *r = &g->region[b->s->item[i].region];
        for (int32_t k = 0; k < r->n_ops && st == BK_OK; k++) {
            const bk_oid o = g->region_op[r->first + k];
            for (int32_t u = 0; u < g->op[o].n_upd && st == BK_OK; u++) {
                const bk_vid v = bk_root(g, bk_upds(g, &g->op[o])[u]);
                if (begun[v] || g->value[v].scope != BK_STEP) continue;
                begun[v] = true;
                BK_VEC_PUSH(st, b->p->assign, b->p->n_assigns, b->p->cap_assigns,
                            (bk_assign){(int32_t)i, o, u});
            }
        }
    }
    free(begun);
    return st == BK_OK ? st : bk_err_set(e, st, "plan: out of memory");
}

void bk_op_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    *out = (bk_cost){0};
    if (bk_ops[op->kind].rules->cost) {
        bk_ops[op->kind].rules->cost(out, g, op, target);
        return;
    }
    for (int32_t k = 0; k < bk_n_operands(op); k++) {
        const bk_vid v = g->operand[op->first + k];
        if (v == BK_NONE) continue;
        const int64_t n = bk_elements(&g->value[v]);
        out->bytes += n * bk_dtype_bytes(g->value[v].dtype) * (k >= op->n_in + op->n_out ? 2 : 1);
        if (k >= op->n_in) out->flops += n;
    }
}

/* Costs that no int64_t holds become the largest one: they are a report, and what runs is bounded by memory.
 */
static void add_cost(int64_t *sum, int64_t times, int64_t x)
{
    int64_t all;
    if (!bk_mul64(&all, times, x) || !bk_add64(sum, *sum, all)) *sum = INT64_MAX;
}

static void add_costs(bk_build *b)
{
    const bk_graph *g = b->g;
    for (int64_t o = 0; o < g->n_ops; o++) {
        bk_cost c;
        bk_op_cost(&c, g, &g->op[o], &b->p->target);
        const int64_t times = g->op[o].scope == BK_MICRO ? b->s->n_micro : 1;
        bk_cost *sum = &b->p->cost;
        add_cost(&sum->madds, times, c.madds);
        add_cost(&sum->flops, times, c.flops);
        add_cost(&sum->bytes, times, c.bytes);
        add_cost(&sum->msg_bytes, times, c.msg_bytes);
    }
}

static bk_status new_plan(bk_build *b, const bk_graph *g, const bk_schedule *s, const bk_target *target,
                          bk_err *e)
{
    const size_t nv = (size_t)g->n_values + 1, no = (size_t)g->n_ops + 1;
    *b = (bk_build){.g = g, .s = s, .p = calloc(1, sizeof *b->p)};
    if (!b->p) return bk_err_set(e, BK_E_MEM, "plan: out of memory");
    bk_plan *p = b->p;
    p->g = g, p->s = s, p->target = *target, p->n_values = (int32_t)g->n_values, p->n_ops = (int32_t)g->n_ops;
    for (int64_t r = 0; r < g->n_regions; r++)
        if (g->region[r].chunk >= p->n_chunks) p->n_chunks = g->region[r].chunk + 1;
    p->place = calloc(nv, sizeof *p->place), p->work = calloc(no, sizeof *p->work);
    p->chunk = calloc((size_t)p->n_chunks + 1, sizeof *p->chunk);
    p->slot = calloc((size_t)(p->n_chunks * s->n_micro + 1), sizeof *p->slot);
    b->pos = calloc(no, sizeof *b->pos), b->chunk_of = calloc(no, sizeof *b->chunk_of);
    b->life = calloc(nv, sizeof *b->life), b->block_of = calloc(nv, sizeof *b->block_of);
    b->work_of = calloc(no, sizeof *b->work_of);
    const bool ok = p->place && p->work && p->chunk && p->slot && b->pos && b->chunk_of && b->life &&
                    b->block_of && b->work_of;
    return ok ? BK_OK : bk_err_set(e, BK_E_MEM, "plan: out of memory");
}

bk_status bk_plan_build(bk_plan **out, const bk_graph *g, const bk_schedule *s, const bk_run_layout *run,
                        const bk_target *target, bk_err *e)
{
    bk_build b;
    bk_status st = new_plan(&b, g, s, target, e);
    if (st != BK_OK) goto done;
    BK_TRY(bk_build_lifetimes(&b, e));
    BK_TRY(bk_build_offsets(&b, run, e));
    BK_TRY(bk_build_waits(&b, e));
    BK_TRY(find_assigns(&b, e));
    BK_TRY(bk_build_peak(&b, e));
    add_costs(&b);
    *out = b.p, b.p = NULL;
done:
    free(b.pos), free(b.chunk_of), free(b.life), free(b.block_of), free(b.work_of), free(b.block);
    bk_plan_free(b.p);
    return st;
}

static const char *const space_names[] = {"none", "run", "step", "slot"};

static void print_place(bk_str *out, const char *what, const char *name, const bk_place *place)
{
    if (place->space == BK_SPACE_NONE) return;
    bk_str_appendf(out, "%-5s %-4s %2d %12lld %12lld  %s\n", what, space_names[place->space],
                   (int)place->chunk, (long long)place->offset, (long long)place->bytes, name);
}

void bk_plan_print(bk_str *out, const bk_plan *p)
{
    const bk_graph *g = p->g;
    bk_str_appendf(out, "plan run %lld bytes, step %lld bytes, peak %lld bytes in item %d\n",
                   (long long)p->run_bytes, (long long)p->step_bytes, (long long)p->peak_bytes,
                   (int)p->peak_item);
    for (int32_t c = 0; c < p->n_chunks; c++)
        bk_str_appendf(out, "chunk %d at %lld: %d slots of %lld bytes\n", (int)c, (long long)p->chunk[c].base,
                       (int)p->chunk[c].n_slots, (long long)p->chunk[c].slot_bytes);
    bk_str_appendf(out, "%-5s %-4s %2s %12s %12s  %s\n", "", "in", "ch", "offset", "bytes", "name");
    for (int32_t v = 0; v < p->n_values; v++) print_place(out, "value", g->value[v].name, &p->place[v]);
    for (int32_t o = 0; o < p->n_ops; o++) {
        char name[64];
        print_place(out, "work", bk_tag_name(name, sizeof name, g->op[o].tag), &p->work[o]);
    }
    for (int64_t k = 0; k < p->n_waits; k++)
        bk_str_appendf(out, "wait item %d for %d\n", (int)p->wait[k].after, (int)p->wait[k].before);
    for (int64_t k = 0; k < p->n_assigns; k++) {
        const bk_op *op = &g->op[p->assign[k].op];
        bk_str_appendf(out, "assign item %d %s %s\n", (int)p->assign[k].item, bk_ops[op->kind].name,
                       g->value[bk_upds(g, op)[p->assign[k].upd]].name);
    }
}
