/* Hand-checked numbers of the mHC operators, in both types, through the public API. */
#include "mhc/sublayer.h"

/* The numbers below have eight digits; float adds its own rounding over up to 40 normalisations. */
static double tolerance(bk_mhc_dtype dtype)
{
    return dtype == BK_MHC_F64 ? 1e-8 : 1e-6;
}

static const bk_mhc_dtype dtypes[] = {BK_MHC_F32, BK_MHC_F64};

/* Two streams of two channels through every operator. */
static void test_mhc_vectors__two_streams(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        sublayer s = sublayer_make(dtypes[k], 1, 2, 2, 20);
        set_values(&s, X, LIST(1, 2, -1, 0.5));
        set_values(&s, S, LIST(1, 2, -1, 0.5));
        for (int o = 0; o < 8; o++) {
            for (int i = 0; i < 4; i++) set(&s, W, o * 4 + i, 0.1 * ((o + 1) * (i + 1) % 5 - 2));
            set(&s, BIAS, o, 0.1 * o - 0.3);
        }
        fill(&s, ALPHA_PRE, 0.5), fill(&s, ALPHA_POST, 0.25), fill(&s, ALPHA_RES, 1);
        set_values(&s, Y, LIST(0.3, -0.7));
        set_values(&s, D, LIST(0.1, 0.2));
        set_values(&s, V, LIST(.2, -.1, .3, 0, 0, .1, -.2, .4));
        fill(&s, SCALE, 0.5);
        set_values(&s, BASE, LIST(.1, -.2));
        sublayer_forward(&s);
        const double tol = tolerance(dtypes[k]);
        assert_near(&s, tol, Q, LIST(1.25));
        assert_near(&s, tol, H_PRE, LIST(0.41581048, 0.50500079));
        assert_near(&s, tol, H_POST, LIST(0.92017025, 1.03498569));
        assert_near(&s, tol, H_RES, LIST(0.37754063, 0.62245837, 0.62245837, 0.37754063));
        assert_near(&s, tol, A_, LIST(-0.0891903, 1.08412136));
        assert_near(&s, 2 * tol, X_NEXT, LIST(0.12315036, 0.60622532, 0.65891201, 0.91619421));
        assert_near(&s, tol, RHO, LIST(.79999744));
        assert_near(&s, tol, W_, LIST(.49501026, .51000847));
        assert_near(&s, tol, H, LIST(-.01499821, 1.24502476));
        sublayer_free(&s);
    }
}

/* One token whose residual logits are given: W = 0 leaves the bias. Backward from dh_res unless that is NULL.
 */
static sublayer balance(bk_mhc_dtype dtype, int64_t n, int64_t iterations, const double *logits,
                        const double *dh_res)
{
    sublayer s = sublayer_make(dtype, 1, n, 1, iterations);
    sublayer_randomise(&s);
    fill(&s, W, 0);
    for (int64_t e = 0; e < n * n; e++) set(&s, BIAS, 2 * n + e, logits[e]);
    sublayer_forward(&s);
    if (dh_res) {
        void **v = s.v;
        set_values(&s, DH_RES, dh_res, (size_t)(n * n));
        fill(&s, DH_PRE, 0), fill(&s, DH_POST, 0);
        assert_int_equal(0,
                         bk_mhc_map_bwd(v[DX], v[DW], v[DALPHA_PRE], v[DALPHA_POST], v[DALPHA_RES], v[DBIAS],
                                        &s.call, v[DH_PRE], v[DH_POST], v[DH_RES], v[X], v[W], v[ALPHA_PRE],
                                        v[ALPHA_POST], v[ALPHA_RES], v[BIAS], v[P], v[Q], iterations, 0, 0));
    }
    return s;
}

static double logit_grad(const sublayer *s, int64_t e)
{
    return get(s, DBIAS, 2 * s->call.n + e);
}

