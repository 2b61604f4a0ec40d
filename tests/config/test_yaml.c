#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_helpers.h"

/* The shape of Megatron's functional tests. */
static const char megatron[] = "ENV_VARS:\n"
                               "  CUDA_DEVICE_MAX_CONNECTIONS: 1\n"
                               "  NESTED: {a: [1, 2, {b: c}]}\n"
                               "MODEL_ARGS:\n"
                               "  --num-layers: 12\n"
                               "  --hidden-size: 512\n"
                               "  --num-attention-heads: 8\n"
                               "  --log-params-norm: true\n"
                               "  --micro-batch-size: 4\n"
                               "  --global-batch-size: 32\n"
                               "  --seq-length: 1024\n"
                               "  --max-position-embeddings: 1024\n"
                               "  --vocab-size: 50257\n"
                               "  --train-iters: 50\n"
                               "  --timing-log-level: 0\n"
                               "  --lr-decay-iters: 320000\n"
                               "  --data-path: 0.5 ${DATA_PATH}/a 0.5 b\n"
                               "  --split: 949,50,1\n"
                               "  --lr: 0.00015\n"
                               "  --lr-decay-style: cosine\n"
                               "  --min-lr: 1.0e-5\n"
                               "  --weight-decay: 1e-2\n"
                               "  --clip-grad: 1.0\n"
                               "  --lr-warmup-fraction: .01\n"
                               "  --log-interval: 1\n"
                               "  --transformer-impl: transformer_engine\n"
                               "  --tensor-model-parallel-size: 1\n"
                               "  --sequence-parallel: true\n"
                               "  --deterministic-mode: false\n"
                               "  --no-gradient-accumulation-fusion: true\n"
                               "  --enable-hyper-connections: true\n"
                               "  --num-residual-streams: 4\n"
                               "  --attention-softmax-in-fp32: true\n"
                               "  --use-mcore-models: true\n"
                               "TEST_TYPE: regular\n";

static void test_yaml__reads_a_megatron_recipe(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, megatron);
    assert_int_equal(c.num_layers, 12);
    assert_int_equal(c.global_batch_size, 32);
    assert_true(c.enable_mhc_connections && !c.deterministic);
    assert_float_equal(c.lr, 1.5e-4, 0);
    assert_float_equal(c.lr_warmup_fraction, 0.01, 0);
    assert_int_equal(c.lr_decay_style, BK_LR_COSINE);
    assert_int_equal(c.data_path.n, 4);
    assert_string_equal(c.data_path.items[1], "${DATA_PATH}/a");
    assert_string_equal(c.split, "949,50,1");
    assert_string_equal(c.origin[BK_OPT_num_layers].where, "t.yaml:5");
    bk_config_free(&c);
}

static void test_yaml__lists_keep_their_items(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, SMALL "data_path: ['my data/a', b]\ncuda_graph_modules: [attn]\n");
    assert_int_equal(c.data_path.n, 2);
    assert_string_equal(c.data_path.items[0], "my data/a");
    assert_string_equal(c.data_path.items[1], "b");
    bk_config_free(&c);
    assert_accepted(&c, SMALL "data_path:\n  - one\n");
    assert_int_equal(c.data_path.n, 1);
    bk_config_free(&c);
}

static void test_yaml__json_is_yaml(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(
        &c,
        "{\"num_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4, "
        "\"seq_length\": 24, \"vocab_size\": 96, \"num_experts\": null, \"csa_compress_ratios\": [0, 4]}");
    assert_int_equal(c.vocab_size, 96);
    bk_config_free(&c);
}

static void test_yaml__unknown_option_suggests(void **state)
{
    (void)state;
    assert_refused("num_layers: 2\nhiden_size: 3\n", "t.yaml:2: ", "no option 'hiden_size'",
                   "did you mean hidden_size?");
    assert_refused("MODEL_ARGS:\n  --num-layer: 2\n", "t.yaml:2: ", "'--num-layer'", "num_layers?");
    assert_refused("mhc_high_priority_stream_mode: 1\n", "no option");
}

