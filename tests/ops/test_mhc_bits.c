/* Bits of the mHC operators: the same for any number of threads, any repetition and any company of a token;
 * and a token that is not a number stays alone. */
#include "mhc/sublayer.h"

#include <omp.h>

#include "base/tally.h"
#include "ops/mhc/mhc_sizes.h"

static void run(sublayer *s)
{
    sublayer_randomise(s);
    sublayer_forward(s);
    sublayer_backward(s, 0);
}

static void test_mhc_bits__do_not_depend_on_threads(void **state)
{
    (void)state;
    const int64_t shapes[][3] = {{150, 4, 67}, {70, 3, 33}, {5, 16, 130}, {1, 2, 5}, {200, 1, 9}};
    const int64_t samples[1] = {3};
    const int threads = omp_get_max_threads();
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            sublayer s[3];
            const bk_mhc_dropout dropout = {
                .p = 0.25, .key = {1, 2}, .S = shapes[i][0], .B = 1, .samples = samples};
            for (int team = 0; team < 3; team++) {
                s[team] =
                    sublayer_make(k ? BK_MHC_F64 : BK_MHC_F32, shapes[i][0], shapes[i][1], shapes[i][2], 20);
                if (i % 2 == 0) s[team].dropout = &dropout;
                omp_set_num_threads(team + 1);
                run(&s[team]);
            }
            omp_set_num_threads(threads);
            assert_same_bits(&s[0], &s[1]);
            assert_same_bits(&s[0], &s[2]);
            for (int team = 0; team < 3; team++) sublayer_free(&s[team]);
        }
}

static void test_mhc_bits__repeat(void **state)
{
    (void)state;
    const int64_t tokens[3] = {1, 31, 4097};
    for (int i = 0; i < 3; i++) {
        sublayer first = sublayer_make(BK_MHC_F32, tokens[i], 4, 4, 20);
        sublayer again = sublayer_make(BK_MHC_F32, tokens[i], 4, 4, 20);
        run(&first);
        sublayer_randomise(&again);
        for (int r = 0; r < 200; r++) {
            for (int array = N_INPUTS; array < DA; array++)
                memset(again.v[array], 0xff, (size_t)again.size[array] * scalar_size(&again));
            for (int array = DH_PRE; array < N_ARRAYS; array++)
                memset(again.v[array], 0xff, (size_t)again.size[array] * scalar_size(&again));
            sublayer_forward(&again);
            sublayer_backward(&again, 0);
            assert_same_bits(&first, &again);
        }
        sublayer_free(&first);
        sublayer_free(&again);
    }
}

/* Arrays with one row for each token. */
static const int per_token[] = {DX, DY, DS, H_PRE, H_POST, H_RES,  A_,      X_NEXT, H,
                                P,  Q,  W_, M,     RHO,    DH_PRE, DH_POST, DH_RES};

/* Every token computed alone gives the bits it has among others. */
static void test_mhc_bits__do_not_depend_on_company(void **state)
{
    (void)state;
    const int64_t T = 39;
    for (int k = 0; k < 2; k++) {
        sublayer all = sublayer_make(k ? BK_MHC_F64 : BK_MHC_F32, T, 4, 37, 20);
        run(&all);
        sublayer one = sublayer_make(all.call.dtype, 1, 4, 37, 20);
        const size_t bytes = scalar_size(&all);
        for (int64_t t = 0; t < T; t++) {
            sublayer_randomise(&one);
            const int rows[] = {X, S, Y, DA, G, DH};
            for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                memcpy(one.v[rows[i]], (const char *)all.v[rows[i]] + (size_t)(t * one.size[rows[i]]) * bytes,
                       (size_t)one.size[rows[i]] * bytes);
            sublayer_forward(&one);
            sublayer_backward(&one, 0);
            for (size_t i = 0; i < sizeof per_token / sizeof per_token[0]; i++) {
                const int array = per_token[i];
                assert_memory_equal(one.v[array],
                                    (const char *)all.v[array] + (size_t)(t * one.size[array]) * bytes,
                                    (size_t)one.size[array] * bytes);
            }
        }
        sublayer_free(&all);
        sublayer_free(&one);
    }
}

static void test_mhc_bits__a_nan_stays_in_its_token(void **state)
{
    (void)state;
    const int64_t T = 23, bad = 9;
    sublayer clean = sublayer_make(BK_MHC_F32, T, 4, 21, 20), dirty = sublayer_make(BK_MHC_F32, T, 4, 21, 20);
    run(&clean);
    sublayer_randomise(&dirty);
    set(&dirty, X, bad * 84 + 5, (double)NAN), set(&dirty, S, bad * 84 + 5, (double)NAN);
    sublayer_forward(&dirty);
    sublayer_backward(&dirty, 0);
    assert_true(isnan(get(&dirty, H_RES, bad * 16)));
    assert_true(isnan(get(&dirty, H, bad * 21)));
    for (size_t i = 0; i < sizeof per_token / sizeof per_token[0]; i++) {
        const int array = per_token[i];
        const size_t row = (size_t)(clean.size[array] / T) * sizeof(float);
        for (int64_t t = 0; t < T; t++)
            if (t != bad)
                assert_memory_equal((const char *)clean.v[array] + (size_t)t * row,
                                    (const char *)dirty.v[array] + (size_t)t * row, row);
    }
    sublayer_free(&clean);
    sublayer_free(&dirty);
}

