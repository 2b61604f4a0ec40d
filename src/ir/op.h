/* Ops: what one is, the table of all kinds (ops.def), and the rules that each kind brings along.
 *
 * An op reads inputs, writes outputs and updates values in place. Outputs are values that did not exist
 * before; updates are `+=` into an accumulator, an optimizer step, a cache append. The order of graph.op is
 * the plain order: it says what a program means, and every schedule must give its results. */
#ifndef BK_IR_OP_H
#define BK_IR_OP_H

#include "base/err.h"
#include "ir/types.h"

#define BK_MAX_ATTRS 8
#define BK_MANY      INT32_MAX

typedef enum {
#define BK_OP(name, ...) BK_OP_##name,
#include "ir/ops.def"
#undef BK_OP
    BK_N_OPS
} bk_op_kind;

typedef union {
    int64_t i;
    double f;
} bk_attr;

typedef struct {
    uint16_t kind;  /* bk_op_kind */
    bk_scope scope; /* BK_STEP or BK_MICRO: how often it runs; derived */
    bk_lane lane;
    bk_tag tag;
    bool folded; /* the last input is an addend (bk_addend_place): output 0 is what the op computes plus it
                    (ops.def, column adds) */
    int32_t n_in, n_out, n_upd;
    int32_t first; /* operands in graph.operand: inputs, outputs, updates; an absent input is BK_NONE */
    bk_attr attr[BK_MAX_ATTRS];
} bk_op;

/* Operands of an op in one list: inputs, outputs, updates. */
static inline int32_t bk_n_operands(const bk_op *op)
{
    return op->n_in + op->n_out + op->n_upd;
}

/* What an op does beside its outputs. Whatever is not BK_PURE happens exactly once for each time it is
 * scheduled, and no pass may clone it. */
typedef enum {
    BK_PURE,
    BK_UPDATES, /* changes its updates in place */
    BK_HOST_IO, /* talks to the host: inputs, metrics */
    BK_COMM,    /* talks to other ranks */
} bk_effect;

typedef struct bk_graph bk_graph;
typedef struct bk_grad_ctx bk_grad_ctx;
typedef struct bk_call bk_call;
typedef struct bk_value bk_value;

/* What running an op once costs. */
typedef struct {
    int64_t madds;     /* multiply-adds of matrix products: GEMM, attention, mHC projections */
    int64_t flops;     /* other arithmetic, roughly */
    int64_t bytes;     /* memory read and written, each value once */
    int64_t msg_bytes; /* sent by this rank */
} bk_cost;

/* The rules of one op kind, in src/ops/<family>/<op>.c. */
typedef struct {
    /* Fills rank, dims and dtype of each output and then of each update, from inputs and attributes; checks
     * that the inputs fit. `out` has n_out + n_upd zeroed entries. Required. */
    bk_status (*shape)(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e);
    /* Fills the spread of each output and update on one axis (n_out + n_upd entries). Required. */
    bk_status (*spread)(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e);
    /* Fills a zeroed cost. NULL: bytes of all operands, one flop for each element written. */
    void (*cost)(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target);
    /* Bytes of scratch memory. NULL: none. */
    int64_t (*workspace)(const bk_graph *g, const bk_op *op, const bk_target *target);
    /* Appends the ops of the gradient (ir/grad.h). NULL: not differentiable. */
    bk_status (*grad)(bk_grad_ctx *ctx, bk_oid op, bk_err *e);
    /* Runs it on the CPU. Required. */
    bk_status (*cpu)(bk_call *call, bk_err *e);
} bk_op_rules;

/* One row of ops.def. */
typedef struct {
    const char *name;
    int32_t in_min, in_max;   /* inputs from in_min on may be absent (BK_NONE) */
    int32_t out_min, out_max; /* outputs */
    int32_t upd_min, upd_max; /* updates */
    int8_t alias_out,
        alias_in; /* this output may take the bytes of this input, which is then dead; or BK_NONE */
    bool adds;    /* output 0 may instead be the last update, which the op adds into */
    bool strided; /* operands may be views whose strides are not those of a dense tensor */
    bk_effect effect;
    const char *attrs; /* names and types in order: "eps:f causal:i" */
    const bk_op_rules *rules;
} bk_op_info;

extern const bk_op_info bk_ops[BK_N_OPS]; /* src/ops/ops_table.c */

/* Where the addend of an op stands among its inputs once it is folded: behind all inputs that its kind may
 * have, or, where their number is not bounded, behind those that it has. */
static inline int bk_addend_place(const bk_op *op)
{
    if (op->folded) return op->n_in - 1;
    return bk_ops[op->kind].in_max == BK_MANY ? op->n_in : bk_ops[op->kind].in_max;
}

/* Position of an attribute by name, or BK_NONE. `is_float` (may be NULL) gets its type. */
int bk_attr_index(bk_op_kind kind, const char *name, bool *is_float);
/* Number of attributes of a kind; name and length of attribute i. */
int bk_attr_count(bk_op_kind kind);
const char *bk_attr_name(int *len, bool *is_float, bk_op_kind kind, int i);

/* One operand of a running op. Dims and strides are those of the value (ir/graph.h). */
typedef struct {
    void *p; /* NULL for an absent input and for values without elements */
    const bk_value *v;
} bk_arg;

/* What the executor hands to a kernel. Valid for the call alone. */
struct bk_call {
    const bk_graph *g;
    const bk_op *op;
    const bk_arg *in, *out, *upd;
    const bool
        *assign; /* for each update: write instead of add (the first update of an accumulator in a step) */
    void *work;  /* scratch, as many bytes as the workspace rule says, aligned to 64 */
    bool deterministic;
    int64_t micro;              /* micro-batch, BK_NONE for an op of scope step */
    const struct bk_host *host; /* feed and fetch; see exec/exec.h */
};

/* Talks to whoever runs the program. Names are the values' names. Both may be called from the host lane's
 * thread. */
typedef struct bk_host {
    void *ctx;
    /* Writes the input `v` of one micro-batch (BK_NONE: of the step) to dst. */
    bk_status (*feed)(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e);
    /* Takes the value `v`, which is gone afterwards. */
    bk_status (*fetch)(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e);
} bk_host;

#endif
