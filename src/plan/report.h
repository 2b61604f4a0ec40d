/* What a plan says about a step, in numbers and as text for a terminal. Every number is a sum over the
 * parameter table, the plan's places or its items; nothing is estimated. */
#ifndef BK_PLAN_REPORT_H
#define BK_PLAN_REPORT_H

#include "base/str.h"
#include "config/config.h"
#include "layout/layout.h"
#include "plan/plan.h"

/* What the bytes alive at the peak are for. The first three are the run part. */
typedef enum {
    BK_MEM_PARAMS,      /* the values of parameters */
    BK_MEM_MOMENTS,     /* the optimizer's state of them */
    BK_MEM_RUN_REST,    /* other values of scope run, and what aligns them */
    BK_MEM_GRADS,       /* accumulators of parameters' gradients */
    BK_MEM_ACTIVATIONS, /* written by the forward pass or a replay, still to be read */
    BK_MEM_ACT_GRADS,   /* written by the backward pass */
    BK_MEM_SCRATCH,     /* of the op that runs */
    BK_MEM_INPUTS,      /* fed by the host */
    BK_MEM_STEP_REST,   /* tables, scalars and metrics of the step */
    BK_MEM_OTHER_MICRO, /* slots of the other micro-batches in flight */
    BK_N_MEMS
} bk_mem_kind;

typedef struct {
    int64_t class_elements[BK_N_CLASSES], class_bytes[BK_N_CLASSES]; /* of parameters */
    int64_t n_elements, param_bytes;                                 /* their sums */
    int64_t mem_bytes[BK_N_MEMS];                                    /* add up to the plan's peak_bytes */
    int64_t node_bytes[BK_N_NODES]; /* of BK_MEM_ACTIVATIONS, by the node that wrote them; add up to it */
    int64_t routed_bytes;           /* of them and of their gradients, those counted by the rows of experts */
    int64_t lane_items[BK_N_LANES]; /* items in a step */
    int64_t lane_waits[BK_N_LANES]; /* waits of items of the lane for other lanes */
} bk_plan_report;

/* Counts. BK_E_MEM. */
bk_status bk_plan_report_make(bk_plan_report *out, const bk_plan *p, bk_err *e);

/* Two flops a multiply-add of a step; INT64_MAX where it does not fit. */
int64_t bk_plan_matrix_flops(const bk_plan *p);

/* Appends what is planned: a line on the model, a line on the batch. */
void bk_plan_report_print_run(bk_str *out, const bk_config *c, const bk_layout *l);

/* Appends the tables: parameters, memory, arena, work (per step, and per token: n_tokens in a step), lanes.
 */
void bk_plan_report_print(bk_str *out, const bk_plan_report *r, const bk_plan *p, int64_t n_tokens);

/* Appends the heading of a table on room for routed tokens, and one of its lines: rows, what they take at the
 * peak of a plan with so much room, and that peak. */
void bk_plan_report_print_rooms(bk_str *out);
void bk_plan_report_print_room(bk_str *out, const char *name, int64_t rows, const bk_plan_report *r,
                               const bk_plan *p);

#endif
