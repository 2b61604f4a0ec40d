/* Shape rules. */
#include "ops/rules.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/pattern.h"

void bk_shape_set(bk_value *out, bk_dtype dtype, int rank, const bk_dim *dim)
{
    assert(rank <= BK_MAX_DIMS);
    out->dtype = dtype, out->rank = rank;
    if (rank > 0) memcpy(out->dim, dim, (size_t)rank * sizeof *dim);
}

void bk_shape_like(bk_value *out, const bk_value *v)
{
    bk_shape_set(out, v->dtype, v->rank, v->dim);
}

bk_status bk_shape_need_dtype(const bk_graph *g, const bk_op *op, int k, bk_dtype d, bk_err *e)
{
    const bk_value *v = bk_operand(g, op, k);
    char text[BK_OPERAND_TEXT];
    if (!v || v->dtype == d) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s is %s, expected %s", bk_operand_text(text, g, op, k),
                      bk_dtype_names[v->dtype], bk_dtype_names[d]);
}

bk_status bk_shape_need_position(const bk_graph *g, const bk_op *op, int k, bk_err *e)
{
    if (!bk_in(g, op, k)) return BK_OK;
    const bk_status st = bk_shape_need(g, op, k, "a position [1]", 1, (const int64_t[]){1}, e);
    return st == BK_OK ? bk_shape_need_dtype(g, op, k, BK_I64, e) : st;
}

bk_status bk_shape_need(const bk_graph *g, const bk_op *op, int k, const char *what, int rank,
                        const int64_t *dim, bk_err *e)
{
    const bk_value *v = bk_operand(g, op, k);
    if (!v) return BK_OK;
    bool fits = v->rank == rank;
    for (int d = 0; d < rank && fits; d++) fits = dim[d] < 0 || dim[d] == v->dim[d].size;
    if (fits) return BK_OK;
    char text[BK_OPERAND_TEXT], want[128];
    int len = snprintf(want, sizeof want, "[");
    for (int d = 0; d < rank && len < (int)sizeof want - 24; d++) {
        const char *comma = d ? ", " : "";
        len += dim[d] < 0 ? snprintf(want + len, sizeof want - (size_t)len, "%sany", comma)
                          : snprintf(want + len, sizeof want - (size_t)len, "%s%" PRId64, comma, dim[d]);
    }
    return bk_err_set(e, BK_E_INPUT, "%s does not fit: %s must be %s]", bk_operand_text(text, g, op, k), what,
                      want);
}

/* What a letter stands for, and the operand that said so first. */
typedef struct {
    bool known;
    bk_dim dim;
    int from;
} letter;

enum { N_LETTERS = 128 };

/* Compares operand k with the pattern and learns the letters that are new. */
static bk_status bind_letters(letter *letters, const bk_graph *g, const bk_op *op,
                              const bk_pattern_operand *o, int k, bk_dtype real, bk_err *e)
{
    const bk_value *v = bk_operand(g, op, k);
    char text[BK_OPERAND_TEXT], other[BK_OPERAND_TEXT];
    bk_status st = bk_shape_need_dtype(g, op, k, o->dtype == BK_PATTERN_REAL ? real : (bk_dtype)o->dtype, e);
    if (st != BK_OK) return st;
    if (v->rank != o->rank)
        return bk_err_set(e, BK_E_INPUT, "%s has %d dims, expected %d (%s)", bk_operand_text(text, g, op, k),
                          v->rank, o->rank, o->dim);
    for (int d = 0; d < v->rank; d++) {
        letter *l = &letters[(unsigned char)o->dim[d]];
        if (!l->known) *l = (letter){true, v->dim[d], k};
        if (l->dim.size == v->dim[d].size) continue;
        if (o->dim[d] == '1')
            return bk_err_set(e, BK_E_INPUT, "%s: dim %d must be 1", bk_operand_text(text, g, op, k), d);
        return bk_err_set(e, BK_E_INPUT, "%s: dim %d must be %" PRId64 " to fit %s",
                          bk_operand_text(text, g, op, k), d, l->dim.size,
                          bk_operand_text(other, g, op, l->from));
    }
    return BK_OK;
}

bk_status bk_shape_pattern(bk_value *out, const bk_graph *g, const bk_op *op, const char *text, bk_err *e)
{
    const bk_pattern p = bk_pattern_parse(text);
    const bk_dtype real = bk_rule_real(g, op);
    letter letters[N_LETTERS] = {['1'] = {.known = true, .dim = bk_fixed(1)}};
    for (int k = 0; k < bk_n_operands(op); k++) {
        const bool is_output = k >= op->n_in && k < op->n_in + op->n_out;
        if (is_output || !bk_operand(g, op, k)) continue;
        const bk_status st = bind_letters(letters, g, op, bk_pattern_at(&p, op, k), k, real, e);
        if (st != BK_OK) return st;
    }
    for (int r = 0; r < op->n_out + op->n_upd; r++) {
        const bk_pattern_operand *o = bk_pattern_at(&p, op, op->n_in + r);
        bk_dim dim[BK_MAX_DIMS];
        for (int d = 0; d < o->rank; d++) {
            const letter *l = &letters[(unsigned char)o->dim[d]];
            if (!l->known)
                return bk_err_set(e, BK_E_INPUT, "dim %d of result %d is not given by the inputs", d, r);
            dim[d] = l->dim;
        }
        bk_shape_set(&out[r], o->dtype == BK_PATTERN_REAL ? real : (bk_dtype)o->dtype, o->rank, dim);
    }
    return BK_OK;
}

bk_status bk_shape_elementwise(bk_value *out, const bk_graph *g, const bk_op *op, int n_in, bk_err *e)
{
    const bk_value *x = bk_in(g, op, 0);
    int64_t dim[BK_MAX_DIMS] = {0};
    for (int d = 0; d < x->rank; d++) dim[d] = x->dim[d].size;
    for (int k = 1; k < n_in && k < op->n_in; k++) {
        bk_status st = bk_shape_need(g, op, k, "each dim, as of input 0,", x->rank, dim, e);
        if (st == BK_OK) st = bk_shape_need_dtype(g, op, k, x->dtype, e);
        if (st != BK_OK) return st;
    }
    for (int r = 0; r < op->n_out + op->n_upd; r++) bk_shape_like(&out[r], x);
    return BK_OK;
}
