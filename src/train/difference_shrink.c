/* The small copy of a model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/moe_options.h"
#include "config/option.h"
#include "train/difference.h"

enum {
    LAYERS = 2,
    GROUPS = 2,
    HEADS_OF_GROUP = 2,
    HEAD = 4,
    Q_LATENT = 5,
    KV_LATENT = 6,
    QK_HEAD = 3,
    ROTATED = 4,
    V_HEAD = 5,
    FFN = 12,
    SEQ = 6,
    BATCH = 2,
    MICRO = 2,
    VOCAB = 11,
    EXPERTS = 5,
    CHOSEN = 2,
    EXPERT_GROUPS = 3,
    EXPERTS_OF_GROUP = 2,
    EXPERT_FFN = 7,
    SHARED_FFN = 6,
    EXTRA = 2
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The least width of a head from HEAD on that rotates two pairs or more, or as many as the original. */
static int64_t head_width(const bk_config *c)
{
    int64_t width = least(c->kv_channels, HEAD);
    if (c->position_embedding_type != BK_POSITION_ROPE) return width;
    for (; width < c->kv_channels; width++) {
        const int64_t rotated = (int64_t)((double)width * c->rotary_percent);
        if (rotated >= HEAD && rotated % 2 == 0) break;
    }
    return width;
}

static bk_status set(bk_config *c, const char *name, const char *value, bk_err *e)
{
    return bk_config_set(c, name, value, "shrunken copy", e);
}

static bk_status set_count(bk_config *c, const char *name, int64_t value, bk_err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return set(c, name, text, e);
}

/* The last of two layers stays what the last one is, for those of multi-token prediction are like it; the
 * first is of the other kind where the model has both. */
static bk_status shrink_layer_kinds(bk_config *c, bk_err *e)
{
    bk_arena arena = {0};
    bool *has_experts = bk_arena_alloc(&arena, c->num_layers, sizeof *has_experts);
    bk_status st = has_experts ? bk_config_moe_layers(has_experts, c, e)
                               : bk_err_set(e, BK_E_MEM, "check: out of memory");
    if (st == BK_OK) {
        char pattern[16];
        const bool last = has_experts[c->num_layers - 1];
        int64_t i = 0;
        while (i < c->num_layers && has_experts[i] == last) i++;
        snprintf(pattern, sizeof pattern, "[%d, %d]", i < c->num_layers ? !last : last, last);
        st = set(c, "moe_layer_freq", pattern, e);
    }
    bk_arena_free(&arena);
    return st;
}

/* All experts of a token stay all of them, one stays one; with groups the same holds of a group. */
static bk_status shrink_experts(bk_config *c, bk_err *e)
{
    const bool grouped = c->moe_router_num_groups != BK_UNSET_COUNT;
    const bool all = c->moe_router_topk == c->num_experts;
    int64_t experts = least(c->num_experts, EXPERTS), chosen = least(c->moe_router_topk, CHOSEN);
    bk_status st = BK_OK;
    if (c->num_layers > LAYERS && c->moe_layer_freq.n > 0) BK_TRY(shrink_layer_kinds(c, e));
    if (grouped) {
        const int64_t all_groups = c->moe_router_num_groups, kept = c->moe_router_group_topk;
        const int64_t groups = least(all_groups, EXPERT_GROUPS);
        const int64_t few = kept == all_groups ? groups : least(kept, CHOSEN);
        experts = groups * least(c->num_experts / all_groups, EXPERTS_OF_GROUP);
        chosen = few * least(c->moe_router_topk / kept, EXPERTS_OF_GROUP);
        if (c->moe_router_topk % kept != 0 && chosen == few) chosen++;
        BK_TRY(set_count(c, "moe_router_num_groups", groups, e));
        BK_TRY(set_count(c, "moe_router_group_topk", few, e));
    }
    BK_TRY(set_count(c, "num_experts", experts, e));
    BK_TRY(set_count(c, "moe_router_topk", all ? experts : chosen, e));
    BK_TRY(set_count(c, "moe_ffn_hidden_size", least(c->moe_ffn_hidden_size, EXPERT_FFN), e));
    BK_TRY(set_count(c, "moe_shared_expert_intermediate_size",
                     least(c->moe_shared_expert_intermediate_size, SHARED_FFN), e));
done:
    return st;
}

/* Widths that differ from each other, and the two pairs that turn: the faster as it did, the slower as YaRN
 * has it for as long a sequence as before. */
static bk_status shrink_latents(bk_config *c, bk_err *e)
{
    bk_status st = BK_OK;
    if (c->q_lora_rank != BK_UNSET_COUNT)
        st = set_count(c, "q_lora_rank", least(c->q_lora_rank, Q_LATENT), e);
    if (st == BK_OK) st = set_count(c, "kv_lora_rank", least(c->kv_lora_rank, KV_LATENT), e);
    if (st == BK_OK) st = set_count(c, "qk_head_dim", least(c->qk_head_dim, QK_HEAD), e);
    if (st == BK_OK) st = set_count(c, "qk_pos_emb_head_dim", least(c->qk_pos_emb_head_dim, ROTATED), e);
    return st == BK_OK ? set_count(c, "v_head_dim", least(c->v_head_dim, V_HEAD), e) : st;
}

