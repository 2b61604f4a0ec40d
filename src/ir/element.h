/* Elements of a value's dtype from and to doubles, for hosts of programs. */
#ifndef BK_IR_ELEMENT_H
#define BK_IR_ELEMENT_H

#include "ir/types.h"

/* n elements each. Not for BK_BF16. A double holds every i32 exactly, and an i64 up to 2^53. */
void bk_elements_store(void *dst, bk_dtype dtype, const double *src, int64_t n);
void bk_elements_load(double *dst, bk_dtype dtype, const void *src, int64_t n);

#endif
