/* What the rules of both norms share. */
#ifndef BK_OPS_NORM_RULES_H
#define BK_OPS_NORM_RULES_H

#include "ops/rules.h"

/* Input 0 must have leading dims and a width. */
bk_status bk_norm_rank(const bk_graph *g, const bk_op *op, bk_err *e);

void bk_norm_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target);
void bk_norm_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target);
int64_t bk_norm_grad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target);

#endif
