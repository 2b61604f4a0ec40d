/* The parameter table: one row for each logical parameter, and nothing lists parameters a second time. Init,
 * optimizer groups, gradient finalisation, the global norm, checkpoints and reports read it. */
#ifndef BK_IR_PARAM_H
#define BK_IR_PARAM_H

#include "ir/types.h"

typedef enum {
    BK_INIT_ZERO,
    BK_INIT_ONE,
    BK_INIT_CONST,  /* init_arg everywhere */
    BK_INIT_NORMAL, /* N(0, init_arg^2) */
    BK_INIT_XAVIER, /* uniform in (-a, a), a = sqrt(6 / (rows + columns)) of the 2-D shape */
} bk_init_rule;

/* For the report of parameters by class. */
typedef enum {
    BK_CLASS_EMBEDDING,
    BK_CLASS_ATTENTION,
    BK_CLASS_MLP,
    BK_CLASS_ROUTER,
    BK_CLASS_EXPERTS,
    BK_CLASS_NORM,
    BK_CLASS_MHC,
    BK_CLASS_OUTPUT,
    BK_N_CLASSES
} bk_param_class;

extern const char *const bk_param_class_names[BK_N_CLASSES];

typedef struct {
    const char *name;  /* Megatron's checkpoint key; the graph's arena owns it */
    const char *alias; /* a second spelling that files may use, or NULL */
    int rank;
    int64_t shape[BK_MAX_DIMS]; /* global */
    bk_dtype dtype;             /* of the value that ops read */
    bool master;                /* an fp32 master copy exists beside a narrower value */
    bk_param_class class_;
    bk_init_rule init;
    double init_arg;
    bool decay; /* weight decay applies: two or more dims */
    bk_spread spread[BK_N_AXES];
    bk_vid value; /* its value in this graph */
    bk_vid grad;  /* its gradient accumulator, or BK_NONE (evaluation, frozen) */
} bk_param;

#endif
