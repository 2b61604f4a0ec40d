/* Generation against the full forward: the same model run over the whole sequence at once. */
#include "train/small_run.h"

#include <math.h>

#include "train/generate.h"

enum { VOCAB = 32, CONTEXT = 224, PROMPT = 40 };

/* A model with the programs that generate, and a forward over CONTEXT tokens. */
typedef struct {
    bk_config c;
    bk_session session;
    bk_generator gen;
    int full; /* the program that evaluates */
    int32_t tokens[CONTEXT];
    double logits[CONTEXT][VOCAB]; /* of the full forward */
} bench;

static const char *const base_yaml =
    "num_layers: 2\nhidden_size: 32\nnum_attention_heads: 4\nffn_hidden_size: 40\n"
    "seq_length: 224\nvocab_size: 31\nmake_vocab_size_divisible_by: 32\nmicro_batch_size: 1\n"
    "init_method_std: 0.3\nembedding_init_method_std: 1\n";

static bk_status full_feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const bench *b = ctx;
    (void)micro;
    if (strcmp(v->name, "tokens") == 0)
        memcpy(dst, b->tokens, sizeof b->tokens);
    else if (strcmp(v->name, "labels") == 0)
        memset(dst, 0, (size_t)bk_value_bytes(v));
    else if (strcmp(v->name, "loss_mask") == 0)
        for (int64_t i = 0; i < bk_elements(v); i++) ((float *)dst)[i] = 1;
    else
        return bk_err_set(e, BK_E_CHECK, "nobody feeds %s", v->name);
    return BK_OK;
}

static bk_status full_fetch(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    bench *b = ctx;
    (void)micro, (void)e;
    if (v->rank != 3) return BK_OK; /* a metric */
    for (int64_t i = 0; i < bk_elements(v); i++) b->logits[i / VOCAB][i % VOCAB] = (double)((const float *)src)[i];
    return BK_OK;
}

static void bench_open(bench *b, const char *yaml, bool deterministic)
{
    bk_err e = {0};
    char text[2048];
    *b = (bench){0};
    snprintf(text, sizeof text, "%s%s", base_yaml, yaml);
    bk_config_init(&b->c);
    must(bk_config_read_yaml_memory(&b->c, text, strlen(text), "test", &e), &e);
    must(bk_config_resolve(&b->c, &e), &e);
    bk_layout l;
    must(bk_layout_resolve(&l, &b->c, 1, &e), &e);
    bk_program prog;
    static const char *const probe[] = {"logits"};
    const bk_program_options o = {.mode = BK_MODEL_EVALUATE, .real = BK_F32, .probe = probe, .n_probes = 1};
    must(bk_program_graph(&prog, &b->c, &l, &o, &e), &e);
    bk_session_add(&b->session, &prog, 1);
    must(bk_generator_add(&b->gen, &b->session, &b->c, BK_F32, &e), &e);
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = deterministic};
    must(bk_session_plan(&b->session, &target, &e), &e);
    must(bk_session_open(&b->session, BK_UNSET_COUNT, &e), &e);
    bk_session_init_params(&b->session, 7);
}

static void bench_close(bench *b)
{
    bk_generator_free(&b->gen);
    bk_session_close(&b->session);
    bk_config_free(&b->c);
}

/* Fills b->logits from b->tokens. */
static void full_forward(bench *b)
{
    bk_err e = {0};
    const bk_host host = {b, full_feed, full_fetch};
    must(bk_exec_run(b->session.exec, b->session.program[b->full].p, &host, &e), &e);
}

static void random_tokens(int32_t *out, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) out[i] = (int32_t)(bk_mix64(seed * 1000 + (uint64_t)i) % 31);
}

typedef struct {
    int32_t token[512];
    int64_t n;
    int64_t stop_after; /* 0: never */
} tape;

static bk_status record(void *ctx, int32_t token, bk_err *e)
{
    tape *t = ctx;
    assert_true(t->n < 512);
    t->token[t->n++] = token;
    return t->n == t->stop_after ? bk_err_set(e, BK_E_STOPPED, "enough") : BK_OK;
}

static const bk_sampling greedy = {.temperature = 0, .top_p = 1};

