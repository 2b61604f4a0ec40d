/* Attention of new tokens to all tokens so far, whose keys and values are kept from step to step.
 *
 *   cache_append(x [S,B,G,d], position; cache [M,B,G,d] += rows position .. position + S - 1)
 *   attention_cached(q [S,B,G,R,d], k [M,B,G,d], v [M,B,G,dv], position; o [S,B,G*R*dv])
 *
 * M is the capacity of the caches. New token i stands at position `position` + i and sees the keys up to its
 * own, which cache_append has put there before. Neither has a gradient: generation alone uses them. */
#include <math.h>
#include <string.h>

#define BK_BOTH "ops/attention/attention_cpu.h"
#include "base/real_both.h"
#include "base/size.h"
#include "ops/adapters.h"

/* ---- cache_append ------------------------------------------------------------------------------------ */

static bk_status append_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_shape_pattern(out, g, op, "sbgd,1:l>+mbgd", e);
    if (st == BK_OK) st = bk_heads_need(g, op, 0, e);
    if (st != BK_OK) return st;
    const bk_value *x = bk_in(g, op, 0), *cache = &g->value[bk_upds(g, op)[0]];
    char text[BK_OPERAND_TEXT];
    if (!bk_is_dense(cache))
        return bk_err_set(e, BK_E_CHECK, "%s is a view with gaps; append to the whole cache",
                          bk_operand_text(text, g, op, 2));
    if (x->dim[0].size > cache->dim[0].size)
        return bk_err_set(e, BK_E_INPUT, "%s has fewer rows than the %lld tokens of a step",
                          bk_operand_text(text, g, op, 2), (long long)x->dim[0].size);
    return BK_OK;
}

/* A row's place is its position, so positions are not split. */
static bk_status append_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Sbgd,1:l>+Mbgd", e);
}

/* Touches the rows of the new tokens, not the cache. */
static void append_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->bytes = 2 * bk_value_bytes(bk_in(g, op, 0)) + bk_value_bytes(bk_in(g, op, 1));
}

static bk_status append_cpu(bk_call *c, bk_err *e)
{
    const bk_value *x = c->in[0].v, *cache = c->upd[0].v;
    const int64_t S = x->dim[0].size, B = x->dim[1].size, G = x->dim[2].size, size = bk_dtype_bytes(x->dtype);
    const bk_heads xs = bk_heads_of(x), cs = bk_heads_of(cache);
    const char *from = c->in[0].p;
    char *to = c->upd[0].p;
    int64_t first;
    const bk_status st = bk_call_position(&first, c, 1, S, cache->dim[0].size, "rows of the cache", e);
    if (st != BK_OK) return st;
    for (int64_t s = 0; s < S; s++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t g = 0; g < G; g++)
                memcpy(to + size * bk_heads_at(cs, first + s, b, g, 0),
                       from + size * bk_heads_at(xs, s, b, g, 0), (size_t)(size * x->dim[3].size));
    return BK_OK;
}

const bk_op_rules bk_cache_append_rules = {
    .shape = append_shape, .spread = append_spread, .cost = append_cost, .cpu = append_cpu};

/* ---- attention_cached --------------------------------------------------------------------------------- */

enum { SCALE };

static bk_status cached_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st;
    bk_op inputs = *op; /* the output has a dim that is a product of the inputs' */
    inputs.n_out = 0;
    int64_t width;
    char text[BK_OPERAND_TEXT];
    BK_TRY(bk_shape_pattern(NULL, g, &inputs, "sbgrd,mbgd,mbgv,1:l", e));
    for (int k = 0; k < 3; k++) {
        const bk_value *v = bk_in(g, op, k);
        BK_TRY(bk_heads_need(g, op, k, e));
        if (v->dim[v->rank - 1].size > BK_ATTENTION_MAX_DIM)
            return bk_err_set(e, BK_E_INPUT, "%s: heads may have up to %d dims",
                              bk_operand_text(text, g, op, k), BK_ATTENTION_MAX_DIM);
    }
    if (!isfinite(bk_attr_f(op, SCALE)))
        return bk_err_set(e, BK_E_INPUT, "scale is %g, expected a number", bk_attr_f(op, SCALE));
    const bk_value *q = bk_in(g, op, 0), *k = bk_in(g, op, 1), *v = bk_in(g, op, 2);
    if (q->dim[0].size > k->dim[0].size)
        return bk_err_set(e, BK_E_INPUT, "%s has fewer rows than the %lld tokens of a step",
                          bk_operand_text(text, g, op, 1), (long long)q->dim[0].size);
    if (!bk_mul64(&width, q->dim[2].size, q->dim[3].size) || !bk_mul64(&width, width, v->dim[3].size))
        return bk_err_set(e, BK_E_MEM, "the width of the output overflows; use fewer or smaller heads");
    bk_shape_set(&out[0], q->dtype, 3, (const bk_dim[]){q->dim[0], q->dim[1], bk_fixed(width)});
done:
    return st;
}

static bk_status cached_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "SbgRD,MbgD,MbgV,1:l>Sbg", e);
}

/* Of a full cache: how much of it is filled is known when it runs. */
static void cached_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *q = bk_in(g, op, 0), *k = bk_in(g, op, 1), *v = bk_in(g, op, 2);
    const int64_t pairs = bk_elements(q) / q->dim[4].size * k->dim[0].size;
    out->madds = pairs * (q->dim[4].size + v->dim[3].size);
    out->flops = BK_ATTENTION_PAIR_FLOPS * pairs;
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status cached_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->out[0];
    bk_attention_args a = {.n_positions = q->v->dim[0].size,
                           .n_samples = q->v->dim[1].size,
                           .n_groups = q->v->dim[2].size,
                           .heads_per_group = q->v->dim[3].size,
                           .d = q->v->dim[4].size,
                           .dv = v->v->dim[3].size,
                           .scale = bk_attr_f(c->op, SCALE)};
    bk_status st =
        bk_call_position(&a.first_query, c, 3, a.n_positions, k->v->dim[0].size, "rows of the cache", e);
    if (st == BK_OK) st = bk_heads_need_all(c->g, c->op, e);
    if (st != BK_OK) return st;
    const bk_heads os = {
        .s = o->v->stride[0], .b = o->v->stride[1], .g = a.heads_per_group * a.dv, .r = a.dv};
    BK_REAL_CALL(bk_call_f64(c), bk_attention_fwd, o->p, os, NULL, q->p, bk_heads_of(q->v), k->p,
                 bk_heads_of(k->v), v->p, bk_heads_of(v->v), &a);
    return BK_OK;
}

const bk_op_rules bk_attention_cached_rules = {
    .shape = cached_shape, .spread = cached_spread, .cost = cached_cost, .cpu = cached_cpu};
