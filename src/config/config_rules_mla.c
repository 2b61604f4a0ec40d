/* Rules of multi-latent attention: what may not be combined, and the sentence that says so. */
#include <inttypes.h>

#include "base/size.h"
#include "config/option.h"

#define CITE(c, name) bk_config_cite((char[BK_CITE_LEN]){0}, (c), BK_OPT_##name)

/* Options that would be silently without effect, or mean another thing to Megatron. */
static bk_status options_have_their_switch(const bk_config *c, bk_err *e)
{
    if (c->qk_layernorm)
        return bk_err_set(
            e, BK_E_INPUT,
            "%s without multi_latent_attention asks for norms of queries and keys, which are not "
            "built; drop it",
            CITE(c, qk_layernorm));
    if (c->mla_down_proj_fusion)
        return bk_err_set(e, BK_E_INPUT, "%s has nothing to fuse without multi_latent_attention; set it",
                          CITE(c, mla_down_proj_fusion));
    return BK_OK;
}

static bk_status heads_are_alike(const bk_config *c, bk_err *e)
{
    if (c->num_query_groups == c->num_attention_heads) return BK_OK;
    return bk_err_set(
        e, BK_E_INPUT,
        "%s does not go with %s, in which each of the heads has a key and a value of its own; drop it",
        CITE(c, num_query_groups), CITE(c, multi_latent_attention));
}

static bk_status fusion_has_two_parts(const bk_config *c, bk_err *e)
{
    if (!c->mla_down_proj_fusion || c->q_lora_rank != BK_UNSET_COUNT) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "%s needs q_lora_rank: without it queries have no down projection; set it or drop the "
                      "fusion",
                      CITE(c, mla_down_proj_fusion));
}

/* The rotated part is a head of its own, with the pairs in one order. */
static bk_status rotation_is_its_own(const bk_config *c, bk_err *e)
{
    if (c->rotary_interleaved)
        return bk_err_set(e, BK_E_INPUT, "%s does not go with %s, which has an order of its own; drop it",
                          CITE(c, rotary_interleaved), CITE(c, multi_latent_attention));
    if (c->rotary_percent != 1)
        return bk_err_set(
            e, BK_E_INPUT,
            "%s does not go with %s; the rotated part of a head is qk_pos_emb_head_dim wide, so "
            "set that",
            CITE(c, rotary_percent), CITE(c, multi_latent_attention));
    if (c->qk_pos_emb_head_dim % 2 != 0)
        return bk_err_set(e, BK_E_INPUT, "%s is odd, and dims turn in pairs; make it even",
                          CITE(c, qk_pos_emb_head_dim));
    return BK_OK;
}

static bk_status yarn_is_sound(const bk_config *c, bk_err *e)
{
    if (c->rope_type != BK_ROPE_YARN) return BK_OK;
    if (c->beta_fast < c->beta_slow)
        return bk_err_set(e, BK_E_INPUT,
                          "%s is below %s, but angles that turn fast are those that are kept; exchange them",
                          CITE(c, beta_fast), CITE(c, beta_slow));
    if (c->rotary_base <= 1)
        return bk_err_set(e, BK_E_INPUT,
                          "%s is not above 1, which %s needs for its range of angles; raise it",
                          CITE(c, rotary_base), CITE(c, rope_type));
    return BK_OK;
}

/* As for all others, the tensors have at most 2^48 elements. */
static bk_status tensors_fit(const bk_config *c, bk_err *e)
{
    const int64_t head = c->qk_head_dim + c->qk_pos_emb_head_dim + c->v_head_dim;
    const int64_t rq = c->q_lora_rank == BK_UNSET_COUNT ? 0 : c->q_lora_rank;
    const int64_t latents = rq + c->kv_lora_rank + c->qk_pos_emb_head_dim;
    int64_t widest, tokens, elements;
    bool ok = bk_mul64(&widest, c->num_attention_heads, head);
    if (latents > widest) widest = latents;
    ok = ok && bk_mul64(&tokens, c->seq_length, c->micro_batch_size) && bk_mul64(&elements, tokens, widest) &&
         elements <= INT64_C(1) << 48;
    ok = ok && bk_mul64(&elements, latents > c->hidden_size ? latents : c->hidden_size, widest) &&
         elements <= INT64_C(1) << 48;
    if (ok) return BK_OK;
    return bk_err_set(
        e, BK_E_INPUT,
        "the tensors of %s with heads of %s, %s and %s have more than 2^48 elements; lower one of them",
        CITE(c, num_attention_heads), CITE(c, qk_head_dim), CITE(c, qk_pos_emb_head_dim),
        CITE(c, v_head_dim));
}

bk_status bk_config_check_mla(const bk_config *c, bk_err *e)
{
    bk_status st = BK_OK;
    if (!c->multi_latent_attention) return options_have_their_switch(c, e);
    BK_TRY(heads_are_alike(c, e));
    BK_TRY(fusion_has_two_parts(c, e));
    BK_TRY(rotation_is_its_own(c, e));
    BK_TRY(yarn_is_sound(c, e));
    BK_TRY(tensors_fit(c, e));
done:
    return st;
}
