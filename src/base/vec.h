/* Growing arrays: three fields of the owner's struct (T *x; int64_t n_x, cap_x), grown in one place.
 *
 *     if (bk_vec_grow(&g->ops, &g->cap_ops, g->n_ops, 1, sizeof *g->ops) != BK_OK) return BK_E_MEM;
 *     g->ops[g->n_ops++] = op;
 *
 * or BK_VEC_PUSH(st, g->ops, g->n_ops, g->cap_ops, op). Elements move when the array grows: keep indices, not
 * pointers. Freed with free(). */
#ifndef BK_BASE_VEC_H
#define BK_BASE_VEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Makes room for `extra` elements after the first `len`. `items` is the address of the array's pointer
 * (NULL, with *cap 0, at first). New room is zero. On BK_E_MEM (size overflow, no memory) nothing changes. */
bk_status bk_vec_grow(void *items, int64_t *cap, int64_t len, int64_t extra, size_t elem_size);

/* Appends one element; st becomes BK_OK or BK_E_MEM. */
#define BK_VEC_PUSH(st, items, len, cap, ...)                                                                \
    do {                                                                                                     \
        (st) = bk_vec_grow(&(items), &(cap), (len), 1, sizeof *(items));                                     \
        if ((st) == BK_OK) (items)[(len)++] = (__VA_ARGS__);                                                 \
    } while (0)

#endif
