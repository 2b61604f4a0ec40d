/* How the layers of a model are doing, from the metrics of a step that measured: how evenly the router of
 * each spreads the tokens, and how its hyper-connections mix the residual streams. */
#ifndef BK_TRAIN_LAYER_HEALTH_H
#define BK_TRAIN_LAYER_HEALTH_H

#include "base/err.h"
#include "train/metric_table.h"

enum { BK_LAYER_NAME_LEN = 64, BK_MAX_ROUTER_LOSSES = 4 };

/* Of the experts of a layer, over the step. A token counts once for each expert that it is given to. */
typedef struct {
    int64_t n;           /* experts; 0: the layer has none */
    int64_t least, most; /* tokens of the expert with the fewest, of the one with the most */
    int64_t dead;        /* experts without a token */
    int64_t tokens;      /* of all experts together */
    struct {
        const char *name; /* as of the loss over all layers */
        double value;
    } loss[BK_MAX_ROUTER_LOSSES]; /* [n_losses], of the router */
    int n_losses;
} bk_expert_health;

/* Of a hyper-connection, over the step: figures of mhc_health. */
typedef struct {
    int64_t n_streams;                  /* 0: the layer has none */
    double row_error, column_error;     /* of H_res, the largest of all tokens */
    double from_identity, from_uniform; /* distances of H_res, the mean over tokens */
    const double *stream_norm;          /* [n_streams], the mean over tokens, in the table */
} bk_hc_health;

typedef struct {
    char name[BK_LAYER_NAME_LEN]; /* as of its parameters: "decoder.layers.0" */
    bk_expert_health experts;
    bk_hc_health attention, mlp; /* the connections around the two sublayers: both or none */
} bk_layer_health;

/* Rows in the order of the table. */
typedef struct {
    bk_layer_health *row;
    int64_t n, cap;
} bk_health;

/* The layers that the table tells of; {0} with none. It stays valid as long as the table. BK_E_MEM. */
bk_status bk_health_read(bk_health *out, const bk_metric_table *t, bk_err *e);

void bk_health_free(bk_health *h); /* {0} is fine */

#endif
