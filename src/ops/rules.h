/* What the rules of the op kinds (ir/op.h, bk_op_rules) share.
 *
 * Most kinds say their shapes and spreads with one line, a pattern: the dims of each operand as letters.
 *
 *     linear          "sbk,nk,n>sbn"          inputs > outputs
 *     linear_wgrad    "sbn,sbk>+nk,n"         inputs > outputs + updates
 *     embedding       "Vc,bs:i>sbc"
 *     masked_mean     "bs,bs>1,1,1"
 *
 *   letter        a dim; one letter has one size in the whole op
 *   1             a dim of size 1
 *   lower case    the op treats each index alone, or sums over it: operands may be split along it. An output
 *                 or update without the letter is then a partial sum
 *   upper case    the op needs all of it (norms and softmaxes, tables that are looked up)
 *   :i :l :d      dtype i32, i64, f64; otherwise the op's floating dtype (bk_rule_real)
 *   ?             in front of an operand: its spread does not matter
 *   *             behind the last input or the last update: it stands for any number of them
 *
 * Inputs beyond the kind's least number may be absent, outputs and updates at the end of the pattern too. The
 * addend of a folded op (bk_op.folded) is not written: it is like output 0. */
#ifndef BK_OPS_RULES_H
#define BK_OPS_RULES_H

#include "base/philox.h"
#include "ir/grad.h"

#define BK_OP(name, ...) extern const bk_op_rules bk_##name##_rules;
#include "ir/ops.def"
#undef BK_OP

/* Operand k of an op's one list (bk_n_operands of them), or NULL where it is absent. */
static inline const bk_value *bk_operand(const bk_graph *g, const bk_op *op, int k)
{
    const bk_vid v = g->operand[op->first + k];
    return v == BK_NONE ? (const bk_value *)0 : &g->value[v];
}

/* ---- shapes ------------------------------------------------------------------------------------------ */

/* The op's floating dtype: that of its first floating input, else of its first floating update or output,
 * else the graph's. */
bk_dtype bk_rule_real(const bk_graph *g, const bk_op *op);

/* A dim of fixed size. */
static inline bk_dim bk_fixed(int64_t size)
{
    return (bk_dim){.size = size};
}

/* Gives `out` dtype, rank and dims. */
void bk_shape_set(bk_value *out, bk_dtype dtype, int rank, const bk_dim *dim);
/* Gives `out` dtype, rank and dims of a value. */
void bk_shape_like(bk_value *out, const bk_value *v);

/* The shape rule of a pattern. BK_E_INPUT naming op, operand and letter where ranks, sizes or dtypes of
 * inputs and updates do not fit. */
bk_status bk_shape_pattern(bk_value *out, const bk_graph *g, const bk_op *op, const char *pattern, bk_err *e);

/* The shape rule of ops whose inputs, outputs and updates are all alike: dims and dtype of input 0. Only the
 * first n_in inputs are compared. */
bk_status bk_shape_elementwise(bk_value *out, const bk_graph *g, const bk_op *op, int n_in, bk_err *e);

/* Requires of operand `k` (its place in the list of inputs, outputs, updates) the given dims, -1 for any.
 * `what` is for the message: "weight [N, K]". */
bk_status bk_shape_need(const bk_graph *g, const bk_op *op, int k, const char *what, int rank,
                        const int64_t *dim, bk_err *e);
/* Requires i64 [1] of input k, a position in the sequence, where it is there. */
bk_status bk_shape_need_position(const bk_graph *g, const bk_op *op, int k, bk_err *e);
/* Requires dtype `d` of operand k. */
bk_status bk_shape_need_dtype(const bk_graph *g, const bk_op *op, int k, bk_dtype d, bk_err *e);

/* "input 1 'decoder.norm.weight' [8]" into buf, for messages: operand k of the list. Returns buf. */
enum { BK_OPERAND_TEXT = 200 };
const char *bk_operand_text(char buf[BK_OPERAND_TEXT], const bk_graph *g, const bk_op *op, int k);

/* ---- spreads ----------------------------------------------------------------------------------------- */

/* True, with all outputs and updates `same`, where the axis has one rank. Each helper below begins with it.
 */
bool bk_spread_trivial(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis);

/* The spread rule of a pattern (see above). BK_E_CHECK where an input is a partial sum, is split along a dim
 * that the op needs whole, or is split differently from the others. */
