/* How a run is laid out: ranks along each mesh axis, pipeline stages, and what a step is cut into.
 *
 * A global batch of samples is dealt to the data-parallel ranks; each rank runs its share in micro-batches:
 *
 *     global_batch = n_micro * micro_batch * axis_size[dp]
 *
 * Everything after this stage reads sizes from here and never from the options behind them. */
#ifndef BK_LAYOUT_LAYOUT_H
#define BK_LAYOUT_LAYOUT_H

#include <stdint.h>

#include "base/err.h"
#include "base/mesh.h"
#include "config/config.h"

typedef struct {
    int32_t axis_size[BK_N_AXES]; /* ranks along tp, cp, dp, ep, edp; edp divides the ranks as ep does not */
    int32_t n_stages;             /* pipeline stages */
    int32_t n_chunks;             /* model chunks of a stage (virtual pipeline) */
    int32_t n_ranks;              /* tp * cp * dp * n_stages */
    int64_t seq;                  /* positions of a sample */
    int64_t micro_batch;          /* samples of a micro-batch on one rank */
    int64_t global_batch;         /* samples of a step on all ranks */
    int64_t n_micro;              /* micro-batches of a step on one rank */
    int32_t ep_rank;              /* this rank's place among those that share the experts */
    /* Of a MoE layer on one rank; all 0 without experts. The ranks are those of expert parallelism. */
    int64_t first_expert, n_local_experts; /* the experts that this rank holds */
    int64_t expert_capacity; /* rows that an expert keeps of a micro-batch of one rank; 0: all */
    int64_t sent_rows;       /* rows that this rank's tokens make in a micro-batch */
    int64_t most_rows;       /* of all ranks' tokens that can come to these experts */
    int64_t routed_rows;     /* of which there is room for so many */
} bk_layout;

/* The ranks that a configuration is for: those of expert parallelism. */
int32_t bk_layout_ranks(const bk_config *c);

/* Lays out a resolved configuration over `n_ranks` ranks, as rank 0 sees it: with experts each of them holds
 * as many, and all of them have samples of their own. The batch in flight comes with moe_capacity_headroom
 * times the rows that even routing brings, on one rank with all that can come. BK_E_INPUT names the options
 * where the ranks cannot be used or the batch does not divide. */
bk_status bk_layout_resolve(bk_layout *out, const bk_config *c, int32_t n_ranks, bk_err *e);

/* Rows of routed tokens that there is room for with moe_capacity_headroom `headroom`: that multiple of what
 * even routing brings, at most all that can come; on one rank, and with padding, always all. */
int64_t bk_layout_room(const bk_layout *l, const bk_config *c, double headroom);

/* The layout of a program of one rank that goes on with a sequence by n_tokens tokens: one sample, one
 * micro-batch, and no expert drops a token, for which ones came together must not decide what is said. */
bk_layout bk_layout_generate(const bk_config *c, int64_t n_tokens);

#endif
