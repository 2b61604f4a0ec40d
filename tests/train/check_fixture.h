/* A reference file in memory, for tests that change its tensors and compare again. */
#ifndef TESTS_TRAIN_CHECK_FIXTURE_H
#define TESTS_TRAIN_CHECK_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/against.h"
#include "train/against_fused.h"
#include "train/compare.h"

typedef struct {
    char *bytes; /* of the whole file; tensors of `st` lie inside */
    long n_bytes;
    bk_st *st;
    const char *more; /* options on top of the file's, YAML */
    bk_outcome ours;
} reference;

static inline void reference_read(reference *r, const char *path)
{
    bk_err e = {0};
    *r = (reference){.more = ""};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    r->n_bytes = ftell(f);
    rewind(f);
    r->bytes = malloc((size_t)r->n_bytes);
    assert_non_null(r->bytes);
    assert_int_equal(fread(r->bytes, 1, (size_t)r->n_bytes, f), r->n_bytes);
    fclose(f);
    if (bk_st_from_memory(&r->st, r->bytes, r->n_bytes, path, &e) != BK_OK) fail_msg("%s", e.msg);
}

/* Runs our side on the tensors as they are now. */
static inline bk_status reference_run(reference *r, bk_err *e)
{
    bk_outcome_free(&r->ours);
    if (bk_against_is_op(r->st)) return bk_against_op(&r->ours, r->st, BK_F32, e);
    bk_config c;
    bk_config_init(&c);
    bk_status st = bk_against_config(&c, r->st, "reference", e);
    if (st == BK_OK) st = bk_config_read_yaml_memory(&c, r->more, strlen(r->more), "more", e);
    if (st == BK_OK) st = bk_config_resolve(&c, e);
    if (st == BK_OK) st = bk_against_split_fused(r->st, &c, e);
    if (st == BK_OK) st = bk_against_model(&r->ours, r->st, &c, BK_F32, e);
    bk_config_free(&c);
    return st;
}

static inline void reference_open_with(reference *r, const char *path, const char *more)
{
    bk_err e = {0};
    reference_read(r, path);
    r->more = more;
    if (reference_run(r, &e) != BK_OK) fail_msg("%s", e.msg);
}

static inline void reference_open(reference *r, const char *path)
{
    reference_open_with(r, path, "");
}

static inline void reference_close(reference *r)
{
    bk_outcome_free(&r->ours);
    bk_st_free(r->st);
    free(r->bytes);
}

static inline void reference_compare(bk_check_report *out, const reference *r)
{
    bk_err e = {0};
    *out = (bk_check_report){0};
    if (bk_compare(out, &r->ours, r->st, false, &e) != BK_OK) fail_msg("%s", e.msg);
}

static inline int64_t reference_failures(const reference *r)
{
    bk_check_report report;
    reference_compare(&report, r);
    const int64_t n = report.n_failed;
    bk_check_report_free(&report);
    return n;
}

/* The bytes of an F32 tensor, which may lie unaligned. */
static inline char *reference_bytes(const reference *r, const char *name, int64_t *n)
{
    const bk_st_tensor *t = bk_st_find(r->st, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, BK_ST_F32);
    *n = bk_st_n_elems(t);
    return r->bytes + ((const char *)t->data - r->bytes);
}

static inline void reference_scale(reference *r, const char *name, float factor)
{
    int64_t n;
    char *at = reference_bytes(r, name, &n);
    for (int64_t k = 0; k < n; k++) {
        float x;
        memcpy(&x, at + 4 * k, 4);
        x *= factor;
        memcpy(at + 4 * k, &x, 4);
    }
}

/* Compares with each result's tensor scaled by 1.001 in turn, all others as they are. Gives the number of
 * altered tensors, and of those below the floor, which cannot be caught: their row allows 1e-3. All others
 * must be caught. */
static inline void reference_scale_each(int *n_altered, int *n_below, reference *r, const char *label)
{
    bk_check_report plain;
    int n_caught = 0;
    *n_altered = *n_below = 0;
    reference_compare(&plain, r);
    assert_int_equal(plain.n_failed, 0);
    for (int64_t k = 0; k < plain.n_rows; k++) {
        const bk_check_row *row = &plain.row[k];
        int64_t n;
        if (row->tolerance > 0.95e-3) {
            ++*n_below;
            continue;
        }
        const char *at = reference_bytes(r, row->name, &n);
        char *saved = malloc((size_t)(4 * n));
        assert_non_null(saved);
        memcpy(saved, at, (size_t)(4 * n));
        reference_scale(r, row->name, 1.001f);
        bk_check_report altered;
        reference_compare(&altered, r);
        ++*n_altered;
        if (!bk_check_report_find(&altered, row->name)->ok && altered.n_failed == 1)
            n_caught++;
        else
            print_message("%s: %s times 1.001 is not caught\n", label, row->name);
        bk_check_report_free(&altered);
        memcpy(reference_bytes(r, row->name, &n), saved, (size_t)(4 * n));
        free(saved);
    }
    print_message("%s: %d tensors scaled by 1.001, %d caught; %d below the floor\n", label, *n_altered,
                  n_caught, *n_below);
    assert_int_equal(n_caught, *n_altered);
    bk_check_report_free(&plain);
}

/* Swaps source and destination in the rows of the residual map, 2n + i n + j, of a mapping's matrix. */
static inline void reference_transpose_residual(reference *r, const char *name, int64_t n)
{
    int64_t n_elements;
    char *at = reference_bytes(r, name, &n_elements);
    const int64_t width = n_elements / (n * n + 2 * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            for (int64_t k = 0; k < 4 * width; k++) {
                char *a = at + 4 * width * (2 * n + i * n + j) + k;
                char *b = at + 4 * width * (2 * n + j * n + i) + k;
                const char kept = *a;
                *a = *b, *b = kept;
            }
}

/* Writes the file again with one tensor left out or with another shape, or with one more; NULL: nothing of
 * that kind. */
typedef struct {
    const char *drop, *flatten, *turn, *add;
} reference_edit;

static inline void reference_write(const reference *r, const char *path, const reference_edit *edit)
{
    static const float extra[2] = {1, 2};
    const int64_t n = bk_st_count(r->st);
    bk_err e = {0};
    int64_t kept = 0;
    bk_st_tensor *t = calloc((size_t)n + 1, sizeof *t);
    assert_non_null(t);
    for (int64_t k = 0; k < n; k++) {
        bk_st_tensor one = *bk_st_at(r->st, k);
        if (edit->drop && strcmp(one.name, edit->drop) == 0) continue;
        if (edit->flatten && strcmp(one.name, edit->flatten) == 0)
            one.shape[0] = bk_st_n_elems(&one), one.rank = 1;
        if (edit->turn && strcmp(one.name, edit->turn) == 0) {
            const int64_t rows = one.shape[0];
            assert_int_equal(one.rank, 2);
            one.shape[0] = one.shape[1], one.shape[1] = rows;
        }
        t[kept++] = one;
    }
    if (edit->add)
        t[kept++] = (bk_st_tensor){
            .name = edit->add, .dtype = BK_ST_F32, .rank = 1, .shape = {2}, .bytes = 8, .data = extra};
    if (bk_st_write(path, t, kept, bk_st_meta_at(r->st, 0), bk_st_meta_count(r->st), &e) != BK_OK)
        fail_msg("%s", e.msg);
    free(t);
}

#endif
