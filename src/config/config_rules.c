/* What may not be combined, and the sentence that says so.
 *
 * Order: features that are not built; what derive.c relies on; derived values; everything else. Each rule is
 * a function that returns BK_OK or one sentence: the options with their values and origins, and a way out.
 * Ranges of single values stand in options.def and are checked when a value is set. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "config/option.h"

#define CITE(c, name) bk_config_cite((char[BK_CITE_LEN]){0}, (c), BK_OPT_##name)

static bk_status features_are_built(const bk_config *c, bk_err *e)
{
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        const bk_option *o = &bk_options[i];
        if (o->group != BK_GROUP_OFF || !bk_option_wants_feature(c, (bk_option_id)i)) continue;
        const size_t first = strcspn(o->off, "|");
        char cite[BK_CITE_LEN];
        return bk_err_set(e, BK_E_INPUT, "%s asks for %s, which is not built; leave it out or set it to %.*s",
                          bk_config_cite(cite, c, (bk_option_id)i), o->help, (int)first, o->off);
    }
    return BK_OK;
}

static bk_status required_are_set(const bk_config *c, bk_err *e)
{
    static const bk_option_id required[] = {BK_OPT_num_layers, BK_OPT_hidden_size, BK_OPT_num_attention_heads,
                                            BK_OPT_seq_length, BK_OPT_vocab_size};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (!bk_option_is_given(c, required[i]))
            return bk_err_set(e, BK_E_INPUT,
                              "%s is not set and has no default; give it in the config file or as a flag",
                              bk_options[required[i]].name);
    return BK_OK;
}

static bk_status heads_divide_width(const bk_config *c, bk_err *e)
{
    if (c->multi_latent_attention || bk_option_is_given(c, BK_OPT_kv_channels) ||
        c->hidden_size % c->num_attention_heads == 0)
        return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is not a multiple of %s; change one of them, or set kv_channels",
                      CITE(c, hidden_size), CITE(c, num_attention_heads));
}

/* The spellings of the activation agree with each other and name one that is built. */
static bk_status activation_is_one(const bk_config *c, bk_err *e)
{
    const bool given = bk_option_is_given(c, BK_OPT_activation), gated = c->gated_linear_unit || c->swiglu;
    const bool silu = c->activation_func == BK_ACT_FUNC_SILU;
    if (given && gated && c->activation != BK_ACT_SWIGLU)
        return bk_err_set(e, BK_E_INPUT, "%s contradicts %s; drop one of them", CITE(c, activation),
                          c->swiglu ? CITE(c, swiglu) : CITE(c, gated_linear_unit));
    if (bk_option_is_given(c, BK_OPT_swiglu) && !c->swiglu && c->gated_linear_unit)
        return bk_err_set(e, BK_E_INPUT, "%s contradicts %s; drop one of them", CITE(c, swiglu),
                          CITE(c, gated_linear_unit));
    if (given && c->activation == BK_ACT_SWIGLU && bk_option_is_given(c, BK_OPT_swiglu) && !c->swiglu)
        return bk_err_set(e, BK_E_INPUT, "%s contradicts %s; drop one of them", CITE(c, activation),
                          CITE(c, swiglu));
    if (given && silu && c->activation != BK_ACT_SWIGLU)
        return bk_err_set(e, BK_E_INPUT, "%s contradicts %s; drop one of them", CITE(c, activation),
                          CITE(c, activation_func));
    if (c->swiglu && bk_option_is_given(c, BK_OPT_activation_func) && !silu)
        return bk_err_set(e, BK_E_INPUT, "%s contradicts %s; drop one of them", CITE(c, swiglu),
                          CITE(c, activation_func));
    if (given || c->swiglu) return BK_OK;
    if (c->gated_linear_unit && !silu)
        return bk_err_set(e, BK_E_INPUT,
                          "%s with %s is a gated GELU, which is not built; set activation_func to silu",
                          CITE(c, gated_linear_unit), CITE(c, activation_func));
    if (silu && !c->gated_linear_unit)
        return bk_err_set(e, BK_E_INPUT,
                          "%s without gated_linear_unit is a plain SiLU, which is not built; set swiglu",
                          CITE(c, activation_func));
    return BK_OK;
}

static bk_status qkv_bias_follows_biases(const bk_config *c, bk_err *e)
{
    if (!bk_option_is_given(c, BK_OPT_add_qkv_bias) || c->add_qkv_bias || !c->add_bias_linear) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "%s contradicts %s, which gives every linear layer a bias; change one of them",
                      CITE(c, add_qkv_bias), CITE(c, add_bias_linear));
}

