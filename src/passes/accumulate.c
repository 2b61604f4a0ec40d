/* Folds sums of gradients into the ops that write their terms.
 *
 * s = add_n(a, b, c), where b and c are written by ops that may add (ops.def, column adds), becomes: b's op
 * takes a as its addend and writes a + b, c's op takes that and writes s. The order of the sum stays ((a + b)
 * + c). An op's output may stand on the bytes of its addend (the plan sees to it where the addend is dead
 * then), so the streams' gradient is summed in place. Terms that cannot be folded stay in the add_n. */
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

typedef struct {
    bk_graph *g;
    bk_oid *def;      /* the op that writes a value whole, or BK_NONE */
    int32_t *n_reads; /* of a value and its views */
    bk_vid *now;      /* for each value: itself, or of a sum that is gone the term that holds it */
    bool *dead;
} fold;

static void scan(fold *f)
{
    const bk_graph *g = f->g;
    for (int64_t v = 0; v < g->n_values; v++) f->def[v] = BK_NONE, f->n_reads[v] = 0, f->now[v] = (bk_vid)v;
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        for (int k = 0; k < op->n_in; k++)
            if (bk_ins(g, op)[k] != BK_NONE) f->n_reads[bk_root(g, bk_ins(g, op)[k])]++;
        for (int k = 0; k < op->n_out; k++) f->def[bk_outs(g, op)[k]] = (bk_oid)o;
    }
}

/* True if the op that writes `term`, for this sum alone, can write sum + term instead. */
static bool may_add(const fold *f, bk_vid sum, bk_vid term)
{
    const bk_oid o = f->def[term];
    if (o == BK_NONE || o <= f->def[sum] || f->n_reads[term] != 1 || f->g->value[term].base != BK_NONE)
        return false;
    const bk_op *op = &f->g->op[o];
    if (f->g->value[sum].scope > op->scope) return false; /* an op of the step cannot add to a micro-batch */
    return bk_ops[op->kind].adds && !op->folded && bk_outs(f->g, op)[0] == term &&
           bk_is_dense(&f->g->value[sum]);
}

static bk_status give_addend(bk_graph *g, bk_oid o, bk_vid sum, bk_err *e)
{
    const bk_op op = g->op[o];
    const int at = bk_addend_place(&op), n_res = op.n_out + op.n_upd;
    bk_vid *in = malloc((size_t)(at + 1 + n_res) * sizeof *in), *res = in + at + 1;
    if (!in) return bk_err_set(e, BK_E_MEM, "accumulate: out of memory");
    memcpy(in, bk_ins(g, &op), (size_t)op.n_in * sizeof *in);
    for (int k = op.n_in; k < at; k++) in[k] = BK_NONE;
    in[at] = sum; /* always there, whatever optional inputs are absent */
    memcpy(res, bk_outs(g, &op), (size_t)n_res * sizeof *res);
    g->op[o].folded = true;
    const bk_status st = bk_op_set_operands(g, o, in, at + 1, res, op.n_out, res + op.n_out, op.n_upd, e);
    free(in);
    return st;
}

/* Whatever reads or views a sum that was folded away does so with the term that took its place. That one is
 * there: it is no sum, for an add_n takes no addend. */
static void read_instead(fold *f)
{
    bk_graph *g = f->g;
    for (int64_t o = 0; o < g->n_ops; o++)
        for (int k = 0; k < g->op[o].n_in; k++) {
            bk_vid *v = &g->operand[g->op[o].first + k];
            if (*v != BK_NONE) *v = f->now[*v];
        }
    for (int64_t v = 0; v < g->n_values; v++)
        if (g->value[v].base != BK_NONE) g->value[v].base = f->now[g->value[v].base];
}

/* Folds terms from the left as long as it goes. */
static bk_status fold_one(fold *f, bk_oid add, bk_err *e)
{
    bk_graph *g = f->g;
    const bk_op op = g->op[add];
    bk_vid sum = f->now[bk_ins(g, &op)[0]];
    int k = 1;
    bk_status st = BK_OK;
    for (; k < op.n_in && st == BK_OK; k++) {
        const bk_vid term = g->operand[op.first + k];
        if (!may_add(f, sum, term)) break;
        st = give_addend(g, f->def[term], sum, e);
        sum = term;
    }
    if (k == 1 || st != BK_OK) return st;
    if (k == op.n_in) {
        f->dead[add] = true;
        f->now[bk_outs(g, &op)[0]] = sum;
    } else { /* the add_n keeps the terms from k on */
        g->op[add].first += k - 1;
        g->op[add].n_in -= k - 1;
        g->operand[g->op[add].first] = sum;
    }
    return st;
}

bk_status bk_pass_accumulate(bk_graph *g, bk_err *e)
{
    const size_t nv = (size_t)g->n_values + 1, no = (size_t)g->n_ops + 1;
    fold f = {g, malloc(nv * sizeof(bk_oid)), malloc(nv * sizeof(int32_t)), malloc(nv * sizeof(bk_vid)),
              calloc(no, 1)};
    bk_status st =
        f.def && f.n_reads && f.now && f.dead ? BK_OK : bk_err_set(e, BK_E_MEM, "accumulate: out of memory");
    if (st == BK_OK) scan(&f);
    for (int64_t o = 0; o < g->n_ops && st == BK_OK; o++)
        if (g->op[o].kind == BK_OP_add_n && g->op[o].tag.pass == BK_PASS_BACKWARD)
            st = fold_one(&f, (bk_oid)o, e);
    if (st == BK_OK) read_instead(&f);
    if (st == BK_OK) st = bk_graph_compact(g, f.dead, e);
    free(f.def), free(f.n_reads), free(f.now), free(f.dead);
    return st;
}
