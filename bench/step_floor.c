#include "step_floor.h"

#include <stdlib.h>

#include "config/moe_options.h"

/* Each function counts the multiply-adds of a token's forward. */

static double core_madds(const bk_config *c, double key_width, double value_width)
{
    return 0.5 * (double)c->seq_length * (double)c->num_attention_heads * (key_width + value_width);
}

static double latent_attention_madds(const bk_config *c)
{
    const double C = (double)c->hidden_size, H = (double)c->num_attention_heads;
    const double nope = (double)c->qk_head_dim, rope = (double)c->qk_pos_emb_head_dim;
    const double value = (double)c->v_head_dim, kv = (double)c->kv_lora_rank;
    const double rank = (double)(c->q_lora_rank != BK_UNSET_COUNT ? c->q_lora_rank : 0);
    const double queries = rank > 0 ? rank * (C + H * (nope + rope)) : C * H * (nope + rope);
    return queries + C * (kv + rope) + kv * H * (nope + value) + H * value * C +
           core_madds(c, nope + rope, value);
}

static double attention_madds(const bk_config *c)
{
    if (c->multi_latent_attention) return latent_attention_madds(c);
    const double C = (double)c->hidden_size, d = (double)c->kv_channels;
    const double heads = (double)c->num_attention_heads, groups = (double)c->num_query_groups;
    return C * d * (2 * heads + 2 * groups) + core_madds(c, d, d);
}

static double mlp_madds(const bk_config *c, bool has_experts)
{
    const double C = (double)c->hidden_size, matrices = c->activation == BK_ACT_SWIGLU ? 3 : 2;
    if (!has_experts) return matrices * C * (double)c->ffn_hidden_size;
    return C * (double)c->num_experts + matrices * C *
                                            ((double)c->moe_router_topk * (double)c->moe_ffn_hidden_size +
                                             (double)c->moe_shared_expert_intermediate_size);
}

static double layer_madds(const bk_config *c, bool has_experts)
{
    const double C = (double)c->hidden_size, n = (double)c->mhc_num_residual_streams;
    const double maps = c->enable_mhc_connections ? 2 * (n * n + 2 * n) * n * C : 0;
    return attention_madds(c) + mlp_madds(c, has_experts) + maps;
}

/* The contraction and the output layer, which the decoder and each further depth end with. */
static double end_madds(const bk_config *c)
{
    const double C = (double)c->hidden_size, n = (double)c->mhc_num_residual_streams;
    return C * (double)c->padded_vocab_size + (c->enable_mhc_connections ? n * n * C : 0);
}

static double depth_madds(const bk_config *c, bool has_experts)
{
    const double C = (double)c->hidden_size, n = (double)c->mhc_num_residual_streams;
    return (c->enable_mhc_connections ? 1 + n : 2) * C * C + layer_madds(c, has_experts) + end_madds(c);
}

/* By sublayer with x [n, C]. Forward: x and the sublayer's output are read once, x' and the next sublayer's
 * input written once. Backward: x and the gradient of x' are read once before the sublayer's backward (to
 * give its dy) and once after it, then dx is written. */
static double stream_bytes(const bk_config *c)
{
    const double C = (double)c->hidden_size, n = (double)c->mhc_num_residual_streams;
    if (!c->enable_mhc_connections) return 0;
    return 2 * (double)(c->num_layers + c->mtp_num_layers) * 4 * ((2 * n + 2) * C + (5 * n + 3) * C);
}

bk_status bk_step_floor_of(bk_step_floor *out, const bk_config *c, bk_err *e)
{
    bool *has_experts = calloc((size_t)c->num_layers, sizeof *has_experts);
    if (!has_experts) return bk_err_set(e, BK_E_MEM, "bench: out of memory");
    const bk_status st = bk_config_moe_layers(has_experts, c, e);
    if (st == BK_OK) {
        double forward = end_madds(c);
        for (int64_t i = 0; i < c->num_layers; i++) forward += layer_madds(c, has_experts[i]);
        forward += (double)c->mtp_num_layers * depth_madds(c, has_experts[c->num_layers - 1]);
        *out = (bk_step_floor){.madds = 3 * forward, .stream_bytes = stream_bytes(c)};
    }
    free(has_experts);
    return st;
}
