/* A run: data, programs, parameters and where they are saved, made from a configuration and ready for the
 * loop. */
#ifndef BK_TRAIN_RUN_H
#define BK_TRAIN_RUN_H

#include "train/checkpoint.h"
#include "train/feeder.h"
#include "train/generate.h"
#include "train/run_data.h"
#include "train/session.h"

/* Programs of a run's session. */
enum { BK_RUN_TRAIN, BK_RUN_EVALUATE };

/* Whether a run measures experts and residual streams: there are some, log_health_interval is not 0, and a
 * file is there to write the figures to. The program that trains and measures is the last of the session. */
bool bk_run_measures(const bk_config *c);

typedef struct {
    const bk_config *c;
    bk_layout layout;
    bk_run_data data;
    bk_session session;
    bk_generator gen; /* for the sample at the end */
    bk_feed feed;
    bk_checkpoint_dir *save;   /* NULL where nothing is saved */
    bk_checkpoint_state state; /* steps done; of the checkpoint that was loaded at first */
    bk_str config_diff;        /* options that differ from those of that checkpoint, a line each */
} bk_run;

/* Builds the programs of a run and adds them to an empty session: the one that trains, the one that evaluates
 * where that is wanted, those of the generator, which one rank alone has, and the one that measures, if
 * bk_run_measures. `dump` (or NULL) sees the stages of the first. */
bk_status bk_run_add_programs(bk_session *s, bk_generator *gen, const bk_config *c, const bk_layout *l,
                              bool evaluate, const bk_dump *dump, bk_err *e);

/* Opens everything: data, plans, memory, parameters (drawn, or those of `load` and its position), the folder
 * of `save`. Must stay where it is. The caller closes in any case. */
bk_status bk_run_open(bk_run *r, const bk_config *c, bk_err *e);

/* The same with a layout of the caller's. */
bk_status bk_run_open_layout(bk_run *r, const bk_config *c, const bk_layout *l, bk_err *e);

/* More room for rows of routed tokens, after a step in which `excess` of them found none: the programs that
 * train, measure and evaluate are planned anew, parameters and everything else that lives as long as the run
 * keep their bits. BK_E_MEM, with the rows, where that does not fit. */
bk_status bk_run_make_room(bk_run *r, int64_t excess, bk_err *e);
void bk_run_close(bk_run *r); /* {0} is fine */

#endif