static void test_mhc_vectors__sinkhorn_rounds(void **state)
{
    (void)state;
    const double logits[9] = {0.5, -1, 2, 0, 0, 0, 3, 1, -2}, weight[9] = {1, 0, 0, 0, 2, 0, 0, 0, 3};
    const int64_t rounds[3] = {1, 2, 20};
    const double matrix[3][9] = {
        {.12663474, .07966923, .69841235, .24080878, .67895841, .29634088, .63255576, .24137032, .00524588},
        {.13236362, .09562289, .75563456, .18725287, .60625425, .23852387, .68038256, .29812177, .00584060},
        {.13441108, .09930926, .76627866, .17910568, .59305792, .22783540, .68648224, .30763183, .00588494}};
    const double grad[9] = {.05987014,  -.11539707, .05552693,  -.17350275, .25135057,
                            -.07784782, .11363469,  -.13594992, .02231523};
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < 3; r++) {
            sublayer s = balance(dtypes[k], 3, rounds[r], logits, weight);
            assert_near(&s, tolerance(dtypes[k]), H_RES, matrix[r], 9);
            for (int e = 0; e < 9 && rounds[r] == 20; e++)
                assert_close(logit_grad(&s, e), grad[e], tolerance(dtypes[k]));
            sublayer_free(&s);
        }
}

static const double MATRIX[16] = {2, 0, -1, 0.5, 0.3, 1.5, 0, -0.7, -2, 0.1, 1, 0.2, 0, -0.4, 0.6, 3};
static const double WEIGHT[16] = {1, -2, 0.5, 3, 0, 1, -1, 2, 2, 0.5, 1, -1, -3, 1, 0, 0.25};

/* The gradient is that of the finite iteration, not of its limit: it depends on the number of rounds. */
static void test_mhc_vectors__sinkhorn_gradient_of_few_rounds(void **state)
{
    (void)state;
    const int64_t rounds[3] = {1, 2, 20};
    const double weighted[3] = {2.2157884, 2.1364684, 2.0752808};
    const double row[3][4] = {{0.0407218, -0.2900074, -0.0115947, 0.2608803},
                              {0.1293743, -0.3102197, -0.0141389, 0.1949843},
                              {0.1865795, -0.3245285, -0.0212801, 0.1592291}};
    const double columns[4] = {-0.19, -0.0074, -0.0206,
                               0.218}; /* of one round; as many digits as were given */
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < 3; r++) {
            sublayer s = balance(dtypes[k], 4, rounds[r], MATRIX, WEIGHT);
            double sum = 0;
            for (int e = 0; e < 16; e++) sum += WEIGHT[e] * get(&s, H_RES, e);
            const double tol = dtypes[k] == BK_MHC_F64 ? 6e-8 : 2e-6; /* seven decimals were given */
            assert_close(sum, weighted[r], tol);
            for (int i = 0; i < 4; i++) assert_close(logit_grad(&s, i), row[r][i], tol);
            for (int j = 0; j < 4; j++) {
                double row_sum = 0, column_sum = 0;
                for (int i = 0; i < 4; i++)
                    row_sum += logit_grad(&s, 4 * j + i), column_sum += logit_grad(&s, 4 * i + j);
                assert_close(row_sum, 0, dtypes[k] == BK_MHC_F64 ? 1e-15 : 3e-7);
                if (rounds[r] == 1) assert_close(column_sum, columns[j], 6e-4);
            }
            sublayer_free(&s);
        }
}

static void test_mhc_vectors__sinkhorn_of_every_size(void **state)
{
    (void)state;
    const struct {
        int64_t n;
        double first;
    } cases[] = {{1, 0.99999900}, {2, 0.43782319}, {3, 0.27956588},
                 {5, 0.16212038}, {8, 0.10349019}, {16, 0.05198167}};
    for (int k = 0; k < 2; k++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            const int n = (int)cases[c].n;
            double logits[256];
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) logits[i * n + j] = 0.1 * ((7 * i + 3 * j) % 5);
            sublayer s = balance(dtypes[k], n, 20, logits, NULL);
            assert_close(get(&s, H_RES, 0), cases[c].first, tolerance(dtypes[k]));
            sublayer_free(&s);
        }
}

/* Both marginals for every n up to the limit: columns are exact to the epsilon, rows in the limit. */
static void test_mhc_vectors__sinkhorn_marginals(void **state)
{
    (void)state;
    for (int n = 1; n <= BK_MHC_MAX_STREAMS; n++) {
        double logits[256];
        for (int e = 0; e < n * n; e++) logits[e] = sin(1.7 * e);
        sublayer s = balance(BK_MHC_F64, n, 60, logits, NULL);
        for (int j = 0; j < n; j++) {
            double row = 0, column = 0;
            for (int i = 0; i < n; i++) row += get(&s, H_RES, j * n + i), column += get(&s, H_RES, i * n + j);
            assert_close(column, 1 / (1 + 1e-6), 1e-11);
            assert_close(row, 1, 3e-6); /* each step leaves out one epsilon */
        }
        sublayer_free(&s);
    }
}

