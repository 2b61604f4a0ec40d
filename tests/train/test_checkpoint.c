#include "checkpoint_fixture.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static const char *const dropout = "hidden_dropout: 0.2\nattention_dropout: 0.1\n";

static void test_checkpoint__has_the_names_of_the_format(void **state)
{
    (void)state;
    small_run r;
    size_t n;
    open_run(&r, smallest);
    assert_false(bk_checkpoint_exists("ck"));
    must_save(&r, 100);
    assert_true(bk_checkpoint_exists("ck"));
    char *tracker = read_file("ck/latest_checkpointed_iteration.txt", &n);
    assert_string_equal(tracker, "100");
    free(tracker);
    assert_int_equal(count_entries("ck/iter_0000100", ""), 4); /* ".", "..", manifest, tensors */
    char *manifest = read_file("ck/iter_0000100/manifest.json", &n);
    const char *const parts[] = {"{\n  \"format_version\": 1,\n",   "  \"iteration\": 100,\n",
                                 "  \"consumed_samples\": 200,\n",  "    \"num_layers\": \"1\",\n",
                                 "    \"memory_limit\": \"unset\"", "\"embedding.word_embeddings.weight\": "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(manifest, parts[i])) fail_msg("%s is not in %s", parts[i], manifest);
    free(manifest);
    bk_st *file = NULL;
    bk_err e = {0};
    must(bk_st_open(&file, "ck/iter_0000100/model.safetensors", &e), &e);
    const bk_graph *g = r.session.program[0].g;
    assert_int_equal(bk_st_count(file), 3 * g->n_params);
    for (bk_pid p = 0; p < g->n_params; p++) {
        static const char *const prefixes[] = {"", "optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq."};
        for (int k = 0; k < 3; k++) {
            char name[256];
            snprintf(name, sizeof name, "%s%s", prefixes[k], g->param[p].name);
            if (!bk_st_find(file, name)) fail_msg("no tensor %s", name);
        }
    }
    bk_st_free(file);
    small_run_close(&r);
}

/* The sum of differences would hide what a comparison of bytes shows: -0, NaN, a moment of another tensor. */
static void test_checkpoint__brings_back_every_bit(void **state)
{
    (void)state;
    small_run a, b;
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    open_run(&a, dropout);
    train_to(&a, 2);
    must_save(&a, 2);
    open_run(&b, dropout);
    bk_session_init_params(&b.session, 99);
    assert_memory_not_equal(small_run_state(&a), small_run_state(&b), (size_t)a.session.run.bytes);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    assert_int_equal(bk_checkpoint_get_state(k).iteration, 2);
    assert_int_equal(bk_checkpoint_get_state(k).consumed_samples, 4);
    assert_string_equal(bk_checkpoint_path(k), "ck/iter_0000002");
    must(bk_checkpoint_load(k, &b.session, BK_CHECKPOINT_ALL, &e), &e);
    bk_checkpoint_close(k);
    assert_memory_equal(small_run_state(&a), small_run_state(&b), (size_t)a.session.run.bytes);
    small_run_close(&a);
    small_run_close(&b);
}

static void test_checkpoint__goes_on_as_if_never_stopped(void **state)
{
    (void)state;
    small_run whole, stopped, resumed;
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    open_run(&whole, dropout);
    open_run(&stopped, dropout);
    open_run(&resumed, dropout);
    train_to(&whole, 6);
    train_to(&stopped, 3);
    must_save(&stopped, 3);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    must(bk_checkpoint_load(k, &resumed.session, BK_CHECKPOINT_ALL, &e), &e);
    resumed.step = bk_checkpoint_get_state(k).iteration + 1;
    bk_checkpoint_close(k);
    train_to(&resumed, 6);
    assert_memory_equal(small_run_state(&whole), small_run_state(&resumed), (size_t)whole.session.run.bytes);
    assert_memory_equal(&whole.loss_sum, &resumed.loss_sum, sizeof whole.loss_sum);
    small_run_close(&whole);
    small_run_close(&stopped);
    small_run_close(&resumed);
}

static const char *const with_bias =
    "num_experts: 4\nmoe_ffn_hidden_size: 8\nnum_layers: 1\nmoe_router_score_function: sigmoid\n"
    "moe_router_enable_expert_bias: true\nmoe_router_load_balancing_type: none\n";