static void test_yaml__a_second_setting_is_refused(void **state)
{
    (void)state;
    assert_refused("num_layers: 2\nlr: 1\nnum_layers: 2\n", "t.yaml:3: num_layers", "second time", "line 1");
    assert_refused("mhc_num_residual_streams: 2\nnum-residual-streams: 2\n", "t.yaml:2",
                   "mhc_num_residual_streams", "line 1");
    assert_refused("add_bias_linear: true\ndisable_bias_linear: false\n", "add_bias_linear", "second time");
    assert_refused("lr: 1\nMODEL_ARGS:\n  lr: 2\n", "t.yaml:3", "second time");
    assert_refused("MODEL_ARGS: {}\nMODEL_ARGS: {}\n", "t.yaml:2", "second time");
}

static void test_yaml__wrong_shapes_name_the_line(void **state)
{
    (void)state;
    assert_refused("- a\n- b\n", "t.yaml:1: the file is no mapping");
    assert_refused("just text\n", "the file is no mapping");
    assert_refused("lr:\n  a: 1\n", "t.yaml:1: a mapping stands where an option has its value");
    assert_refused("seed: 1\ndata_path: [[a]]\n", "t.yaml:2: a list holds a list");
    assert_refused("? [a]\n: 1\n", "t.yaml:1: an option's name is a list");
    assert_refused("MODEL_ARGS: 3\n", "t.yaml:1: MODEL_ARGS is no mapping");
    assert_refused("seed: 1\nENV_VARS: {}\n", "t.yaml:2", "'ENV_VARS'", "no MODEL_ARGS");
    assert_refused("seed: 1\n---\nseed: 2\n", "t.yaml:2: a second document");
    assert_refused("lr: &x 1\n", "t.yaml:1: anchors");
    assert_refused("seed: 1\nlr: *x\n", "t.yaml:2: anchors");
    assert_refused("seed: \"a\\0b\"\n", "t.yaml:1: a value holds a zero byte");
    assert_refused("seed: 1\nlr: [1\nx: 2\n", "t.yaml:", "not YAML");
    assert_refused("seed: 1\n\tlr: 2\n", "t.yaml:2: not YAML");
}

static void test_yaml__depth_and_size_have_limits(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *text = malloc(DEEP + 64);
    strcpy(text, "A: ");
    memset(text + 3, '[', DEEP);
    text[3 + DEEP] = '\0';
    assert_refused(text, "t.yaml:1: nested deeper than 16");
    free(text);

    char *big = malloc((1 << 20) + 1);
    memset(big, '#', (1 << 20) + 1);
    bk_config c;
    bk_err e = {0};
    bk_config_init(&c);
    assert_int_equal(bk_config_read_yaml_memory(&c, big, (1 << 20) + 1, "t.yaml", &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "larger than 1 MiB"));
    assert_int_equal(bk_config_read_yaml_memory(&c, big, 1 << 20, "t.yaml", &e), BK_OK); /* one comment */
    bk_config_free(&c);
    free(big);
}

static void test_yaml__empty_files_set_nothing(void **state)
{
    (void)state;
    const char *const texts[] = {"", "# nothing\n", "---\n", "{}", "~"};
    for (size_t i = 0; i < 4; i++) assert_refused(texts[i], "num_layers is not set");
    assert_refused(texts[4], "the file is no mapping");
}

static void test_yaml__files(void **state)
{
    (void)state;
    bk_config c;
    bk_err e = {0};
    bk_config_init(&c);
    assert_int_equal(bk_config_read_yaml(&c, "/no/such/file.yaml", &e), BK_E_IO);
    assert_non_null(strstr(e.msg, "/no/such/file.yaml: cannot be opened"));
    assert_int_equal(bk_config_read_yaml(&c, "/", &e), BK_E_IO);
    assert_non_null(strstr(e.msg, "cannot be read"));

    char path[] = "/tmp/bk_test_yaml_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, megatron, sizeof megatron - 1), sizeof megatron - 1);
    close(fd);
    const bk_status st = bk_config_read_yaml(&c, path, &e);
    unlink(path);
    assert_int_equal(st, BK_OK);
    assert_int_equal(c.num_layers, 12);
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_yaml__reads_a_megatron_recipe),
        cmocka_unit_test(test_yaml__lists_keep_their_items),
        cmocka_unit_test(test_yaml__json_is_yaml),
        cmocka_unit_test(test_yaml__unknown_option_suggests),
        cmocka_unit_test(test_yaml__a_second_setting_is_refused),
        cmocka_unit_test(test_yaml__wrong_shapes_name_the_line),
        cmocka_unit_test(test_yaml__depth_and_size_have_limits),
        cmocka_unit_test(test_yaml__empty_files_set_nothing),
        cmocka_unit_test(test_yaml__files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
