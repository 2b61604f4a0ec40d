/* The figures of each layer out of the metrics of a step, and the line that says them. */
#include "train/log_check.h"

#include <cjson/cJSON.h>
#include <math.h>

#include "train/jsonl.h"
#include "train/layer_health.h"

#define L0 "decoder.layers.0."
#define L1 "decoder.layers.1."
#define HC "hyper_connection."

static bk_metric row(const char *name, double *x, int64_t n)
{
    bk_metric m = {.n = n, .x = x};
    memcpy(&m.name, &name, sizeof name); /* a table owns its names; this one borrows them */
    return m;
}

static double counts[] = {7, 0, 12, 0, 5}, alone[] = {32}, balance[] = {1.25}, z[] = {0.5}, ppl[] = {3};
static double worst[] = {1e-6, 2e-6}, mean[] = {1.5, 0.25, 3, 4}, bad[] = {0, (double)NAN}, one[] = {0, 0, 8};

/* A dense layer with two streams, then one with experts and a single stream in its second connection. */
static void read_two_layers(bk_health *out, bk_metric_table *t)
{
    bk_err e = {0};
    static bk_metric rows[9];
    const bk_metric all[] = {
        row(L0 "self_attention_" HC "health.worst", worst, 2),
        row(L0 "self_attention_" HC "health.mean", mean, 4),
        row("z_loss", ppl, 1),
        row(L0 "mlp_" HC "health.worst", bad, 2),
        row(L0 "mlp_" HC "health.mean", one, 3),
        row(L1 "mlp.router.tokens_per_expert", counts, 5),
        row("mtp_1 loss", ppl, 1),
        row(L1 "mlp.router.load_balancing_loss", balance, 1),
        row(L1 "mlp.router.z_loss", z, 1),
    };
    memcpy(rows, all, sizeof all);
    *t = (bk_metric_table){.row = rows, .n = 9};
    ok(bk_health_read(out, t, &e), &e);
}

static void test_layer_health__figures_of_each_layer(void **state)
{
    (void)state;
    bk_metric_table t;
    bk_health h;
    read_two_layers(&h, &t);
    assert_int_equal(h.n, 2);
    const bk_layer_health *a = &h.row[0], *b = &h.row[1];
    assert_string_equal(a->name, "decoder.layers.0");
    assert_int_equal(a->experts.n, 0);
    assert_true(a->attention.row_error == 1e-6 && a->attention.column_error == 2e-6);
    assert_true(a->attention.from_identity == 1.5 && a->attention.from_uniform == 0.25);
    assert_int_equal(a->attention.n_streams, 2);
    assert_true(a->attention.stream_norm[0] == 3 && a->attention.stream_norm[1] == 4);
    assert_int_equal(a->mlp.n_streams, 1);
    assert_true(a->mlp.stream_norm[0] == 8 && isnan(a->mlp.column_error));
    assert_string_equal(b->name, "decoder.layers.1");
    assert_int_equal(b->attention.n_streams + b->mlp.n_streams, 0);
    assert_true(b->experts.n == 5 && b->experts.least == 0 && b->experts.most == 12);
    assert_true(b->experts.dead == 2 && b->experts.tokens == 24);
    assert_int_equal(b->experts.n_losses, 2);
    assert_string_equal(b->experts.loss[0].name, "load_balancing_loss");
    assert_true(b->experts.loss[0].value == 1.25 && b->experts.loss[1].value == 0.5);
    bk_health_free(&h);
}

/* An expert of its own is one number, but no scalar of the run. */
static void test_layer_health__layers_are_no_scalars_of_the_run(void **state)
{
    (void)state;
    const bk_metric experts = row(L0 "mlp.router.tokens_per_expert", alone, 1),
                    layer = row(L0 "mlp.router.z_loss", z, 1), all = row("z_loss", z, 1),
                    many = row("counts", counts, 5);
    assert_false(bk_metric_is_scalar(&experts) || bk_metric_is_scalar(&layer) || bk_metric_is_scalar(&many));
    assert_true(bk_metric_is_scalar(&all));
}

static void test_layer_health__nothing_to_tell(void **state)
{
    (void)state;
    bk_err e = {0};
    bk_metric rows[] = {row("z_loss", ppl, 1), row("mtp_1 loss", ppl, 1)};
    bk_health h;
    ok(bk_health_read(&h, &(bk_metric_table){.row = rows, .n = 2}, &e), &e);
    assert_int_equal(h.n, 0);
    bk_health_free(&h);
}

static void test_layer_health__a_line_of_json(void **state)
{
    (void)state;
    static const char want[] =
        "{\"kind\":\"health\",\"iteration\":100,\"consumed_samples\":800,\"layers\":["
        "{\"layer\":\"decoder.layers.0\",\"hc\":{"
        "\"attention\":{\"row_error\":1e-06,\"column_error\":2e-06,\"from_identity\":1.5,"
        "\"from_uniform\":0.25,\"stream_norms\":[3,4]},"
        "\"mlp\":{\"row_error\":0,\"column_error\":null,\"from_identity\":0,\"from_uniform\":0,"
        "\"stream_norms\":[8]}}},"
        "{\"layer\":\"decoder.layers.1\",\"experts\":{\"least\":0,\"most\":12,\"dead\":2,\"tokens\":24,"
        "\"load_balancing_loss\":1.25,\"z_loss\":0.5}}]}";
    bk_jsonl j;
    bk_err e = {0};
    bk_metric_table t;
    bk_health_values v = {.iteration = 100, .n_samples = 800};
    char text[4096];
    read_two_layers(&v.health, &t);
    ok(bk_jsonl_open(&j, "out.jsonl", &e), &e);
    ok(bk_jsonl_health(&j, &v, &e), &e);
    ok(bk_jsonl_close(&j, &e), &e);
    const size_t n = slurp(text, sizeof text, "out.jsonl");
    assert_int_equal(text[n - 1], '\n');
    text[n - 1] = '\0';
    cJSON *got = cJSON_ParseWithOpts(text, NULL, true), *expected = cJSON_Parse(want);
    assert_non_null(expected);
    if (!cJSON_Compare(got, expected, true)) fail_msg("%s\nis not\n%s", text, want);
    cJSON_Delete(got), cJSON_Delete(expected);
    bk_health_free(&v.health);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_layer_health__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(figures_of_each_layer),
        TEST(layers_are_no_scalars_of_the_run),
        TEST(nothing_to_tell),
        TEST(a_line_of_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
