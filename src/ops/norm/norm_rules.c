#include "ops/norm/norm_rules.h"

#define BK_BOTH "ops/norm/norm_cpu.h"
#include "base/real_both.h"

bk_status bk_norm_rank(const bk_graph *g, const bk_op *op, bk_err *e)
{
    char text[BK_OPERAND_TEXT];
    const bk_value *x = bk_in(g, op, 0);
    if (x->rank >= 2) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s has %d dims, expected at least 2: rows and their width",
                      bk_operand_text(text, g, op, 0), x->rank);
}

/* Forward: square and sum, scale, gain. Backward: two sums over the row, the correction, the gain's gradient.
 */
enum { FORWARD_FLOPS = 4, BACKWARD_FLOPS = 10 };

static void norm_cost(bk_cost *out, const bk_graph *g, const bk_op *op, int64_t flops)
{
    out->flops = flops * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

void bk_norm_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    norm_cost(out, g, op, FORWARD_FLOPS);
}

void bk_norm_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    norm_cost(out, g, op, BACKWARD_FLOPS);
}

int64_t bk_norm_grad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *x = bk_in(g, op, 0), *rstd = bk_in(g, op, bk_ops[op->kind].in_max - 1);
    return BK_REAL_CALL(x->dtype == BK_F64, bk_norm_bwd_workspace, bk_elements(rstd),
                        x->dim[x->rank - 1].size);
}
