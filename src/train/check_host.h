/* The host of a program under check: inputs come from arrays and results go to arrays, all of them double,
 * whatever the dtype of the value. */
#ifndef BK_TRAIN_CHECK_HOST_H
#define BK_TRAIN_CHECK_HOST_H

#include "ir/graph.h"
#include "train/check_outcome.h"

/* Micro-batch m reads, or writes, the elements that begin at data + m * (elements of the value). */
typedef struct {
    const char *name;
    const double *data;
} bk_check_feed;

typedef struct {
    bk_vid v; /* in the graph of the program that runs */
    double *data;
} bk_check_tap;

enum { BK_CHECK_MAX_FEEDS = 8 };

/* {0} is empty. A value that no tap names is dropped. */
typedef struct {
    const bk_graph *g;
    bk_check_feed feed[BK_CHECK_MAX_FEEDS];
    int n_feeds;
    bk_check_tap *tap;
    int64_t n_taps, cap_taps;
} bk_check_host;

/* The array is borrowed. */
void bk_check_host_feed(bk_check_host *h, const char *name, const double *data);
bk_status bk_check_host_tap(bk_check_host *h, bk_vid v, double *data, bk_err *e);
/* Adds a row for the value to the outcome, and a tap into it. */
bk_status bk_check_host_keep(bk_check_host *h, bk_outcome *o, bk_vid v, bk_outcome_class class_,
                             const char *name, bk_err *e);
void bk_check_host_free(bk_check_host *h); /* {0} is fine */

/* A host for the executor; `h` must live as long. */
bk_host bk_check_host_of(bk_check_host *h);

/* The value that the program's k-th fetch in each micro-batch hands over: probes stand in the order in which
 * they were asked for. BK_NONE if there are fewer. */
bk_vid bk_check_probe(const bk_graph *g, int k);

#endif
