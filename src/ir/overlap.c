#include "ir/overlap.h"

#include "base/size.h"

/* Two views meet where offset_a + sum i_d * stride_a = offset_b + sum j_d * stride_b. With the terms of one
 * stride put together that is: choose x_k in [lo_k, hi_k] so that sum x_k * stride_k is a given number. The
 * search goes from the longest stride to the shortest; what the shorter ones can still reach leaves one or
 * two x_k to try, as strides of tensors multiply up. */
typedef struct {
    int64_t stride, lo, hi;
} term;

enum { MAX_TERMS = 2 * BK_MAX_DIMS, MAX_STEPS = 4096 };

typedef struct {
    term t[MAX_TERMS];
    int64_t lo[MAX_TERMS + 1], hi[MAX_TERMS + 1]; /* reach of the terms from k on */
    int n, steps;
} search;

int64_t bk_value_last_element(const bk_value *v)
{
    int64_t last = v->offset;
    for (int d = 0; d < v->rank; d++) {
        int64_t part;
        if (v->dim[d].size == 0) return -1;
        if (!bk_mul64(&part, v->dim[d].size - 1, v->stride[d]) || !bk_add64(&last, last, part)) return -1;
    }
    return last;
}

/* Inserts into the list, longest stride first. */
static void add_term(search *s, int64_t stride, int64_t lo, int64_t hi)
{
    if (stride == 0 || (lo == 0 && hi == 0)) return;
    int k = 0;
    while (k < s->n && s->t[k].stride > stride) k++;
    if (k < s->n && s->t[k].stride == stride) {
        s->t[k].lo += lo, s->t[k].hi += hi;
        return;
    }
    for (int m = s->n++; m > k; m--) s->t[m] = s->t[m - 1];
    s->t[k] = (term){stride, lo, hi};
}

static int64_t div_floor(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static bool solve(search *s, int k, int64_t want)
{
    if (k == s->n) return want == 0;
    if (++s->steps > MAX_STEPS) return true;
    const term *t = &s->t[k];
    int64_t from = -div_floor(s->hi[k + 1] - want, t->stride);
    int64_t to = div_floor(want - s->lo[k + 1], t->stride);
    if (from < t->lo) from = t->lo;
    if (to > t->hi) to = t->hi;
    for (int64_t x = from; x <= to; x++)
        if (solve(s, k + 1, want - x * t->stride)) return true;
    return false;
}

bool bk_values_overlap(const bk_value *a, const bk_value *b)
{
    /* Sums below stay within 2 * LIMIT. */
    const int64_t limit = INT64_C(1) << 61, last_a = bk_value_last_element(a),
                  last_b = bk_value_last_element(b);
    if (bk_elements(a) == 0 || bk_elements(b) == 0) return false;
    if (last_a < 0 || last_b < 0 || last_a > limit || last_b > limit) return true;
    if (last_a < b->offset || last_b < a->offset) return false;
    search s = {0};
    for (int d = 0; d < a->rank; d++) add_term(&s, a->stride[d], 0, a->dim[d].size - 1);
    for (int d = 0; d < b->rank; d++) add_term(&s, b->stride[d], 1 - b->dim[d].size, 0);
    for (int k = s.n - 1; k >= 0; k--) {
        s.lo[k] = s.lo[k + 1] + s.t[k].lo * s.t[k].stride;
        s.hi[k] = s.hi[k + 1] + s.t[k].hi * s.t[k].stride;
    }
    return solve(&s, 0, b->offset - a->offset);
}
