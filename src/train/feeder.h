/* Feeds a program from a source of samples and collects its metrics: the bk_host of training and evaluation.
 */
#ifndef BK_TRAIN_FEEDER_H
#define BK_TRAIN_FEEDER_H

#include "data/source.h"
#include "ir/op.h"
#include "train/metric_table.h"

typedef struct {
    bk_source source;
    int64_t first_sample; /* number in the run of the step's first sample */
    int64_t micro_batch, seq, n_micro;
    double learning_rate;
    int64_t step; /* 1-based, of AdamW */
    float *mask;  /* [seq], scratch; bk_feed_free frees it */
    /* Fetched. */
    double loss_sum, n_tokens, grad_norm;
    int64_t routed_excess; /* 0 where nothing tells */
    /* The other metrics of the step go to one of two tables, so that the rows of either are always those of
     * one program. The caller says to which. */
    bk_metric_table trained, measured, *metrics;
} bk_feed;

/* The host of a feed. Borrowed: f must outlive it. */
bk_host bk_feed_host(bk_feed *f);

void bk_feed_free(bk_feed *f); /* {0} is fine */

#endif
