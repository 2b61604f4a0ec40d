/* The slope of a function along a line by finite differences, where the function may jump: on the way it
 * chooses (the experts of a token), and another choice is another function. */
#ifndef BK_TRAIN_SLOPE_H
#define BK_TRAIN_SLOPE_H

#include <stdbool.h>

#include "base/err.h"

/* `at` gives the value at a distance from the base along the line, and whether the function chose something
 * there that it does not choose at the base. */
typedef struct {
    void *ctx;
    bk_status (*at)(double *value, bool *jumped, void *ctx, double distance, bk_err *e);
} bk_line;

typedef struct {
    double value;
    double shortened; /* times the step had to be shortened, as a factor of at least 1: rounding weighs as
                         much more; 0: there is a jump within every step that was tried, and no value */
} bk_slope;

/* The difference quotient of five points, (f(-2h) - 8 f(-h) + 8 f(h) - f(2h)) / 12h, with the largest h of
 * BK_SLOPE_STEP / 8^k, k < BK_SLOPE_TRIES, for which no point jumped. It errs by h^4/30 times the fifth
 * derivative and by the rounding of f over h. Errors are those of `at`. */
#define BK_SLOPE_STEP 0x1p-10
enum { BK_SLOPE_TRIES = 4 };
bk_status bk_slope_along(bk_slope *out, const bk_line *line, bk_err *e);

#endif
