/* Inputs of a comparison, read from a file of reference vectors. */
#ifndef BK_TRAIN_AGAINST_FILE_H
#define BK_TRAIN_AGAINST_FILE_H

#include "data/safetensors.h"
#include "exec/exec.h"
#include "train/check_outcome.h"

/* Reads the tensor `name`, floating-point or i32 or i64, which must have this shape, and notes in `o` that it
 * was an input. *out is owned by o. BK_E_INPUT names the tensor that is missing or of another shape. */
bk_status bk_against_read(double **out, bk_outcome *o, const bk_st *file, const char *name, int rank,
                          const int64_t *shape, bk_err *e);

/* Reads a parameter's value from the tensor `name` into the arena of an executor. */
bk_status bk_against_load(bk_exec *x, const bk_plan *p, bk_pid param, bk_outcome *o, const bk_st *file,
                          const char *name, bk_err *e);

/* BK_E_INPUT if the file holds a tensor "param.*" that was not read. */
bk_status bk_against_no_other_params(const bk_outcome *o, const bk_st *file, bk_err *e);

#endif