static float *router_bias(small_run *r)
{
    const bk_program *p = &r->session.program[0];
    const bk_vid v = bk_value_find(p->g, BK_STATE, "decoder.layers.0.mlp.router.expert_bias");
    assert_true(v != BK_NONE);
    return bk_exec_value(r->session.exec, p->p, v);
}

/* A router's bias is the model's, not the optimizer's: it comes with the weights. */
static void test_checkpoint__the_bias_of_a_router(void **state)
{
    (void)state;
    small_run a, b;
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    open_run(&a, with_bias);
    train_to(&a, 3);
    must_save(&a, 3);
    float saved[4];
    memcpy(saved, router_bias(&a), sizeof saved);
    assert_true(saved[0] * saved[0] > 0);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    for (int part = 0; part < 2; part++) {
        open_run(&b, with_bias);
        must(bk_checkpoint_load(k, &b.session, part ? BK_CHECKPOINT_ALL : BK_CHECKPOINT_WEIGHTS, &e), &e);
        assert_memory_equal(router_bias(&b), saved, sizeof saved);
        small_run_close(&b);
    }
    bk_checkpoint_close(k);
    small_run_close(&a);
}

/* The down projections of multi-latent attention are saved apart however they are computed, so a run may go
 * on the other way: the same weights, and sums in another order. */
static void test_checkpoint__fused_down_projections_or_not(void **state)
{
    (void)state;
    static const char *const latents =
        "multi_latent_attention: true\nq_lora_rank: 6\nkv_lora_rank: 5\nqk_head_dim: 4\n"
        "qk_pos_emb_head_dim: 2\nv_head_dim: 3\nqk_layernorm: true\n";
    char fused[512];
    small_run one, two, resumed;
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    snprintf(fused, sizeof fused, "%smla_down_proj_fusion: true\n", latents);
    open_run(&one, fused);
    open_run(&two, latents);
    open_run(&resumed, latents);
    bk_session_init_params(&resumed.session, 99);
    train_to(&one, 3), train_to(&two, 3);
    assert_true(fabs(one.loss_sum - two.loss_sum) < 1e-5 * two.loss_sum);
    assert_true(fabs(one.grad_norm - two.grad_norm) < 1e-4 * two.grad_norm);
    must_save(&one, 3);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    must(bk_checkpoint_load(k, &resumed.session, BK_CHECKPOINT_ALL, &e), &e);
    bk_checkpoint_close(k);
    resumed.step = 4;
    train_to(&one, 4), train_to(&resumed, 4);
    assert_true(fabs(one.loss_sum - resumed.loss_sum) < 1e-6 * one.loss_sum);
    assert_true(fabs(one.grad_norm - resumed.grad_norm) < 1e-5 * one.grad_norm);
    small_run_close(&one);
    small_run_close(&two);
    small_run_close(&resumed);
}

/* Moments stay what they were; a program without optimizer has none. */
static void test_checkpoint__weights_alone(void **state)
{
    (void)state;
    small_run a, b, eval;
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    open_run(&a, dropout);
    train_to(&a, 2);
    must_save(&a, 2);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    open_run(&b, dropout);
    bk_session_init_params(&b.session, 99);
    must(bk_checkpoint_load(k, &b.session, BK_CHECKPOINT_WEIGHTS, &e), &e);

    small_run_graphs(&eval, dropout, 1, BK_F32);
    bk_session_close(&eval.session);
    bk_program prog;
    const bk_program_options o = {.mode = BK_MODEL_EVALUATE, .real = BK_F32};
    must(bk_program_graph(&prog, &eval.c, &eval.layout, &o, &e), &e);
    bk_session_add(&eval.session, &prog, 1);
    small_run_open(&eval);
    assert_int_equal(bk_checkpoint_load(k, &eval.session, BK_CHECKPOINT_ALL, &e), BK_E_INPUT);
    assert_says(&e, "too many: optimizer.state.exp_avg.");
    must(bk_checkpoint_load(k, &eval.session, BK_CHECKPOINT_WEIGHTS, &e), &e);
    bk_checkpoint_close(k);

    const bk_program *pa = &a.session.program[0], *pb = &b.session.program[0], *pe = &eval.session.program[0];
    for (bk_pid p = 0; p < pa->g->n_params; p++) {
        const size_t bytes = (size_t)bk_value_bytes(&pa->g->value[pa->g->param[p].value]);
        const void *want = bk_exec_value(a.session.exec, pa->p, pa->g->param[p].value);
        assert_memory_equal(want, bk_exec_value(b.session.exec, pb->p, pb->g->param[p].value), bytes);
        assert_memory_equal(want, bk_exec_value(eval.session.exec, pe->p, pe->g->param[p].value), bytes);
    }
    for (bk_vid v = 0; v < pb->g->n_values; v++) {
        const bk_value *x = &pb->g->value[v];
        if (x->kind != BK_STATE || x->scope != BK_RUN) continue;
        const float *moment = bk_exec_value(b.session.exec, pb->p, v);
        for (int64_t i = 0; i < bk_elements(x); i++) assert_true(moment[i] <= 0 && moment[i] >= 0);
    }
    small_run_close(&a);
    small_run_close(&b);
    small_run_close(&eval);
}

