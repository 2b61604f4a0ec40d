/* 64-bit hashes that are the same on every machine and in every run, and a map from strings to integers.
 * Not for adversaries: a reader of untrusted names bounds their number itself. */
#ifndef BK_BASE_HASH_H
#define BK_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* FNV-1a over the bytes, finished by bk_mix64. */
uint64_t bk_hash_bytes(const void *bytes, size_t n);
uint64_t bk_hash_str(const char *s);

/* Open addressing; {0} is the empty map. Keys are borrowed: they must outlive the map. */
typedef struct bk_map {
    struct bk_map_slot *slots;
    int64_t n, cap; /* entries, slots (a power of two, or 0) */
} bk_map;

/* Inserts, or overwrites the value of a key already there. BK_E_MEM leaves the map as it was. */
bk_status bk_map_set(bk_map *m, const char *key, int64_t value);

/* The key's value, or `missing`. */
int64_t bk_map_get(const bk_map *m, const char *key, int64_t missing);

void bk_map_free(bk_map *m); /* the map is empty and usable again; NULL is fine */

#endif