static void test_mhc_vectors__sinkhorn_of_extreme_logits(void **state)
{
    (void)state;
    double diagonal[16] = {0}, same[16], cycle[16];
    for (int e = 0; e < 16; e++) same[e] = 500, cycle[e] = -1e4;
    for (int j = 0; j < 4; j++) diagonal[5 * j] = 1000, cycle[4 * j + (j + 1) % 4] = 0;
    const double *logits[3] = {diagonal, same, cycle};
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < 3; c++) {
            sublayer s = balance(dtypes[k], 4, 20, logits[c], WEIGHT);
            for (int e = 0; e < 16; e++) {
                const int large = c == 0 ? e % 5 == 0 : (e / 4 + 1) % 4 == e % 4;
                const double want = c == 1 ? 0.24999975 : large ? 0.999996 : 1e-6;
                assert_close(get(&s, H_RES, e), want, c == 1 || !large ? 1e-7 : 1e-6);
                assert_true(isfinite(logit_grad(&s, e)));
            }
            sublayer_free(&s);
        }
}

/* Mixed streams from the transpose of h_res, in forward; not transposed in backward. */
static void test_mhc_vectors__orientation_of_a_balanced_matrix(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        sublayer s = balance(dtypes[k], 4, 20, MATRIX, NULL);
        set_values(&s, X, LIST(1, 2, 3, 4));
        set_values(&s, G, LIST(1, 2, 3, 4));
        fill(&s, Y, 0), fill(&s, D, 0);
        assert_int_equal(
            0, bk_mhc_post(s.v[X_NEXT], &s.call, s.v[X], s.v[H_RES], s.v[H_POST], s.v[Y], s.v[D], NULL));
        const double tol = dtypes[k] == BK_MHC_F64 ? 6e-8 : 1e-6;
        assert_near(&s, tol, X_NEXT, LIST(1.4067223, 2.1979618, 2.8868048, 3.5085008));
        assert_int_equal(0,
                         bk_mhc_post_bwd(s.v[DX], s.v[DH_RES], s.v[DH_POST], s.v[DY], NULL, &s.call, s.v[G],
                                         s.v[X], s.v[H_RES], s.v[H_POST], s.v[Y], NULL, NULL, 0, 0));
        assert_near(&s, tol, DX, LIST(1.5003015, 2.0696707, 2.8626506, 3.5673672));
        sublayer_free(&s);
    }
}

static void test_mhc_vectors__mixed_streams_of_three(void **state)
{
    (void)state;
    sublayer s = balance(BK_MHC_F64, 3, 20, (double[]){0.5, -1, 2, 0, 0, 0, 3, 1, -2}, NULL);
    set_values(&s, X, LIST(1, 2, 4));
    fill(&s, Y, 0), fill(&s, D, 0);
    assert_int_equal(
        0, bk_mhc_post(s.v[X_NEXT], &s.call, s.v[X], s.v[H_RES], s.v[H_POST], s.v[Y], s.v[D], NULL));
    assert_near(&s, 6e-8, X_NEXT, LIST(3.2385514, 2.5159524, 1.2454892));
    sublayer_free(&s);
}

/* Small integers: exact in every type, and different under each transposition. */
static void test_mhc_vectors__post_in_integers(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        sublayer s = sublayer_make(dtypes[k], 1, 3, 2, 1);
        set_values(&s, H_RES, LIST(1, 2, 3, 4, 5, 6, 7, 8, 9));
        set_values(&s, X, LIST(1, 10, 2, 20, 3, 30));
        set_values(&s, H_POST, LIST(1, 2, 3));
        set_values(&s, Y, LIST(5, 7));
        set_values(&s, D, LIST(1, -1));
        set_values(&s, G, LIST(1, 0, 0, 2, 3, 1));
        void **v = s.v;
        assert_int_equal(0, bk_mhc_post(v[X_NEXT], &s.call, v[X], v[H_RES], v[H_POST], v[Y], v[D], NULL));
        assert_near(&s, 0, X_NEXT, LIST(30 + 6, 300 + 6, 36 + 12, 360 + 12, 42 + 18, 420 + 18));
        assert_int_equal(0, bk_mhc_post_bwd(v[DX], v[DH_RES], v[DH_POST], v[DY], v[DD], &s.call, v[G], v[X],
                                            v[H_RES], v[H_POST], v[Y], v[D], NULL, 0, 0));
        assert_near(&s, 0, DX, LIST(1 + 9, 4 + 3, 4 + 18, 10 + 6, 7 + 27, 16 + 9));
        assert_near(&s, 0, DH_RES, LIST(1, 20, 13, 2, 40, 26, 3, 60, 39));
        assert_near(&s, 0, DH_POST, LIST(6, 12, 24));
        assert_near(&s, 0, DY, LIST(1 + 9, 4 + 3));
        assert_near(&s, 0, DD, LIST(10, 7));
        sublayer_free(&s);

        s = sublayer_make(dtypes[k], 1, 2, 2, 1);
        set_values(&s, H_RES, LIST(1, 2, 3, 4));
        set_values(&s, X, LIST(10, 100, 1, 2));
        fill(&s, H_POST, 0), fill(&s, Y, 1);
        assert_int_equal(
            0, bk_mhc_post(s.v[X_NEXT], &s.call, s.v[X], s.v[H_RES], s.v[H_POST], s.v[Y], NULL, NULL));
        assert_near(&s, 0, X_NEXT, LIST(13, 106, 24, 208));
        sublayer_free(&s);
    }
}

