#include "train/small_run.h"

#include <math.h>

#include "train/init.h"

/* Large enough for statistics: an embedding of 32768 numbers, mappings of 24 x 256. */
static const char *const wide = "hidden_size: 64\nvocab_size: 512\nmhc_init_gating_factor: 0.25\n";

static bk_pid find(const bk_graph *g, const char *name)
{
    for (bk_pid p = 0; p < g->n_params; p++)
        if (strcmp(g->param[p].name, name) == 0) return p;
    fail_msg("no parameter %s", name);
    return BK_NONE;
}

static int64_t size_of(const bk_graph *g, bk_pid p)
{
    return bk_elements(&g->value[g->param[p].value]);
}

/* Draws one parameter of a double graph; the caller frees. */
static double *draw(const bk_graph *g, const char *name, uint64_t seed)
{
    const bk_pid p = find(g, name);
    double *x = malloc((size_t)size_of(g, p) * sizeof *x);
    assert_non_null(x);
    bk_param_init(x, g, p, seed);
    return x;
}

static const bk_graph *graph_of(small_run *r, const char *more, bk_dtype real)
{
    small_run_graphs(r, more, 1, real);
    return r->session.program[0].g;
}

static double moment(const double *x, int64_t n, int power)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += pow(x[i], power);
    return sum / (double)n;
}

/* Sampling error of the k-th moment of n standard normals: sqrt((E z^2k - (E z^k)^2) / n); five of them. */
static void test_init__normal_has_its_moments(void **state)
{
    (void)state;
    small_run r;
    const bk_graph *g = graph_of(&r, wide, BK_F64);
    const char *name = "embedding.word_embeddings.weight";
    const int64_t n = size_of(g, find(g, name));
    assert_int_equal(n, 512 * 64);
    double *x = draw(g, name, 7), neighbours = 0, most = 0;
    for (int64_t i = 0; i < n; i++) x[i] /= 0.02, most = fmax(most, fabs(x[i]));
    for (int64_t i = 0; i + 1 < n; i++) neighbours += x[i] * x[i + 1] / (double)n;
    const double five = 5 / sqrt((double)n);
    assert_true(fabs(moment(x, n, 1)) < five);
    assert_true(fabs(moment(x, n, 2) - 1) < five * sqrt(2));
    assert_true(fabs(moment(x, n, 3)) < five * sqrt(15));
    assert_true(fabs(moment(x, n, 4) - 3) < five * sqrt(96));
    assert_true(fabs(neighbours) < five);
    /* The largest of 32768 lies between 3.4 and 6 but for one in a million; a draw never exceeds 6.77. */
    assert_true(most > 3.4 && most < 6);
    free(x);
    small_run_close(&r);
}

/* Uniform in (-a, a), a = sqrt(6 / (rows + columns)). Of 6144 draws the largest is above 0.995 a but for
 * exp(-6144 * 0.0025) = 2e-7. */
static void test_init__xavier_fills_its_interval(void **state)
{
    (void)state;
    small_run r;
    const bk_graph *g = graph_of(&r, wide, BK_F64);
    const char *name = "decoder.layers.1.mlp_hyper_connection.mapping_proj.weight";
    const int64_t n = size_of(g, find(g, name));
    assert_int_equal(n, 24 * 256);
    double *x = draw(g, name, 7), least = 1, most = -1;
    const double five = 5 / sqrt((double)n), a = sqrt(6.0 / (24 + 256));
    for (int64_t i = 0; i < n; i++) x[i] /= a, least = fmin(least, x[i]), most = fmax(most, x[i]);
    assert_true(least > -1 && least < -0.995 && most < 1 && most > 0.995);
    assert_true(fabs(moment(x, n, 1)) < five * sqrt(1.0 / 3));
    assert_true(fabs(moment(x, n, 2) - 1.0 / 3) < five * sqrt(1.0 / 5 - 1.0 / 9));
    free(x);
    small_run_close(&r);
}

static void expect_all(const bk_graph *g, const char *name, int64_t n, double value)
{
    assert_int_equal(size_of(g, find(g, name)), n);
    double *x = draw(g, name, 7);
    for (int64_t i = 0; i < n; i++)
        if (x[i] < value || x[i] > value) fail_msg("%s[%lld] is %g, not %g", name, (long long)i, x[i], value);
    free(x);
}

static void test_init__constants_and_the_defaults_of_mhc(void **state)
{
    (void)state;
    small_run r;
    const bk_graph *g = graph_of(&r, wide, BK_F64);
    expect_all(g, "decoder.layers.0.self_attention_hyper_connection.alpha_pre", 1, 0.25);
    expect_all(g, "decoder.layers.0.self_attention_hyper_connection.alpha_post", 1, 0.25);
    expect_all(g, "decoder.layers.1.mlp_hyper_connection.alpha_res", 1, 0.25);
    expect_all(g, "decoder.layers.1.mlp_hyper_connection.bias", 24, 0);
    expect_all(g, "decoder.hc_head_base", 4, 0);
    expect_all(g, "decoder.hc_head_scale", 1, 1);
    expect_all(g, "decoder.final_layernorm.weight", 64, 1);
    small_run_close(&r);
}

