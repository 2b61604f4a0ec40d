/* What a training step cannot do without, by token: the floors of the tables (NOTES.md) stand on it. */
#ifndef BK_BENCH_STEP_FLOOR_H
#define BK_BENCH_STEP_FLOOR_H

#include "config/config.h"

typedef struct {
    double madds;        /* multiply-adds of matrix products, causal attention half of the square */
    double stream_bytes; /* read and written of the residual streams, in fp32; 0 without hyper-connections */
} bk_step_floor;

/* Errors are those of moe_layer_freq; BK_E_MEM. */
bk_status bk_step_floor_of(bk_step_floor *out, const bk_config *c, bk_err *e);

#endif
