#include "plan/room.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/vec.h"

/* ---- one set ------------------------------------------------------------------------------------------- */

/* The first interval that ends at `at` or later. */
static int64_t first_from(const bk_interval_set *s, int64_t at)
{
    int64_t lo = 0, hi = s->n;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (s->at[mid].end >= at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* The lowest offset from `at` on where the set leaves `bytes` bytes free. */
static int64_t next_free(const bk_interval_set *s, int64_t at, int64_t bytes)
{
    for (int64_t k = first_from(s, at); k < s->n && s->at[k].start - at < bytes; k++)
        if (s->at[k].end > at) at = s->at[k].end;
    return at;
}

/* Adds [start, end), which becomes one with the intervals that it meets. */
static bk_status add(bk_interval_set *s, int64_t start, int64_t end)
{
    const int64_t k = first_from(s, start);
    int64_t next = k;
    for (; next < s->n && s->at[next].start <= end; next++) {
        if (s->at[next].start < start) start = s->at[next].start;
        if (s->at[next].end > end) end = s->at[next].end;
    }
    if (next == k) {
        const bk_status st = bk_vec_grow(&s->at, &s->cap, s->n, 1, sizeof *s->at);
        if (st != BK_OK) return st;
    }
    memmove(s->at + k + 1, s->at + next, (size_t)(s->n - next) * sizeof *s->at);
    s->at[k] = (bk_interval){start, end};
    s->n += k + 1 - next;
    return BK_OK;
}

/* ---- the tree ------------------------------------------------------------------------------------------ */

bk_status bk_room_init(bk_room *r, int64_t n_times)
{
    *r = (bk_room){.n_times = 1};
    while (r->n_times < n_times)
        if (!bk_mul64(&r->n_times, r->n_times, 2)) return BK_E_MEM;
    r->all_along = calloc((size_t)r->n_times, 2 * sizeof *r->all_along);
    r->some_time = calloc((size_t)r->n_times, 2 * sizeof *r->some_time);
    return r->all_along && r->some_time ? BK_OK : BK_E_MEM;
}

void bk_room_free(bk_room *r)
{
    for (int64_t k = 1; k < 2 * r->n_times && r->all_along && r->some_time; k++)
        free(r->all_along[k].at), free(r->some_time[k].at);
    free(r->all_along), free(r->some_time);
    *r = (bk_room){0};
}

/* Lists the parts of [first, last] in the node of times [from, from + n). */
static void find_parts(bk_room *r, int64_t node, int64_t from, int64_t n, int64_t first, int64_t last)
{
    if (last < from || first >= from + n) return;
    const bool whole = first <= from && from + n - 1 <= last;
    r->part[r->n_parts++] = (bk_room_part){node, whole};
    if (whole) return;
    find_parts(r, 2 * node, from, n / 2, first, last);
    find_parts(r, 2 * node + 1, from + n / 2, n / 2, first, last);
}

/* Goes round the sets until none of them moves the offset. */
static int64_t lowest_free(const bk_room *r, int64_t bytes)
{
    int64_t at = 0;
    for (int k = 0, n_agree = 0; n_agree < r->n_parts; k = (k + 1) % r->n_parts) {
        const bk_room_part *p = &r->part[k];
        const int64_t next = next_free(p->whole ? &r->some_time[p->node] : &r->all_along[p->node], at, bytes);
        n_agree = next == at ? n_agree + 1 : 1;
        at = next;
    }
    return at;
}

bk_status bk_room_take(int64_t *offset, bk_room *r, int64_t first, int64_t last, int64_t bytes)
{
    int64_t end;
    bk_status st = BK_OK;
    *offset = 0;
    if (bytes == 0) return BK_OK;
    r->n_parts = 0;
    find_parts(r, 1, 0, r->n_times, first, last);
    *offset = lowest_free(r, bytes);
    if (!bk_add64(&end, *offset, bytes)) return BK_E_MEM;
    for (int k = 0; k < r->n_parts && st == BK_OK; k++) {
        const bk_room_part *p = &r->part[k];
        st = add(&r->some_time[p->node], *offset, end);
        if (p->whole && st == BK_OK) st = add(&r->all_along[p->node], *offset, end);
    }
    return st;
}
