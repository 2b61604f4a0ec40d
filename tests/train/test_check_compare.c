/* The rule of bk_compare, on small numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/compare.h"

/* A file of F32 tensors, and our side with the same rows. */
typedef struct {
    bk_st_tensor t[8];
    int64_t n;
    bk_outcome ours;
} pair;

static void add_theirs(pair *p, const char *name, int rank, const int64_t *shape, const float *data)
{
    bk_st_tensor *t = &p->t[p->n++];
    *t = (bk_st_tensor){.name = name, .dtype = BK_ST_F32, .rank = rank, .bytes = 4, .data = data};
    for (int d = 0; d < rank; d++) t->shape[d] = shape[d], t->bytes *= shape[d];
}

static void add_ours(pair *p, bk_outcome_class class_, const char *name, int rank, const int64_t *shape,
                     const double *data)
{
    bk_err e = {0};
    bk_outcome_row *row;
    assert_int_equal(bk_outcome_add(&row, &p->ours, class_, rank, shape, &e, "%s", name), BK_OK);
    memcpy(row->data, data, (size_t)row->n * sizeof *data);
}

static bk_status compare(bk_check_report *out, pair *p, bool allow_missing, bk_err *e)
{
    char path[] = "/tmp/birkhoff_compare_XXXXXX";
    bk_st *file = NULL;
    *out = (bk_check_report){0};
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bk_st_write(path, p->t, p->n, NULL, 0, e), BK_OK);
    assert_int_equal(bk_st_open(&file, path, e), BK_OK);
    const bk_status st = bk_compare(out, &p->ours, file, allow_missing, e);
    bk_st_free(file);
    unlink(path);
    bk_outcome_free(&p->ours);
    return st;
}

static const bk_check_row *row_of(const bk_check_report *r, const char *name)
{
    const bk_check_row *row = bk_check_report_find(r, name);
    assert_non_null(row);
    return row;
}

static void test_check_compare__error_is_norm_over_norm(void **state)
{
    (void)state;
    static const float theirs[] = {3, 4};
    static const double ours[] = {3.00003, 4.00004};
    bk_err e = {0};
    bk_check_report r;
    pair p = {0};
    add_theirs(&p, "act.layer0", 1, (const int64_t[]){2}, theirs);
    add_ours(&p, BK_OUTCOME_ACTIVATION, "act.layer0", 1, (const int64_t[]){2}, ours);
    assert_int_equal(compare(&r, &p, false, &e), BK_OK);
    assert_true(fabs(row_of(&r, "act.layer0")->error - 1e-5) < 1e-12);
    assert_true(row_of(&r, "act.layer0")->ok);
    bk_check_report_free(&r);
}

/* The norm of all gradients is 1e4: the floor is 2.5e-4 in absolute terms, beside 2e-4 of each gradient. */
static void test_check_compare__small_gradients_have_a_floor(void **state)
{
    (void)state;
    static const float large[] = {6e3f, 8e3f}, small[] = {1e-6f};
    static const double large_ours[] = {6e3, 8e3}, within[] = {2.4e-4}, beyond[] = {2.6e-4};
    const int64_t two[] = {2}, one[] = {1};
    for (int k = 0; k < 2; k++) {
        bk_err e = {0};
        bk_check_report r;
        pair p = {0};
        add_theirs(&p, "grad.a", 1, two, large);
        add_theirs(&p, "grad.b", 1, one, small);
        add_ours(&p, BK_OUTCOME_GRADIENT, "grad.a", 1, two, large_ours);
        add_ours(&p, BK_OUTCOME_GRADIENT, "grad.b", 1, one, k == 0 ? within : beyond);
        assert_int_equal(compare(&r, &p, false, &e), BK_OK);
        assert_true(row_of(&r, "grad.a")->ok);
        assert_int_equal(row_of(&r, "grad.b")->ok, k == 0);
        assert_int_equal(r.n_failed, k);
        bk_check_report_free(&r);
    }
}

/* One step of ten that is off by 4e-6 fails, though the norm over the steps hides it. */
static void test_check_compare__each_step_counts(void **state)
{
    (void)state;
    float theirs[10];
    double ours[10];
    const int64_t ten[] = {10};
    bk_err e = {0};
    bk_check_report r;
    pair p = {0};
    for (int k = 0; k < 10; k++) theirs[k] = 4, ours[k] = 4;
    ours[6] *= 1 + 4e-6;
    add_theirs(&p, "train.loss", 1, ten, theirs);
    add_ours(&p, BK_OUTCOME_TRAIN_METRIC, "train.loss", 1, ten, ours);
    assert_int_equal(compare(&r, &p, false, &e), BK_OK);
    assert_false(row_of(&r, "train.loss")->ok);
    assert_true(fabs(row_of(&r, "train.loss")->error - 4e-6) < 1e-9);
    bk_check_report_free(&r);
}

