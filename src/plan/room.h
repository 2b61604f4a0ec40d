/* Bytes of a space that are taken for stretches of time: finds the lowest offset at which so many bytes are
 * free all along a stretch.
 *
 * A segment tree over time. Of each of its stretches two sets of bytes are kept, as sorted intervals that do
 * not touch each other: those taken all along it by pieces that were entered for it whole, and those taken
 * at some time in it. A piece's stretch is a few whole stretches of the tree and parts of those above them:
 * bytes are free if they are in no set "some time" of the former and in no set "all along" of the latter. */
#ifndef BK_PLAN_ROOM_H
#define BK_PLAN_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
    int64_t start, end;
} bk_interval;

typedef struct {
    bk_interval *at; /* sorted, disjoint, not touching */
    int64_t n, cap;
} bk_interval_set;

/* A stretch of the tree that a piece's stretch covers or meets. */
typedef struct {
    int64_t node;
    bool whole;
} bk_room_part;

enum { BK_ROOM_PARTS = 4 * 64 }; /* at most: four on each level */

typedef struct {
    bk_interval_set *all_along, *some_time; /* for each node; node 1 is all of time, 2k and 2k + 1 halve k */
    int64_t n_times;                        /* a power of two */
    bk_room_part part[BK_ROOM_PARTS];       /* of the piece at hand */
    int n_parts;
} bk_room;

/* Nothing is taken, at times 0 to n_times - 1. BK_E_MEM. */
bk_status bk_room_init(bk_room *r, int64_t n_times);
void bk_room_free(bk_room *r);

/* Takes `bytes` bytes (0: none, at offset 0) from time `first` to time `last`, both included, at the lowest
 * offset at which they are free. BK_E_MEM where no int64_t holds their end, or memory is short. */
bk_status bk_room_take(int64_t *offset, bk_room *r, int64_t first, int64_t last, int64_t bytes);

#endif