static bk_status groups_divide_heads(const bk_config *c, bk_err *e)
{
    if (c->num_attention_heads % c->num_query_groups == 0) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is not a multiple of %s; every group needs the same number of heads",
                      CITE(c, num_attention_heads), CITE(c, num_query_groups));
}

static bk_status rotated_dims_pair_up(const bk_config *c, bk_err *e)
{
    if (c->position_embedding_type != BK_POSITION_ROPE || c->multi_latent_attention) return BK_OK;
    const int64_t rotated = (int64_t)((double)c->kv_channels * c->rotary_percent);
    if (rotated > 0 && rotated % 2 == 0) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "%s and %s rotate %" PRId64
                      " dims of a head; choose them so that the product is even and not 0",
                      CITE(c, kv_channels), CITE(c, rotary_percent), rotated);
}

static bk_status positions_cover_samples(const bk_config *c, bk_err *e)
{
    if (c->position_embedding_type != BK_POSITION_LEARNED || c->max_position_embeddings >= c->seq_length)
        return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is less than %s; raise it, or shorten the samples",
                      CITE(c, max_position_embeddings), CITE(c, seq_length));
}

/* The tokens of a depth are those of the model moved on; a table of positions would have to move as well. */
static bk_status mtp_positions(const bk_config *c, bk_err *e)
{
    if (c->mtp_num_layers == 0 || c->position_embedding_type != BK_POSITION_LEARNED) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s does not go with %s; use rope or none", CITE(c, mtp_num_layers),
                      CITE(c, position_embedding_type));
}

static bk_status padding_covers_vocabulary(const bk_config *c, bk_err *e)
{
    if (c->padded_vocab_size > INT32_MAX)
        return bk_err_set(e, BK_E_INPUT, "%s rounded up by %s does not fit in 31 bits; lower one of them",
                          CITE(c, vocab_size), CITE(c, make_vocab_size_divisible_by));
    if (c->padded_vocab_size >= c->vocab_size) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is less than %s; raise it or leave it out",
                      CITE(c, padded_vocab_size), CITE(c, vocab_size));
}

/* Sizes of single tensors in bytes must fit in 63 bits, with room for sums over layers. */
static bk_status tensors_fit(const bk_config *c, bk_err *e)
{
    int64_t streams, tokens, heads, widest, elements;
    const int64_t n = c->enable_mhc_connections ? c->mhc_num_residual_streams : 1;
    bool ok =
        bk_mul64(&streams, n, c->hidden_size) && bk_mul64(&heads, c->num_attention_heads, c->kv_channels);
    ok = ok && bk_mul64(&tokens, c->seq_length, c->micro_batch_size);
    widest = c->padded_vocab_size;
    if (ok && streams > widest) widest = streams;
    if (ok && 3 * heads > widest) widest = 3 * heads;
    if (2 * c->ffn_hidden_size > widest) widest = 2 * c->ffn_hidden_size;
    ok = ok && bk_mul64(&elements, tokens, widest) && elements <= INT64_C(1) << 48;
    ok = ok && bk_mul64(&elements, c->hidden_size, widest) && elements <= INT64_C(1) << 48;
    if (ok) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "the tensors of %s, %s, %s have more than 2^48 elements; lower one of them",
                      CITE(c, seq_length), CITE(c, micro_batch_size), CITE(c, hidden_size));
}

/* The residual streams of mHC have the type of the activations. */
static bk_status mhc_residual_type(const bk_config *c, bk_err *e)
{
    if (!c->enable_mhc_connections || !c->fp32_residual_connection) return BK_OK;
    return bk_err_set(
        e, BK_E_INPUT,
        "%s excludes %s: the residual streams have the type of the activations; drop one of them",
        CITE(c, enable_mhc_connections), CITE(c, fp32_residual_connection));
}

static bk_status micro_batches_fill_batch(const bk_config *c, bk_err *e)
{
    if (c->global_batch_size % c->micro_batch_size == 0) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is not a multiple of %s; change one of them",
                      CITE(c, global_batch_size), CITE(c, micro_batch_size));
}

static bk_status rates_are_ordered(const bk_config *c, bk_err *e)
{
    if (c->min_lr > c->lr)
        return bk_err_set(e, BK_E_INPUT, "%s is above %s; lower it", CITE(c, min_lr), CITE(c, lr));
    if (c->lr_warmup_init > c->lr)
        return bk_err_set(e, BK_E_INPUT, "%s is above %s; lower it", CITE(c, lr_warmup_init), CITE(c, lr));
    return BK_OK;
}

