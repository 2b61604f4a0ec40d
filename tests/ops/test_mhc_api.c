/* What the public mHC API refuses, with which status and words, and that it touches nothing then. */
#include "mhc/sublayer.h"

#include <stdio.h>

typedef struct {
    sublayer s;
    char message[256];
} refusal;

static refusal *setup(void)
{
    refusal *r = malloc(sizeof *r);
    assert_non_null(r);
    r->s = sublayer_make(BK_MHC_F32, 6, 4, 8, 20);
    sublayer_randomise(&r->s);
    sublayer_forward(&r->s);
    sublayer_backward(&r->s, 0);
    r->message[0] = 0;
    r->s.call.message = r->message;
    r->s.call.message_bytes = sizeof r->message;
    return r;
}

static void teardown(refusal *r)
{
    sublayer_free(&r->s);
    free(r);
}

static bk_mhc_status map(sublayer *s)
{
    void **v = s->v;
    return bk_mhc_map(v[H_PRE], v[H_POST], v[H_RES], v[P], v[Q], &s->call, v[X], v[W], v[ALPHA_PRE],
                      v[ALPHA_POST], v[ALPHA_RES], v[BIAS], s->iterations);
}

static bk_mhc_status map_bwd(sublayer *s, int add_dx, int add_params)
{
    void **v = s->v;
    return bk_mhc_map_bwd(v[DX], v[DW], v[DALPHA_PRE], v[DALPHA_POST], v[DALPHA_RES], v[DBIAS], &s->call,
                          v[DH_PRE], v[DH_POST], v[DH_RES], v[X], v[W], v[ALPHA_PRE], v[ALPHA_POST],
                          v[ALPHA_RES], v[BIAS], v[P], v[Q], s->iterations, add_dx, add_params);
}

static bk_mhc_status post(sublayer *s)
{
    void **v = s->v;
    return bk_mhc_post(v[X_NEXT], &s->call, v[X], v[H_RES], v[H_POST], v[Y], v[D], s->dropout);
}

static bk_mhc_status post_bwd(sublayer *s)
{
    void **v = s->v;
    return bk_mhc_post_bwd(v[DX], v[DH_RES], v[DH_POST], v[DY], v[DD], &s->call, v[G], v[X], v[H_RES],
                           v[H_POST], v[Y], v[D], s->dropout, 0, 0);
}

static bk_mhc_status contract(sublayer *s)
{
    void **v = s->v;
    return bk_mhc_contract(v[H], v[W_], v[M], v[RHO], &s->call, v[S], v[V], v[SCALE], v[BASE], s->eps);
}

static bk_mhc_status contract_bwd(sublayer *s)
{
    void **v = s->v;
    return bk_mhc_contract_bwd(v[DS], v[DV], v[DSCALE], v[DBASE], &s->call, v[DH], v[S], v[V], v[SCALE],
                               v[W_], v[M], v[RHO], s->eps, 0, 0);
}

static bk_mhc_status aggregate(sublayer *s)
{
    return bk_mhc_aggregate(s->v[A_], &s->call, s->v[X], s->v[H_PRE]);
}

static bk_mhc_status aggregate_bwd(sublayer *s)
{
    return bk_mhc_aggregate_bwd(s->v[DH_PRE], s->v[DX], &s->call, s->v[DA], s->v[X], s->v[H_PRE], 0);
}

static bk_mhc_status expand(sublayer *s)
{
    return bk_mhc_expand(s->v[X], &s->call, s->v[Y]);
}

static bk_mhc_status expand_bwd(sublayer *s)
{
    return bk_mhc_expand_bwd(s->v[DY], &s->call, s->v[DX], 0);
}

static bk_mhc_status map_bwd_write(sublayer *s)
{
    return map_bwd(s, 0, 0);
}

typedef bk_mhc_status operator_call(sublayer *s);

/* Each operator, and the arrays that it cannot do without. */
static const struct {
    const char *name;
    operator_call *run;
    int needs[20]; /* ended by -1 */
} operators[] = {
    {"expand", expand, {X, Y, -1}},
    {"expand_bwd", expand_bwd, {DY, DX, -1}},
    {"map", map, {H_PRE, H_POST, H_RES, P, Q, X, W, ALPHA_PRE, ALPHA_POST, ALPHA_RES, BIAS, -1}},
    {"map_bwd",
     map_bwd_write,
     {DX, DW, DALPHA_PRE, DALPHA_POST, DALPHA_RES, DBIAS, DH_PRE, DH_POST, DH_RES, X, W, ALPHA_PRE,
      ALPHA_POST, ALPHA_RES, BIAS, P, Q, -1}},
    {"aggregate", aggregate, {A_, X, H_PRE, -1}},
    {"aggregate_bwd", aggregate_bwd, {DH_PRE, DX, DA, X, H_PRE, -1}},
    {"post", post, {X_NEXT, X, H_RES, H_POST, Y, -1}},
    {"post_bwd", post_bwd, {DX, DH_RES, DH_POST, DY, G, X, H_RES, H_POST, Y, -1}},
    {"contract", contract, {H, W_, M, RHO, S, V, SCALE, BASE, -1}},
    {"contract_bwd", contract_bwd, {DS, DV, DSCALE, DBASE, DH, S, V, SCALE, W_, M, RHO, -1}},
};
enum { N_OPERATORS = sizeof operators / sizeof operators[0] };

