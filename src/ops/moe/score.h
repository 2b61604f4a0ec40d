/* How a router scores and chooses; shared by the rules and the kernels of both scalar types. */
#ifndef BK_OPS_MOE_SCORE_H
#define BK_OPS_MOE_SCORE_H

#include <stdbool.h>
#include <stdint.h>

/* Values of the attribute `score`. */
enum { BK_SCORE_SOFTMAX, BK_SCORE_SIGMOID, BK_SCORE_SQRTSOFTPLUS, BK_N_SCORES };

typedef struct {
    int64_t experts, topk; /* 1 <= topk <= experts */
    int score;             /* BK_SCORE_... */
    bool pre_softmax;      /* softmax over all experts, not over the chosen ones */
    double scaling;        /* factor of the probabilities */
    int64_t groups,
        group_topk; /* equal groups of experts, of which the best group_topk are kept; 0: no groups */
} bk_route;

#endif