bk_status bk_difference_shrink(bk_config *c, bk_err *e)
{
    const bool square = c->num_attention_heads * c->kv_channels == c->hidden_size;
    const bool grouped = c->num_query_groups < c->num_attention_heads;
    const int64_t groups = least(c->num_query_groups, GROUPS);
    const int64_t heads = groups * (grouped ? HEADS_OF_GROUP : 1), head = head_width(c);
    const int64_t hidden = heads * head + (square ? 0 : EXTRA), seq = least(c->seq_length, SEQ);
    const int64_t vocab = least(c->vocab_size, VOCAB), batch = least(c->micro_batch_size, BATCH);
    const int64_t n_micro = least(c->global_batch_size / c->micro_batch_size, MICRO);
    const struct {
        const char *name;
        int64_t value;
    } small[] = {
        {"num_layers", least(c->num_layers, LAYERS)},
        {"num_attention_heads", heads},
        {"num_query_groups", groups},
        {"kv_channels", head},
        {"hidden_size", hidden},
        {"ffn_hidden_size", least(c->ffn_hidden_size, FFN)},
        {"seq_length", seq},
        {"max_position_embeddings", seq + (c->max_position_embeddings > c->seq_length ? EXTRA : 0)},
        {"vocab_size", vocab},
        {"padded_vocab_size", vocab + (c->padded_vocab_size > c->vocab_size ? EXTRA : 0)},
        {"micro_batch_size", batch},
        {"global_batch_size", batch * n_micro},
        {"mtp_num_layers", least(c->mtp_num_layers, LAYERS)},
    };
    bk_status st = c->num_experts > 0 ? shrink_experts(c, e) : BK_OK;
    if (st == BK_OK && c->multi_latent_attention) st = shrink_latents(c, e);
    for (size_t k = 0; k < sizeof small / sizeof *small && st == BK_OK; k++)
        st = set_count(c, small[k].name, small[k].value, e);
    /* What a detached head holds back is missing in the gradient, but not in the loss. */
    if (st == BK_OK) st = set(c, "mtp_detach_heads", "false", e);
    return st == BK_OK ? bk_config_resolve(c, e) : st;
}

#define SHOWN(option)                                                                                        \
    {                                                                                                        \
        BK_OPT_##option, #option                                                                             \
    }

/* Whether the model has the part that the option describes. */
static bool applies(const bk_config *c, bk_option_id id)
{
    const bk_group group = bk_options[id].group;
    if (id == BK_OPT_enable_mhc_connections) return true;
    if (id == BK_OPT_kv_channels) return !c->multi_latent_attention;
    return group == BK_GROUP_MHC   ? c->enable_mhc_connections
           : group == BK_GROUP_MLA ? c->multi_latent_attention
           : group == BK_GROUP_MTP ? c->mtp_num_layers > 0
           : group == BK_GROUP_MOE ? c->num_experts > 0
                                   : true;
}

void bk_difference_describe(bk_str *out, const bk_config *c)
{
    static const struct {
        bk_option_id id;
        const char *name;
    } shown[] = {SHOWN(num_layers),
                 SHOWN(hidden_size),
                 SHOWN(num_attention_heads),
                 SHOWN(num_query_groups),
                 SHOWN(kv_channels),
                 SHOWN(multi_latent_attention),
                 SHOWN(q_lora_rank),
                 SHOWN(kv_lora_rank),
                 SHOWN(qk_head_dim),
                 SHOWN(qk_pos_emb_head_dim),
                 SHOWN(v_head_dim),
                 SHOWN(qk_layernorm),
                 SHOWN(mla_down_proj_fusion),
                 SHOWN(rope_type),
                 SHOWN(ffn_hidden_size),
                 SHOWN(activation),
                 SHOWN(normalization),
                 SHOWN(add_bias_linear),
                 SHOWN(position_embedding_type),
                 SHOWN(seq_length),
                 SHOWN(vocab_size),
                 SHOWN(padded_vocab_size),
                 SHOWN(untie_embeddings_and_output_weights),
                 SHOWN(hidden_dropout),
                 SHOWN(attention_dropout),
                 SHOWN(micro_batch_size),
                 SHOWN(global_batch_size),
                 SHOWN(enable_mhc_connections),
                 SHOWN(mhc_num_residual_streams),
                 SHOWN(mhc_sinkhorn_iterations),
                 SHOWN(num_experts),
                 SHOWN(moe_layer_freq),
                 SHOWN(moe_router_topk),
                 SHOWN(moe_router_num_groups),
                 SHOWN(moe_router_group_topk),
                 SHOWN(moe_ffn_hidden_size),
                 SHOWN(moe_shared_expert_intermediate_size),
                 SHOWN(mtp_num_layers),
                 SHOWN(mtp_use_repeated_layer)};
    enum { WIDTH = 100 };
    size_t line = out->len;
    bk_str_append(out, "shrunken copy:");
    for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) {
        bk_str item = {0};
        if (!applies(c, shown[k].id)) continue;
        bk_str_appendf(&item, "%s%s ", k ? ", " : " ", shown[k].name);
        bk_config_value(&item, c, shown[k].id);
        if (out->len - line + item.len > WIDTH) {
            bk_str_append(out, ",\n   ");
            line = out->len - strlen("   ");
            bk_str_append(out, bk_str_text(&item) + 1);
        } else {
            bk_str_append(out, bk_str_text(&item));
        }
        out->failed |= item.failed;
        bk_str_free(&item);
    }
    bk_str_append(out, "\n");
}