/* Every operator refuses the call as it now is, with the status and a message that names it and holds
 * `words`. */
static void all_refuse(refusal *r, bk_mhc_status status, const char *words)
{
    for (int o = 0; o < N_OPERATORS; o++) {
        r->message[0] = 0;
        assert_int_equal(operators[o].run(&r->s), status);
        assert_non_null(strstr(r->message, words));
        assert_memory_equal(r->message, operators[o].name, strlen(operators[o].name));
    }
}

static void test_mhc_api__refuses_a_wrong_call(void **state)
{
    (void)state;
    refusal *r = setup();
    sublayer before = sublayer_make(BK_MHC_F32, 6, 4, 8, 20);
    sublayer_randomise(&before);
    sublayer_forward(&before);
    sublayer_backward(&before, 0);
    const bk_mhc_call good = r->s.call;
    bk_mhc_call *call = &r->s.call;

    const int64_t counts[] = {0, -1, 17, 64, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        call->n = counts[i];
        all_refuse(r, BK_MHC_E_ARGUMENT, "must be 1..16");
    }
    *call = good, call->C = 0;
    all_refuse(r, BK_MHC_E_ARGUMENT, "C is 0");
    *call = good, call->T = -1;
    all_refuse(r, BK_MHC_E_ARGUMENT, "T is -1");
    *call = good, call->T = INT64_MAX / 64;
    all_refuse(r, BK_MHC_E_SIZE, "T*n*C");
    *call = good, call->T = INT64_MAX / 20, call->C = 1, call->n = 1;
    all_refuse(r, BK_MHC_E_SIZE, "too large");
    *call = good, call->C = INT64_MAX / 32;
    all_refuse(r, BK_MHC_E_SIZE, "C is");
    *call = good, call->dtype = BK_MHC_BF16;
    all_refuse(r, BK_MHC_E_UNSUPPORTED, "bf16");
    *call = good, call->dtype = (bk_mhc_dtype)0;
    all_refuse(r, BK_MHC_E_ARGUMENT, "dtype 0");
    *call = good, call->backend = BK_MHC_CUDA;
    all_refuse(r, BK_MHC_E_UNSUPPORTED, "CUDA");
    *call = good, call->backend = (bk_mhc_backend)0;
    all_refuse(r, BK_MHC_E_ARGUMENT, "backend 0");
    *call = good, call->stream = r;
    all_refuse(r, BK_MHC_E_ARGUMENT, "stream");

    *call = good, call->struct_size = 8, r->message[0] = 0;
    for (int o = 0; o < N_OPERATORS; o++) assert_int_equal(operators[o].run(&r->s), BK_MHC_E_ARGUMENT);
    assert_int_equal(r->message[0], 0); /* where the message stands is not known then */
    assert_int_equal(bk_mhc_expand(r->s.v[X], NULL, r->s.v[Y]), BK_MHC_E_ARGUMENT);

    *call = good;
    assert_same_bits(&before, &r->s);
    sublayer_free(&before);
    teardown(r);
}

static void test_mhc_api__refuses_null_pointers(void **state)
{
    (void)state;
    refusal *r = setup();
    for (int o = 0; o < N_OPERATORS; o++)
        for (const int *array = operators[o].needs; *array >= 0; array++) {
            void *kept = r->s.v[*array];
            r->s.v[*array] = NULL;
            assert_int_equal(operators[o].run(&r->s), BK_MHC_E_ARGUMENT);
            assert_non_null(strstr(r->message, "is NULL"));
            r->s.v[*array] = kept;
            assert_int_equal(operators[o].run(&r->s), BK_MHC_OK);
        }
    free(r->s.v[A_]);
    r->s.v[A_] = NULL;
    assert_int_equal(aggregate(&r->s), BK_MHC_E_ARGUMENT);
    assert_string_equal(r->message, "aggregate: a is NULL");
    teardown(r);
}

