/* Memory that is freed all at once. Blocks never move, and live until bk_arena_free.
 *
 * Under AddressSanitizer every allocation is a malloc of its own, so that an overrun is seen. */
#ifndef BK_BASE_ARENA_H
#define BK_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bk_arena {
    struct bk_arena_chunk *chunks; /* newest first; {0} is an empty arena */
    int64_t n_bytes;               /* handed out so far, padding included */
} bk_arena;

void bk_arena_init(bk_arena *a);

/* Frees every block; the arena is empty and usable again. NULL is fine. */
void bk_arena_free(bk_arena *a);

/* n objects of `size` bytes, all zero, aligned for any type. n or size 0 gives a valid pointer. NULL when
 * n or size is negative, the product overflows, or memory is short. */
void *bk_arena_alloc(bk_arena *a, int64_t n, int64_t size);

/* Copies of a string (the first n bytes of one, up to its end), NUL-terminated. NULL when memory is short. */
char *bk_arena_strdup(bk_arena *a, const char *s);
char *bk_arena_strndup(bk_arena *a, const char *s, size_t n);

/* The formatted string, of any length. NULL when memory is short. */
char *bk_arena_printf(bk_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *bk_arena_vprintf(bk_arena *a, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

#endif