/* The mask is the documented function of key, sample, position and element. */
static void test_mhc_bits__dropout_draws_what_it_says(void **state)
{
    (void)state;
    enum { S_ = 3, B_ = 2, n_ = 3, C_ = 301 };
    const int64_t samples[B_] = {11, INT64_C(5) << 33}, positions[S_] = {4, 0, 4000000000};
    const bk_rng_key key = bk_rng_key_make(9, BK_RNG_DROPOUT, 2, 1);
    for (int with_positions = 0; with_positions < 2; with_positions++) {
        sublayer s = sublayer_make(BK_MHC_F64, S_ * B_, n_, C_, 1);
        const bk_mhc_dropout dropout = {.p = 0.5,
                                        .key = {key.k[0], key.k[1]},
                                        .S = S_,
                                        .B = B_,
                                        .samples = samples,
                                        .positions = with_positions ? positions : NULL};
        fill(&s, X, 0), fill(&s, H_RES, 0), fill(&s, H_POST, 1), fill(&s, Y, 1), fill(&s, D, 0.5);
        assert_int_equal(
            0, bk_mhc_post(s.v[X_NEXT], &s.call, s.v[X], s.v[H_RES], s.v[H_POST], s.v[Y], s.v[D], &dropout));
        for (int64_t t = 0; t < S_ * B_; t++)
            for (int64_t e = 0; e < n_ * C_; e++) {
                uint32_t word[4];
                const uint32_t position = (uint32_t)(with_positions ? positions[t / B_] : t / B_);
                bk_rng_block(word, key, (uint64_t)samples[t % B_], position, (uint32_t)(e / 4));
                const double want = word[e % 4] >= bk_dropout_threshold(0.5) ? 3 : 0;
                assert_true(get(&s, X_NEXT, t * n_ * C_ + e) == want);
            }
        sublayer_free(&s);
    }
}

/* Parameter gradients of no tokens: zero where they are written, as they were where they are added. */
static void test_mhc_bits__no_tokens(void **state)
{
    (void)state;
    const int parameters[] = {DW, DALPHA_PRE, DALPHA_POST, DALPHA_RES, DBIAS, DD, DV, DSCALE, DBASE};
    for (int add = 0; add < 2; add++) {
        sublayer s = sublayer_make(BK_MHC_F32, 0, 4, 64, 20);
        sublayer_randomise(&s);
        for (int array = 0; array < N_ARRAYS; array++)
            if (s.size[array] == 0) free(s.v[array]), s.v[array] = NULL;
        for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++)
            fill(&s, parameters[i], add ? 7 : (double)NAN);
        sublayer_forward(&s);
        sublayer_backward(&s, add);
        for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++)
            for (int64_t e = 0; e < s.size[parameters[i]]; e++)
                assert_true(get(&s, parameters[i], e) == (add ? 7 : 0));
        sublayer_free(&s);
    }
}

static void test_mhc_bits__multiply_adds_are_counted(void **state)
{
    (void)state;
    sublayer s = sublayer_make(BK_MHC_F32, 17, 3, 5, 2);
    sublayer_randomise(&s);
    bk_tally_madds = 0;
    sublayer_forward(&s);
    assert_int_equal(bk_tally_madds, 17 * 15 * 15 + 17 * 3 * 15);
    assert_int_equal(bk_tally_madds, bk_mhc_map_madds(17, 3, 5) + bk_mhc_contract_madds(17, 3, 5));
    bk_tally_madds = 0;
    sublayer_backward(&s, 0);
    assert_int_equal(bk_tally_madds, bk_mhc_map_bwd_madds(17, 3, 5) + bk_mhc_contract_bwd_madds(17, 3, 5));
    sublayer_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc_bits__do_not_depend_on_threads),
        cmocka_unit_test(test_mhc_bits__repeat),
        cmocka_unit_test(test_mhc_bits__do_not_depend_on_company),
        cmocka_unit_test(test_mhc_bits__a_nan_stays_in_its_token),
        cmocka_unit_test(test_mhc_bits__dropout_draws_what_it_says),
        cmocka_unit_test(test_mhc_bits__no_tokens),
        cmocka_unit_test(test_mhc_bits__multiply_adds_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