static void test_mhc_api__refuses_wrong_values(void **state)
{
    (void)state;
    refusal *r = setup();
    sublayer *s = &r->s;
    const int64_t rounds[] = {0, -3, INT64_C(1) << 31};
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        s->iterations = rounds[i];
        assert_int_equal(map(s), BK_MHC_E_ARGUMENT);
        assert_non_null(strstr(r->message, "iterations"));
        assert_int_equal(map_bwd(s, 0, 0), BK_MHC_E_ARGUMENT);
        size_t bytes = 1;
        assert_int_equal(bk_mhc_workspace_size(&bytes, &s->call, BK_MHC_MAP_BWD, rounds[i]),
                         BK_MHC_E_ARGUMENT);
        assert_int_equal(bytes, 1);
    }
    s->iterations = 20;
    assert_int_equal(map_bwd(s, 2, 0), BK_MHC_E_ARGUMENT);
    assert_string_equal(r->message, "map_bwd: add_dx is 2, must be 0 (write) or 1 (add)");
    assert_int_equal(map_bwd(s, 0, -1), BK_MHC_E_ARGUMENT);
    const double epsilons[] = {0, -1e-5, (double)NAN, (double)INFINITY, 1e-60};
    for (size_t i = 0; i < sizeof epsilons / sizeof epsilons[0]; i++) {
        s->eps = epsilons[i];
        assert_int_equal(contract(s), BK_MHC_E_ARGUMENT);
        assert_int_equal(contract_bwd(s), BK_MHC_E_ARGUMENT);
        assert_non_null(strstr(r->message, "eps"));
    }
    assert_int_equal(bk_mhc_workspace_size(&s->call.workspace_bytes, &s->call, (bk_mhc_op)99, 1),
                     BK_MHC_E_ARGUMENT);
    assert_int_equal(bk_mhc_workspace_size(NULL, &s->call, BK_MHC_MAP, 1), BK_MHC_E_ARGUMENT);
    teardown(r);
}

static void test_mhc_api__refuses_a_wrong_dropout(void **state)
{
    (void)state;
    refusal *r = setup();
    const int64_t samples[2] = {0, 1}, negative[2] = {0, -1}, positions[3] = {0, 1, 2},
                  far[3] = {0, 1, INT64_C(1) << 32};
    const bk_mhc_dropout good = {.p = 0.1, .S = 3, .B = 2, .samples = samples, .positions = positions};
    bk_mhc_dropout d = good;
    r->s.dropout = &d;
    assert_int_equal(post(&r->s), BK_MHC_OK);
    const struct {
        bk_mhc_dropout d;
        const char *words;
    } cases[] = {
        {{.p = 1, .S = 3, .B = 2, .samples = samples}, "p is 1"},
        {{.p = -0.5, .S = 3, .B = 2, .samples = samples}, "p is -0.5"},
        {{.p = (double)NAN, .S = 3, .B = 2, .samples = samples}, "p is"},
        {{.p = 0.1, .S = 2, .B = 2, .samples = samples}, "product must be T = 6"},
        {{.p = 0.1, .S = 0, .B = 0, .samples = samples}, "product must be T = 6"},
        {{.p = 0.1, .S = -3, .B = -2, .samples = samples}, "product must be T = 6"},
        {{.p = 0.1, .S = 3, .B = 2}, "samples is NULL"},
        {{.p = 0.1, .S = 3, .B = 2, .samples = negative}, "sample 1 is -1"},
        {{.p = 0.1, .S = 3, .B = 2, .samples = samples, .positions = far}, "position 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        d = cases[i].d;
        assert_int_equal(post(&r->s), BK_MHC_E_ARGUMENT);
        assert_non_null(strstr(r->message, cases[i].words));
        assert_int_equal(post_bwd(&r->s), BK_MHC_E_ARGUMENT);
        assert_non_null(strstr(r->message, cases[i].words));
    }
    d = (bk_mhc_dropout){.p = 0}; /* none: the other fields are not read */
    assert_int_equal(post(&r->s), BK_MHC_OK);
    teardown(r);
}

static void test_mhc_api__refuses_a_small_workspace(void **state)
{
    (void)state;
    refusal *r = setup();
    bk_mhc_call *call = &r->s.call;
    const struct {
        bk_mhc_op op;
        operator_call *run;
    } cases[] = {{BK_MHC_MAP_BWD, map_bwd_write}, {BK_MHC_CONTRACT_BWD, contract_bwd}};
    char *const whole = call->workspace;
    for (int i = 0; i < 2; i++) {
        size_t bytes = 0;
        assert_int_equal(bk_mhc_workspace_size(&bytes, call, cases[i].op, 20), BK_MHC_OK);
        assert_true(bytes > 0);
        call->workspace_bytes = bytes;
        assert_int_equal(cases[i].run(&r->s), BK_MHC_OK);
        call->workspace_bytes = bytes - 1;
        assert_int_equal(cases[i].run(&r->s), BK_MHC_E_WORKSPACE);
        assert_non_null(strstr(r->message, "bk_mhc_workspace_size"));
        call->workspace_bytes = bytes, call->workspace = NULL;
        assert_int_equal(cases[i].run(&r->s), BK_MHC_E_WORKSPACE);
        call->workspace = whole + 1;
        assert_int_equal(cases[i].run(&r->s), BK_MHC_E_WORKSPACE);
        assert_non_null(strstr(r->message, "aligned"));
        call->workspace = whole;
    }
    const bk_mhc_op without[] = {BK_MHC_EXPAND,        BK_MHC_EXPAND_BWD, BK_MHC_MAP,      BK_MHC_AGGREGATE,
                                 BK_MHC_AGGREGATE_BWD, BK_MHC_POST,       BK_MHC_POST_BWD, BK_MHC_CONTRACT};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        size_t bytes = 1;
        assert_int_equal(bk_mhc_workspace_size(&bytes, call, without[i], 20), BK_MHC_OK);
        assert_int_equal(bytes, 0);
    }
    teardown(r);
}

