/* The whole trainer on data of which it is known how well they can be predicted: a chain of order 2, whose
 * next token depends on the last two. From the last one alone, which is all that a model without attention
 * sees, nobody does better than lower_entropy. */
#include "train/loop_run.h"

/* The largest excess of the held-out loss over the entropy. With these options it is about 1.5%. */
static const double tolerance = 0.02;

static const char *const options =
    "num_layers: 1\nhidden_size: 64\nnum_attention_heads: 2\nffn_hidden_size: 512\nseq_length: 128\n"
    "vocab_size: 16\ninit_method_std: 0.1\nhidden_dropout: 0\nattention_dropout: 0\n"
    "data_path: markov:2:16\nmicro_batch_size: 8\ntrain_iters: 800\nlr: 0.005\nmin_lr: 0.0001\n"
    "lr_decay_style: cosine\nlr_warmup_fraction: 0.05\nweight_decay: 0\nadam_beta2: 0.98\n"
    "eval_interval: 100000\neval_iters: 20\n";

/* Hundreds of steps of this model take seconds in a fast build, and minutes in the others. */
static void needs_a_fast_build(void)
{
#if defined(BK_SANITIZED) || !defined(__OPTIMIZE__)
    print_message("test_learns_markov: a sanitized or unoptimised build is too slow for a whole training\n");
    skip();
#endif
}

static void zero_attention(loop_run *t)
{
    const bk_program *p = &t->run.session.program[BK_RUN_TRAIN];
    int n = 0;
    for (bk_pid k = 0; k < p->g->n_params; k++) {
        const bk_param *w = &p->g->param[k];
        if (!strstr(w->name, "self_attention.linear_proj.weight")) continue;
        memset(bk_exec_value(t->run.session.exec, p->p, w->value), 0,
               (size_t)bk_value_bytes(&p->g->value[w->value]));
        n++;
    }
    assert_int_equal(n, t->c.num_layers);
}

/* The held-out loss after training, and the chain. */
static double train(double *entropy, double *lower_entropy, bool attention)
{
    static loop_run t;
    bk_err e = {0};
    loop_config(&t, options);
    ok(loop_open(&t, &e), &e);
    if (!attention) t.after_step = zero_attention, zero_attention(&t);
    ok(bk_train(&t.end, &t.run, &t.log, &e), &e);
    *entropy = t.run.data.markov.entropy, *lower_entropy = t.run.data.markov.lower_entropy;
    loop_close(&t);
    assert_int_equal(t.n_evaluations, 1);
    print_message("entropy %.4f, %.4f from one token less; held-out loss %.4f\n", *entropy, *lower_entropy,
                  t.valid_loss[0]);
    return t.valid_loss[0];
}

static void test_learns_markov__reaches_the_entropy(void **state)
{
    (void)state;
    double entropy, lower_entropy;
    needs_a_fast_build();
    const double loss = train(&entropy, &lower_entropy, true);
    assert_true(lower_entropy > entropy + 0.5);
    assert_true(loss < (1 + tolerance) * entropy);
    /* No expected loss is below the entropy; the mean over 20,480 tokens has a standard error of about 0.4%.
     */
    assert_true(loss > 0.99 * entropy);
}

/* The same run learns all that one token tells, and no more. */
static void test_learns_markov__does_not_without_attention(void **state)
{
    (void)state;
    double entropy, lower_entropy;
    needs_a_fast_build();
    const double loss = train(&entropy, &lower_entropy, false);
    assert_false(loss < (1 + tolerance) * entropy);
    assert_true(loss > 0.99 * lower_entropy);
    assert_true(loss < (1 + tolerance) * lower_entropy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns_markov__reaches_the_entropy),
        cmocka_unit_test(test_learns_markov__does_not_without_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
