#include "ops/pattern.h"

#include <assert.h>

static int dtype_of_suffix(char c)
{
    return c == 'i' ? BK_I32 : c == 'l' ? BK_I64 : BK_F64;
}

bk_pattern bk_pattern_parse(const char *text)
{
    bk_pattern p = {0};
    int *count = &p.n_in, n = 0;
    bk_pattern_operand o = {.dtype = BK_PATTERN_REAL};
    for (const char *c = text;; c++) {
        if (*c == ',' || *c == '>' || *c == '+' || *c == '\0') {
            if (o.rank > 0) {
                assert(n < BK_PATTERN_MAX);
                p.at[n++] = o, ++*count;
            }
            o = (bk_pattern_operand){.dtype = BK_PATTERN_REAL};
            if (*c == '\0') return p;
            if (*c == '>') count = &p.n_out;
            if (*c == '+') count = &p.n_upd;
        } else if (*c == ':') {
            o.dtype = dtype_of_suffix(*++c);
        } else if (*c == '*') {
            assert(count != &p.n_out);
            *(count == &p.n_in ? &p.many_in : &p.many_upd) = true;
        } else if (*c == '?') {
            o.any_spread = true;
        } else {
            assert(o.rank < BK_MAX_DIMS);
            o.dim[o.rank++] = *c;
        }
    }
}

const bk_pattern_operand *bk_pattern_at(const bk_pattern *p, const bk_op *op, int k)
{
    if (k == bk_addend(op)) return &p->at[p->n_in];
    if (k < op->n_in) {
        assert(k < p->n_in || p->many_in);
        return &p->at[k < p->n_in ? k : p->n_in - 1];
    }
    k -= op->n_in;
    if (k < op->n_out) {
        assert(k < p->n_out);
        return &p->at[p->n_in + k];
    }
    k -= op->n_out;
    assert(k < p->n_upd || p->many_upd);
    return &p->at[p->n_in + p->n_out + (k < p->n_upd ? k : p->n_upd - 1)];
}
