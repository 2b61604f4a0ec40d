#include "plan/owners.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

enum { MOST = sizeof((bk_owned_chunk *)0)->range / sizeof(bk_owned) };

/* A range, or the place behind the last one. */
typedef struct {
    int64_t chunk, k;
} spot;

static bk_owned *range_at(const bk_owners *o, spot s)
{
    return s.chunk < o->n && s.k < o->chunk[s.chunk]->n ? &o->chunk[s.chunk]->range[s.k] : NULL;
}

static spot next_of(const bk_owners *o, spot s)
{
    return s.k + 1 < o->chunk[s.chunk]->n ? (spot){s.chunk, s.k + 1} : (spot){s.chunk + 1, 0};
}

/* The first range that ends after `at`, or the end of the last chunk. */
static spot first_after(const bk_owners *o, int64_t at)
{
    if (o->n == 0) return (spot){0, 0};
    int64_t lo = 0, hi = o->n - 1;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (o->chunk[mid]->range[o->chunk[mid]->n - 1].end > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    const bk_owned_chunk *c = o->chunk[lo];
    int64_t first = 0, end = c->n;
    while (first < end) {
        const int64_t mid = first + (end - first) / 2;
        if (c->range[mid].end > at)
            end = mid;
        else
            first = mid + 1;
    }
    return (spot){lo, first};
}

static bk_status add_chunk(bk_owners *o, int64_t at)
{
    bk_owned_chunk *fresh = calloc(1, sizeof *fresh);
    const bk_status st = fresh ? bk_vec_grow(&o->chunk, &o->cap, o->n, 1, sizeof *o->chunk) : BK_E_MEM;
    if (st != BK_OK) {
        free(fresh);
        return st;
    }
    memmove(o->chunk + at + 1, o->chunk + at, (size_t)(o->n - at) * sizeof *o->chunk);
    o->chunk[at] = fresh, o->n++;
    return BK_OK;
}

/* Makes sure that chunk c can take three more ranges: splits it if not. */
static bk_status make_room(bk_owners *o, int64_t c)
{
    if (o->n == 0) return add_chunk(o, 0);
    if (o->chunk[c]->n + 3 <= MOST) return BK_OK;
    const bk_status st = add_chunk(o, c + 1);
    if (st != BK_OK) return st;
    bk_owned_chunk *low = o->chunk[c], *high = o->chunk[c + 1];
    high->n = low->n / 2, low->n -= high->n;
    memcpy(high->range, low->range + low->n, (size_t)high->n * sizeof *high->range);
    return BK_OK;
}

static void drop_front(bk_owned_chunk *c, int64_t from, int64_t to)
{
    memmove(c->range + from, c->range + to, (size_t)(c->n - to) * sizeof *c->range);
    c->n -= to - from;
}

/* Takes out the ranges [first, last). The chunk of `first` may be left empty: insert follows. */
static void erase(bk_owners *o, spot first, spot last)
{
    if (first.chunk == last.chunk) {
        drop_front(o->chunk[first.chunk], first.k, last.k);
        return;
    }
    o->chunk[first.chunk]->n = first.k;
    if (last.chunk < o->n) drop_front(o->chunk[last.chunk], 0, last.k);
    for (int64_t c = first.chunk + 1; c < last.chunk; c++) free(o->chunk[c]);
    memmove(o->chunk + first.chunk + 1, o->chunk + last.chunk,
            (size_t)(o->n - last.chunk) * sizeof *o->chunk);
    o->n -= last.chunk - first.chunk - 1;
}

static void insert(bk_owners *o, spot at, const bk_owned *x, int64_t n)
{
    bk_owned_chunk *c = o->chunk[at.chunk];
    memmove(c->range + at.k + n, c->range + at.k, (size_t)(c->n - at.k) * sizeof *c->range);
    memcpy(c->range + at.k, x, (size_t)n * sizeof *x);
    c->n += n;
}

bk_status bk_owners_take(bk_owners *o, int64_t start, int64_t end, int64_t owner,
                         bk_status (*was)(void *ctx, int64_t former, int64_t taker), void *ctx)
{
    if (start >= end) return BK_OK;
    bk_status st = make_room(o, first_after(o, start).chunk);
    if (st != BK_OK) return st;
    const spot first = first_after(o, start);
    spot last = first; /* ranges [first, last) overlap */
    /* What is left of the first and the last of them stays theirs. */
    bk_owned fresh[3], tail = {0};
    int64_t n = 0;
    for (const bk_owned *r; (r = range_at(o, last)) && r->start < end; last = next_of(o, last)) {
        if ((st = was(ctx, r->owner, owner)) != BK_OK) return st;
        if (r->start < start) fresh[n++] = (bk_owned){r->start, start, r->owner};
        if (r->end > end) tail = (bk_owned){end, r->end, r->owner};
    }
    fresh[n++] = (bk_owned){start, end, owner};
    if (tail.start < tail.end) fresh[n++] = tail;
    erase(o, first, last);
    insert(o, first, fresh, n);
    return BK_OK;
}

void bk_owners_free(bk_owners *o)
{
    for (int64_t c = 0; c < o->n; c++) free(o->chunk[c]);
    free(o->chunk);
    *o = (bk_owners){0};
}