/* Sizes near the limits are computed, not wrapped. */
static void test_mhc_api__workspace_sizes_do_not_wrap(void **state)
{
    (void)state;
    bk_mhc_call call = {.struct_size = sizeof call, .backend = BK_MHC_CPU, .dtype = BK_MHC_F64};
    call.C = 1, call.n = 16;
    call.T = INT64_MAX / 16 / 292; /* n*n + 2n + 4 */
    size_t bytes = 0;
    assert_int_equal(bk_mhc_workspace_size(&bytes, &call, BK_MHC_MAP_BWD, INT32_MAX), BK_MHC_OK);
    assert_true(bytes / 8 / 289 >= (size_t)call.T && bytes < (size_t)INT64_MAX);
    call.T += INT64_C(1) << 40;
    assert_int_equal(bk_mhc_workspace_size(&bytes, &call, BK_MHC_MAP_BWD, INT32_MAX), BK_MHC_E_SIZE);
}

/* The message is cut at its buffer, ends, and may be absent. */
static void test_mhc_api__message_fits_its_buffer(void **state)
{
    (void)state;
    refusal *r = setup();
    r->s.call.n = 17;
    memset(r->message, 'x', sizeof r->message);
    r->s.call.message_bytes = 5;
    assert_int_equal(expand(&r->s), BK_MHC_E_ARGUMENT);
    assert_memory_equal(r->message, "expa\0x", 6);
    r->s.call.message_bytes = 0;
    assert_int_equal(expand(&r->s), BK_MHC_E_ARGUMENT);
    assert_int_equal(r->message[0], 'e');
    r->s.call.message = NULL, r->s.call.message_bytes = 10;
    assert_int_equal(expand(&r->s), BK_MHC_E_ARGUMENT);
    teardown(r);
}

static void test_mhc_api__version_is_that_of_the_header(void **state)
{
    (void)state;
    assert_int_equal(bk_mhc_abi_version(), BK_MHC_ABI_VERSION);
}

/* The header alone, in both languages, without a warning. */
static void compile(const char *compiler, const char *flags)
{
    char command[2048];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", compiler);
    if (system(command) != 0) {
        print_message("no %s on this machine: the public header was not compiled with it\n", compiler);
        skip();
    }
    snprintf(command, sizeof command,
             "echo '#include <birkhoff/mhc.h>' | %s %s -Wall -Wextra -pedantic -Werror -fsyntax-only "
             "-I'%s/include' -",
             compiler, flags, BK_SOURCE_DIR);
    assert_int_equal(system(command), 0);
}

static void test_mhc_api__header_compiles_as_c(void **state)
{
    (void)state;
    compile("cc", "-std=c17 -x c");
}

static void test_mhc_api__header_compiles_as_cpp(void **state)
{
    (void)state;
    compile("c++", "-std=c++17 -x c++");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc_api__refuses_a_wrong_call),
        cmocka_unit_test(test_mhc_api__refuses_null_pointers),
        cmocka_unit_test(test_mhc_api__refuses_wrong_values),
        cmocka_unit_test(test_mhc_api__refuses_a_wrong_dropout),
        cmocka_unit_test(test_mhc_api__refuses_a_small_workspace),
        cmocka_unit_test(test_mhc_api__workspace_sizes_do_not_wrap),
        cmocka_unit_test(test_mhc_api__message_fits_its_buffer),
        cmocka_unit_test(test_mhc_api__version_is_that_of_the_header),
        cmocka_unit_test(test_mhc_api__header_compiles_as_c),
        cmocka_unit_test(test_mhc_api__header_compiles_as_cpp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
