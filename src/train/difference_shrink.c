/* The small copy of a model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/option.h"
#include "train/difference.h"

enum {
    LAYERS = 2,
    GROUPS = 2,
    HEADS_OF_GROUP = 2,
    HEAD = 4,
    FFN = 12,
    SEQ = 6,
    BATCH = 2,
    MICRO = 2,
    VOCAB = 11,
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
    bk_status st = BK_OK;
    for (size_t k = 0; k < sizeof small / sizeof *small && st == BK_OK; k++) {
        char text[24];
        snprintf(text, sizeof text, "%" PRId64, small[k].value);
        st = bk_config_set(c, small[k].name, text, "shrunken copy", e);
    }
    /* What a detached head holds back is missing in the gradient, but not in the loss. */
    if (st == BK_OK) st = bk_config_set(c, "mtp_detach_heads", "false", "shrunken copy", e);
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
    return group == BK_GROUP_MHC   ? c->enable_mhc_connections
           : group == BK_GROUP_MTP ? c->mtp_num_layers > 0
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