static void test_checkpoint__keeps_the_newest(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint_dir *d = NULL;
    open_run(&r, smallest);
    r.c.save_keep = 2;
    must(bk_checkpoint_dir_open(&d, "ck", 0, &r.c, &e), &e);
    for (int64_t i = 1; i <= 4; i++) {
        must(save_in(d, &r, i, &e), &e);
        assert_int_equal(count_entries("ck", "iter_"), i < 2 ? i : 2);
    }
    assert_true(exists("ck/iter_0000003/manifest.json") && exists("ck/iter_0000004/manifest.json"));
    r.c.save_keep = 1;
    must(save_in(d, &r, 5, &e), &e);
    assert_int_equal(count_entries("ck", "iter_"), 1);
    assert_int_equal(newest(), 5);
    r.c.save_keep = 0;
    for (int64_t i = 6; i <= 9; i++) must(save_in(d, &r, i, &e), &e);
    assert_int_equal(count_entries("ck", "iter_"), 5);
    bk_checkpoint_dir_close(d);
    small_run_close(&r);
}

static void test_checkpoint__one_run_saves_into_a_folder(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint_dir *first = NULL, *second = NULL;
    char process[64];
    open_run(&r, smallest);
    must(bk_checkpoint_dir_open(&first, "ck", 0, &r.c, &e), &e);
    assert_int_equal(bk_checkpoint_dir_open(&second, "ck", 0, &r.c, &e), BK_E_INPUT);
    snprintf(process, sizeof process, "ck: another run (process %ld) saves into this folder", (long)getpid());
    assert_says(&e, process);
    assert_null(second);
    must(save_in(first, &r, 1, &e), &e); /* the refused one disturbed nothing */
    bk_checkpoint_dir_close(first);
    must(bk_checkpoint_dir_open(&second, "ck", 1, &r.c, &e), &e);
    bk_checkpoint_dir_close(second);
    small_run_close(&r);
}

static void test_checkpoint__refuses_a_folder_that_is_ahead(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint_dir *d = NULL;
    open_run(&r, smallest);
    must_save(&r, 5);
    assert_int_equal(bk_checkpoint_dir_open(&d, "ck", 0, &r.c, &e), BK_E_INPUT);
    assert_says(&e, "it has the checkpoint iter_0000005, and this run begins after iteration 0");
    assert_says(&e, "--load ck");
    must(bk_checkpoint_dir_open(&d, "ck", 5, &r.c, &e), &e);
    assert_int_equal(save_in(d, &r, 5, &e), BK_E_INPUT);
    assert_says(&e, "ck/iter_0000005 is there already and is not overwritten");
    assert_int_equal(count_entries("ck", ".tmp"), 0);
    bk_checkpoint_dir_close(d);
    assert_int_equal(newest(), 5);
    small_run_close(&r);
}

/* A save that was killed between its two renames leaves a complete folder that no tracker names. */
static void test_checkpoint__replaces_what_was_never_handed_out(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    open_run(&r, smallest);
    must_save(&r, 1);
    must_save(&r, 2);
    write_file("ck/latest_checkpointed_iteration.txt", "1", 1);
    assert_int_equal(newest(), 1);
    train_to(&r, 1); /* other bits */
    must_save(&r, 2);
    assert_int_equal(newest(), 2);
    assert_int_equal(count_entries("ck", ".tmp"), 0);
    /* Without a tracker: this very checkpoint may stand there, another may not. */
    remove("ck/latest_checkpointed_iteration.txt");
    must_save(&r, 2);
    assert_int_equal(newest(), 2);
    remove("ck/latest_checkpointed_iteration.txt");
    train_to(&r, 2);
    assert_int_equal(save_alone(&r, 2, &e), BK_E_INPUT);
    assert_says(&e, "ck/iter_0000002 is there already");
    assert_false(bk_checkpoint_exists("ck"));
    small_run_close(&r);
}

