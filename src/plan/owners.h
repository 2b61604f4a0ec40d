/* Who owns which bytes: disjoint ranges of an address space, each with the last one who took it. */
#ifndef BK_PLAN_OWNERS_H
#define BK_PLAN_OWNERS_H

#include <stdint.h>

#include "base/err.h"

typedef struct {
    int64_t start, end;
    int64_t owner;
} bk_owned;

/* Ranges stand in chunks, so that a change moves a few of them only. */
typedef struct {
    int64_t n; /* more than 0 */
    bk_owned range[128];
} bk_owned_chunk;

typedef struct {
    bk_owned_chunk **chunk; /* their ranges one after the other: sorted, disjoint */
    int64_t n, cap;
} bk_owners;

/* Gives [start, end) to `owner`. Before that, calls `was` for each former owner of a part of it (once for
 * each of its ranges); a status other than BK_OK stops and is returned. */
bk_status bk_owners_take(bk_owners *o, int64_t start, int64_t end, int64_t owner,
                         bk_status (*was)(void *ctx, int64_t former, int64_t taker), void *ctx);
void bk_owners_free(bk_owners *o);

#endif
