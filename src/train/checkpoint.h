/* Checkpoints: what a run needs to go on as if it had not stopped.
 *
 *     DIR/latest_checkpointed_iteration.txt   the tracker: "100", written after the data are complete
 *     DIR/iter_0000100/model.safetensors      parameters under their keys, moments under
 *                                             optimizer.state.exp_avg.<key>, optimizer.state.exp_avg_sq.<key>
 *     DIR/iter_0000100/manifest.json          position in the run, the whole configuration, a checksum for
 *                                             each tensor (train/manifest.h)
 *     DIR/.lock                               held while a run saves into DIR
 *     DIR/.tmp-*                              what a save is still writing
 *
 * A folder iter_N is complete from the moment it has that name, and never written again. Whenever the process
 * dies, the tracker names a complete checkpoint or, before the first one, does not exist. */
#ifndef BK_TRAIN_CHECKPOINT_H
#define BK_TRAIN_CHECKPOINT_H

#include "config/config.h"
#include "train/session.h"

/* Where a run stands. */
typedef struct {
    int64_t iteration;        /* steps done */
    int64_t consumed_samples; /* of the training part */
    int64_t skipped_steps;    /* that changed nothing, since something in them was not finite */
    int64_t line_steps;       /* done since the last log line, */
    double line_loss_sum;     /* and the sum of their losses: so that lines do not depend on stops */
} bk_checkpoint_state;

/* ---- Saving ---- */

typedef struct bk_checkpoint_dir bk_checkpoint_dir;

/* Makes the folder where it does not exist and locks it until bk_checkpoint_dir_close (or the end of the
 * process). `begins_at` is the number of steps done when the run begins: 0, or the iteration that it was
 * loaded at. Writes no checkpoint, but finds out before the first step what would stop one.
 * BK_E_INPUT: another run saves into it; it has checkpoints after `begins_at`, which this run would come to
 * overwrite; an option's value is no UTF-8 text. BK_E_IO: the folder cannot be made or written to. */
bk_status bk_checkpoint_dir_open(bk_checkpoint_dir **out, const char *path, int64_t begins_at,
                                 const bk_config *c, bk_err *e);
void bk_checkpoint_dir_close(bk_checkpoint_dir *d); /* NULL is fine */

/* Saves every value of scope run of the session's first program, the train program, and then removes what
 * c->save_keep no longer keeps. What an interrupted save left in the folder is removed first. On an error the
 * earlier checkpoints and the tracker are as they were, and nothing of this one remains, unless the message
 * says that it is saved: an old one could not be removed, or the folder not be synced.
 * BK_E_IO: the system refused something (disk full). BK_E_INPUT: there is a checkpoint of this iteration
 * already. BK_E_MEM. */
bk_status bk_checkpoint_save(bk_checkpoint_dir *d, const bk_session *s, const bk_checkpoint_state *state,
                             const bk_config *c, bk_err *e);

/* ---- Loading ---- */

typedef struct bk_checkpoint bk_checkpoint;

/* Whether the folder has a tracker: something was saved into it. */
bool bk_checkpoint_exists(const char *dir);

/* Opens the checkpoint that the tracker names, or that of an iteration (BK_UNSET_COUNT: the tracker's), and
 * checks all of it: manifest, sizes, names, and the checksum of every tensor. No other is taken in its place;
 * the message names the newest one before it that is whole. Any config, session and machine will do.
 * BK_E_INPUT: no such checkpoint, or a damaged one. BK_E_IO, BK_E_MEM. */
bk_status bk_checkpoint_open(bk_checkpoint **out, const char *dir, int64_t iteration, bk_err *e);
void bk_checkpoint_close(bk_checkpoint *k); /* NULL is fine */

bk_checkpoint_state bk_checkpoint_get_state(const bk_checkpoint *k);
const char *bk_checkpoint_path(const bk_checkpoint *k); /* "DIR/iter_0000100"; borrowed */

/* The resolved configuration of the run that saved it, without what says where and how often to save and what
 * to load: that belongs to a call of the program, not to the model. *out is initialised here and the caller's
 * to free, also on errors. BK_E_INPUT when this version of birkhoff cannot take it. */
bk_status bk_checkpoint_config(bk_config *out, const bk_checkpoint *k, bk_err *e);

/* Appends the options whose value in the checkpoint differs from `c`, one a line: "lr 0.001 -> 0.0003".
 * Nothing when they agree. Where to save and what to load are left out, as above. */
void bk_checkpoint_config_diff(bk_str *out, const bk_checkpoint *k, const bk_config *c);

typedef enum {
    BK_CHECKPOINT_ALL,     /* every value of scope run: to go on training */
    BK_CHECKPOINT_WEIGHTS, /* parameters alone: to evaluate, generate, or start another run */
} bk_checkpoint_part;

/* Copies the tensors into the values of scope run of the session's first program; the session is open. The
 * tensors of that part must be the session's one for one, with the same types and shapes: BK_E_INPUT names
 * those that are not, and then nothing is copied. BK_E_MEM. */
bk_status bk_checkpoint_load(const bk_checkpoint *k, const bk_session *s, bk_checkpoint_part part, bk_err *e);

#endif
