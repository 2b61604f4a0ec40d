#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/size.h"

typedef struct bk_map_slot {
    const char *key; /* NULL: free */
    uint64_t hash;
    int64_t value;
} bk_map_slot;

uint64_t bk_hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return bk_mix64(h);
}

uint64_t bk_hash_str(const char *s)
{
    return bk_hash_bytes(s, strlen(s));
}

/* The slot that holds the key, or the free one where it belongs. */
static bk_map_slot *find(bk_map_slot *slots, int64_t cap, const char *key, uint64_t hash)
{
    uint64_t i = hash & (uint64_t)(cap - 1);
    while (slots[i].key && (slots[i].hash != hash || strcmp(slots[i].key, key) != 0))
        i = (i + 1) & (uint64_t)(cap - 1);
    return &slots[i];
}

static bk_status rehash(bk_map *m)
{
    int64_t cap = 16, bytes;
    if (m->cap > 0 && !bk_mul64(&cap, m->cap, 2)) return BK_E_MEM;
    if (!bk_mul64(&bytes, cap, (int64_t)sizeof(bk_map_slot))) return BK_E_MEM;
    bk_map_slot *slots = calloc(1, (size_t)bytes);
    if (!slots) return BK_E_MEM;
    for (int64_t i = 0; i < m->cap; i++)
        if (m->slots[i].key) *find(slots, cap, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    free(m->slots);
    m->slots = slots, m->cap = cap;
    return BK_OK;
}

bk_status bk_map_set(bk_map *m, const char *key, int64_t value)
{
    if (m->n >= m->cap / 2 && rehash(m) != BK_OK) return BK_E_MEM; /* at most half full: find() ends */
    const uint64_t hash = bk_hash_str(key);
    bk_map_slot *slot = find(m->slots, m->cap, key, hash);
    if (!slot->key) m->n++;
    *slot = (bk_map_slot){key, hash, value};
    return BK_OK;
}

int64_t bk_map_get(const bk_map *m, const char *key, int64_t missing)
{
    if (m->cap == 0) return missing;
    const bk_map_slot *slot = find(m->slots, m->cap, key, bk_hash_str(key));
    return slot->key ? slot->value : missing;
}

void bk_map_free(bk_map *m)
{
    if (!m) return;
    free(m->slots);
    *m = (bk_map){0};
}
