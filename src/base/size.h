/* Arithmetic on sizes that come from outside: each function says whether the exact result fits. */
#ifndef BK_BASE_SIZE_H
#define BK_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* *out = a * b; false, with *out unspecified, when the product does not fit. */
static inline bool bk_mul64(int64_t *out, int64_t a, int64_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* *out = a + b; false, with *out unspecified, when the sum does not fit. */
static inline bool bk_add64(int64_t *out, int64_t a, int64_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

/* The smallest multiple of `align` (> 0, any number) that is at least n (>= 0); -1 when it does not fit. */
static inline int64_t bk_align_up(int64_t n, int64_t align)
{
    const int64_t rest = n % align;
    int64_t out = n;
    if (rest != 0 && !bk_add64(&out, n, align - rest)) return -1;
    return out;
}

#endif