static void test_checkpoint__disk_full(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    struct rlimit old;
    size_t bytes, n_tracker;
    open_run(&r, smallest);
    must_save(&r, 1);
    char *file = read_file("ck/iter_0000001/model.safetensors", &bytes);
    free(file);
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t room = 0; room <= bytes; room += bytes / 4) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){room < bytes ? room : bytes - 1, old.rlim_max});
        const bk_status st = save_alone(&r, 2, &e);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(st, BK_E_IO);
        assert_says(&e, "the checkpoint of iteration 2 is not saved, the newest one remains iter_0000001: ");
        assert_says(&e, "File too large");
        assert_int_equal(count_entries("ck", ".tmp") + count_entries("ck", "iter_0000002"), 0);
        char *tracker = read_file("ck/latest_checkpointed_iteration.txt", &n_tracker);
        assert_string_equal(tracker, "1");
        free(tracker);
        assert_int_equal(newest(), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
    must_save(&r, 2);
    assert_int_equal(newest(), 2);
    small_run_close(&r);
}

/* Found out before the first step. */
static void test_checkpoint__folders_that_cannot_be(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint_dir *d = NULL;
    open_run(&r, smallest);
    assert_int_equal(bk_checkpoint_dir_open(&d, "/proc/birkhoff/ck", 0, &r.c, &e), BK_E_IO);
    assert_says(&e, "/proc/birkhoff: cannot make the folder: ");
    write_file("file", "x", 1);
    assert_int_equal(bk_checkpoint_dir_open(&d, "file", 0, &r.c, &e), BK_E_IO);
    assert_says(&e, "file: cannot use it as a folder");
    assert_int_equal(bk_checkpoint_dir_open(&d, "", 0, &r.c, &e), BK_E_INPUT);
    char *deep = calloc(5000, 1);
    memset(deep, 'a', 4990);
    assert_int_equal(bk_checkpoint_dir_open(&d, deep, 0, &r.c, &e), BK_E_INPUT);
    free(deep);
    must(bk_config_set(&r.c, "data_path", "caf\xe9", "test", &e), &e);
    assert_int_equal(bk_checkpoint_dir_open(&d, "ck", 0, &r.c, &e), BK_E_INPUT);
    assert_says(&e, "the value of data_path is not UTF-8 text");
    assert_false(exists("ck"));
    assert_null(d);
    small_run_close(&r);
}

static void test_checkpoint__makes_the_folders_above(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint_dir *d = NULL;
    open_run(&r, smallest);
    must(bk_checkpoint_dir_open(&d, "a/b//ck/", 0, &r.c, &e), &e);
    must(save_in(d, &r, 12345678, &e), &e);
    assert_true(exists("a/b/ck/iter_12345678/manifest.json"));
    bk_checkpoint_dir_close(d);
    small_run_close(&r);
}

int main(void)
{
#define IN_A_FOLDER(t) cmocka_unit_test_setup_teardown(t, enter_new_folder, leave_folder)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(test_checkpoint__has_the_names_of_the_format),
        IN_A_FOLDER(test_checkpoint__brings_back_every_bit),
        IN_A_FOLDER(test_checkpoint__goes_on_as_if_never_stopped),
        IN_A_FOLDER(test_checkpoint__the_bias_of_a_router),
        IN_A_FOLDER(test_checkpoint__fused_down_projections_or_not),
        IN_A_FOLDER(test_checkpoint__weights_alone),
        IN_A_FOLDER(test_checkpoint__keeps_the_newest),
        IN_A_FOLDER(test_checkpoint__one_run_saves_into_a_folder),
        IN_A_FOLDER(test_checkpoint__refuses_a_folder_that_is_ahead),
        IN_A_FOLDER(test_checkpoint__replaces_what_was_never_handed_out),
        IN_A_FOLDER(test_checkpoint__disk_full),
        IN_A_FOLDER(test_checkpoint__folders_that_cannot_be),
        IN_A_FOLDER(test_checkpoint__makes_the_folders_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
