/* Gradients against finite differences, in double, on a small copy of the user's model. */
#ifndef BK_TRAIN_DIFFERENCE_H
#define BK_TRAIN_DIFFERENCE_H

#include "base/str.h"
#include "config/config.h"
#include "train/check_report.h"

/* Makes a resolved configuration small and resolves it again: at most 2 layers, 2 groups of at most 2 heads,
 * 2 samples of 6 tokens, 2 micro-batches, and narrow everywhere. Every kind of thing stays: streams, norms,
 * activation, biases, tied or not, groups of heads, a head that is not width / heads, rotation of a part of a
 * head, padding of the vocabulary, a position table longer than a sample, dropout, accumulation; layers with
 * and without experts, one, some or all of them for a token, groups of experts, shared experts. */
bk_status bk_difference_shrink(bk_config *c, bk_err *e);

/* A few lines that say what the copy is. */
void bk_difference_describe(bk_str *out, const bk_config *c);

/* The model on random tokens and random parameters, with its gradients there. */
typedef struct bk_difference bk_difference;

/* Builds and runs the model. Meant for what bk_difference_shrink gives: to compare, the model runs some
 * twenty times for each parameter. BK_E_INPUT where the configuration has more than two micro-batches. */
bk_status bk_difference_open(bk_difference **out, const bk_config *c, bk_err *e);

/* The gradient of a parameter, *n elements, NULL if there is no such parameter. Borrowed; what is written
 * there is what is compared. */
double *bk_difference_gradient(int64_t *n, bk_difference *d, const char *name);

/* A parameter, *n elements, NULL if there is none of that name. Borrowed; after a change bk_difference_run
 * gives the gradients there. */
double *bk_difference_param(int64_t *n, bk_difference *d, const char *name);
bk_status bk_difference_run(bk_difference *d, bk_err *e);

/* Appends a row for each parameter: norm(differences - gradients) / norm(differences) over a few random
 * directions, or over all elements where there are few. Where a step changes what the model chooses (the
 * experts of a token), a shorter one is taken; where the shortest does, the direction is left out and the
 * row's note counts it. A row of which more than one direction in four is left out fails. */
bk_status bk_difference_compare(bk_check_report *out, bk_difference *d, bk_err *e);

void bk_difference_close(bk_difference *d); /* NULL is fine */

#endif
