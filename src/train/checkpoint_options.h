/* Inside the checkpoints: the configuration as options of a manifest. */
#ifndef BK_TRAIN_CHECKPOINT_OPTIONS_H
#define BK_TRAIN_CHECKPOINT_OPTIONS_H

#include "config/config.h"
#include "train/manifest.h"

/* Fills m->option with every option that has a field, in the order of the table; memory from m->arena.
 * BK_E_MEM. */
bk_status bk_checkpoint_options(bk_manifest *m, const bk_config *c, bk_err *e);

/* What bk_checkpoint_config and bk_checkpoint_config_diff do, from a manifest; `where` is the origin of the
 * options in messages. */
bk_status bk_checkpoint_options_apply(bk_config *out, const bk_manifest *m, const char *where, bk_err *e);
void bk_checkpoint_options_diff(bk_str *out, const bk_manifest *m, const bk_config *c);

#endif
