#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

bk_status bk_vec_grow(void *items, int64_t *cap, int64_t len, int64_t extra, size_t elem_size)
{
    int64_t need, bytes;
    if (len < 0 || extra < 0 || !bk_add64(&need, len, extra)) return BK_E_MEM;
    if (need <= *cap) return BK_OK;
    int64_t want = *cap < 8 ? 8 : *cap;
    while (want < need)
        if (!bk_mul64(&want, want, 2)) return BK_E_MEM;
    if (elem_size > INT64_MAX || !bk_mul64(&bytes, want, (int64_t)elem_size)) return BK_E_MEM;
    void *old;
    memcpy(&old, items, sizeof old); /* `items` is some T**; a void** would break aliasing */
    char *grown = realloc(old, (size_t)bytes);
    if (!grown) return BK_E_MEM;
    memset(grown + (size_t)*cap * elem_size, 0, (size_t)(want - *cap) * elem_size);
    memcpy(items, &grown, sizeof grown);
    *cap = want;
    return BK_OK;
}
