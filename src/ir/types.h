/* The words that every stage from the model to the executor shares: ids, dtypes, scopes, spreads, tags,
 * lanes.
 *
 * Axis letters used everywhere: S positions of a sequence, B sequences of a micro-batch, T = S * B tokens of
 * this rank, C width (hidden size), n residual streams, N = n*n + 2n mapping outputs, V vocabulary, H heads,
 * G key-value groups. Activations are [S, B, C], streams [S, B, n, C], token tables [B, S]; token t is
 * position t / B of sequence t % B. */
#ifndef BK_IR_TYPES_H
#define BK_IR_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mesh.h"

typedef int32_t bk_vid; /* a value: an index into graph.value */
typedef int32_t bk_oid; /* an op: an index into graph.op */
typedef int32_t bk_rid; /* a region: an index into graph.region */
typedef int32_t bk_pid; /* a row of the parameter table: an index into graph.param */

#define BK_NONE     (-1) /* no value, op, region, parameter, dim */
#define BK_MAX_DIMS 5

typedef enum { BK_F32, BK_F64, BK_BF16, BK_I32, BK_I64, BK_N_DTYPES } bk_dtype;

/* What a value is. Inputs, parameters, gradients of parameters, states and constants have names that other
 * programs, files and the trainer know; the names of activations serve messages only. */
typedef enum {
    BK_INPUT,      /* written by a feed op */
    BK_PARAM,      /* a trainable parameter (row `param` of the table) */
    BK_ACTIVATION, /* an output of an op, activation gradients included */
    BK_GRADIENT,   /* the accumulator of a parameter's gradient */
    BK_STATE,      /* optimizer moments, counters, metric accumulators */
    BK_CONSTANT,   /* written before the first step and never again */
    BK_N_KINDS
} bk_kind;

/* How long a value lives, longest first. */
typedef enum { BK_RUN, BK_STEP, BK_MICRO, BK_N_SCOPES } bk_scope;

/* What a value is across the ranks of one axis. */
typedef enum {
    BK_SAME,    /* every rank holds all of it */
    BK_SPLIT,   /* each rank holds a piece, cut along `dim` */
    BK_PARTIAL, /* the value is the sum over the ranks */
} bk_spread_kind;

typedef struct {
    uint8_t kind; /* bk_spread_kind */
    int8_t dim;   /* of BK_SPLIT, otherwise 0 */
} bk_spread;

/* Where an op comes from. */
typedef enum { BK_MODULE_DECODER, BK_MODULE_MTP, BK_N_MODULES } bk_module;

typedef enum {
    BK_NODE_PRE_PROCESS,
    BK_NODE_ATTN,
    BK_NODE_MOE_DISPATCH,
    BK_NODE_MLP,
    BK_NODE_MOE_COMBINE,
    BK_NODE_MHC_POST,
    BK_NODE_MTP_POST_PROCESS,
    BK_NODE_POST_PROCESS,
    BK_NODE_RECV,
    BK_NODE_SEND,
    BK_NODE_REDUCE,
    BK_NODE_GATHER,
    BK_NODE_STEP,
    BK_N_NODES
} bk_node;

typedef enum {
    BK_PASS_FORWARD,
    BK_PASS_BACKWARD,
    BK_PASS_WGRAD,
    BK_PASS_RECOMPUTE,
    BK_PASS_STEP,
    BK_N_PASSES
} bk_pass;

typedef struct {
    uint8_t module; /* bk_module */
    uint8_t node;   /* bk_node */
    uint8_t pass;   /* bk_pass */
    int16_t layer;  /* 0-based in its module; BK_NONE outside layers */
} bk_tag;

/* A lane is a queue that runs in order. */
typedef enum { BK_LANE_COMP, BK_LANE_A2A, BK_LANE_P2P, BK_LANE_GRAD, BK_LANE_HOST, BK_N_LANES } bk_lane;

/* The machine a plan is made for; it need not be present. */
typedef enum { BK_TARGET_CPU, BK_N_TARGETS } bk_target_kind;

typedef struct {
    bk_target_kind kind;
    bool deterministic; /* GEMM bits depend on row and column alone, not on the library's blocking */
} bk_target;

int64_t bk_dtype_bytes(bk_dtype d);
bool bk_dtype_is_float(bk_dtype d);

/* The printed names of the enums above, in their order; the printer, the parser and messages use them. */
extern const char *const bk_dtype_names[BK_N_DTYPES];
extern const char *const bk_kind_names[BK_N_KINDS];
extern const char *const bk_scope_names[BK_N_SCOPES];
extern const char *const bk_module_names[BK_N_MODULES];
extern const char *const bk_node_names[BK_N_NODES];
extern const char *const bk_pass_names[BK_N_PASSES];
extern const char *const bk_lane_names[BK_N_LANES];

#endif
