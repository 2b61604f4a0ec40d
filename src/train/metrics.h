/* The metrics of a run, to every file that the configuration asks for: log_jsonl, tensorboard_dir.
 *
 *     bk_metrics m = {0};
 *     BK_TRY(bk_metrics_open(&m, c, first_iteration, e));
 *     BK_TRY(bk_metrics_step(&m, &values, e));              // after each step
 *     BK_TRY(bk_metrics_evaluation(&m, &values, e));        // after each evaluation
 *     BK_TRY(bk_metrics_health(&m, &values, e));            // after each step that measured
 *     BK_TRY(bk_metrics_close(&m, e));                      // or with e NULL on the way out of a failure */
#ifndef BK_TRAIN_METRICS_H
#define BK_TRAIN_METRICS_H

#include "config/config.h"
#include "train/jsonl.h"
#include "train/metric_values.h"
#include "train/tensorboard.h"

/* {0} is closed; what is not asked for stays closed, and writing to it does nothing. */
typedef struct {
    bk_jsonl jsonl;
    bk_tensorboard tensorboard;
} bk_metrics;

/* Opens what a resolved configuration asks for and writes the run's line. first_iteration: 1, or the first
 * one that a resumed run does. BK_E_IO (with the path), BK_E_MEM; then all is closed again. */
bk_status bk_metrics_open(bk_metrics *m, const bk_config *c, int64_t first_iteration, bk_err *e);

/* The first failure is returned, the other file written none the less. */
bk_status bk_metrics_step(bk_metrics *m, const bk_step_values *v, bk_err *e);
bk_status bk_metrics_evaluation(bk_metrics *m, const bk_evaluation_values *v, bk_err *e);
bk_status bk_metrics_health(bk_metrics *m, const bk_health_values *v, bk_err *e);
bk_status bk_metrics_room(bk_metrics *m, const bk_room_values *v, bk_err *e); /* JSON lines alone */

/* Closes in any case; a closed one is fine. */
bk_status bk_metrics_close(bk_metrics *m, bk_err *e);

#endif
