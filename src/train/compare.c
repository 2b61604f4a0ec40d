#include "train/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What fp32 allows, with room for another order of sums, and far below what a mistake costs.
 *
 * Losses and activations of a few layers differ by 1e-7 to 2e-6 between two correct fp32 programs. A gradient
 * has the backward of every later layer behind it, hence ten times as much. Some gradients are differences of
 * numbers a million times larger (alpha_res where all streams are equal, alpha_pre in front of a norm that
 * undoes scaling): no relative bound holds for them, hence the floor, a part of the norm of all gradients.
 * One operator alone rounds a few times only. Over ten steps AdamW turns rounding of small gradients into
 * differences of whole updates: the parameters feel it (5e-5), loss and gradient norm hardly (2e-7). */
/* clang-format off */
const bk_tolerance bk_tolerances[BK_N_OUTCOME_CLASSES] = {
    [BK_OUTCOME_LOSS]         = {2e-5, 0,      false},
    [BK_OUTCOME_ACTIVATION]   = {2e-5, 0,      false},
    [BK_OUTCOME_GRADIENT]     = {2e-4, 2.5e-8, false},
    [BK_OUTCOME_COUNT]        = {0,    0,      false},
    [BK_OUTCOME_OP_OUTPUT]    = {1e-6, 0,      false},
    [BK_OUTCOME_OP_GRADIENT]  = {1e-5, 2.5e-8, false},
    [BK_OUTCOME_TRAIN_METRIC] = {2e-6, 0,      true},
    [BK_OUTCOME_TRAIN_PARAM]  = {2e-4, 0,      false},
};
/* clang-format on */

char *bk_shape_text(char buf[BK_SHAPE_LEN], int rank, const int64_t *shape)
{
    int at = snprintf(buf, BK_SHAPE_LEN, "[");
    for (int d = 0; d < rank && at < BK_SHAPE_LEN - 24; d++)
        at += snprintf(buf + at, (size_t)(BK_SHAPE_LEN - at), "%s%" PRId64, d ? ", " : "", shape[d]);
    snprintf(buf + at, (size_t)(BK_SHAPE_LEN - at), "]");
    return buf;
}

typedef struct {
    bk_check_report *out;
    const bk_outcome *o;
    const bk_st *file;
    bool allow_missing;
    double all_gradients; /* norm of all reference gradients */
    bk_err *e;
} comparison;

static bool is_gradient(const bk_outcome_row *row)
{
    return row->class_ == BK_OUTCOME_GRADIENT || row->class_ == BK_OUTCOME_OP_GRADIENT;
}

static bool is_real(const bk_st_tensor *t)
{
    return t->dtype == BK_ST_F64 || t->dtype == BK_ST_F32 || t->dtype == BK_ST_F16 || t->dtype == BK_ST_BF16;
}

/* Elements of a floating-point tensor, to be freed. */
static bk_status read_all(double **out, const bk_st_tensor *t, bk_err *e)
{
    double *x = malloc((size_t)bk_st_n_elems(t) * sizeof *x + 1);
    if (!x) return bk_err_set(e, BK_E_MEM, "check: out of memory for tensor %.200s", t->name);
    const bk_status st = bk_st_to_f64(x, t, e);
    if (st == BK_OK)
        *out = x;
    else
        free(x);
    return st;
}

static bool all_finite(const double *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(x[k])) return false;
    return true;
}

/* Over gradients that are finite, so that a broken one does not hide the others. */
static bk_status norm_of_gradients(comparison *c)
{
    double sum = 0;
    for (int64_t k = 0; k < c->o->n_rows; k++) {
        const bk_st_tensor *t = bk_st_find(c->file, c->o->row[k]->name);
        double *x = NULL;
        if (!t || !is_gradient(c->o->row[k])) continue;
        const bk_status st = read_all(&x, t, c->e);
        if (st != BK_OK) return st;
        const int64_t n = bk_st_n_elems(t);
        if (all_finite(x, n))
            for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
        free(x);
    }
    c->all_gradients = sqrt(sum);
    return BK_OK;
}

/* a / b where 0 / 0 is 0. */
static double ratio(double a, double b)
{
    return a > 0 || isnan(a) ? a / b : 0;
}

