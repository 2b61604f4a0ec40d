/* The line at the bottom of a terminal that shows how far a run is, redrawn in place. When the output is no
 * terminal, nothing is drawn. */
#ifndef BK_CLI_PROGRESS_H
#define BK_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool on;
    int64_t total, first; /* steps of all, and those done before this run */
    double start;         /* bk_now() of the first step's beginning */
    double drawn;         /* bk_now() of the last drawing; 0 while there is no bar on the screen */
} bk_progress;

/* Room for any text of bk_progress_clock. */
enum { BK_CLOCK_LEN = 32 };

/* `first` of the `total` steps are done already. */
void bk_progress_begin(bk_progress *p, int64_t total, int64_t first);

/* Draws the bar, `text` and the time left, cut to the width of the terminal; not oftener than a few times a
 * second. Whoever prints a line calls bk_progress_clear before and this after. */
void bk_progress_draw(bk_progress *p, int64_t done, const char *text);
void bk_progress_clear(bk_progress *p);

/* Seconds since the beginning, and those that the rest will take at the mean pace so far (what happens
 * between steps included); NaN before the first step is done. */
double bk_progress_elapsed(const bk_progress *p);
double bk_progress_left(const bk_progress *p, int64_t done);

/* "0:07", "12:34", "3:00:00"; "-:--" for NaN. Returns out. */
char *bk_progress_clock(char out[BK_CLOCK_LEN], double seconds);

#endif
