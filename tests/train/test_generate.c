/* Generation against the full forward: the same model run over the whole sequence at once. */
#include "train/small_run.h"

#include <math.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "train/generate.h"

enum { VOCAB = 32, CONTEXT = 224, PROMPT = 40 };

/* A model with the programs that generate, and a forward over CONTEXT tokens. */
typedef struct {
    bk_config c;
    bk_session session;
    bk_generator gen;
    int32_t tokens[CONTEXT];
    double logits[CONTEXT][VOCAB]; /* of the full forward */
} bench;

static const char *const base_yaml =
    "num_layers: 2\nhidden_size: 32\nnum_attention_heads: 4\nffn_hidden_size: 40\n"
    "vocab_size: 31\nmake_vocab_size_divisible_by: 32\nmicro_batch_size: 1\n"
    "init_method_std: 0.3\nembedding_init_method_std: 1\n";

static bk_status full_feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const bench *b = ctx;
    (void)micro;
    if (strcmp(v->name, "tokens") == 0)
        memcpy(dst, b->tokens, (size_t)bk_value_bytes(v));
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
    for (int64_t i = 0; i < bk_elements(v); i++)
        b->logits[i / VOCAB][i % VOCAB] = (double)((const float *)src)[i];
    return BK_OK;
}

static void bench_open_context(bench *b, const char *yaml, int64_t context, bool deterministic)
{
    bk_err e = {0};
    char text[2048], seq_length[32];
    *b = (bench){0};
    snprintf(text, sizeof text, "%s%s", base_yaml, yaml);
    bk_config_init(&b->c);
    must(bk_config_read_yaml_memory(&b->c, text, strlen(text), "test", &e), &e);
    snprintf(seq_length, sizeof seq_length, "%lld", (long long)context);
    must(bk_config_set(&b->c, "seq_length", seq_length, "test", &e), &e);
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

static void bench_open(bench *b, const char *yaml, bool deterministic)
{
    bench_open_context(b, yaml, CONTEXT, deterministic);
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
    must(bk_exec_run(b->session.exec, b->session.program[0].p /* evaluates */, &host, &e), &e);
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
    /* experts, a shared one, and a depth of multi-token prediction that generation leaves out */
    "num_experts: 5\nmoe_router_topk: 2\nmoe_ffn_hidden_size: 12\nmoe_shared_expert_intermediate_size: 8\n"
    "moe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n"
    "moe_router_load_balancing_type: none\nmtp_num_layers: 1\nuntie_embeddings_and_output_weights: true\n"
    "position_embedding_type: rope\nnormalization: RMSNorm\nswiglu: true\nadd_bias_linear: false\n"
    "enable_mhc_connections: true\nmhc_num_residual_streams: 2\nmhc_init_gating_factor: 0.5\n",
    /* multi-latent attention, values narrower than keys; YaRN, one down projection */
    "multi_latent_attention: true\nq_lora_rank: 12\nkv_lora_rank: 10\nqk_head_dim: 6\n"
    "qk_pos_emb_head_dim: 4\nv_head_dim: 7\nqk_layernorm: true\nmla_down_proj_fusion: true\n"
    "rotary_scaling_factor: 4\noriginal_max_position_embeddings: 56\nmscale_all_dim: 0.5\n"
    "position_embedding_type: rope\nnormalization: RMSNorm\nswiglu: true\nadd_bias_linear: false\n"
    "untie_embeddings_and_output_weights: true\n"
    "enable_mhc_connections: true\nmhc_num_residual_streams: 2\nmhc_init_gating_factor: 0.5\n",
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

/* With deterministic products every element of a product, and so every logit, has the bits of the full
 * forward: a row of an activation does not depend on what other rows are computed with it. */
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

/* With the library's products sums are taken in another order for one row than for many: 32 to 64 terms of
 * order one, a few roundings of 6e-8 each, through two layers. */
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

/* What the caches hold after a prompt does not depend on how it was cut. */
static void test_generate__pieces_give_what_single_tokens_give(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        static bench b;
        static double in_pieces[VOCAB];
        bk_err e = {0};
        bench_open(&b, models[m], true);
        random_tokens(b.tokens, CONTEXT, 9);
        for (int n = 31; n < 100;
             n += 17) { /* 31, 48, 65, 82, 99: none, one, two, two, three pieces and a rest */
            bk_generator_start(&b.gen);
            for (int k = 0; k < n; k++) must(bk_generator_append(&b.gen, b.tokens[k], &e), &e);
            must(bk_generator_run(&b.gen, &e), &e);
            memcpy(in_pieces, b.gen.logits, sizeof in_pieces);
            bk_generator_start(&b.gen);
            for (int k = 0; k < n; k++) {
                must(bk_generator_append(&b.gen, b.tokens[k], &e), &e);
                must(bk_generator_run(&b.gen, &e), &e);
            }
            assert_memory_equal(in_pieces, b.gen.logits, sizeof in_pieces);
        }
        bench_close(&b);
    }
}

/* When the context is full, what is seen from then on begins with its last half. */
static void test_generate__a_full_context_goes_on_from_its_last_half(void **state)
{
    (void)state;
    static const struct {
        int64_t context, n_prompt;
    } cases[] = {{24, 16}, {33, 33}, {33, 90}, {1, 3}};
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        static bench b;
        tape out;
        int32_t all[140];
        const int64_t n = cases[t].n_prompt, context = cases[t].context;
        bench_open_context(&b, models[1], context, true);
        random_tokens(all, n, 2);
        generate(&out, &b, all, n, 50, greedy);
        memcpy(all + n, out.token, 50 * sizeof *all);
        int64_t first = 0, n_moves = 0;
        for (int64_t k = 0; k < n + 50; k++) {
            if (k >= n) {
                memcpy(b.tokens, all + first, (size_t)(k - first) * sizeof *all);
                full_forward(&b);
                assert_int_equal(all[k], best(b.logits[k - first - 1], 31));
            }
            if (k - first == context) first = k - context / 2, n_moves++;
        }
        assert_true(n_moves > 0);
        bench_close(&b);
    }
}