static void judge(bk_check_row *row, const bk_outcome_row *ours, const double *ref, const comparison *c)
{
    const bk_tolerance *tol = &bk_tolerances[ours->class_];
    double diff2 = 0, ref2 = 0, worst = 0;
    for (int64_t k = 0; k < ours->n; k++) {
        const double d = ours->data[k] - ref[k], r = ratio(fabs(d), fabs(ref[k]));
        diff2 += d * d, ref2 += ref[k] * ref[k];
        if (r > worst || isnan(r)) worst = r;
    }
    row->error = tol->each ? worst : ratio(sqrt(diff2), sqrt(ref2));
    row->tolerance = tol->relative + ratio(tol->floor * c->all_gradients, sqrt(ref2));
    row->ok = row->error <= row->tolerance; /* false for NaN */
    if (!all_finite(ours->data, ours->n))
        row->note = "ours is not finite", row->ok = false;
    else if (!all_finite(ref, ours->n))
        row->note = "the reference is not finite", row->ok = false;
    else if (row->error > tol->relative && row->ok)
        row->note = "rounding of larger gradients";
}

/* Our dims may be cut finer than the file's: its dims are products of neighbours of ours. */
static bool same_shape(const bk_st_tensor *t, const bk_outcome_row *row)
{
    int d = 0;
    for (int k = 0; k < t->rank; k++) {
        int64_t product = 1;
        while (d < row->rank && (product < t->shape[k] || row->shape[d] == 1)) product *= row->shape[d++];
        if (product != t->shape[k]) return false;
    }
    for (; d < row->rank; d++)
        if (row->shape[d] != 1) return false;
    return bk_st_n_elems(t) == row->n;
}

static bk_status compare_row(comparison *c, const bk_outcome_row *ours)
{
    const bk_st_tensor *t = bk_st_find(c->file, ours->name);
    bk_check_row row = {
        .name = ours->name, .error = (double)NAN, .tolerance = (double)NAN, .ok = c->allow_missing};
    if (!t) {
        row.note = "not in the file";
        return bk_check_report_add(c->out, &row, c->e);
    }
    if (!same_shape(t, ours)) {
        char theirs[BK_SHAPE_LEN], own[BK_SHAPE_LEN];
        return bk_err_set(c->e, BK_E_INPUT,
                          "tensor %.200s has shape %s, the model gives %s; the file's config and its tensors "
                          "disagree",
                          t->name, bk_shape_text(theirs, t->rank, t->shape),
                          bk_shape_text(own, ours->rank, ours->shape));
    }
    double *ref = NULL;
    bk_status st = read_all(&ref, t, c->e);
    if (st != BK_OK) return st;
    judge(&row, ours, ref, c);
    free(ref);
    return bk_check_report_add(c->out, &row, c->e);
}

/* Tensors that nothing was compared with, and inputs that are not finite. */
static bk_status look_at_rest(comparison *c)
{
    bk_status st = BK_OK;
    for (int64_t k = 0; k < bk_st_count(c->file) && st == BK_OK; k++) {
        const bk_st_tensor *t = bk_st_at(c->file, k);
        const bk_outcome_row *ours = bk_outcome_find(c->o, t->name);
        bk_check_row row = {.name = t->name, .error = (double)NAN, .tolerance = (double)NAN};
        if (!ours) {
            row.note = "not compared", row.ok = c->allow_missing;
            st = bk_check_report_add(c->out, &row, c->e);
        }
        if (st != BK_OK || !is_real(t) || (ours && ours->class_ != BK_OUTCOME_INPUT)) continue;
        double *x = NULL;
        st = read_all(&x, t, c->e);
        if (st != BK_OK) continue;
        row.note = "holds a value that is not finite", row.ok = false;
        if (!all_finite(x, bk_st_n_elems(t))) st = bk_check_report_add(c->out, &row, c->e);
        free(x);
    }
    return st;
}

bk_status bk_compare(bk_check_report *out, const bk_outcome *o, const bk_st *file, bool allow_missing,
                     bk_err *e)
{
    comparison c = {.out = out, .o = o, .file = file, .allow_missing = allow_missing, .e = e};
    bk_status st = norm_of_gradients(&c);
    for (int64_t k = 0; k < o->n_rows && st == BK_OK; k++)
        if (o->row[k]->class_ != BK_OUTCOME_INPUT) st = compare_row(&c, o->row[k]);
    return st == BK_OK ? look_at_rest(&c) : st;
}
