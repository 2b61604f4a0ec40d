/* What the verifier asks of each op alone. */
#include "ir/verify_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Calls a check for each op until one fails. */
static bk_status each_op(const bk_verifier *v,
                         bk_status (*check)(const bk_verifier *v, bk_oid id, const bk_op *op))
{
    bk_status st = BK_OK;
    for (int64_t id = 0; id < v->g->n_ops && st == BK_OK; id++) st = check(v, (bk_oid)id, &v->g->op[id]);
    return st;
}

/* ---- ids ---------------------------------------------------------------------------------------------- */

static bk_status check_op_ids(const bk_verifier *v, bk_oid id, const bk_op *op)
{
    const bk_graph *g = v->g;
    if (op->kind >= BK_N_OPS) return bk_verify_op_error(v, id, "kind %d is not in ops.def", op->kind);
    if (op->tag.module >= BK_N_MODULES || op->tag.node >= BK_N_NODES || op->tag.pass >= BK_N_PASSES ||
        op->tag.layer < BK_NONE)
        return bk_verify_op_error(v, id, "its tag is out of range");
    if ((unsigned)op->lane >= BK_N_LANES)
        return bk_verify_op_error(v, id, "there is no lane %d", (int)op->lane);
    const int64_t n = (int64_t)op->n_in + op->n_out + op->n_upd;
    if (op->n_in < 0 || op->n_out < 0 || op->n_upd < 0 || op->first < 0 || op->first + n > g->n_operands)
        return bk_verify_op_error(v, id, "its operands reach outside of the table");
    for (int64_t k = 0; k < n; k++) {
        const bk_vid x = g->operand[op->first + k];
        if (x < BK_NONE || x >= g->n_values)
            return bk_verify_op_error(
                v, id, "operand %" PRId64 " is %%%" PRId32 ", but there are %" PRId64 " values", k, x,
                g->n_values);
    }
    return BK_OK;
}

bk_status bk_verify_op_ids(bk_verifier *v)
{
    return each_op(v, check_op_ids);
}

/* ---- arity -------------------------------------------------------------------------------------------- */

static bk_status check_number(const bk_verifier *v, bk_oid id, const char *what, int32_t n, int32_t least,
                              int32_t most)
{
    if (n >= least && n <= most) return BK_OK;
    return bk_verify_op_error(v, id, "has %" PRId32 " %s, not %" PRId32 " to %" PRId32, n, what, least, most);
}

static bk_status check_arity(const bk_verifier *v, bk_oid id, const bk_op *op)
{
    const bk_op_info *k = &bk_ops[op->kind];
    const bool many = k->in_max == BK_MANY;
    /* Place of the addend among the inputs of a folded op. */
    const int32_t addend = many && op->n_in > k->in_min ? op->n_in - 1 : many ? k->in_min : k->in_max;
    if (op->folded && !k->adds) return bk_verify_op_error(v, id, "is folded, but its kind takes no addend");
    bk_status st = check_number(v, id, "inputs", op->n_in, op->folded ? addend + 1 : k->in_min,
                                op->folded && !many ? addend + 1 : k->in_max);
    if (st == BK_OK) st = check_number(v, id, "outputs", op->n_out, k->out_min, k->out_max);
    if (st == BK_OK) st = check_number(v, id, "updates", op->n_upd, k->upd_min, k->upd_max);
    if (st != BK_OK) return st;
    for (int32_t i = 0; i < op->n_in; i++)
        if (bk_ins(v->g, op)[i] == BK_NONE && (i < k->in_min || (op->folded && i == addend)))
            return bk_verify_op_error(v, id, "input %" PRId32 " is absent", i);
    for (int32_t i = 0; i < op->n_out + op->n_upd; i++)
        if (bk_outs(v->g, op)[i] == BK_NONE)
            return bk_verify_op_error(v, id, "%s %" PRId32 " is absent", i < op->n_out ? "output" : "update",
                                      i < op->n_out ? i : i - op->n_out);
    return BK_OK;
}

bk_status bk_verify_arity(bk_verifier *v)
{
    return each_op(v, check_arity);
}

/* ---- effects ------------------------------------------------------------------------------------------ */

