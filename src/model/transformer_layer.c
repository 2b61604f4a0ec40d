/* One transformer layer, streams to streams: attention, then the feed-forward part, each inside a residual
 * path. */
#include "model/parts.h"

/* What builds each kind of sublayer. Megatron may keep the norm in front of it with the linear layer that
 * reads it. */
static const struct {
    bk_branch (*build)(bk_builder *b, bk_vid x);
    const char *norm_alias;
} attentions[BK_N_ATTENTIONS] = {
    [BK_ATTENTION_STANDARD] = {bk_build_self_attention, "self_attention.linear_qkv.layer_norm"},
    [BK_ATTENTION_MLA] = {bk_build_mla, "self_attention.linear_qkv_down_proj.layer_norm"},
};
static bk_branch (*const build_mlp[BK_N_MLPS])(bk_builder *b, bk_vid x) = {
    [BK_MLP_DENSE] = bk_build_dense_mlp, [BK_MLP_MOE] = bk_build_moe};

bk_vid bk_build_layer(bk_builder *b, const bk_layer_spec *spec, int64_t layer, bk_vid x)
{
    bk_residual r;
    bk_build_at(b, layer, BK_NODE_ATTN);
    bk_vid h = bk_build_residual_open(&r, b, spec, "attn", BK_PART_ATTENTION_HC, x);
    h = bk_build_norm(b, "attn.norm", h, "input_layernorm", attentions[spec->attention].norm_alias);
    const bk_branch attention = attentions[spec->attention].build(b, h);
    x = bk_build_residual_close(b, spec, "attn", BK_SITE_ATTENTION_OUT, &r, attention);

    /* What stands before the experts is the attention's node, so that all of it can run beside the exchange
     * of another micro-batch; and what comes after, one of its own. */
    const bool moe = spec->mlp == BK_MLP_MOE;
    if (!moe) bk_build_at(b, layer, BK_NODE_MLP);
    h = bk_build_residual_open(&r, b, spec, "mlp", BK_PART_MLP_HC, x);
    h = bk_build_norm(b, "mlp.norm", h, "pre_mlp_layernorm", moe ? NULL : "mlp.linear_fc1.layer_norm");
    const bk_branch mlp = build_mlp[spec->mlp](b, h);
    if (moe && spec->hyper) bk_build_at(b, layer, BK_NODE_MHC_POST);
    return bk_build_residual_close(b, spec, "mlp", BK_SITE_MLP_OUT, &r, mlp);
}
