/* The training loop: batches in, losses out. */
#ifndef BK_TRAIN_LOOP_H
#define BK_TRAIN_LOOP_H

#include "config/config.h"
#include "data/text.h"
#include "layout/layout.h"
#include "plan/plan.h"

/* What is read when data_path is not given: text that every machine with a C compiler has. */
#define BK_DEFAULT_DATA_PATH    "/usr/include"
#define BK_DEFAULT_DATA_PATTERN "*.h"

/* What one step did. */
typedef struct {
    int64_t iteration; /* 1-based */
    int64_t n_samples; /* consumed so far, this step's included */
    double loss;       /* sum of masked token losses over the number of tokens, before the update */
    double grad_norm;  /* before clipping */
    double learning_rate;
    double seconds;   /* that the step took */
    int64_t n_tokens; /* positions of the step that count in the loss */
    int64_t madds;    /* multiply-adds counted in the step */
} bk_step_report;

/* What a run is made of, for the header. */
typedef struct {
    const bk_config *config;
    const bk_plan *plan; /* of the train program */
    int64_t arena_bytes;
    int64_t n_params; /* elements */
    int64_t n_train_tokens;
    int64_t n_valid_tokens; /* 0: there is no validation */
    const bk_text_report *text;
} bk_run_report;

/* Where a run reports to. Any function may be NULL. */
typedef struct {
    void *ctx;
    void (*begin)(void *ctx, const bk_run_report *r);
    void (*step)(void *ctx, const bk_step_report *r);
    void (*evaluated)(void *ctx, int64_t iteration, double loss); /* mean over eval_iters batches */
} bk_train_log;

/* Trains from initial values for config.train_iters steps on the text of config.data_path, and evaluates
 * after every eval_interval steps and after the last. Without a sample in the validation part, or with
 * eval_iters 0, nothing is evaluated. BK_E_INPUT and BK_E_IO for data that cannot be used, BK_E_MEM for a
 * plan that does not fit, BK_E_CHECK when a loss or the gradient norm is no longer finite: the message says
 * at which step. */
bk_status bk_train(const bk_config *c, const bk_train_log *log, bk_err *e);

#endif