static bk_status check_effects(const bk_verifier *v, bk_oid id, const bk_op *op)
{
    const bk_graph *g = v->g;
    const bk_effect effect = bk_ops[op->kind].effect;
    char name[BK_VERIFY_NAME];
    if (op->tag.pass == BK_PASS_RECOMPUTE && (effect == BK_HOST_IO || op->n_upd > 0))
        return bk_verify_op_error(v, id, "is a replay, but has an effect that must happen once");
    for (int32_t i = 0; i < op->n_out; i++) {
        const bk_vid x = bk_outs(g, op)[i];
        const bk_kind kind = g->value[x].kind;
        if (kind == BK_PARAM || kind == BK_CONSTANT || (kind == BK_INPUT) != (effect == BK_HOST_IO))
            return bk_verify_op_error(v, id, "writes %s, a value of kind %s", bk_verify_name(name, g, x),
                                      bk_kind_names[kind]);
    }
    for (int32_t i = 0; i < op->n_upd; i++) {
        const bk_vid x = bk_upds(g, op)[i];
        const bk_kind kind = g->value[x].kind;
        if (kind == BK_INPUT || kind == BK_CONSTANT)
            return bk_verify_op_error(v, id, "updates %s, a value of kind %s", bk_verify_name(name, g, x),
                                      bk_kind_names[kind]);
    }
    return BK_OK;
}

bk_status bk_verify_effects(bk_verifier *v)
{
    return each_op(v, check_effects);
}

static bk_status check_dense(const bk_verifier *v, bk_oid id, const bk_op *op)
{
    const bk_graph *g = v->g;
    char name[BK_VERIFY_NAME];
    for (int32_t k = 0; k < bk_n_operands(op); k++) {
        const bk_vid x = g->operand[op->first + k];
        if (x == BK_NONE) continue;
        if (!bk_ops[op->kind].strided && !bk_is_dense(&g->value[x]))
            return bk_verify_op_error(v, id, "operand %s is not dense, and the kind takes no strided views",
                                      bk_verify_name(name, g, x));
        for (int d = 0; k >= op->n_in && d < g->value[x].rank; d++)
            if (g->value[x].stride[d] == 0 && g->value[x].dim[d].size > 1)
                return bk_verify_op_error(v, id, "writes %s, whose elements stand on each other",
                                          bk_verify_name(name, g, x));
    }
    return BK_OK;
}

bk_status bk_verify_dense(bk_verifier *v)
{
    return each_op(v, check_dense);
}

/* ---- scopes ------------------------------------------------------------------------------------------- */

static bk_status check_scope(const bk_verifier *v, bk_oid id, const bk_op *op)
{
    const bk_graph *g = v->g;
    char name[BK_VERIFY_NAME];
    /* An op without inputs is as short-lived as what it writes: a feed, or a fill into a given value. */
    bk_scope scope = BK_STEP;
    if (op->n_in == 0 && op->n_out > 0) scope = g->value[bk_outs(g, op)[0]].scope;
    for (int32_t k = 0; k < op->n_in; k++) {
        const bk_value *x = bk_in(g, op, k);
        if (x && x->scope > scope) scope = x->scope;
    }
    if ((unsigned)op->scope >= BK_N_SCOPES || op->scope == BK_RUN)
        return bk_verify_op_error(v, id, "is of scope %d; an op runs once a step or once a micro-batch",
                                  (int)op->scope);
    if (op->scope != scope)
        return bk_verify_op_error(v, id, "is of scope %s, but its operands give %s",
                                  bk_scope_names[op->scope], bk_scope_names[scope]);
    for (int32_t k = 0; k < op->n_out; k++) {
        const bk_vid x = bk_outs(g, op)[k];
        if (g->value[x].scope != op->scope)
            return bk_verify_op_error(v, id, "is of scope %s, but its output %s is of scope %s",
                                      bk_scope_names[op->scope], bk_verify_name(name, g, x),
                                      bk_scope_names[g->value[x].scope]);
    }
    return BK_OK;
}

bk_status bk_verify_scopes(bk_verifier *v)
{
    return each_op(v, check_scope);
}

/* ---- rules of the kind -------------------------------------------------------------------------------- */

