#include "train/lr.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Share of (lr - min_lr) that is left at part r in [0, 1] of the WSD tail. */
static double wsd_tail(bk_wsd_decay_style style, double r)
{
    switch (style) {
    case BK_WSD_EXPONENTIAL:
        return 2 * pow(0.5, r) - 1;
    case BK_WSD_LINEAR:
        return 1 - r;
    case BK_WSD_COSINE:
        return 0.5 * (1 + cos(pi * r));
    case BK_WSD_MINUS_SQRT:
        return 1 - sqrt(r);
    }
    return 0;
}

double bk_learning_rate(const bk_config *c, int64_t n_samples)
{
    const double n = (double)n_samples, batch = (double)c->global_batch_size;
    const double decay = c->lr_decay_iters == BK_UNSET_COUNT ? 0 : (double)c->lr_decay_iters * batch;
    /* A fraction of 0 says no more than one that is not given (NaN). */
    const double warmup =
        c->lr_warmup_fraction > 0 ? c->lr_warmup_fraction * decay : (double)c->lr_warmup_iters * batch;
    if (warmup > 0 && n <= warmup) return c->lr_warmup_init + (c->lr - c->lr_warmup_init) * n / warmup;
    if (c->lr_decay_style == BK_LR_CONSTANT) return c->lr;
    if (n >= decay) return c->min_lr; /* at decay itself every curve has arrived; there may be no span */
    const double span = c->lr - c->min_lr, r = (n - warmup) / (decay - warmup);
    switch (c->lr_decay_style) {
    case BK_LR_CONSTANT:
        break;
    case BK_LR_LINEAR:
        return c->min_lr + span * (1 - r);
    case BK_LR_COSINE:
        return c->min_lr + span * 0.5 * (1 + cos(pi * r));
    case BK_LR_WSD: {
        const double tail = (double)c->lr_wsd_decay_iters * batch, start = decay - tail;
        return n <= start ? c->lr : c->min_lr + span * wsd_tail(c->lr_wsd_decay_style, (n - start) / tail);
    }
    }
    return c->lr;
}
