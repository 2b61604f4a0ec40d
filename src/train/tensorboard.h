/* Metrics as an event file that TensorBoard reads: TFRecord frames (length, masked CRC-32C of it, bytes,
 * masked CRC-32C of them) around protocol buffers of tensorboard.proto. Tags are Megatron-LM's; the x axis of
 * "<tag> vs samples" is the number of samples consumed:
 *
 *     lm loss, grad-norm, learning-rate, batch-size, iteration-time         and their twins
 *     throughput                                                            (without one)
 *     lm loss validation, lm loss validation ppl                            and their twins
 *     health/<layer>/experts/<figure>, health/<layer>/hc/<sublayer>/<figure>     (without)
 *
 * As there, learning-rate is that of the step after, and the first step has no iteration-time: it pays for
 * what happens once. */
#ifndef BK_TRAIN_TENSORBOARD_H
#define BK_TRAIN_TENSORBOARD_H

#include "base/str.h"
#include "train/log_file.h"
#include "train/metric_values.h"

/* {0} is closed. */
typedef struct {
    bk_log_file file;
    bk_str frames;
    int64_t interval, first_iteration;
} bk_tensorboard;

/* Makes the folder, and those above it, where they are missing, and in it a new file
 * events.out.tfevents.<time>. <host>, with a number behind it where that name is taken. `interval`: a step is
 * written when its iteration is a multiple of it. first_iteration is the run's, 1 or where it goes on; a
 * resumed run repeats the points after its checkpoint, with the same values. BK_E_IO, BK_E_MEM. */
bk_status bk_tensorboard_open(bk_tensorboard *t, const char *folder, int64_t interval,
                              int64_t first_iteration, bk_err *e);

/* BK_E_IO when the events could not be written whole; the file then ends with those before. */
bk_status bk_tensorboard_step(bk_tensorboard *t, const bk_step_values *v, bk_err *e);
bk_status bk_tensorboard_evaluation(bk_tensorboard *t, const bk_evaluation_values *v, bk_err *e);
/* Whatever the interval: the run measures at one of its own. */
bk_status bk_tensorboard_health(bk_tensorboard *t, const bk_health_values *v, bk_err *e);

/* Closes in any case; a closed one is fine. */
bk_status bk_tensorboard_close(bk_tensorboard *t, bk_err *e);

#endif
