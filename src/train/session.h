/* The programs of a process and the executor that runs them: planned together, so that parameters stand at
 * the same addresses in all of them, and refused before the first allocation if they need more memory than
 * there is. */
#ifndef BK_TRAIN_SESSION_H
#define BK_TRAIN_SESSION_H

#include "exec/exec.h"
#include "train/program.h"

enum { BK_MAX_PROGRAMS = 5 };

typedef struct {
    bk_program program[BK_MAX_PROGRAMS]; /* owned */
    int64_t n_micro[BK_MAX_PROGRAMS];
    int n_programs;
    bk_run_layout run;
    bk_target target;
    bk_exec *exec;
    int64_t opened_bytes; /* of the executor's arena */
} bk_session;

/* Takes over a program (which becomes {0}) that is to run with n_micro micro-batches. There is room for
 * BK_MAX_PROGRAMS. */
void bk_session_add(bk_session *s, bk_program *prog, int64_t n_micro);

/* Plans and checks every program. */
bk_status bk_session_plan(bk_session *s, const bk_target *target, bk_err *e);

/* Puts another program of the same parameters and states in the place of program k of an open session: plans
 * and checks it, and makes the arena larger if it must be. Values of scope run keep their bits, their
 * addresses change. Takes over the program; on an error the session is as it was. BK_E_MEM as of
 * bk_session_open. */
bk_status bk_session_replace(bk_session *s, int k, bk_program *prog, int64_t limit, bk_err *e);

/* Bytes of the arena: the run part and the largest step part; INT64_MAX where that does not fit. */
int64_t bk_session_bytes(const bk_session *s);

/* BK_E_MEM, with the figure and three ways to lower it, if the arena is larger than `limit` bytes
 * (BK_UNSET_COUNT: than what the machine has left). */
bk_status bk_session_fits(const bk_session *s, int64_t limit, bk_err *e);

/* bk_session_fits, then allocates the arena. Values of scope run are zero. */
bk_status bk_session_open(bk_session *s, int64_t limit, bk_err *e);

/* Draws the initial values of every parameter. */
void bk_session_init_params(bk_session *s, uint64_t seed);

void bk_session_close(bk_session *s); /* {0} is fine */

#endif
