/* Operands, costs, gradients and calls, as the rules of all families need them. */
#include "ops/rules.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/pattern.h"

const char *bk_operand_text(char buf[BK_OPERAND_TEXT], const bk_graph *g, const bk_op *op, int k)
{
    const bk_value *v = bk_operand(g, op, k);
    const char *role = k < op->n_in ? "input" : k < op->n_in + op->n_out ? "output" : "update";
    const int idx = k < op->n_in ? k : k < op->n_in + op->n_out ? k - op->n_in : k - op->n_in - op->n_out;
    int len = snprintf(buf, BK_OPERAND_TEXT, "%s %d %.100s [", role, idx, v && v->name ? v->name : "");
    for (int d = 0; v && d < v->rank && len < BK_OPERAND_TEXT - 24; d++)
        len +=
            snprintf(buf + len, (size_t)(BK_OPERAND_TEXT - len), "%s%" PRId64, d ? ", " : "", v->dim[d].size);
    snprintf(buf + len, (size_t)(BK_OPERAND_TEXT - len), "]");
    return buf;
}

bk_dtype bk_rule_real(const bk_graph *g, const bk_op *op)
{
    const int n = bk_n_operands(op);
    for (int step = 0; step < 2; step++) /* inputs and updates first: an output may not exist yet */
        for (int k = 0; k < n; k++) {
            const bool is_output = k >= op->n_in && k < op->n_in + op->n_out;
            const bk_value *v = is_output == (step == 1) ? bk_operand(g, op, k) : NULL;
            if (v && bk_dtype_is_float(v->dtype)) return v->dtype;
        }
    return g->real;
}

/* Values are seen once by their bits, a span of ids after the other; an op's ids stand in few of them. */
int64_t bk_cost_bytes(const bk_graph *g, const bk_op *op)
{
    enum { SPAN = 4096 };
    const bk_vid *list = g->operand + op->first;
    int64_t bytes = 0;
    for (int64_t from = 0, next; from < INT64_MAX; from = next) {
        uint64_t seen[SPAN / 64] = {0};
        next = INT64_MAX;
        for (int32_t k = 0; k < bk_n_operands(op); k++) {
            const int64_t bit = list[k] - from; /* an absent input is below every span */
            if (bit >= SPAN && list[k] < next) next = list[k];
            if (bit < 0 || bit >= SPAN || seen[bit / 64] >> bit % 64 & 1) continue;
            seen[bit / 64] |= UINT64_C(1) << bit % 64;
            bytes += bk_value_bytes(&g->value[list[k]]);
        }
    }
    return bytes;
}

bk_op_ids bk_grad_ids(const bk_grad_ctx *c, bk_oid id)
{
    const bk_graph *g = c->g;
    bk_op_ids ids = {.op = g->op[id]};
    for (int k = 0; k < BK_RULE_IDS; k++) {
        ids.in[k] = k < ids.op.n_in ? bk_ins(g, &ids.op)[k] : BK_NONE;
        ids.out[k] = k < ids.op.n_out ? bk_outs(g, &ids.op)[k] : BK_NONE;
    }
    return ids;
}

bk_status bk_grad_op(bk_vid *out, bk_grad_ctx *c, const bk_op_spec *spec, const bk_vid *param, int n_params,
                     bk_oid use, bk_err *e)
{
    bk_vid *acc = malloc(((size_t)n_params + 1) * sizeof *acc);
    bk_status st = acc ? BK_OK : bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
    int n = 0;
    if (st != BK_OK) goto done;
    for (int i = 0; i < n_params; i++) {
        bk_vid a = BK_NONE;
        BK_TRY(bk_grad_accumulator(&a, c, param[i], e));
        if (a == BK_NONE) continue;
        if (n != i) {
            st = bk_err_set(e, BK_E_INPUT,
                            "%s: %s is trained while another parameter of the same op is frozen; freeze "
                            "both or neither",
                            bk_ops[spec->kind].name, c->g->value[param[i]].name);
            goto done;
        }
        acc[n++] = a;
    }
    bk_op_spec with = *spec;
    with.upd = acc, with.n_upd = n;
    BK_TRY(bk_op_add(out, c->g, &with, e));
    for (int i = 0; i < n; i++) BK_TRY(bk_grad_term(c, param[i], use, (bk_oid)(c->g->n_ops - 1), e));
done:
    free(acc);
    return st;
}

bk_status bk_call_position(int64_t *out, const bk_call *c, int k, int64_t n, int64_t room, const char *of,
                           bk_err *e)
{
    const int64_t *position = bk_call_in(c, k);
    *out = position ? *position : 0;
    if (*out >= 0 && n <= room && *out <= room - n) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "%s: %" PRId64 " tokens at position %" PRId64 " do not fit the %" PRId64 " %s",
                      bk_ops[c->op->kind].name, n, *out, room, of);
}

const bk_arg *bk_call_out0(const bk_call *c, int *beta)
{
    const int k = bk_addend(c->op);
    *beta = k == BK_NONE ? 0 : 1;
    if (k != BK_NONE && c->out[0].p != c->in[k].p)
        memcpy(c->out[0].p, c->in[k].p, (size_t)bk_value_bytes(c->out[0].v));
    return &c->out[0];
}
