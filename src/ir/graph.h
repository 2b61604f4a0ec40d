/* The graph: all values and ops of one program on one rank, for one micro-batch and one step.
 *
 * One table holds both graphs of a program: ops of scope `micro` are the micro-batch graph and run once for
 * each micro-batch, ops of scope `step` are the step graph. An op's scope is the shortest among its inputs,
 * so nobody declares it: a rope table has no input of a micro-batch and is computed once a step.
 *
 * Plain order, the meaning of a program: (1) the ops of scope step that depend on nothing a micro-batch
 * writes, (2) for each micro-batch the ops of scope micro, (3) the other ops of scope step; each in the order
 * of graph.op. A value that is updated is read either before the first of its updates or after the last, as
 * the plain order has it. */
#ifndef BK_IR_GRAPH_H
#define BK_IR_GRAPH_H

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "ir/op.h"
#include "ir/param.h"
#include "ir/types.h"

typedef struct {
    int64_t size; /* elements; the planned capacity where the dim is counted */
    bk_vid count; /* of a counted dim: 1 + the value that holds the run-time count; 0: fixed */
} bk_dim;

struct bk_value {
    const char *name;
    bk_dtype dtype;
    bk_kind kind;
    bk_scope scope;
    int rank;
    bk_dim dim[BK_MAX_DIMS];
    bk_spread spread[BK_N_AXES];
    bk_vid base;                 /* the value that this is a view of, never itself a view; or BK_NONE */
    int64_t offset;              /* of a view: elements from the base's start */
    int64_t stride[BK_MAX_DIMS]; /* elements; dense (last dim fastest) unless a view */
    bk_pid param;     /* row of the parameter that this is, or is the gradient or a moment of; or BK_NONE */
    bk_vid replay_of; /* the dropped value that this one computes again; or BK_NONE */
};

/* What the schedule orders: a list of ops of one scope and one lane. */
typedef struct {
    bk_tag tag;
    bk_scope scope;
    bk_lane lane;
    bool epilogue; /* of scope step: runs after the micro-batches (it depends on something they write) */
    int16_t chunk; /* pipeline chunk */
    int32_t first; /* in graph.region_op */
    int32_t n_ops;
} bk_region;

/* A use of a trainable parameter through which gradient may flow, and the op that adds its term. */
typedef struct {
    bk_pid param;
    bk_oid use;  /* the forward op that reads the parameter */
    bk_oid term; /* the op that adds this use's term to the accumulator */
} bk_term;

struct bk_graph {
    bk_arena arena; /* owns names */
    bk_value *value;
    int64_t n_values, cap_values;
    bk_map by_name[BK_N_KINDS]; /* values with lasting names (not activations, not views) to their ids */
    bk_op *op;
    int64_t n_ops, cap_ops;
    bk_vid *operand;
    int64_t n_operands, cap_operands;
    bk_param *param;
    int64_t n_params, cap_params;
    bk_region *region;
    int64_t n_regions, cap_regions;
    bk_oid *region_op;
    int64_t n_region_ops, cap_region_ops;
    bk_term *term;
    int64_t n_terms, cap_terms;
    int32_t axis_size[BK_N_AXES]; /* ranks along each axis; 1 where there is none */
    bk_dtype real;                /* dtype of activations: BK_F32, or BK_F64 for checks */
    bk_tag tag;                   /* given to ops that are appended */
};

bk_status bk_graph_new(bk_graph **out, bk_dtype real, bk_err *e);
void bk_graph_free(bk_graph *g); /* NULL is fine */

/* Operand lists of an op. Borrowed; appending an op may move them. */
static inline const bk_vid *bk_ins(const bk_graph *g, const bk_op *op)
{
    return g->operand + op->first;
}
static inline const bk_vid *bk_outs(const bk_graph *g, const bk_op *op)
{
    return g->operand + op->first + op->n_in;
}
static inline const bk_vid *bk_upds(const bk_graph *g, const bk_op *op)
{
    return g->operand + op->first + op->n_in + op->n_out;
}
/* The k-th input's value, or NULL where it is absent. */
static inline const bk_value *bk_in(const bk_graph *g, const bk_op *op, int k)
{
    const bk_vid v = k < op->n_in ? bk_ins(g, op)[k] : BK_NONE;
    return v == BK_NONE ? (const bk_value *)0 : &g->value[v];
}

