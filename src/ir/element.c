#include "ir/element.h"

#include <assert.h>

void bk_elements_store(void *dst, bk_dtype dtype, const double *src, int64_t n)
{
    assert(dtype != BK_BF16);
    for (int64_t k = 0; k < n; k++) {
        if (dtype == BK_F64)
            ((double *)dst)[k] = src[k];
        else if (dtype == BK_F32)
            ((float *)dst)[k] = (float)src[k];
        else if (dtype == BK_I32)
            ((int32_t *)dst)[k] = (int32_t)src[k];
        else
            ((int64_t *)dst)[k] = (int64_t)src[k];
    }
}

void bk_elements_load(double *dst, bk_dtype dtype, const void *src, int64_t n)
{
    assert(dtype != BK_BF16);
    for (int64_t k = 0; k < n; k++) {
        if (dtype == BK_F64)
            dst[k] = ((const double *)src)[k];
        else if (dtype == BK_F32)
            dst[k] = (double)((const float *)src)[k];
        else if (dtype == BK_I32)
            dst[k] = (double)((const int32_t *)src)[k];
        else
            dst[k] = (double)((const int64_t *)src)[k];
    }
}
