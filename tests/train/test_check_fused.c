/* Reference files in Megatron's other spelling: the two down projections in one tensor, norms with the layer
 * that reads them. Made from a file of the reference vectors in BK_ORACLE_DIR. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "check_fixture.h"
#include "temp_folder.h"

#define FUSED    "fused.safetensors"
#define ORIGINAL BK_ORACLE_DIR "/mla_dense_mhc4.safetensors"

static const struct {
    const char *apart, *fused;
} norms[] = {
    {".input_layernorm.weight", ".self_attention.linear_qkv_down_proj.layer_norm_weight"},
    {".q_layernorm.weight", ".linear_q_up_proj.layer_norm_weight"},
    {".kv_layernorm.weight", ".linear_kv_up_proj.layer_norm_weight"},
};
static const char q_down[] = ".linear_q_down_proj.weight", kv_down[] = ".linear_kv_down_proj.weight";

typedef struct {
    reference from;
    bk_st_tensor t[512];
    char name[512][128];
    void *joined[64];
    int n, n_joined;
    bool keep_parts;
} other;

/* The stem of a name that ends so, with another end. */
static bool renamed(char out[128], const char *name, const char *end, const char *other_end)
{
    const size_t n = strlen(name), n_end = strlen(end);
    if (n <= n_end || strcmp(name + n - n_end, end) != 0) return false;
    assert_true(snprintf(out, 128, "%.*s%s", (int)(n - n_end), name, other_end) < 128);
    return true;
}

static void join_down_projections(other *o, const bk_st_tensor *q)
{
    char kv_name[128];
    assert_true(renamed(kv_name, q->name, q_down, kv_down));
    const bk_st_tensor *kv = bk_st_find(o->from.st, kv_name);
    assert_non_null(kv);
    char *both = o->joined[o->n_joined++] = malloc((size_t)(q->bytes + kv->bytes));
    assert_non_null(both);
    memcpy(both, q->data, (size_t)q->bytes), memcpy(both + q->bytes, kv->data, (size_t)kv->bytes);
    bk_st_tensor *t = &o->t[o->n];
    *t = *q;
    t->shape[0] += kv->shape[0], t->bytes += kv->bytes, t->data = both;
    assert_true(renamed(o->name[o->n], q->name, q_down, ".linear_qkv_down_proj.weight"));
    t->name = o->name[o->n++];
}

/* The file with everything fused; with both spellings of the down projections if keep_parts. */
static void write_other(other *o)
{
    bk_err e = {0};
    reference_read(&o->from, ORIGINAL);
    for (int64_t k = 0; k < bk_st_count(o->from.st); k++) {
        const bk_st_tensor *t = bk_st_at(o->from.st, k);
        char ignored[128];
        assert_true(o->n < 500);
        if (renamed(ignored, t->name, q_down, "")) join_down_projections(o, t);
        if (!o->keep_parts &&
            (renamed(ignored, t->name, q_down, "") || renamed(ignored, t->name, kv_down, "")))
            continue;
        bk_st_tensor *to = &o->t[o->n];
        *to = *t;
        for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
            if (renamed(o->name[o->n], t->name, norms[i].apart, norms[i].fused)) to->name = o->name[o->n];
        o->n++;
    }
    assert_int_equal(o->n_joined, 4); /* parameters and gradients of two layers */
    if (bk_st_write(FUSED, o->t, o->n, bk_st_meta_at(o->from.st, 0), bk_st_meta_count(o->from.st), &e) !=
        BK_OK)
        fail_msg("%s", e.msg);
}

static void other_free(other *o)
{
    for (int k = 0; k < o->n_joined; k++) free(o->joined[k]);
    reference_close(&o->from);
}

static void test_check_fused__both_spellings_agree(void **state)
{
    (void)state;
    static const char *const more[] = {"", "mla_down_proj_fusion: true\n"};
    static other o;
    write_other(&o);
    for (int k = 0; k < 2; k++) {
        reference r;
        bk_check_report report;
        reference_open_with(&r, FUSED, more[k]);
        reference_compare(&report, &r);
        assert_int_equal(report.n_failed, 0);
        assert_int_equal(report.n_rows, 52);
        assert_non_null(
            bk_check_report_find(&report, "grad.decoder.layers.1.self_attention.linear_kv_down_proj.weight"));
        bk_check_report_free(&report);
        reference_close(&r);
    }
    other_free(&o);
}

/* The message of a file that our side refuses. */
static void expect_refusal(const char *more, const char *part)
{
    reference r;
    bk_err e = {0};
    reference_read(&r, FUSED);
    r.more = more;
    assert_int_equal(reference_run(&r, &e), BK_E_INPUT);
    if (!strstr(e.msg, part)) fail_msg("\"%s\" is not in: %s", part, e.msg);
    reference_close(&r);
}

static void test_check_fused__what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static other o;
    write_other(&o);
    expect_refusal("kv_lora_rank: 25\n", "has not the 65 rows");
    expect_refusal("q_lora_rank: none\n", "linear_kv_down_proj.weight is missing");
    other_free(&o);

    o = (other){.keep_parts = true};
    write_other(&o);
    expect_refusal("", "is there beside");
    other_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_check_fused__both_spellings_agree, enter_new_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_check_fused__what_does_not_fit_is_refused, enter_new_folder,
                                        remove_folder),
    };
    if (access(ORIGINAL, R_OK) != 0) {
        fprintf(stderr, "SKIPPED: there are no reference vectors in %s.\n", BK_ORACLE_DIR);
        return 77; /* CTest: skipped */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