static void test_mhc_vectors__expand_and_aggregate_in_integers(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        sublayer s = sublayer_make(dtypes[k], 2, 3, 2, 1);
        void **v = s.v;
        set_values(&s, Y, LIST(1, 2, 3, 4));
        assert_int_equal(0, bk_mhc_expand(v[X], &s.call, v[Y]));
        assert_near(&s, 0, X, LIST(1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4));
        set_values(&s, G, LIST(1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60));
        assert_int_equal(0, bk_mhc_expand_bwd(v[DY], &s.call, v[G], 0));
        assert_near(&s, 0, DY, LIST(9, 12, 90, 120));
        assert_int_equal(0, bk_mhc_expand_bwd(v[DY], &s.call, v[G], 1));
        assert_near(&s, 0, DY, LIST(18, 24, 180, 240));

        set_values(&s, H_PRE, LIST(1, 2, 3, -1, 0, 1));
        assert_int_equal(0, bk_mhc_aggregate(v[A_], &s.call, v[G], v[H_PRE]));
        assert_near(&s, 0, A_, LIST(22, 28, 40, 40));
        set_values(&s, DA, LIST(1, 2, -1, 1));
        assert_int_equal(0, bk_mhc_aggregate_bwd(v[DH_PRE], v[DX], &s.call, v[DA], v[G], v[H_PRE], 0));
        assert_near(&s, 0, DH_PRE, LIST(5, 11, 17, 10, 10, 10));
        assert_near(&s, 0, DX, LIST(1, 2, 2, 4, 3, 6, 1, -1, 0, 0, -1, 1));
        sublayer_free(&s);
    }
}

/* Rows of h_res sum to 1, so with y = 0 the sum over streams is kept. */
static void test_mhc_vectors__post_keeps_the_sum_over_streams(void **state)
{
    (void)state;
    sublayer s = sublayer_make(BK_MHC_F32, 33, 4, 19, 40);
    sublayer_randomise(&s);
    fill(&s, Y, 0), fill(&s, D, 0);
    sublayer_forward(&s);
    for (int64_t t = 0; t < 33; t++)
        for (int64_t c = 0; c < 19; c++) {
            double before = 0, after = 0;
            for (int64_t j = 0; j < 4; j++)
                before += get(&s, X, (t * 4 + j) * 19 + c), after += get(&s, X_NEXT, (t * 4 + j) * 19 + c);
            assert_close(before, after, 3e-5); /* four streams up to 1.7, rows to 4e-6 */
        }
    sublayer_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc_vectors__two_streams),
        cmocka_unit_test(test_mhc_vectors__sinkhorn_rounds),
        cmocka_unit_test(test_mhc_vectors__sinkhorn_gradient_of_few_rounds),
        cmocka_unit_test(test_mhc_vectors__sinkhorn_of_every_size),
        cmocka_unit_test(test_mhc_vectors__sinkhorn_marginals),
        cmocka_unit_test(test_mhc_vectors__sinkhorn_of_extreme_logits),
        cmocka_unit_test(test_mhc_vectors__orientation_of_a_balanced_matrix),
        cmocka_unit_test(test_mhc_vectors__mixed_streams_of_three),
        cmocka_unit_test(test_mhc_vectors__post_in_integers),
        cmocka_unit_test(test_mhc_vectors__expand_and_aggregate_in_integers),
        cmocka_unit_test(test_mhc_vectors__post_keeps_the_sum_over_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