static bk_status warmup_is_one_and_short(const bk_config *c, bk_err *e)
{
    if (c->lr_warmup_iters == 0) return BK_OK;
    if (!isnan(c->lr_warmup_fraction) && c->lr_warmup_fraction > 0)
        return bk_err_set(e, BK_E_INPUT, "%s and %s both set the warm-up; drop one of them",
                          CITE(c, lr_warmup_iters), CITE(c, lr_warmup_fraction));
    if (c->lr_decay_iters == BK_UNSET_COUNT || c->lr_warmup_iters < c->lr_decay_iters) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is not below %s; shorten the warm-up", CITE(c, lr_warmup_iters),
                      CITE(c, lr_decay_iters));
}

static bk_status wsd_has_a_tail(const bk_config *c, bk_err *e)
{
    if (c->lr_decay_style != BK_LR_WSD) return BK_OK;
    if (c->lr_wsd_decay_iters == BK_UNSET_COUNT)
        return bk_err_set(e, BK_E_INPUT, "%s needs lr_wsd_decay_iters, the steps of its tail; set it",
                          CITE(c, lr_decay_style));
    if (c->lr_decay_iters == BK_UNSET_COUNT || c->lr_wsd_decay_iters <= c->lr_decay_iters) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is above %s; shorten the tail", CITE(c, lr_wsd_decay_iters),
                      CITE(c, lr_decay_iters));
}

/* One to three numbers, not negative, with a positive sum: "969,30,1". */
static bk_status split_has_parts(const bk_config *c, bk_err *e)
{
    const char *at = c->split;
    double sum = 0;
    int n = 0;
    bool ok = true;
    for (bool more = true; ok && more; n++) {
        char *end;
        const double part = strtod(at, &end);
        ok = end != at && isfinite(part) && part >= 0 && (*end == ',' || *end == '/' || *end == '\0');
        sum += ok ? part : 0;
        more = ok && *end != '\0';
        at = end + (more ? 1 : 0);
    }
    if (ok && n <= 3 && sum > 0 && isfinite(sum)) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "%s is not up to three numbers with a sum above 0; write it like 969,30,1",
                      CITE(c, split));
}

/* Options that do nothing without the folder they speak of. */
static bk_status checkpoints_have_a_folder(const bk_config *c, bk_err *e)
{
    static const bk_option_id of_save[] = {BK_OPT_save_interval, BK_OPT_save_keep};
    for (size_t i = 0; !*c->save && i < sizeof of_save / sizeof *of_save; i++)
        if (bk_option_is_given(c, of_save[i]))
            return bk_err_set(e, BK_E_INPUT, "%s saves nothing without save, the folder; set it",
                              bk_config_cite((char[BK_CITE_LEN]){0}, c, of_save[i]));
    if (*c->load || !bk_option_is_given(c, BK_OPT_ckpt_step)) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s loads nothing without load, the folder; set it", CITE(c, ckpt_step));
}

typedef bk_status rule(const bk_config *c, bk_err *e);

static bk_status check_all(const bk_config *c, rule *const *rules, size_t n, bk_err *e)
{
    for (size_t i = 0; i < n; i++) {
        const bk_status st = rules[i](c, e);
        if (st != BK_OK) return st;
    }
    return BK_OK;
}

bk_status bk_config_resolve(bk_config *c, bk_err *e)
{
    static rule *const before[] = {
        features_are_built, required_are_set, heads_divide_width, activation_is_one, qkv_bias_follows_biases,
    };
    static rule *const after[] = {
        groups_divide_heads,
        rotated_dims_pair_up,
        positions_cover_samples,
        mtp_positions,
        padding_covers_vocabulary,
        bk_config_check_mla,
        tensors_fit,
        bk_config_check_moe,
        mhc_residual_type,
        micro_batches_fill_batch,
        rates_are_ordered,
        warmup_is_one_and_short,
        wsd_has_a_tail,
        split_has_parts,
        checkpoints_have_a_folder,
    };
    for (int i = 0; i < BK_N_OPTIONS; i++)
        if (!bk_option_is_given(c, (bk_option_id)i)) bk_option_reset(c, (bk_option_id)i);
    bk_status st = check_all(c, before, sizeof before / sizeof *before, e);
    if (st == BK_OK) st = bk_config_derive(c, e);
    if (st == BK_OK) st = check_all(c, after, sizeof after / sizeof *after, e);
    return st;
}
