/* Inside the checkpoints: the values of scope run of a session as tensors of a file. */
#ifndef BK_TRAIN_CHECKPOINT_TENSORS_H
#define BK_TRAIN_CHECKPOINT_TENSORS_H

#include "data/safetensors.h"
#include "train/checkpoint.h"

typedef struct {
    bk_st_tensor *tensor; /* sorted by name; data are the session's, borrowed */
    void **data;          /* the same addresses, to write to */
    int64_t n;
    bk_arena arena; /* owns all of the above but the data */
} bk_checkpoint_tensors;

/* Lists them; nothing in them changes while this lives, unless the caller writes. BK_E_MEM. */
bk_status bk_checkpoint_tensors_of(bk_checkpoint_tensors *out, const bk_session *s, bk_checkpoint_part part,
                                   bk_err *e);
void bk_checkpoint_tensors_free(bk_checkpoint_tensors *t); /* {0} is fine */

/* Whether a tensor of a file belongs to the part. */
bool bk_checkpoint_is_in(bk_checkpoint_part part, const char *name);

#endif
