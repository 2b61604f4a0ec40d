#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/kernel_check.h"
#define BK_BOTH "ops/embed/embed_cpu.h"
#include "base/real_both.h"

enum { S = 61, B = 5, C = 70, V = 9, ROWS = 64 };

static void make_tokens(int32_t tokens[B * S])
{
    for (int i = 0; i < B * S; i++)
        tokens[i] = (int32_t)(bk_mix64((uint64_t)i) % (V - 1)); /* the last id never */
}

static void test_embed__looks_up_and_transposes(void **state)
{
    (void)state;
    int32_t tokens[B * S];
    make_tokens(tokens);
    double *w = random_f64(V * C, 1), y[S * B * C];
    float *w32 = to_f32(w, V * C), y32[S * B * C];
    assert_int_equal(bk_embed_word_fwd_f64(y, w, tokens, S, B, C, V), -1);
    assert_int_equal(bk_embed_word_fwd_f32(y32, w32, tokens, S, B, C, V), -1);
    for (int s = 0; s < S; s++)
        for (int b = 0; b < B; b++) {
            assert_memory_equal(y + (s * B + b) * C, w + tokens[b * S + s] * C, sizeof *y * C);
            assert_memory_equal(y32 + (s * B + b) * C, w32 + tokens[b * S + s] * C, sizeof *y32 * C);
        }
    free(w), free(w32);
}

static void test_embed__word_gradient_sums_over_the_tokens_of_an_id(void **state)
{
    (void)state;
    int32_t tokens[B * S];
    make_tokens(tokens);
    double *dy = random_f64(S * B * C, 1), *old = random_f64(V * C, 2), *dw = random_f64(V * C, 2);
    for (int beta = 0; beta < 2; beta++) {
        double want[V * C] = {0};
        if (beta) memcpy(want, old, sizeof want);
        for (int t = 0; t < S * B; t++)
            for (int c = 0; c < C; c++) want[tokens[t % B * S + t / B] * C + c] += dy[t * C + c];
        WITH_THREADS({ /* bit for bit: the order of the sum is part of the contract */
                       memcpy(dw, old, sizeof want);
                       assert_int_equal(bk_embed_word_bwd_f64(dw, dy, tokens, S, B, C, V, beta), -1);
                       assert_memory_equal(dw, want, sizeof want);
        });
    }
    free(dy), free(old), free(dw);
}

static void test_embed__names_the_first_bad_id(void **state)
{
    (void)state;
    int32_t tokens[B * S];
    double *w = random_f64(V * C, 1), *y = random_f64(S * B * C, 2), *kept = random_f64(S * B * C, 2);
    make_tokens(tokens), tokens[13] = V, tokens[17] = -1;
    assert_int_equal(bk_embed_word_fwd_f64(y, w, tokens, S, B, C, V), 13);
    assert_memory_equal(y, kept, sizeof *y * S * B * C);
    make_tokens(tokens), tokens[17] = -1;
    assert_int_equal(bk_embed_word_bwd_f64(w, y, tokens, S, B, C, V, 0), 17);
    assert_int_equal(bk_embed_word_fwd_f64(y, w, tokens, 0, B, C, V), -1); /* no tokens, none bad */
    free(w), free(y), free(kept);
}

static void test_embed__positions(void **state)
{
    (void)state;
    double *x = random_f64(S * B * C, 1), *p = random_f64(ROWS * C, 2), y[S * B * C], dp[ROWS * C];
    bk_embed_position_fwd_f64(y, x, p, S, B, C);
    for (int t = 0; t < S * B; t++)
        for (int c = 0; c < C; c++) assert_true(y[t * C + c] == x[t * C + c] + p[t / B * C + c]);
    for (int beta = 0; beta < 2; beta++) {
        double want[ROWS * C] = {0};
        if (beta) memcpy(want, p, sizeof want);
        for (int t = 0; t < S * B; t++)
            for (int c = 0; c < C; c++) want[t / B * C + c] += x[t * C + c];
        WITH_THREADS({
            memcpy(dp, p, sizeof dp);
            bk_embed_position_bwd_f64(dp, x, S, B, C, ROWS, beta);
            assert_memory_equal(dp, want, sizeof want);
        });
    }
    bk_embed_position_fwd_f64(x, x, p, S, B, C);
    assert_memory_equal(x, y, sizeof y);
    free(x), free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed__looks_up_and_transposes),
        cmocka_unit_test(test_embed__word_gradient_sums_over_the_tokens_of_an_id),
        cmocka_unit_test(test_embed__names_the_first_bad_id),
        cmocka_unit_test(test_embed__positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
