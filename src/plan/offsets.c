/* Addresses: run values from the shared layout, values of scope micro inside their chunk's slot, values of
 * scope step around the chunks' blocks. */
#include <stdlib.h>

#include "base/size.h"
#include "base/vec.h"
#include "plan/build.h"
#include "plan/room.h"

/* Something to place: a block or a chunk's slots. */
typedef struct {
    bk_life life;
    int64_t bytes, padded; /* padded: so that whatever follows is aligned */
    int64_t *result;
    int64_t order; /* ties are broken by it, so that the layout is the same on every machine */
} piece;

static int larger_first(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Greedy by size: the largest piece first, each at the lowest offset at which nothing alive at the same time
 * stands. Returns the bytes of the whole, or -1 on overflow or lack of memory. */
static int64_t place_all(piece *x, int64_t n)
{
    int64_t n_times = 1, total = 0;
    for (int64_t k = 0; k < n; k++)
        if (x[k].life.last >= n_times) n_times = x[k].life.last + 1;
    bk_room room;
    bk_status st = bk_room_init(&room, n_times);
    qsort(x, (size_t)n, sizeof *x, larger_first);
    for (int64_t k = 0; k < n && st == BK_OK; k++) {
        st = bk_room_take(x[k].result, &room, x[k].life.first, x[k].life.last, x[k].padded);
        if (st == BK_OK && *x[k].result + x[k].bytes > total) total = *x[k].result + x[k].bytes;
    }
    bk_room_free(&room);
    return st == BK_OK ? total : -1;
}

static bk_status place_space(int64_t *bytes, bk_build *b, bk_space space, int16_t chunk, bk_err *e)
{
    piece *x = malloc((size_t)(b->n_blocks + b->p->n_chunks + 1) * sizeof *x);
    int64_t n = 0;
    for (int64_t k = 0; x && k < b->n_blocks; k++) {
        bk_block *q = &b->block[k];
        if (q->space != space || (space == BK_SPACE_SLOT && q->chunk != chunk)) continue;
        x[n] = (piece){q->life, q->bytes, bk_align_up(q->bytes, BK_ALIGN_BYTES), &q->offset, n};
        n++;
    }
    for (int32_t c = 0; x && c < b->p->n_chunks && space == BK_SPACE_STEP; c++) {
        bk_chunk_block *q = &b->p->chunk[c];
        int64_t padded = bk_align_up(q->slot_bytes, BK_ALIGN_BYTES);
        int64_t all, end;
        if (padded < 0 || !bk_mul64(&all, padded, q->n_slots) || !bk_add64(&end, all, q->slot_bytes))
            all = padded = -1;
        x[n] = (piece){{b->micro_pos, b->micro_pos}, all - padded + q->slot_bytes, all, &q->base, n};
        n++;
    }
    bool fits = x != NULL;
    for (int64_t k = 0; k < n; k++) fits = fits && x[k].padded >= 0;
    *bytes = fits ? place_all(x, n) : -1;
    free(x);
    return *bytes >= 0 ? BK_OK
                       : bk_err_set(e, BK_E_MEM,
                                    "plan: the sizes of this step overflow; lower the batch or the model");
}

/* Slots: a micro-batch holds one from its first item to its last; the lowest free one is taken. */
static bk_status take_slots(bk_build *b, int32_t chunk, bk_err *e)
{
    const bk_schedule *s = b->s;
    const int32_t m = s->n_micro;
    int32_t *slot = b->p->slot + (int64_t)chunk * m;
    int64_t *left = calloc((size_t)m + 1, sizeof *left); /* items that a micro-batch has yet to issue */
    bool *busy = calloc((size_t)m + 1, sizeof *busy);
    if (!left || !busy) {
        free(left), free(busy);
        return bk_err_set(e, BK_E_MEM, "plan: out of memory");
    }
    for (int32_t k = 0; k < m; k++) slot[k] = BK_NONE;
    for (int64_t i = 0; i < s->n_items; i++)
        if (s->item[i].micro != BK_NONE && s->item[i].chunk == chunk) left[s->item[i].micro]++;
    b->p->chunk[chunk].n_slots = 0;
    for (int64_t i = 0; i < s->n_items; i++) {
        const bk_item *it = &s->item[i];
        if (it->micro == BK_NONE || it->chunk != chunk) continue;
        if (slot[it->micro] == BK_NONE) {
            int32_t k = 0;
            while (busy[k]) k++;
            busy[k] = true, slot[it->micro] = k;
            if (k >= b->p->chunk[chunk].n_slots) b->p->chunk[chunk].n_slots = k + 1;
        }
        if (--left[it->micro] == 0) busy[slot[it->micro]] = false;
    }
    free(left), free(busy);
    return BK_OK;
}

static bk_place block_place(const bk_build *b, int32_t block)
{
    if (block == BK_NONE) return (bk_place){.space = BK_SPACE_NONE};
    const bk_block *q = &b->block[block];
    return (bk_place){q->space, q->chunk, q->offset, q->bytes};
}

static bk_status place_run(bk_build *b, const bk_run_layout *run, bk_err *e)
{
    const bk_graph *g = b->g;
    for (int64_t v = 0; v < g->n_values; v++) {
        const bk_value *x = &g->value[v];
        if (x->scope != BK_RUN || x->base != BK_NONE) continue;
        const int64_t k = bk_map_get(&run->of_kind[x->kind], x->name, BK_NONE);
        if (k == BK_NONE)
            return bk_err_set(e, BK_E_CHECK, "plan: %s is not in the layout of the run", x->name);
        b->p->place[v] = (bk_place){BK_SPACE_RUN, 0, run->entry[k].offset, run->entry[k].bytes};
    }
    b->p->run_bytes = run->bytes;
    return BK_OK;
}

bk_status bk_build_offsets(bk_build *b, const bk_run_layout *run, bk_err *e)
{
    bk_status st = BK_OK;
    for (int32_t c = 0; c < b->p->n_chunks; c++) {
        BK_TRY(take_slots(b, c, e));
        BK_TRY(place_space(&b->p->chunk[c].slot_bytes, b, BK_SPACE_SLOT, (int16_t)c, e));
    }
    BK_TRY(place_space(&b->p->step_bytes, b, BK_SPACE_STEP, 0, e));
    for (int64_t v = 0; v < b->g->n_values; v++) b->p->place[v] = block_place(b, b->block_of[v]);
    for (int64_t o = 0; o < b->g->n_ops; o++) b->p->work[o] = block_place(b, b->work_of[o]);
    BK_TRY(place_run(b, run, e));
done:
    return st;
}

bk_status bk_run_layout_add(bk_run_layout *r, const bk_graph *g, bk_err *e)
{
    for (int64_t v = 0; v < g->n_values; v++) {
        const bk_value *x = &g->value[v];
        if (x->scope != BK_RUN || x->base != BK_NONE) continue;
        const int64_t old = bk_map_get(&r->of_kind[x->kind], x->name, BK_NONE), k = r->n_entries;
        const int64_t bytes = bk_value_bytes(x), padded = bk_align_up(bytes, BK_ALIGN_BYTES);
        if (old != BK_NONE) {
            if (r->entry[old].bytes == bytes && r->entry[old].dtype == x->dtype) continue;
            return bk_err_set(e, BK_E_CHECK, "plan: two programs disagree about the size of %s", x->name);
        }
        bk_status st = bk_vec_grow(&r->entry, &r->cap_entries, r->n_entries, 1, sizeof *r->entry);
        const char *name = bk_arena_strdup(&r->arena, x->name);
        int64_t end;
        if (st == BK_OK && name) st = bk_map_set(&r->of_kind[x->kind], name, k);
        if (st != BK_OK || !name || padded < 0 || !bk_add64(&end, r->bytes, padded))
            return bk_err_set(e, BK_E_MEM, "plan: out of memory at %s", x->name);
        r->entry[k].name = name, r->entry[k].kind = x->kind, r->entry[k].dtype = x->dtype;
        r->entry[k].offset = r->bytes, r->entry[k].bytes = bytes;
        r->n_entries++, r->bytes = end;
    }
    return BK_OK;
}

void bk_run_layout_free(bk_run_layout *r)
{
    for (int k = 0; k < BK_N_KINDS; k++) bk_map_free(&r->of_kind[k]);
    bk_arena_free(&r->arena);
    free(r->entry);
    *r = (bk_run_layout){0};
}
