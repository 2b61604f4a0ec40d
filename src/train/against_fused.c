#include "train/against_fused.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_LEN = 256 };

static const char fused[] = ".linear_qkv_down_proj.weight";

/* The first tensor of a fused layer, or NULL; `stem` gets what stands before the layer's name. */
static const bk_st_tensor *find_fused(char stem[NAME_LEN], const bk_st *file)
{
    for (int64_t k = 0; k < bk_st_count(file); k++) {
        const bk_st_tensor *t = bk_st_at(file, k);
        const size_t n = strlen(t->name), end = sizeof fused - 1;
        if (n <= end || n >= NAME_LEN || strcmp(t->name + n - end, fused) != 0) continue;
        snprintf(stem, NAME_LEN, "%.*s", (int)(n - end), t->name);
        return t;
    }
    return NULL;
}

bk_status bk_against_split_fused(bk_st *file, const bk_config *c, bk_err *e)
{
    char stem[NAME_LEN], q[NAME_LEN + sizeof fused], kv[NAME_LEN + sizeof fused];
    const bk_st_tensor *t;
    bk_status st = BK_OK;
    /* Without a query latent the model has nothing to split them into, and says so. */
    if (!c->multi_latent_attention || c->q_lora_rank == BK_UNSET_COUNT) return BK_OK;
    const int64_t rows = c->q_lora_rank + c->kv_lora_rank + c->qk_pos_emb_head_dim;
    while (st == BK_OK && (t = find_fused(stem, file))) {
        if (t->rank != 2 || t->shape[0] != rows)
            return bk_err_set(e, BK_E_INPUT,
                              "tensor %.200s has not the %" PRId64
                              " rows of q_lora_rank, kv_lora_rank and qk_pos_emb_head_dim",
                              t->name, rows);
        snprintf(q, sizeof q, "%s.linear_q_down_proj.weight", stem);
        snprintf(kv, sizeof kv, "%s.linear_kv_down_proj.weight", stem);
        st = bk_st_split(file, t->name, c->q_lora_rank, q, kv, e);
    }
    return st;
}