static void test_generate__a_seed_repeats(void **state)
{
    (void)state;
    static bench b;
    tape a, again, other, short_prompt;
    bench_open(&b, models[0], true);
    random_tokens(b.tokens, PROMPT, 1);
    const bk_sampling warm = {.temperature = 1, .top_p = 0.95, .seed = 11};
    generate(&a, &b, b.tokens, PROMPT, 60, warm);
    generate(&short_prompt, &b, b.tokens, 3, 60, warm); /* nothing of it is left in the caches */
    generate(&again, &b, b.tokens, PROMPT, 60, warm);
    generate(&other, &b, b.tokens, PROMPT, 60, (bk_sampling){.temperature = 1, .top_p = 0.95, .seed = 12});
    assert_memory_equal(a.token, again.token, 60 * sizeof *a.token);
    assert_memory_not_equal(a.token, other.token, 60 * sizeof *a.token);
    assert_memory_not_equal(a.token, short_prompt.token, 60 * sizeof *a.token);
    for (int k = 0; k < 60; k++)
        assert_in_range(a.token[k], 0, 30); /* row 31 of the output layer is padding */
    bench_close(&b);
}

static void test_generate__ends_where_it_is_told_to(void **state)
{
    (void)state;
    static bench b;
    bk_err e = {0};
    tape whole, t = {0};
    bench_open(&b, models[2], true);
    random_tokens(b.tokens, PROMPT, 1);
    const bk_sampling warm = {.temperature = 2, .top_p = 1, .seed = 4};
    generate(&whole, &b, b.tokens, PROMPT, 40, warm);
    bk_generate_options o = {
        .n_tokens = 40, .stop = whole.token[20], .sampling = warm, .ctx = &t, .token = record};
    int64_t first = 0;
    while (whole.token[first] != o.stop) first++;
    must(bk_generate(&b.gen, b.tokens, PROMPT, &o, &e), &e);
    assert_int_equal(t.n, first + 1); /* the token that ends the text is handed on */
    t = (tape){.stop_after = 7}, o.stop = BK_NONE;
    assert_int_equal(bk_generate(&b.gen, b.tokens, PROMPT, &o, &e), BK_E_STOPPED);
    assert_int_equal(t.n, 7);
    t = (tape){0}, o.n_tokens = 0;
    must(bk_generate(&b.gen, b.tokens, PROMPT, &o, &e), &e);
    assert_int_equal(t.n, 0);
    assert_int_equal(bk_generate(&b.gen, b.tokens, 0, &o, &e), BK_E_INPUT);
    assert_int_equal(bk_generate(&b.gen, (const int32_t[]){30, 31}, 2, &o, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "token 31 is not in the vocabulary of 31"));
    assert_int_equal(bk_generate(&b.gen, (const int32_t[]){-1}, 1, &o, &e), BK_E_INPUT);
    o.sampling.top_p = 0;
    assert_int_equal(bk_generate(&b.gen, b.tokens, PROMPT, &o, &e), BK_E_INPUT);
    bench_close(&b);
}

/* A program refuses positions that its caches do not have, whoever asks for them. */
static void test_generate__a_position_out_of_range_is_an_error(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        static bench b;
        bk_err e = {0};
        bench_open(&b, models[m], true);
        random_tokens(b.gen.seen, CONTEXT, 1);
        b.gen.n_cached = CONTEXT - 1, b.gen.n_seen = CONTEXT;
        must(bk_generator_run(&b.gen, &e), &e);
        b.gen.n_cached = CONTEXT - 5, b.gen.n_seen = CONTEXT - 5 + BK_PREFILL_TOKENS; /* one piece */
        b.gen.seen = realloc(b.gen.seen, 2 * CONTEXT * sizeof *b.gen.seen);
        assert_non_null(b.gen.seen);
        memset(b.gen.seen, 0, 2 * CONTEXT * sizeof *b.gen.seen);
        assert_int_equal(bk_generator_run(&b.gen, &e), BK_E_INPUT);
        assert_non_null(strstr(e.msg, "32 tokens at position 219 do not fit the 224 rows"));
        bench_close(&b);
    }
}

