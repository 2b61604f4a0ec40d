/* What the verifier asks of regions and of the terms of parameters' gradients. */
#include "ir/verify_parts.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- regions ------------------------------------------------------------------------------------------ */

static uint8_t pass_of_region(uint8_t pass)
{
    return pass == BK_PASS_WGRAD ? BK_PASS_BACKWARD : pass; /* weight gradients run with their node */
}

static bool fits_region(const bk_region *r, const bk_op *op, bool late)
{
    return r->tag.module == op->tag.module && r->tag.node == op->tag.node && r->tag.layer == op->tag.layer &&
           pass_of_region(r->tag.pass) == pass_of_region(op->tag.pass) && r->scope == op->scope &&
           r->lane == op->lane && r->epilogue == late;
}

static bk_status check_region(const bk_verifier *v, int64_t id, bool *seen)
{
    const bk_graph *g = v->g;
    const bk_region *r = &g->region[id];
    if (r->first < 0 || r->n_ops < 1 || (int64_t)r->first + r->n_ops > g->n_region_ops || r->chunk < 0)
        return bk_err_set(v->e, BK_E_CHECK,
                          "region r%" PRId64 ": its list is empty or out of range, or its chunk is negative",
                          id);
    for (int32_t k = 0; k < r->n_ops; k++) {
        const bk_oid op = g->region_op[r->first + k];
        if (op < 0 || op >= g->n_ops)
            return bk_err_set(v->e, BK_E_CHECK, "region r%" PRId64 ": there is no op @%" PRId32, id, op);
        if (k > 0 && g->region_op[r->first + k - 1] >= op)
            return bk_verify_op_error(v, op, "does not ascend in region r%" PRId64, id);
        if (seen[op]) return bk_verify_op_error(v, op, "is in region r%" PRId64 " and in another", id);
        if (!fits_region(r, &g->op[op], v->order.late[op]))
            return bk_verify_op_error(
                v, op, "differs from its region r%" PRId64 " in scope, lane, tag or epilogue", id);
        seen[op] = true;
    }
    return BK_OK;
}

bk_status bk_verify_regions(bk_verifier *v)
{
    bool *seen = calloc((size_t)v->g->n_ops + 1, sizeof *seen);
    bk_status st = seen ? BK_OK : bk_err_set(v->e, BK_E_MEM, "out of memory");
    for (int64_t id = 0; id < v->g->n_regions && st == BK_OK; id++) st = check_region(v, id, seen);
    free(seen);
    return st;
}

/* ---- terms -------------------------------------------------------------------------------------------- */

/* For each parameter, the op that was last found to hold it. All operands of an op are looked at in one go:
 * it may read or update the parameters of thousands of experts, each with a term of its own. */
typedef struct {
    bk_oid *reader, *updater;
} term_ops;

/* Is one of the op's operands from `from` to `to` of this kind and parameter? */
static bool has_operand(bk_oid *holder, const bk_graph *g, bk_oid o, int32_t from, int32_t to, bk_kind kind,
                        bk_pid param)
{
    if (holder[param] == o) return true;
    for (int32_t k = from; k < to; k++) {
        const bk_vid x = g->operand[g->op[o].first + k];
        if (x != BK_NONE && g->value[x].kind == kind) holder[g->value[x].param] = o;
    }
    return holder[param] == o;
}

static bk_status check_term(const bk_verifier *v, const term_ops *of, int64_t id)
{
    const bk_graph *g = v->g;
    const bk_term *t = &g->term[id];
    if (t->param < 0 || t->param >= g->n_params || t->use < 0 || t->use >= g->n_ops || t->term < 0 ||
        t->term >= g->n_ops)
        return bk_err_set(v->e, BK_E_CHECK,
                          "term %" PRId64 ": p%" PRId32 ", @%" PRId32 " or @%" PRId32 " does not exist", id,
                          t->param, t->use, t->term);
    const bk_op *term = &g->op[t->term];
    const char *name = g->param[t->param].name;
    if (!has_operand(of->reader, g, t->use, 0, g->op[t->use].n_in, BK_PARAM, t->param))
        return bk_verify_op_error(v, t->use, "is a use of '%s' in term %" PRId64 ", but does not read it",
                                  name, id);
    const int32_t first = term->n_in + term->n_out;
    if (!has_operand(of->updater, g, t->term, first, first + term->n_upd, BK_GRADIENT, t->param))
        return bk_verify_op_error(
            v, t->term, "is term %" PRId64 " of '%s', but does not update its accumulator", id, name);
    return BK_OK;
}

bk_status bk_verify_terms(bk_verifier *v)
{
    const size_t n = (size_t)v->g->n_params + 1;
    term_ops of = {malloc(n * sizeof *of.reader), malloc(n * sizeof *of.updater)};
    bk_status st = of.reader && of.updater ? BK_OK : bk_err_set(v->e, BK_E_MEM, "out of memory");
    for (size_t p = 0; p < n && st == BK_OK; p++) of.reader[p] = of.updater[p] = BK_NONE;
    for (int64_t id = 0; id < v->g->n_terms && st == BK_OK; id++) st = check_term(v, &of, id);
    free(of.reader), free(of.updater);
    return st;
}
