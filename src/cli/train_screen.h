/* What birkhoff train shows: a header, a line at intervals, validation losses, a sample and a closing line;
 * on a terminal a bar below them. All of it goes to the standard output. */
#ifndef BK_CLI_TRAIN_SCREEN_H
#define BK_CLI_TRAIN_SCREEN_H

#include "cli/progress.h"
#include "train/loop.h"

enum { BK_SPARK_STEPS = 64 };

typedef struct {
    const bk_config *c;
    const bk_run *run;
    bk_progress progress;
    double peak_flops;             /* of this machine, a second */
    double losses[BK_SPARK_STEPS]; /* of the last steps, the oldest first */
    int64_t n_losses;
    double loss, valid_loss; /* of the last line; NaN before it */
    /* Since the last line. */
    double seconds;
    int64_t n_tokens, madds;
} bk_train_screen;

/* Prints the header of an open run, which must outlive the screen, and measures the machine for the lines. */
void bk_train_screen_begin(bk_train_screen *s, const bk_run *run);
void bk_train_screen_step(bk_train_screen *s, const bk_step_report *r);
void bk_train_screen_evaluated(bk_train_screen *s, double loss);
void bk_train_screen_room(bk_train_screen *s, const bk_room_values *v);

/* What the model writes when a document begins; nothing for a run without steps, or of other data than text.
 */
bk_status bk_train_screen_sample(bk_run *r, bk_err *e);

void bk_train_screen_end(const bk_train_screen *s, const bk_end_report *end);

#endif
