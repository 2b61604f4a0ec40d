/* Random graphs whose ops stand on random lanes under random tags: plans with many waits. */
#ifndef TESTS_RANDOM_LANES_H
#define TESTS_RANDOM_LANES_H

#include "passes/random_graph.h"

static inline void rl_open(pass_run *r, uint64_t seed, bool spread)
{
    static const bk_lane lanes[] = {BK_LANE_COMP, BK_LANE_A2A, BK_LANE_P2P, BK_LANE_GRAD};
    uint64_t rng = seed;
    pr_open(r, 1 + (int32_t)(seed % 3));
    pr_build_random(r, seed);
    pr_autodiff(r);
    pr_accumulate(r);
    pr_fetch_gradients(r);
    for (int64_t o = 0; o < r->g->n_ops && spread; o++) {
        bk_op *op = &r->g->op[o];
        op->tag.layer = (int16_t)pr_draw(&rng, 3);
        if (op->lane != BK_LANE_HOST) op->lane = lanes[pr_draw(&rng, 4)];
    }
    pr_plan(r);
}

#endif
