/* Any bytes given to the safetensors reader: no crash, no read outside them, and what is accepted keeps the
 * promises of data/safetensors.h. Seeds: corpus_safetensors/. */
#include <stdint.h>
#include <stdlib.h>

#include "data/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int promise)
{
    if (!promise) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bk_st *st = NULL;
    bk_err e = {0};
    if (bk_st_from_memory(&st, data, (int64_t)size, "fuzz", &e) != BK_OK) {
        require(st == NULL && e.msg[0] != '\0');
        return 0;
    }
    int64_t total = 0;
    for (int64_t i = 0; i < bk_st_count(st); i++) {
        const bk_st_tensor *t = bk_st_at(st, i);
        const uint8_t *begin = t->data;
        require(begin >= data + 10 && t->bytes >= 0 && begin + t->bytes <= data + size);
        require(bk_st_find(st, t->name) == t);
        total += t->bytes;
        double *copy = malloc((size_t)bk_st_n_elems(t) * sizeof *copy + 1);
        if (copy) bk_st_to_f64(copy, t, NULL); /* reads every byte */
        free(copy);
    }
    require(total <= (int64_t)size - 10);
    for (int64_t i = 0; i < bk_st_meta_count(st); i++) {
        const bk_st_pair *p = bk_st_meta_at(st, i);
        require(bk_st_meta(st, p->key) == p->value);
    }
    bk_st_free(st);
    return 0;
}
