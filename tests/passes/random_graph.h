/* Random forward graphs of linears, norms, sums, copies and overlapping views, all of whose values have a
 * use. */
#ifndef TESTS_RANDOM_GRAPH_H
#define TESTS_RANDOM_GRAPH_H

#include "passes/pass_run.h"

static inline uint64_t pr_draw(uint64_t *state, uint64_t n)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return bk_mix64(*state) % n;
}

/* Ten values, each computed from any of those before it. */
static inline void pr_build_random(pass_run *r, uint64_t seed)
{
    enum { S = 2, B = 2, C = 4 };
    uint64_t rng = seed;
    bk_vid v[16] = {pr_input(r, "x", BK_F64, PR_DIMS(S, B, C))}, w[3];
    int n = 1;
    for (int k = 0; k < 3; k++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", k);
        w[k] = pr_param(r, name, PR_DIMS(C, C));
    }
    const bk_vid gain = pr_param(r, "gain", PR_DIMS(C)), wide = pr_param(r, "wide", PR_DIMS(2 * C, C));
    v[n++] = pr_op(r, BK_OP_linear, "v1", PR_IN(v[0], w[0]));
    while (n < 12) {
        char name[16];
        snprintf(name, sizeof name, "v%d", n);
        const bk_vid x = v[pr_draw(&rng, (uint64_t)n)], y = v[pr_draw(&rng, (uint64_t)n)],
                     z = v[pr_draw(&rng, (uint64_t)n)];
        switch (pr_draw(&rng, 6)) {
        case 0:
            v[n] = pr_op(r, BK_OP_linear, name, PR_IN(x, w[pr_draw(&rng, 3)]));
            break;
        case 1:
            v[n] = pr_norm(r, name, x, gain);
            break;
        case 2:
            v[n] = pr_op(r, BK_OP_add_n, name, PR_IN(x, y, z));
            break;
        case 3:
            v[n] = pr_op(r, BK_OP_copy, name, PR_IN(x));
            break;
        case 4: { /* two of the three overlapping thirds of a wide value */
            const bk_vid base = pr_op(r, BK_OP_linear, name, PR_IN(x, wide));
            bk_vid part_of[2];
            for (int k = 0; k < 2; k++) {
                const bk_vid view =
                    pr_view(r, name, base, 3, (const int64_t[]){S, B, C},
                            (const int64_t[]){B * 2 * C, 2 * C, 1}, (int64_t)pr_draw(&rng, 3) * C / 2);
                part_of[k] = pr_op(r, BK_OP_copy, name, PR_IN(view));
            }
            v[n] = pr_op(r, BK_OP_residual_add, name, part_of, 2);
            break;
        }
        default:
            v[n] = pr_op(r, BK_OP_residual_add, name, PR_IN(x, y));
        }
        n++;
    }
    /* Nothing is left unread: the checker wants a term for each use. Norms keep what is seeded of order one.
     */
    for (int k = 0; k < 2; k++) {
        const bk_vid all = pr_op(r, BK_OP_add_n, "all", v + 1 + 4 * k, n - 1 - 4 * k);
        pr_seed(r, pr_norm(r, k ? "end1" : "end0", all, gain));
    }
}

#endif
