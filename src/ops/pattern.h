/* Patterns of shape and spread rules, taken apart (ops/rules.h says what they mean). For rules_shape.c and
 * rules_spread.c alone. */
#ifndef BK_OPS_PATTERN_H
#define BK_OPS_PATTERN_H

#include "ops/rules.h"

enum { BK_PATTERN_MAX = 32, BK_PATTERN_REAL = -1 };

typedef struct {
    int rank;
    char dim[BK_MAX_DIMS + 1];
    int dtype; /* bk_dtype, or BK_PATTERN_REAL: the op's floating dtype */
    bool any_spread;
} bk_pattern_operand;

typedef struct {
    int n_in, n_out, n_upd;
    bool many_in, many_upd;                /* the last input, the last update stands for all that follow */
    bk_pattern_operand at[BK_PATTERN_MAX]; /* inputs, outputs, updates */
} bk_pattern;

/* Patterns are constants of the rules, so a bad one is caught by asserts in the first test of the op. */
bk_pattern bk_pattern_parse(const char *text);

/* The part of the pattern for operand k of the op's list. */
const bk_pattern_operand *bk_pattern_at(const bk_pattern *p, const bk_op *op, int k);

/* The addend of a folded op among its inputs, or BK_NONE. */
static inline int bk_addend(const bk_op *op)
{
    return op->folded ? bk_addend_place(op) : BK_NONE;
}

#endif
