#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_PLAIN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_PLAIN 1
#endif
#endif
#ifndef ARENA_PLAIN
#define ARENA_PLAIN 0
#endif

enum { CHUNK_BYTES = 1 << 16, ALIGN = _Alignof(max_align_t) };

typedef struct bk_arena_chunk {
    struct bk_arena_chunk *next;
    int64_t used, cap; /* bytes of data */
    _Alignas(max_align_t) unsigned char data[];
} bk_arena_chunk;

void bk_arena_init(bk_arena *a)
{
    *a = (bk_arena){0};
}

void bk_arena_free(bk_arena *a)
{
    if (!a) return;
    for (bk_arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    bk_arena_init(a);
}

/* A chunk of exactly cap bytes in front of the list, zeroed: blocks are handed out once only. */
static bk_arena_chunk *push_chunk(bk_arena *a, int64_t cap)
{
    int64_t total;
    if (!bk_add64(&total, cap, (int64_t)sizeof(bk_arena_chunk))) return NULL;
    bk_arena_chunk *c = calloc(1, (size_t)total);
    if (!c) return NULL;
    *c = (bk_arena_chunk){.next = a->chunks, .cap = cap};
    a->chunks = c;
    return c;
}

void *bk_arena_alloc(bk_arena *a, int64_t n, int64_t size)
{
    int64_t want;
    if (n < 0 || size < 0 || !bk_mul64(&want, n, size)) return NULL;
    const int64_t bytes = ARENA_PLAIN ? want : bk_align_up(want > 0 ? want : 1, ALIGN);
    if (bytes < 0) return NULL;
    bk_arena_chunk *c = a->chunks;
    if (ARENA_PLAIN || !c || c->cap - c->used < bytes) {
        const int64_t cap = ARENA_PLAIN || bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        c = push_chunk(a, cap);
        if (!c) return NULL;
    }
    void *p = c->data + c->used;
    c->used += bytes;
    a->n_bytes += bytes;
    return p;
}

char *bk_arena_strndup(bk_arena *a, const char *s, size_t n)
{
    const size_t len = strnlen(s, n);
    char *p = bk_arena_alloc(a, (int64_t)len + 1, 1);
    if (p) memcpy(p, s, len);
    return p;
}

char *bk_arena_strdup(bk_arena *a, const char *s)
{
    return bk_arena_strndup(a, s, strlen(s));
}

char *bk_arena_vprintf(bk_arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *p = len < 0 ? NULL : bk_arena_alloc(a, (int64_t)len + 1, 1);
    if (p) vsnprintf(p, (size_t)len + 1, fmt, ap);
    return p;
}

char *bk_arena_printf(bk_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = bk_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}
