/* Gradients against finite differences, in double, on a small copy of the user's model. */
#ifndef BK_TRAIN_DIFFERENCE_H
#define BK_TRAIN_DIFFERENCE_H

#include "base/str.h"
#include "config/config.h"
#include "train/check_report.h"

/* Makes a resolved configuration small and resolves it again: at most 2 layers, 2 groups of at most 2 heads,
 * 2 samples of 6 tokens, 2 micro-batches, and narrow everywhere. Every kind of thing stays: streams, norms,
 * activation, biases, tied or not, groups of heads, a head that is not width / heads, rotation of a part of a
 * head, padding of the vocabulary, a position table longer than a sample, dropout, accumulation. */
bk_status bk_difference_shrink(bk_config *c, bk_err *e);

/* A few lines that say what the copy is. */
void bk_difference_describe(bk_str *out, const bk_config *c);

/* A row for each parameter: norm(differences - gradients) / norm(differences) over a few random directions,
 * or over all elements where there are few. Meant for what bk_difference_shrink gives: the model runs some
 * twenty times for each parameter. */
bk_status bk_difference_check(bk_check_report *out, const bk_config *c, bk_err *e);

#endif
