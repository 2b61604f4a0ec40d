/* A program: what one mode of a run does in one step, from graph to plan. bk_program_graph is the driver of
 * the pipeline; whoever is new reads it first. */
#ifndef BK_TRAIN_PROGRAM_H
#define BK_TRAIN_PROGRAM_H

#include "config/config.h"
#include "layout/layout.h"
#include "model/model.h"
#include "passes/passes.h"
#include "plan/plan.h"

/* Called after each stage that makes or rewrites something, for --dump: "model", "autodiff", "accumulate",
 * "step", "partition" with the graph so far, then "schedule" and "plan". */
typedef struct {
    void *ctx;
    void (*stage)(void *ctx, const char *name, const bk_graph *g, const bk_schedule *s, const bk_plan *p);
} bk_dump;

typedef struct {
    bk_model_mode mode;
    bk_dtype real;            /* of activations and parameters: BK_F32, BK_F64 */
    bool optimizer;           /* train mode: append the step graph; otherwise gradients are all there is */
    bool fetch_grads;         /* hand every gradient to the host (kind BK_GRADIENT, the parameter's name) */
    const char *const *probe; /* values to hand to the host in each micro-batch, see bk_model_probe */
    int n_probes;
    const bk_dump *dump; /* or NULL */
} bk_program_options;

typedef struct {
    bk_graph *g;
    bk_schedule *s;
    bk_plan *p;
    const bk_dump *dump;
} bk_program;

/* The graph of the configured model in a mode, with all passes done. */
bk_status bk_program_graph(bk_program *out, const bk_config *c, const bk_layout *l,
                           const bk_program_options *o, bk_err *e);

/* Does the passes on a graph of forward ops that somebody else built: what bk_program_graph does after the
 * model. */
bk_status bk_program_passes(bk_program *prog, const bk_seed *seed, int n_seeds, const bk_step_options *step,
                            bool fetch_grads, bk_err *e);

/* Schedules, plans and checks. `run` holds the values of scope run of all programs of the process. */
bk_status bk_program_plan(bk_program *prog, const bk_run_layout *run, const bk_target *target,
                          int64_t n_micro, bk_err *e);

void bk_program_free(bk_program *prog); /* {0} is fine */

#endif