static void test_check_compare__one_side_alone_fails(void **state)
{
    (void)state;
    static const float theirs[] = {1};
    static const double ours[] = {1};
    const int64_t one[] = {1};
    for (int allow = 0; allow < 2; allow++) {
        bk_err e = {0};
        bk_check_report r;
        pair p = {0};
        add_theirs(&p, "buffer.x", 1, one, theirs);
        add_theirs(&p, "in.tokens", 1, one, theirs);
        add_ours(&p, BK_OUTCOME_LOSS, "out.loss", 1, one, ours);
        assert_int_equal(bk_outcome_add_input(&p.ours, "in.tokens", &e), BK_OK);
        assert_int_equal(compare(&r, &p, allow, &e), BK_OK);
        assert_int_equal(r.n_rows, 2);
        assert_int_equal(row_of(&r, "buffer.x")->ok, allow);
        assert_string_equal(row_of(&r, "buffer.x")->note, "not compared");
        assert_int_equal(row_of(&r, "out.loss")->ok, allow);
        assert_string_equal(row_of(&r, "out.loss")->note, "not in the file");
        bk_check_report_free(&r);
    }
}

static void test_check_compare__not_finite_fails_everywhere(void **state)
{
    (void)state;
    static const float fine[] = {1}, broken[] = {NAN}, endless[] = {INFINITY};
    static const double ours[] = {1}, ours_broken[] = {(double)NAN}, ours_endless[] = {(double)INFINITY};
    const int64_t one[] = {1};
    bk_err e = {0};
    bk_check_report r;
    pair p = {0};
    add_theirs(&p, "grad.a", 1, one, fine);
    add_theirs(&p, "grad.b", 1, one, broken);
    add_theirs(&p, "grad.c", 1, one, fine);
    add_theirs(&p, "grad.d", 1, one, endless);
    add_theirs(&p, "in.x", 1, one, broken);
    add_theirs(&p, "more", 1, one, broken);
    add_ours(&p, BK_OUTCOME_GRADIENT, "grad.a", 1, one, ours);
    add_ours(&p, BK_OUTCOME_GRADIENT, "grad.b", 1, one, ours);
    add_ours(&p, BK_OUTCOME_GRADIENT, "grad.c", 1, one, ours_broken);
    add_ours(&p, BK_OUTCOME_GRADIENT, "grad.d", 1, one, ours_endless);
    assert_int_equal(bk_outcome_add_input(&p.ours, "in.x", &e), BK_OK);
    assert_int_equal(compare(&r, &p, true, &e), BK_OK);
    assert_true(row_of(&r, "grad.a")->ok); /* the broken ones do not hide it */
    assert_false(row_of(&r, "grad.b")->ok);
    assert_false(row_of(&r, "grad.c")->ok);
    assert_false(row_of(&r, "grad.d")->ok);
    assert_false(row_of(&r, "in.x")->ok);
    assert_int_equal(r.n_failed, 5); /* and "more" */
    bk_check_report_free(&r);
}

/* [2, 1, 3, 4] of ours is [2, 12] in a file, and never [4, 6] or [12, 2]. */
static void test_check_compare__shapes_may_be_cut_finer(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[4];
        bool fits;
    } cases[] = {{2, {2, 12}, true},       {3, {2, 3, 4}, true}, {4, {2, 1, 3, 4}, true}, {1, {24}, true},
                 {2, {4, 6}, false},       {2, {12, 2}, false},  {3, {2, 4, 3}, false},   {2, {2, 11}, false},
                 {4, {2, 1, 3, 3}, false}, {1, {2}, false}};
    float theirs[24];
    double ours[24];
    for (int k = 0; k < 24; k++) theirs[k] = (float)k, ours[k] = k;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        bk_err e = {0};
        bk_check_report r;
        pair p = {0};
        add_theirs(&p, "act.layer0", cases[k].rank, cases[k].shape, theirs);
        add_ours(&p, BK_OUTCOME_ACTIVATION, "act.layer0", 4, (const int64_t[]){2, 1, 3, 4}, ours);
        const bk_status st = compare(&r, &p, false, &e);
        assert_int_equal(st, cases[k].fits ? BK_OK : BK_E_INPUT);
        if (st != BK_OK) assert_non_null(strstr(e.msg, "act.layer0"));
        bk_check_report_free(&r);
    }
}

static void test_check_compare__report_reads_well(void **state)
{
    (void)state;
    bk_check_report r = {0};
    bk_str text = {0};
    bk_err e = {0};
    assert_int_equal(bk_check_report_add(&r, &(bk_check_row){"out.loss", 1.25e-7, 2e-5, true, NULL}, &e),
                     BK_OK);
    assert_int_equal(
        bk_check_report_add(&r, &(bk_check_row){"b", (double)NAN, (double)NAN, false, "not compared"}, &e),
        BK_OK);
    bk_check_report_print(&text, &r);
    assert_string_equal(bk_str_text(&text), "compared     error  allowed\n"
                                            "out.loss   1.2e-07  2.0e-05  ok\n"
                                            "b                -        -  FAIL  not compared\n"
                                            "FAILED: 1 of 2\n");
    bk_str_free(&text);
    bk_check_report_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_compare__error_is_norm_over_norm),
        cmocka_unit_test(test_check_compare__small_gradients_have_a_floor),
        cmocka_unit_test(test_check_compare__each_step_counts),
        cmocka_unit_test(test_check_compare__one_side_alone_fails),
        cmocka_unit_test(test_check_compare__not_finite_fails_everywhere),
        cmocka_unit_test(test_check_compare__shapes_may_be_cut_finer),
        cmocka_unit_test(test_check_compare__report_reads_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