/* Storage: the base of a view, otherwise the value itself. */
static inline bk_vid bk_root(const bk_graph *g, bk_vid v)
{
    return g->value[v].base == BK_NONE ? v : g->value[v].base;
}
int64_t bk_elements(const bk_value *v);    /* product of the dims (capacities) */
int64_t bk_value_bytes(const bk_value *v); /* of a dense value: elements times the dtype's size */
bool bk_is_dense(const bk_value *v);       /* strides are those of a dense tensor */

/* Appends a value. `proto` gives name (copied), dtype, kind, scope, dims and spread; strides are made dense
 * and base none. BK_E_MEM where the size overflows 2^62 bytes. */
bk_status bk_value_add(bk_vid *out, bk_graph *g, const bk_value *proto, bk_err *e);

/* Appends a view: part of `base` (or of the base's base) with the given dims, strides and offset, in elements
 * counted in `base`. It must stay inside. Scope, dtype, kind and parameter are the base's. */
bk_status bk_view_add(bk_vid *out, bk_graph *g, const char *name, bk_vid base, int rank, const int64_t *dim,
                      const int64_t *stride, int64_t offset, bk_err *e);

/* Appends a parameter: a row of the table and its value. `row` gives all but value and grad. */
bk_status bk_param_add(bk_vid *out, bk_graph *g, const bk_param *row, bk_err *e);

/* What bk_op_add needs to know. Zeroed fields are defaults. */
typedef struct {
    bk_op_kind kind;
    const bk_vid *in;
    int n_in;
    const bk_vid *upd;
    int n_upd;
    int n_out;        /* 0: the kind's least number */
    const char *name; /* of the outputs: "name", "name.1", ... */
    bk_attr attr[BK_MAX_ATTRS];
    bk_vid into; /* 1 + a value that output 0 is to be written to (a view, say), or 0 for a new one */
} bk_op_spec;

/* Appends an op with graph.tag; the shape rule makes the outputs and checks the updates, the spread rule
 * spreads them, the scope is derived. out gets n_out ids (NULL: not wanted). The message names op and
 * operands. */
bk_status bk_op_add(bk_vid *out, bk_graph *g, const bk_op_spec *spec, bk_err *e);

/* Appends an op kind with up to 8 inputs and one output, the usual case. */
#define bk_op1(out, g, e, op_kind, out_name, attrs, ...)                                                     \
    bk_op_add((out), (g),                                                                                    \
              &(bk_op_spec){.kind = (op_kind),                                                               \
                            .in = (const bk_vid[]){__VA_ARGS__},                                             \
                            .n_in = (int)(sizeof((const bk_vid[]){__VA_ARGS__}) / sizeof(bk_vid)),           \
                            .name = (out_name),                                                              \
                            BK_UNPAREN attrs},                                                               \
              (e))
#define BK_UNPAREN(...) __VA_ARGS__

/* Replaces the operands of an op (the passes' way to change one). */
bk_status bk_op_set_operands(bk_graph *g, bk_oid op, const bk_vid *in, int n_in, const bk_vid *out, int n_out,
                             const bk_vid *upd, int n_upd, bk_err *e);

/* Finds a value by name among those of a kind with lasting names (not activations); BK_NONE if there is none.
 * Of several the first. */
bk_vid bk_value_find(const bk_graph *g, bk_kind kind, const char *name);

/* Makes graph.by_name again: for passes that give values other ids. BK_E_MEM. */
bk_status bk_graph_index_names(bk_graph *g, bk_err *e);

/* "decoder.3.attn backward" into buf. */
const char *bk_tag_name(char *buf, int64_t cap, bk_tag tag);

/* The attribute k of an op. */
static inline double bk_attr_f(const bk_op *op, int k)
{
    return op->attr[k].f;
}
static inline int64_t bk_attr_i(const bk_op *op, int k)
{
    return op->attr[k].i;
}

#endif
