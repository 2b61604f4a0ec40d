/* Multi-latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): queries, keys and values come from
 * latents that are narrower than they are together. Of each query and key head dn dims do not turn with the
 * position and dr do; the latter of the keys are the same for all heads.
 *
 *     down   x [S, B, C]  -> q latent [S, B, rq]              and    kv latent [S, B, rk] | k_pe [S, B, dr]
 *     up     norm(q latent) -> q [S, B, H, dn | dr]                  norm(kv latent) -> [S, B, H, dn | dv]
 *     q = [q_nope | rope(q_pe)]     k = [k_nope | rope(k_pe), the same for all heads]     v
 *
 * Without a rank of its own the q latent is left out, and queries come from x in one product. */
#include <math.h>
#include <stdio.h>

#include "model/parts.h"

/* rope's attribute "interleaved": read as neighbours, written as halves. */
enum { PAIRS_TO_HALVES = 2 };

/* YaRN's growth with the factor of a longer sequence (arXiv:2309.00071, section 3.4), `m` times over. */
static double concentration(double factor, double m)
{
    return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

void bk_build_mla_rope_tables(bk_builder *b)
{
    const bk_config *c = b->c;
    const bk_attr base = {.f = c->rotary_base};
    bk_vid table[2];
    if (c->rope_type == BK_ROPE_PLAIN) {
        bk_build_op(table, b,
                    &(bk_op_spec){BK_OP_rope_table, BK_IN(b->io->position), .name = "rope",
                                  .attr = {{b->l->seq}, {c->qk_pos_emb_head_dim}, base}});
    } else {
        const double both = concentration(c->rotary_scaling_factor, c->mscale) /
                            concentration(c->rotary_scaling_factor, c->mscale_all_dim);
        bk_build_op(table, b,
                    &(bk_op_spec){BK_OP_yarn_table, BK_IN(b->io->position), .name = "rope",
                                  .attr = {{b->l->seq},
                                           {c->qk_pos_emb_head_dim},
                                           base,
                                           {.f = c->rotary_scaling_factor},
                                           {c->original_max_position_embeddings},
                                           {.f = c->beta_fast},
                                           {.f = c->beta_slow},
                                           {.f = both}}});
    }
    b->io->rope_cos = table[0], b->io->rope_sin = table[1];
}

static bk_vid weight(bk_builder *b, const char *name, int64_t n_out, int64_t n_in)
{
    return bk_build_linear_params(b, name, n_out, n_in, b->c->init_method_std, false, BK_CLASS_ATTENTION)
        .weight;
}

static bk_vid project(bk_builder *b, const char *name, const char *param, bk_vid x, int64_t n_out,
                      int64_t n_in)
{
    return bk_build_op1(b,
                        &(bk_op_spec){BK_OP_linear, BK_IN(x, weight(b, param, n_out, n_in)), .name = name});
}

/* "attn.q_latent" and "norm" to "attn.q_latent.norm". */
static const char *under(char buf[BK_NAME_LEN], const char *name, const char *part)
{
    snprintf(buf, BK_NAME_LEN, "%s.%s", name, part);
    return buf;
}

/* Columns first .. first + n - 1 of a down projection, with the norm of latents where there is one. */
static bk_vid latent(bk_builder *b, const char *name, bk_vid down, int64_t first, int64_t n,
                     const char *param, const char *alias)
{
    if (b->st != BK_OK) return BK_NONE;
    const int64_t S = b->l->seq, B = b->l->micro_batch, row = b->g->value[down].dim[2].size;
    char full[BK_NAME_LEN];
    bk_vid x = down;
    if (row > n) { /* norms and products read rows that follow on each other */
        const bk_vid part = bk_build_view(b, under(full, name, "part"), down, 3, (const int64_t[]){S, B, n},
                                          (const int64_t[]){B * row, row, 1}, first);
        x = bk_build_op1(b, &(bk_op_spec){BK_OP_copy, BK_IN(part), .name = name});
    }
    return b->c->qk_layernorm ? bk_build_norm(b, under(full, name, "norm"), x, param, alias) : x;
}

/* The two down projections, as one product or as two: where the latents begin in which value. */
typedef struct {
    bk_vid q, kv; /* BK_NONE without a q latent; the same value if fused */
    int64_t kv_first;
} down_projections;

static down_projections project_down(bk_builder *b, bk_vid x)
{
    static const char q[] = "self_attention.linear_q_down_proj", kv[] = "self_attention.linear_kv_down_proj";
    const bk_config *c = b->c;
    const int64_t C = c->hidden_size, rq = c->q_lora_rank, n_kv = c->kv_lora_rank + c->qk_pos_emb_head_dim;
    down_projections out = {.q = BK_NONE};
    if (c->mla_down_proj_fusion) {
        const bk_vid w[] = {weight(b, q, rq, C), weight(b, kv, n_kv, C)};
        out.q = out.kv =
            bk_build_op1(b, &(bk_op_spec){BK_OP_linear_pair, BK_IN(x, w[0], w[1]), .name = "attn.qkv_down"});
        out.kv_first = rq;
        return out;
    }
    if (rq != BK_UNSET_COUNT) out.q = project(b, "attn.q_down", q, x, rq, C);
    out.kv = project(b, "attn.kv_down", kv, x, n_kv, C);
    return out;
}

/* Rotates the last dims of each head. */
static bk_vid rotate(bk_builder *b, const char *name, bk_vid x, int64_t first)
{
    return bk_build_op1(b, &(bk_op_spec){BK_OP_rope, BK_IN(x, b->io->rope_cos, b->io->rope_sin), .name = name,
                                         .attr = {{PAIRS_TO_HALVES}, {0}, {first}}});
}

/* q [S, B, H, 1, dn + dr]: to the attention every head is a group of its own. */
static bk_vid queries(bk_builder *b, bk_vid x, const down_projections *down)
{
    const bk_config *c = b->c;
    const int64_t S = b->l->seq, B = b->l->micro_batch, H = c->num_attention_heads,
                  d = c->qk_head_dim + c->qk_pos_emb_head_dim, rq = c->q_lora_rank;
    bk_vid q;
    if (down->q == BK_NONE) {
        q = project(b, "attn.q_up", "self_attention.linear_q_proj", x, H * d, c->hidden_size);
    } else {
        const bk_vid from = latent(b, "attn.q_latent", down->q, 0, rq, "self_attention.q_layernorm",
                                   "self_attention.linear_q_up_proj.layer_norm");
        q = project(b, "attn.q_up", "self_attention.linear_q_up_proj", from, H * d, rq);
    }
    q = bk_build_view(b, "attn.q", q, 5, (const int64_t[]){S, B, H, 1, d},
                      (const int64_t[]){B * H * d, H * d, d, d, 1}, 0);
    return rotate(b, "attn.q.rotated", q, c->qk_head_dim);
}

/* k [S, B, H, dn + dr] and v [S, B, H, dv]. */
static void keys_and_values(bk_vid *k, bk_vid *v, bk_builder *b, const down_projections *down)
{
    const bk_config *c = b->c;
    const int64_t S = b->l->seq, B = b->l->micro_batch, H = c->num_attention_heads, dn = c->qk_head_dim,
                  dr = c->qk_pos_emb_head_dim, dv = c->v_head_dim, rk = c->kv_lora_rank;
    const int64_t low = down->kv_first + rk + dr, high = H * (dn + dv); /* widths of the two rows */
    const bk_vid from = latent(b, "attn.kv_latent", down->kv, down->kv_first, rk,
                               "self_attention.kv_layernorm", "self_attention.linear_kv_up_proj.layer_norm");
    const bk_vid kv = project(b, "attn.kv_up", "self_attention.linear_kv_up_proj", from, high, rk);
    const int64_t stride[] = {B * high, high, dn + dv, 1};
    const bk_vid own = bk_build_view(b, "attn.k_nope", kv, 4, (const int64_t[]){S, B, H, dn}, stride, 0);
    const bk_vid shared = bk_build_view(b, "attn.k_pe", down->kv, 4, (const int64_t[]){S, B, 1, dr},
                                        (const int64_t[]){B * low, low, dr, 1}, down->kv_first + rk);
    const bk_vid turned = rotate(b, "attn.k_pe.rotated", shared, 0);
    *k = bk_build_op1(b, &(bk_op_spec){BK_OP_mla_key, BK_IN(own, turned), .name = "attn.k"});
    *v = bk_build_view(b, "attn.v", kv, 4, (const int64_t[]){S, B, H, dv}, stride, dn);
}

/* Megatron's: YaRN's concentration of all dims counts whatever the angles are. */
static double softmax_scale(const bk_config *c)
{
    const double m = concentration(c->rotary_scaling_factor, c->mscale_all_dim);
    return m * m / sqrt((double)(c->qk_head_dim + c->qk_pos_emb_head_dim));
}

bk_branch bk_build_mla(bk_builder *b, bk_vid x)
{
    const down_projections down = project_down(b, x);
    const bk_vid q = queries(b, x, &down);
    bk_vid k, v;
    keys_and_values(&k, &v, b, &down);
    const bk_vid context = bk_build_core_attention(b, q, k, v, softmax_scale(b->c));
    return bk_build_attention_out(b, context, b->c->num_attention_heads * b->c->v_head_dim);
}
