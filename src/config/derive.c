/* Values that follow from others. Derived values have an origin without text, so that the next resolve starts
 * from what was given. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "config/option.h"

/* Whether the option is to be derived; then the formula is its origin. */
static bool derive(bk_config *c, bk_option_id id, const char *formula)
{
    if (bk_option_is_given(c, id)) return false;
    c->origin[id].where = formula;
    return true;
}

#define DERIVE(c, name, value, formula)                                                                      \
    do {                                                                                                     \
        if (derive((c), BK_OPT_##name, (formula))) (c)->name = (value);                                      \
    } while (0)

/* Megatron's launcher: gelu is the tanh form when the bias is fused into it, which needs biases. */
static void derive_activation(bk_config *c)
{
    if (c->swiglu)
        DERIVE(c, activation, BK_ACT_SWIGLU, "from swiglu");
    else if (c->gated_linear_unit)
        DERIVE(c, activation, BK_ACT_SWIGLU, "from gated_linear_unit and activation_func");
    else if (c->bias_gelu_fusion && c->add_bias_linear)
        DERIVE(c, activation, BK_ACT_GELU_TANH, "from bias_gelu_fusion and add_bias_linear");
    else if (!c->bias_gelu_fusion)
        DERIVE(c, activation, BK_ACT_GELU, "from bias_gelu_fusion");
    else
        DERIVE(c, activation, BK_ACT_GELU, "from add_bias_linear");
}

static void derive_model(bk_config *c)
{
    if (c->num_query_groups == 0) c->origin[BK_OPT_num_query_groups].text = NULL; /* the same as unset */
    DERIVE(c, num_query_groups, c->num_attention_heads, "from num_attention_heads");
    if (c->multi_latent_attention)
        DERIVE(c, kv_channels, c->qk_head_dim + c->qk_pos_emb_head_dim, "qk_head_dim + qk_pos_emb_head_dim");
    else
        DERIVE(c, kv_channels, c->hidden_size / c->num_attention_heads, "hidden_size / num_attention_heads");
    if (c->activation == BK_ACT_SWIGLU)
        DERIVE(c, ffn_hidden_size, c->hidden_size * 8 / 3 / 64 * 64, "8/3 hidden_size, down to 64");
    else
        DERIVE(c, ffn_hidden_size, c->hidden_size * 4, "4 hidden_size");
    DERIVE(c, moe_ffn_hidden_size, c->ffn_hidden_size, "from ffn_hidden_size");
    DERIVE(c, max_position_embeddings, c->seq_length, "from seq_length");
    if (c->add_bias_linear) DERIVE(c, add_qkv_bias, true, "from add_bias_linear");
    DERIVE(c, embedding_init_method_std, c->init_method_std, "from init_method_std");
    DERIVE(c, padded_vocab_size, bk_align_up(c->vocab_size, c->make_vocab_size_divisible_by),
           "vocab_size, up to make_vocab_size_divisible_by");
}

bk_status bk_config_derive(bk_config *c, bk_err *e)
{
    derive_activation(c);
    derive_model(c);
    DERIVE(c, global_batch_size, c->micro_batch_size, "from micro_batch_size");
    if (c->train_iters > 0) DERIVE(c, lr_decay_iters, c->train_iters, "from train_iters");
    if (c->ffn_hidden_size < 1)
        return bk_err_set(e, BK_E_INPUT,
                          "hidden_size %" PRId64
                          " is too small to derive ffn_hidden_size; set ffn_hidden_size",
                          c->hidden_size);
    return BK_OK;
}
