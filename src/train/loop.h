/* The training loop: batches in, losses out, checkpoints on the way. */
#ifndef BK_TRAIN_LOOP_H
#define BK_TRAIN_LOOP_H

#include "train/metric_values.h"
#include "train/run.h"

/* What one step did. */
typedef struct {
    int64_t iteration; /* 1-based */
    int64_t n_samples; /* consumed so far, this step's included */
    double loss;       /* sum of masked token losses over the number of tokens, before the update */
    double grad_norm;  /* before clipping */
    double learning_rate, next_learning_rate;
    double seconds;     /* that the step took */
    int64_t n_tokens;   /* positions of the step that count in the loss */
    int64_t madds;      /* multiply-adds counted in the step */
    bool skipped;       /* something was not finite, and nothing of the run changed (nan_policy skip) */
    bool line;          /* a log line is due: the first step, every log_interval-th, the last */
    double line_loss;   /* mean loss of the steps since the last line */
    int64_t line_steps; /* their number */
    bool measured;      /* the metrics tell how each layer is doing */
    const bk_metric_table *metrics; /* what else the step gathered; until the next step */
} bk_step_report;

typedef enum { BK_END_DONE, BK_END_STOPPED, BK_END_TIME } bk_end;

/* How a run ended. */
typedef struct {
    bk_end end;
    int64_t iteration, n_skipped;
    bool saved; /* the state after `iteration` is in the folder of `save` */
} bk_end_report;

/* Where a run reports to. Any function may be NULL. A status other than BK_OK ends the run with it. */
typedef struct {
    void *ctx;
    bk_status (*step)(void *ctx, const bk_step_report *r, bk_err *e);
    bk_status (*evaluated)(void *ctx, int64_t iteration, double loss, double seconds, bk_err *e);
    bk_status (*saved)(void *ctx, int64_t iteration, double seconds, bk_err *e);
    /* A step or an evaluation was void and is done again. */
    bk_status (*made_room)(void *ctx, const bk_room_values *v, bk_err *e);
    bool (*stop)(
        void *ctx); /* asked after each step: true ends the run as if it were at its end, with a checkpoint */
} bk_train_log;

/* Trains an open run up to config.train_iters steps, and evaluates after every eval_interval steps and after
 * the last. Without validation data, or with eval_iters 0, nothing is evaluated. Saves at every
 * save_interval-th step and at the end. BK_E_CHECK when the loss, the gradient norm or a validation loss is
 * no longer finite and nan_policy is stop: the message says at which step and in which value first;
 * parameters and checkpoints are those before that step. */
bk_status bk_train(bk_end_report *out, bk_run *r, const bk_train_log *log, bk_err *e);

#endif