static bool same_shape(const bk_value *a, const bk_value *b)
{
    if (a->rank != b->rank || a->dtype != b->dtype) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d].size != b->dim[d].size || a->dim[d].count != b->dim[d].count) return false;
    return true;
}

static void shape_text(char *buf, size_t cap, const bk_value *x)
{
    size_t n =
        (size_t)snprintf(buf, cap, "%s[", (unsigned)x->dtype < BK_N_DTYPES ? bk_dtype_names[x->dtype] : "?");
    for (int d = 0; d < x->rank && d < BK_MAX_DIMS && n < cap; d++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%" PRId64 "%s", d ? ", " : "", x->dim[d].size,
                              x->dim[d].count ? " counted" : "");
    if (n < cap) snprintf(buf + n, cap - n, "]");
}

/* The value x must have the shape of `want`, which the rule gave. */
static bk_status compare_shape(const bk_verifier *v, bk_oid id, bk_vid x, const bk_value *want)
{
    char name[BK_VERIFY_NAME], is[160], should[160];
    if (same_shape(&v->g->value[x], want)) return BK_OK;
    shape_text(is, sizeof is, &v->g->value[x]);
    shape_text(should, sizeof should, want);
    return bk_verify_op_error(v, id, "%s is %s, but the shape rule gives %s", bk_verify_name(name, v->g, x),
                              is, should);
}

static bk_status check_shape(const bk_verifier *v, bk_oid id, const bk_op *op)
{
    bk_value *result = calloc((size_t)(op->n_out + op->n_upd) + 1, sizeof *result);
    bk_err why = {0};
    if (!result) return bk_err_set(v->e, BK_E_MEM, "out of memory");
    bk_status st = bk_ops[op->kind].rules->shape(result, v->g, op, &why);
    if (st != BK_OK) st = bk_verify_op_error(v, id, "%s", why.msg);
    for (int32_t k = 0; k < op->n_out + op->n_upd && st == BK_OK; k++)
        st = compare_shape(v, id, bk_outs(v->g, op)[k], &result[k]);
    if (op->folded && st == BK_OK) st = compare_shape(v, id, bk_ins(v->g, op)[op->n_in - 1], &result[0]);
    free(result);
    return st;
}

bk_status bk_verify_shapes(bk_verifier *v)
{
    return each_op(v, check_shape);
}

static bk_status compare_spread(const bk_verifier *v, bk_oid id, bk_axis axis, bk_vid x, bk_spread want)
{
    static const char *const kinds[] = {"same", "split", "partial"};
    const bk_spread is = v->g->value[x].spread[axis];
    char name[BK_VERIFY_NAME];
    if (is.kind == want.kind && (is.kind != BK_SPLIT || is.dim == want.dim)) return BK_OK;
    return bk_verify_op_error(v, id, "%s is %s (dim %d) over %s, but the spread rule gives %s (dim %d)",
                              bk_verify_name(name, v->g, x), kinds[is.kind], is.dim, bk_axis_names[axis],
                              want.kind <= BK_PARTIAL ? kinds[want.kind] : "?", want.dim);
}

static bk_status check_spread(const bk_verifier *v, bk_oid id, const bk_op *op)
{
    bk_spread *spread = calloc((size_t)(op->n_out + op->n_upd) + 1, sizeof *spread);
    bk_status st = spread ? BK_OK : bk_err_set(v->e, BK_E_MEM, "out of memory");
    for (int a = 0; a < BK_N_AXES && st == BK_OK; a++) {
        if (v->g->axis_size[a] == 1) continue; /* one rank holds everything, whatever is declared */
        bk_err why = {0};
        if (bk_ops[op->kind].rules->spread(spread, v->g, op, (bk_axis)a, &why) != BK_OK)
            st = bk_verify_op_error(v, id, "%s", why.msg);
        for (int32_t k = 0; k < op->n_out + op->n_upd && st == BK_OK; k++)
            st = compare_spread(v, id, (bk_axis)a, bk_outs(v->g, op)[k], spread[k]);
        if (op->folded && st == BK_OK)
            st = compare_spread(v, id, (bk_axis)a, bk_ins(v->g, op)[op->n_in - 1], spread[0]);
    }
    free(spread);
    return st;
}

bk_status bk_verify_spreads(bk_verifier *v)
{
    return each_op(v, check_spread);
}