/* Layers that write into the residual have init_method_std / sqrt(2 L), all others init_method_std; and a
 * draw of 1536 numbers shows it within five sampling errors. */
static void test_init__layers_before_the_residual_are_narrower(void **state)
{
    (void)state;
    small_run r;
    const bk_graph *g = graph_of(&r, "num_layers: 8\ninit_method_std: 0.04\nhidden_size: 64\n", BK_F64);
    static const struct {
        const char *name;
        double std;
    } rows[] = {
        {"decoder.layers.3.self_attention.linear_qkv.weight", 0.04},
        {"decoder.layers.3.self_attention.linear_proj.weight", 0.01},
        {"decoder.layers.7.mlp.linear_fc1.weight", 0.04},
        {"decoder.layers.7.mlp.linear_fc2.weight", 0.01},
        {"output_layer.weight", 0.04},
        {"embedding.word_embeddings.weight", 0.04},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const int64_t n = size_of(g, find(g, rows[k].name));
        double *x = draw(g, rows[k].name, 3);
        const double share = sqrt(moment(x, n, 2)) / rows[k].std;
        if (!(fabs(share - 1) < 5 / sqrt(2.0 * (double)n)))
            fail_msg("%s: the deviation is %g times what it should be", rows[k].name, share);
        free(x);
    }
    small_run_close(&r);
}

/* The whole table in order, in reverse, and into memory that held other numbers. */
static void test_init__bits_do_not_depend_on_the_order(void **state)
{
    (void)state;
    small_run r;
    const bk_graph *g = graph_of(&r, wide, BK_F32);
    float *ordered[256], *reversed[256];
    assert_in_range(g->n_params, 1, 256);
    for (bk_pid p = 0; p < g->n_params; p++) {
        const size_t bytes = (size_t)size_of(g, p) * sizeof(float);
        ordered[p] = malloc(bytes), reversed[p] = malloc(bytes);
        memset(reversed[p], 0xA5, bytes);
        bk_param_init(ordered[p], g, p, 11);
    }
    for (bk_pid p = (bk_pid)g->n_params - 1; p >= 0; p--) {
        bk_param_init(reversed[p], g, p, 11);
        assert_memory_equal(ordered[p], reversed[p], (size_t)size_of(g, p) * sizeof(float));
    }
    for (bk_pid p = 0; p < g->n_params; p++) free(ordered[p]), free(reversed[p]);
    small_run_close(&r);
}

static int64_t count_equal(const double *a, const double *b, int64_t n)
{
    int64_t equal = 0;
    for (int64_t i = 0; i < n; i++) equal += !(a[i] < b[i] || a[i] > b[i]);
    return equal;
}

/* Two draws of 53 bits from 32: 3072 numbers agree somewhere with a chance of 1e-6. */
static void test_init__depends_on_the_name_and_the_seed(void **state)
{
    (void)state;
    small_run r;
    const bk_graph *g = graph_of(&r, wide, BK_F64);
    const char *first = "decoder.layers.0.mlp.linear_fc1.weight";
    const int64_t n = size_of(g, find(g, first));
    assert_int_equal(n, size_of(g, find(g, "decoder.layers.1.mlp.linear_fc1.weight")));
    double *a = draw(g, first, 7), *b = draw(g, "decoder.layers.1.mlp.linear_fc1.weight", 7),
           *c = draw(g, first, 8), *again = draw(g, first, 7);
    assert_int_equal(count_equal(a, b, n), 0);
    assert_int_equal(count_equal(a, c, n), 0);
    assert_int_equal(count_equal(a, again, n), n);
    free(b), free(c), free(again);
    small_run_close(&r);

    /* The same name in another model has the same draws. */
    g = graph_of(&r, "hidden_size: 64\nvocab_size: 64\nnum_layers: 3\nmicro_batch_size: 1\n", BK_F64);
    b = draw(g, first, 7);
    assert_int_equal(count_equal(a, b, n), n);
    free(a), free(b);
    small_run_close(&r);
}

static void test_init__float_is_the_rounded_double(void **state)
{
    (void)state;
    small_run single, twice;
    const bk_graph *gf = graph_of(&single, wide, BK_F32), *gd = graph_of(&twice, wide, BK_F64);
    assert_int_equal(gf->n_params, gd->n_params);
    for (bk_pid p = 0; p < gf->n_params; p++) {
        const int64_t n = size_of(gf, p);
        float *f = malloc((size_t)n * sizeof *f);
        double *d = draw(gd, gf->param[p].name, 5);
        bk_param_init(f, gf, p, 5);
        for (int64_t i = 0; i < n; i++) {
            const float rounded = (float)d[i];
            assert_memory_equal(&f[i], &rounded, sizeof rounded);
        }
        free(f), free(d);
    }
    small_run_close(&single), small_run_close(&twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init__normal_has_its_moments),
        cmocka_unit_test(test_init__xavier_fills_its_interval),
        cmocka_unit_test(test_init__constants_and_the_defaults_of_mhc),
        cmocka_unit_test(test_init__layers_before_the_residual_are_narrower),
        cmocka_unit_test(test_init__bits_do_not_depend_on_the_order),
        cmocka_unit_test(test_init__depends_on_the_name_and_the_seed),
        cmocka_unit_test(test_init__float_is_the_rounded_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