bk_status bk_spread_pattern(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                            const char *pattern, bk_err *e);

/* All outputs and updates are spread as the first n_in inputs, which must agree. Partial sums pass if the op
 * is linear in these inputs together. */
bk_status bk_spread_elementwise(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, int n_in,
                                bool linear, bk_err *e);

/* For ops that each rank must do alike: every input is `same`, and so is what comes out. `why` ends the
 * message: "... is split over dp: <why>". */
bk_status bk_spread_same_only(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                              const char *why, bk_err *e);

/* For an optimizer step: the first `n_like` inputs (gradient) and all updates (parameter first, then its
 * states) have one spread, not a partial sum; the other inputs are `same`. The message names the parameter.
 */
bk_status bk_spread_as_param(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, int n_like,
                             bk_err *e);

/* ---- costs ------------------------------------------------------------------------------------------- */

/* Bytes of all operands, each value once. */
int64_t bk_cost_bytes(const bk_graph *g, const bk_op *op);

/* ---- gradients --------------------------------------------------------------------------------------- */

/* Appends a gradient op of forward op `use`. Its updates become the accumulators of the parameters param[0 ..
 * n_params); for each, the new op is reported as the use's term. Trailing parameters that are absent or want
 * no gradient are left out; one in front of another that wants one is BK_E_INPUT. spec->upd is not read. */
bk_status bk_grad_op(bk_vid *out, bk_grad_ctx *c, const bk_op_spec *spec, const bk_vid *param, int n_params,
                     bk_oid use, bk_err *e);

/* Ids of an op, which stay valid when the graph grows: its first BK_RULE_IDS inputs and outputs. A rule of a
 * kind with more of them reads the others from the graph. */
enum { BK_RULE_IDS = 12 };
typedef struct {
    bk_op op;
    bk_vid in[BK_RULE_IDS], out[BK_RULE_IDS]; /* BK_NONE where there is none */
} bk_op_ids;
bk_op_ids bk_grad_ids(const bk_grad_ctx *c, bk_oid op);

/* ---- running ops ------------------------------------------------------------------------------------- */

/* Whether the kernel for double is to run. */
static inline bool bk_call_f64(const bk_call *c)
{
    return bk_rule_real(c->g, c->op) == BK_F64;
}
/* Where input k is, or NULL where it is absent. */
static inline void *bk_call_in(const bk_call *c, int k)
{
    return k < c->op->n_in ? c->in[k].p : (void *)0;
}
/* Size of dim d of an operand; a dim counted from the end if d < 0. */
static inline int64_t bk_arg_dim(const bk_arg *a, int d)
{
    return a->v->dim[d < 0 ? a->v->rank + d : d].size;
}
/* Tokens of an activation [S, B, ...]. */
static inline int64_t bk_arg_tokens(const bk_arg *a)
{
    return a->v->dim[0].size * a->v->dim[1].size;
}
/* The position that input k holds, 0 where it is absent. BK_E_INPUT unless position .. position + n - 1 are
 * within 0 .. room - 1; `of` is for the message: "rows of the cache". */
bk_status bk_call_position(int64_t *out, const bk_call *c, int k, int64_t n, int64_t room, const char *of,
                           bk_err *e);
/* 1 if update k is to be added to, 0 if it is to be written. */
static inline int bk_call_beta(const bk_call *c, int k)
{
    return c->assign[k] ? 0 : 1;
}
/* Output 0 of an op that may take an addend. *beta says what the kernel is to do: write (0), or add (1) to
 * what stands there, which is the addend of a folded op; it is copied there unless the plan has put the
 * output on the addend's bytes. Call it before the kernel and once. */
const bk_arg *bk_call_out0(const bk_call *c, int *beta);
/* The key of an op's dropout draws. Attributes p, seed, site begin at `first`; module and layer are the
 * tag's, so an op, its backward and its replay draw the same. */
static inline bk_rng_key bk_op_dropout_key(const bk_op *op, int first)
{
    const uint32_t layer = (uint32_t)(uint16_t)op->tag.layer | (uint32_t)op->tag.module << 16;
    return bk_rng_key_make((uint64_t)op->attr[first + 1].i, BK_RNG_DROPOUT, layer,
                           (uint64_t)op->attr[first + 2].i);
}

#endif
