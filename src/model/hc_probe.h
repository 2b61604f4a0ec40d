/* The graph of one hyper-connection and of one contraction head, without a model around them: for comparing
 * the operators, and their gradients as autodiff builds them, with reference vectors.
 *
 *     x -> h_pre, h_post, h_res;   u = aggregate(x);   x_next = post(x, y, bias)
 *     head.x -> head.out
 *
 * T tokens are T positions of one sample. What is differentiated is a parameter here, x and y included: the
 * gradient of each stands in the row of its name. Since gradient flows into a parameter through the ops that
 * read parameters, x, y and head.x are tables whose rows the tokens look up; the host feeds "rows" = 0..T-1.
 * The scalar behind the gradients is
 *     sum(u * du) + sum(x_next * dout) + sum(head.out * head.dout). */
#ifndef BK_MODEL_HC_PROBE_H
#define BK_MODEL_HC_PROBE_H

#include "base/err.h"
#include "ir/graph.h"

typedef struct {
    int64_t n_tokens;   /* T */
    int64_t n_streams;  /* n */
    int64_t width;      /* C */
    int64_t iterations; /* of Sinkhorn */
    double eps;         /* of the contraction */
} bk_hc_probe_sizes;

typedef struct {
    /* Parameters. N = n*n + 2n; names are the field names where no other is given. */
    bk_vid x, y;                             /* [T, n*C], [T, C] */
    bk_vid sublayer_bias;                    /* [C] */
    bk_vid mapping;                          /* [N, n*C] "mapping_proj.weight" */
    bk_vid alpha_pre, alpha_post, alpha_res; /* [1] */
    bk_vid bias;                             /* [N] */
    bk_vid head_x;                           /* [T, n*C] "head.x" */
    bk_vid head_fn, head_base, head_scale;   /* [n, n*C], [n], [1] "head.fn" and so on */
    /* Results. */
    bk_vid h_pre, h_post, h_res; /* [T, 1, n], [T, 1, n], [T, 1, n, n] */
    bk_vid u, x_next, head_out;  /* [T, 1, C], [T, 1, n, C], [T, 1, C] */
    /* Inputs, fed in each micro-batch: [1, T] i32 "rows", and the gradients of u, x_next and head_out. */
    bk_vid rows;
    bk_vid du, dout, head_dout; /* "du", "dout", "head.dout" */
} bk_hc_probe;

/* Appends both to an empty graph. */
bk_status bk_hc_probe_build(bk_hc_probe *out, bk_graph *g, const bk_hc_probe_sizes *sizes, bk_err *e);

#endif