static void generate(tape *out, bench *b, const int32_t *prompt, int64_t n_prompt, int64_t n, bk_sampling how)
{
    bk_err e = {0};
    *out = (tape){0};
    const bk_generate_options o = {
        .n_tokens = n, .stop = BK_NONE, .sampling = how, .ctx = out, .token = record};
    must(bk_generate(&b->gen, prompt, n_prompt, &o, &e), &e);
    assert_int_equal(out->n, n);
}

static int32_t best(const double *logits, int64_t n)
{
    int64_t k = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[k]) k = i;
    return (int32_t)k;
}

static double largest_difference(const double *x, const double *y)
{
    double most = 0;
    for (int k = 0; k < VOCAB; k++) most = fmax(most, fabs(x[k] - y[k]));
    return most;
}

static const char *const models[] = {
    /* rope, grouped queries, mHC */
    "num_query_groups: 2\nposition_embedding_type: rope\nnormalization: RMSNorm\nswiglu: true\n"
    "add_bias_linear: false\nuntie_embeddings_and_output_weights: true\nenable_mhc_connections: true\n"
    "mhc_num_residual_streams: 4\nmhc_init_gating_factor: 0.5\nhidden_dropout: 0.1\n",
    /* learned positions, LayerNorm, tied output, biases, mHC */
    "position_embedding_type: learned_absolute\nnormalization: LayerNorm\nenable_mhc_connections: true\n"
    "mhc_num_residual_streams: 2\nmhc_init_gating_factor: 0.5\n",
    /* without mHC, a part of each head turns, pairs side by side */
    "num_query_groups: 1\nposition_embedding_type: rope\nrotary_percent: 0.5\nrotary_interleaved: true\n"
    "untie_embeddings_and_output_weights: true\n",
};
enum { N_MODELS = sizeof models / sizeof *models };

/* Greedy tokens are those that the full forward finds most likely after the same prefix. */
static void test_generate__tokens_are_those_of_the_full_forward(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        static bench b;
        tape t;
        bench_open(&b, models[m], true);
        random_tokens(b.tokens, CONTEXT, 3);
        generate(&t, &b, b.tokens, PROMPT / 2, CONTEXT - PROMPT / 2, greedy);
        memcpy(b.tokens + PROMPT / 2, t.token, (size_t)t.n * sizeof *t.token);
        full_forward(&b);
        int n_different = 0;
        for (int64_t k = PROMPT / 2; k < CONTEXT; k++) {
            assert_int_equal(b.tokens[k], best(b.logits[k - 1], 31));
            n_different += b.tokens[k] != b.tokens[PROMPT / 2];
        }
        assert_true(n_different > 0); /* not one token again and again, whatever stands before it */
        bench_close(&b);
    }
}

/* With deterministic products every element of a product, and so every logit, has the bits of the full forward: a
 * row of an activation does not depend on what other rows are computed with it. */
static void test_generate__logits_have_the_bits_of_the_full_forward(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        static bench b;
        bk_err e = {0};
        bench_open(&b, models[m], true);
        random_tokens(b.tokens, CONTEXT, 5);
        full_forward(&b);
        bk_generator_start(&b.gen);
        for (int k = 0; k < CONTEXT; k++) {
            must(bk_generator_append(&b.gen, b.tokens[k], &e), &e);
            if (k < 70) continue; /* read in pieces at once: the programs mix */
            must(bk_generator_run(&b.gen, &e), &e);
            assert_true(largest_difference(b.gen.logits, b.logits[k]) == 0);
        }
        bench_close(&b);
    }
}

/* With the library's products sums are taken in another order for one row than for many: 32 to 64 terms of order one,
 * a few roundings of 6e-8 each, through two layers. */
static void test_generate__logits_agree_with_library_products(void **state)
{
    (void)state;
    static bench b;
    bk_err e = {0};
    bench_open(&b, models[0], false);
    random_tokens(b.tokens, CONTEXT, 5);
    full_forward(&b);
    bk_generator_start(&b.gen);
    for (int k = 0; k < CONTEXT; k++) {
        must(bk_generator_append(&b.gen, b.tokens[k], &e), &e);
        must(bk_generator_run(&b.gen, &e), &e);
        assert_true(largest_difference(b.gen.logits, b.logits[k]) < 1e-4);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate__tokens_are_those_of_the_full_forward),
        cmocka_unit_test(test_generate__logits_have_the_bits_of_the_full_forward),
        cmocka_unit_test(test_generate__logits_agree_with_library_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
