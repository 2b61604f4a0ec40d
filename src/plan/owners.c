#include "plan/owners.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

/* The first range that ends after `at`. */
static int64_t first_after(const bk_owners *o, int64_t at)
{
    int64_t lo = 0, hi = o->n;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (o->range[mid].end > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

bk_status bk_owners_take(bk_owners *o, int64_t start, int64_t end, int64_t owner,
                         bk_status (*was)(void *ctx, int64_t former, int64_t taker), void *ctx)
{
    if (start >= end) return BK_OK;
    const int64_t first = first_after(o, start);
    int64_t last = first; /* ranges [first, last) overlap */
    while (last < o->n && o->range[last].start < end) last++;
    for (int64_t k = first; k < last; k++) {
        const bk_status st = was(ctx, o->range[k].owner, owner);
        if (st != BK_OK) return st;
    }
    /* What is left of the first and the last of them stays theirs. */
    bk_owned fresh[3];
    int64_t n = 0;
    if (first < last && o->range[first].start < start)
        fresh[n++] = (bk_owned){o->range[first].start, start, o->range[first].owner};
    fresh[n++] = (bk_owned){start, end, owner};
    if (first < last && o->range[last - 1].end > end)
        fresh[n++] = (bk_owned){end, o->range[last - 1].end, o->range[last - 1].owner};
    const bk_status st = bk_vec_grow(&o->range, &o->cap, o->n, n, sizeof *o->range);
    if (st != BK_OK) return st;
    memmove(o->range + first + n, o->range + last, (size_t)(o->n - last) * sizeof *o->range);
    memcpy(o->range + first, fresh, (size_t)n * sizeof *fresh);
    o->n += n - (last - first);
    return BK_OK;
}

void bk_owners_free(bk_owners *o)
{
    free(o->range);
    *o = (bk_owners){0};
}
