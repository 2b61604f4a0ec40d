/* Our results against the tensors of a reference file. */
#ifndef BK_TRAIN_COMPARE_H
#define BK_TRAIN_COMPARE_H

#include "data/safetensors.h"
#include "train/check_outcome.h"
#include "train/check_report.h"

/* A row passes when norm(ours - reference) <= relative * norm(reference) + floor * norm(all reference
 * gradients). */
typedef struct {
    double relative, floor;
    bool each; /* every element is judged on its own and the worst one counts */
} bk_tolerance;

extern const bk_tolerance bk_tolerances[BK_N_OUTCOME_CLASSES];

/* Appends a row for each result, in the order of `o`: norm(ours - reference) / norm(reference), in double.
 * What stands on one side alone is a row that fails, unless allow_missing; so is a tensor that holds a value
 * that is not finite, inputs included, in any case. Errors: BK_E_INPUT where shape or dtype of a tensor does
 * not fit ours, BK_E_MEM. */
bk_status bk_compare(bk_check_report *out, const bk_outcome *o, const bk_st *file, bool allow_missing,
                     bk_err *e);

/* "[2, 24]" into buf. Returns buf. */
enum { BK_SHAPE_LEN = 192 };
char *bk_shape_text(char buf[BK_SHAPE_LEN], int rank, const int64_t *shape);

#endif
