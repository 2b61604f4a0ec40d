/* The figures that a run writes down. */
#ifndef BK_TRAIN_METRIC_VALUES_H
#define BK_TRAIN_METRIC_VALUES_H

#include <stdint.h>

#include "train/layer_health.h"
#include "train/metric_table.h"

/* Of a run, at its beginning. */
typedef struct {
    const char *version, *commit; /* of the program */
    uint64_t config_hash;
    int64_t first_iteration; /* 1, or where a resumed run goes on */
} bk_run_values;

/* Of one step. */
typedef struct {
    int64_t iteration;         /* 1-based */
    int64_t n_samples;         /* consumed so far, this step's included */
    int64_t batch_size;        /* samples of this step */
    double loss;               /* mean over the step's tokens, before the update */
    double grad_norm;          /* before clipping */
    double learning_rate;      /* of this step */
    double next_learning_rate; /* of the step after it */
    double tokens_per_s;
    double tflops;                  /* 10^12 floating-point operations a second */
    double seconds;                 /* that the step took */
    const bk_metric_table *metrics; /* others; bk_metric_is_scalar: written under its name. NULL: none */
} bk_step_values;

/* Of one evaluation. */
typedef struct {
    int64_t iteration; /* the last step before it */
    int64_t n_samples; /* consumed by training so far */
    double loss;       /* mean over the tokens of the validation batches */
} bk_evaluation_values;

/* Of the layers, in a step that measured. */
typedef struct {
    int64_t iteration;
    int64_t n_samples; /* consumed so far, this step's included */
    bk_health health;
} bk_health_values;

/* Of a step (or an evaluation after it) that was void because rows of tokens found no room at their experts,
 * and is done again with more. */
typedef struct {
    int64_t iteration;
    int64_t n_rows; /* that came to the experts of a layer in a micro-batch */
    int64_t room_before, room;
} bk_room_values;

/* exp(min(20, loss)): an untrained model's stays in the plot. */
double bk_perplexity(double loss);

#endif
