/* Passes rewrite the graph. Their order is that of bk_program_passes in train/program.c:
 *
 *     autodiff    appends the backward of the forward ops
 *     accumulate  folds sums of gradients into the ops that write their last terms
 *     step        appends what happens once a step: norm, clip, optimizer
 *     partition   gives every op to a region and every region to a chunk
 *
 * partition is last, so that the list of regions is made once, from the final ops; the schedule reads it. A
 * program without gradients (evaluation, generation) has partition alone. A pass never changes a result
 * beyond rounding. */
#ifndef BK_PASSES_PASSES_H
#define BK_PASSES_PASSES_H

#include "ir/graph.h"

/* A value to differentiate and the value that holds its upstream gradient. The derivative taken is that of
 * sum over seeds of <of, seed>. */
typedef struct {
    bk_vid of, seed;
} bk_seed;

/* Before: forward ops alone. After: for every parameter that a seed depends on an accumulator (param.grad)
 * and the ops that add its terms; graph.term lists them. Values used more than once have one add_n; views of
 * one value that tile it write straight into its gradient. BK_E_CHECK where a seed depends on no parameter,
 * where a forward op that needs a gradient writes a part of a value, and where a part of a micro-batch's
 * value gets a gradient of scope step. */
bk_status bk_pass_autodiff(bk_graph *g, const bk_seed *seed, int n_seeds, bk_err *e);

/* Before: add_n ops in the backward. After: each later term's op that may add (ops.def, column adds) writes
 * the sum so far plus its term, and add_n ops with nothing left are gone. Sums keep their order. */
bk_status bk_pass_accumulate(bk_graph *g, bk_err *e);

/* A bias of a router, state of the run, and the counts of this step that it follows. */
typedef struct {
    bk_vid bias, counts;
} bk_step_bias;

typedef struct {
    double clip_grad;     /* 0: no clipping */
    const bk_vid *excess; /* i64 [1] of the step: above 0, the step is void; NULL: none */
    double beta1, beta2, eps, weight_decay;
    const bk_step_bias *biases; /* [n_biases] */
    int n_biases;
    double bias_update_rate;
} bk_step_options;

/* Appends the step graph: a zero for parameters without terms, the global norm over the parameter table, the
 * clip factor, the update of each bias of a router, AdamW for each row. Values that the host feeds:
 * "learning_rate" f64 [1], "step" i64 [1]; that it fetches: "grad_norm" f64 [1]. */
bk_status bk_pass_step(bk_graph *g, const bk_step_options *o, bk_err *e);

/* Before: no regions. After: every op is in one region, and regions stand in an order that respects all
 * dependences; a region holds the ops of one tag (weight gradients with their node's backward),
 * scope and lane, in plain order, and belongs to chunk 0. */
bk_status bk_pass_partition(bk_graph *g, bk_err *e);

/* Takes out the ops marked dead and the activations that nothing reads, writes or updates; ids change. */
bk_status bk_graph_compact(bk_graph *g, const bool *dead_op, bk_err *e);

#endif
