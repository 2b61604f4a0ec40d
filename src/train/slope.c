#include "train/slope.h"

static bk_status quotient(double *out, bool *jumped, const bk_line *line, double h, bk_err *e)
{
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    bk_status st = BK_OK;
    *out = 0, *jumped = false;
    for (int k = 0; k < 4 && st == BK_OK && !*jumped; k++) {
        double value = 0;
        st = line->at(&value, jumped, line->ctx, at[k] * h, e);
        *out += weight[k] * value / (12 * h);
    }
    return st;
}

bk_status bk_slope_along(bk_slope *out, const bk_line *line, bk_err *e)
{
    double shortened = 1;
    *out = (bk_slope){0};
    for (int k = 0; k < BK_SLOPE_TRIES; k++, shortened *= 8) {
        double value;
        bool jumped;
        const bk_status st = quotient(&value, &jumped, line, BK_SLOPE_STEP / shortened, e);
        if (st != BK_OK) return st;
        if (jumped) continue;
        *out = (bk_slope){value, shortened};
        break;
    }
    return BK_OK;
}
