/* rope_table([position i64 [1]]; cos, sin [seq, dims/2]): the angles at positions first..first+seq-1, where
 * first is the value of `position`, 0 where it is absent; yarn_table, with the same operands: the angles of
 * YaRN. No input is of a micro-batch in training, so a table is computed once a step. */
#include <math.h>

#define BK_BOTH "ops/rope/rope_cpu.h"
#include "base/real_both.h"
#include "ops/rules.h"

enum { SEQ, DIMS, BASE, FACTOR, ORIGINAL, BETA_FAST, BETA_SLOW, CONCENTRATION };

static bk_status rope_table_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_need_position(g, op, 0, e);
    if (st != BK_OK) return st;
    const int64_t seq = bk_attr_i(op, SEQ), dims = bk_attr_i(op, DIMS);
    const double base = bk_attr_f(op, BASE);
    if (seq < 0)
        return bk_err_set(e, BK_E_INPUT, "seq is %lld, expected the number of positions", (long long)seq);
    if (dims <= 0 || dims % 2)
        return bk_err_set(e, BK_E_INPUT, "dims is %lld, expected an even number above 0: dims turn in pairs",
                          (long long)dims);
    if (!(base > 0))
        return bk_err_set(e, BK_E_INPUT, "base is %g, expected a number above 0 (rotary_base)", base);
    const bk_dim dim[2] = {bk_fixed(seq), bk_fixed(dims / 2)};
    for (int k = 0; k < 2; k++) bk_shape_set(&out[k], g->real, 2, dim);
    return BK_OK;
}

static bk_status rope_table_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                   bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis, "every rank makes the whole table", e);
}

static bk_status rope_table_cpu(bk_call *c, bk_err *e)
{
    int64_t first;
    const bk_status st = bk_call_position(&first, c, 0, bk_attr_i(c->op, SEQ), INT64_MAX, "positions", e);
    if (st != BK_OK) return st;
    BK_REAL_CALL(c->out[0].v->dtype == BK_F64, bk_rope_table, c->out[0].p, c->out[1].p, bk_attr_i(c->op, SEQ),
                 first, bk_attr_i(c->op, DIMS), bk_attr_f(c->op, BASE));
    return BK_OK;
}

const bk_op_rules bk_rope_table_rules = {
    .shape = rope_table_shape, .spread = rope_table_spread, .cpu = rope_table_cpu};

/* ---- yarn_table --------------------------------------------------------------------------------------- */

static bk_status yarn_table_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    static const struct {
        int attr;
        const char *text;
    } above_0[] = {{FACTOR, "factor is %g, expected a number above 0 (rotary_scaling_factor)"},
                   {BETA_FAST, "beta_fast is %g, expected a number above 0"},
                   {BETA_SLOW, "beta_slow is %g, expected a number above 0"}};
    const bk_status st = rope_table_shape(out, g, op, e);
    if (st != BK_OK) return st;
    if (!(bk_attr_f(op, BASE) > 1)) /* its logarithm is divided by */
        return bk_err_set(e, BK_E_INPUT, "base is %g, expected a number above 1 (rotary_base)",
                          bk_attr_f(op, BASE));
    for (size_t k = 0; k < sizeof above_0 / sizeof *above_0; k++)
        if (!(bk_attr_f(op, above_0[k].attr) > 0) || !isfinite(bk_attr_f(op, above_0[k].attr)))
            return bk_err_set(e, BK_E_INPUT, above_0[k].text, bk_attr_f(op, above_0[k].attr));
    if (bk_attr_i(op, ORIGINAL) < 1)
        return bk_err_set(e, BK_E_INPUT,
                          "original is %lld, expected the number of positions that angles are counted over "
                          "(original_max_position_embeddings)",
                          (long long)bk_attr_i(op, ORIGINAL));
    if (!isfinite(bk_attr_f(op, CONCENTRATION)))
        return bk_err_set(e, BK_E_INPUT, "concentration is %g, expected a number",
                          bk_attr_f(op, CONCENTRATION));
    return BK_OK;
}

static bk_status yarn_table_cpu(bk_call *c, bk_err *e)
{
    int64_t first;
    const bk_status st = bk_call_position(&first, c, 0, bk_attr_i(c->op, SEQ), INT64_MAX, "positions", e);
    if (st != BK_OK) return st;
    const bk_yarn yarn = {.factor = bk_attr_f(c->op, FACTOR),
                          .beta_fast = bk_attr_f(c->op, BETA_FAST),
                          .beta_slow = bk_attr_f(c->op, BETA_SLOW),
                          .concentration = bk_attr_f(c->op, CONCENTRATION),
                          .original = bk_attr_i(c->op, ORIGINAL)};
    BK_REAL_CALL(c->out[0].v->dtype == BK_F64, bk_yarn_table, c->out[0].p, c->out[1].p, bk_attr_i(c->op, SEQ),
                 first, bk_attr_i(c->op, DIMS), bk_attr_f(c->op, BASE), &yarn);
    return BK_OK;
}

const bk_op_rules bk_yarn_table_rules = {
    .shape = yarn_table_shape, .spread = rope_table_spread, .cpu = yarn_table_cpu};
