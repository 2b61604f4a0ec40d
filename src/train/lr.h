/* The learning rate of a step, as Megatron's scheduler has it: counted in samples, so that a change of the
 * batch keeps the curve. */
#ifndef BK_TRAIN_LR_H
#define BK_TRAIN_LR_H

#include "config/config.h"

/* The rate for the step that begins when `n_samples` samples have been consumed (0 for the first step, whose
 * rate is lr_warmup_init where there is a warm-up). */
double bk_learning_rate(const bk_config *c, int64_t n_samples);

#endif