/* Beside programs that train: the parameters are the same bytes, and a sample in between changes nothing. */
static void test_generate__does_not_disturb_training(void **state)
{
    (void)state;
    unsigned char *result[2];
    size_t bytes = 0;
    for (int sample = 0; sample < 2; sample++) {
        small_run r;
        bk_generator gen;
        bk_err e = {0};
        tape t[2];
        memset(t, 0, sizeof t);
        small_run_graphs(&r, "hidden_dropout: 0.1\nattention_dropout: 0.1\n", 2, BK_F32);
        bytes = 0;
        for (int64_t v = 0; v < r.session.program[0].g->n_values; v++) {
            const bk_value *x = &r.session.program[0].g->value[v];
            if (x->scope == BK_RUN && x->base == BK_NONE) bytes += ((size_t)bk_value_bytes(x) + 63) / 64 * 64;
        }
        must(bk_generator_add(&gen, &r.session, &r.c, BK_F32, &e), &e);
        small_run_open(&r);
        for (r.step = 1; r.step <= 4; r.step++) {
            must(bk_exec_run(r.session.exec, r.session.program[0].p, &r.host, &e), &e);
            const bk_generate_options o = {
                .n_tokens = 20, .stop = BK_NONE, .sampling = greedy, .ctx = &t[r.step % 2], .token = record};
            if (sample && r.step > 2) must(bk_generate(&gen, (const int32_t[]){1, 2, 3}, 3, &o, &e), &e);
        }
        if (sample) assert_memory_not_equal(t[0].token, t[1].token, sizeof t[0].token); /* it has learnt */
        const bk_program *train = &r.session.program[0], *decode = &r.session.program[gen.decode];
        assert_int_equal(train->g->n_params, decode->g->n_params);
        for (bk_pid p = 0; p < train->g->n_params; p++) {
            assert_string_equal(train->g->param[p].name, decode->g->param[p].name);
            assert_int_equal(bk_plan_value_address(train->p, train->g->param[p].value, BK_NONE),
                             bk_plan_value_address(decode->p, decode->g->param[p].value, BK_NONE));
        }
        result[sample] = malloc(bytes);
        memcpy(result[sample], small_run_state(&r), bytes);
        bk_generator_free(&gen);
        small_run_close(&r);
    }
    assert_memory_equal(result[0], result[1], bytes);
    free(result[0]), free(result[1]);
}

/* The graph passes the verifier and comes back from its text; nothing of it is of a micro-batch. */
static void test_generate__programs_are_like_others(void **state)
{
    (void)state;
    static bench b;
    bk_err e = {0};
    bench_open(&b, models[0], true);
    const int programs[] = {b.gen.prefill, b.gen.decode};
    for (int k = 0; k < 2; k++) {
        const bk_program *prog = &b.session.program[programs[k]];
        must(bk_graph_verify(prog->g, &e), &e);
        bk_str text = {0}, again = {0};
        bk_graph *read = NULL;
        bk_graph_print(&text, prog->g);
        must(bk_graph_parse(&read, bk_str_text(&text), (int64_t)text.len, "generate", &e), &e);
        bk_graph_print(&again, read);
        assert_string_equal(bk_str_text(&text), bk_str_text(&again));
        bk_graph_free(read);
        bk_str_free(&text), bk_str_free(&again);
        const bk_vid position = bk_value_find(prog->g, BK_INPUT, "position"),
                     cache = bk_value_find(prog->g, BK_STATE, "cache.v.layer1");
        assert_true(position != BK_NONE && cache != BK_NONE);
        assert_int_equal(prog->g->value[cache].scope, BK_RUN);
        assert_int_equal(prog->g->value[cache].dim[0].size, CONTEXT);
        assert_int_equal(prog->g->value[cache].dim[0].count, 1 + position);
        assert_int_equal(prog->g->value[cache].dim[2].size, 2);
        for (int64_t i = 0; i < prog->s->n_items; i++) assert_int_equal(prog->s->item[i].micro, BK_NONE);
        for (int64_t o = 0; o < prog->g->n_ops; o++) assert_int_equal(prog->g->op[o].scope, BK_STEP);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate__tokens_are_those_of_the_full_forward),
        cmocka_unit_test(test_generate__logits_have_the_bits_of_the_full_forward),
        cmocka_unit_test(test_generate__logits_agree_with_library_products),
        cmocka_unit_test(test_generate__pieces_give_what_single_tokens_give),
        cmocka_unit_test(test_generate__a_full_context_goes_on_from_its_last_half),
        cmocka_unit_test(test_generate__a_seed_repeats),
        cmocka_unit_test(test_generate__ends_where_it_is_told_to),
        cmocka_unit_test(test_generate__a_position_out_of_range_is_an_error),
        cmocka_unit_test(test_generate__does_not_disturb_training),
        cmocka_unit_test(test_generate__programs_are_like_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
