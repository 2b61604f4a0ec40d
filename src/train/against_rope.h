/* Rope tables in files of reference vectors: tensors whose names end with ".self_attention.rotary_pos_emb."
 * and cos_cached or sin_cached, [positions, 1, 1, d], the d/2 angles of a position and the same again. There
 * may be one for each layer, and fewer positions than the model has. */
#ifndef BK_TRAIN_AGAINST_ROPE_H
#define BK_TRAIN_AGAINST_ROPE_H

#include "config/config.h"
#include "data/safetensors.h"
#include "train/check_host.h"

/* Probes that a program needs for its tables (model/model.h). */
enum { BK_AGAINST_ROPE_PROBES = 2 };
extern const char *const bk_against_rope_probes[BK_AGAINST_ROPE_PROBES];

/* Whether the file holds tables that this model has. */
bool bk_against_has_rope(const bk_st *file, const bk_config *c);

/* The two tables of a program, in double. */
typedef struct {
    int64_t n_positions, n_angles;
    double *table[BK_AGAINST_ROPE_PROBES];
} bk_against_rope;

/* Taps them; `o` owns the arrays. */
bk_status bk_against_rope_tap(bk_against_rope *out, bk_check_host *h, bk_outcome *o, bk_err *e);

/* After the run: a row of the outcome for each of the file's tensors. BK_E_INPUT names one of another shape.
 */
bk_status bk_against_rope_keep(bk_outcome *o, const bk_against_rope *r, const bk_st *file, bk_err *e);

#endif
