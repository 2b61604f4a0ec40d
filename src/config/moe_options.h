/* What the list options of mixture of experts say. */
#ifndef BK_CONFIG_MOE_OPTIONS_H
#define BK_CONFIG_MOE_OPTIONS_H

#include "config/config.h"

/* Which of the num_layers decoder layers have experts (`moe_layer_freq`): out[i] for layer i, all false
 * without experts. N means layers 0, N, 2N, ...; otherwise there is a 0 or 1 for each layer, as a list or as
 * Python's expression of lists, "([0]*3+[1]*58)". BK_E_INPUT where it is neither or the number of layers
 * differs. */
bk_status bk_config_moe_layers(bool *out, const bk_config *c, bk_err *e);

/* What a balancing loss compares the experts' shares over. */
typedef enum {
    BK_BALANCE_MICRO_BATCH, /* aux_loss */
    BK_BALANCE_SEQUENCE,    /* seq_aux_loss */
    BK_BALANCE_GLOBAL,      /* global_aux_loss */
    BK_N_BALANCES
} bk_balance_kind;

typedef struct {
    bk_balance_kind kind;
    double coeff; /* above 0 */
} bk_balance;

/* The balancing losses of a MoE layer (`moe_router_load_balancing_type`, `moe_aux_loss_coeff`), each kind at
 * most once; those with a coefficient of 0 are left out. `n` gets how many there are. BK_E_INPUT for an
 * unknown or repeated kind, a coefficient that is no number of at least 0, and where the two options have
 * different lengths. */
bk_status bk_config_balances(bk_balance out[BK_N_BALANCES], int *n, const bk_config *c, bk_err *e);

/* Rows that an expert gets at most from one micro-batch (`moe_expert_capacity_factor` F): min(T, ceil(T k / E
 * * F)) of its T tokens; 0 where nothing is dropped. */
int64_t bk_config_expert_capacity(const bk_config *c);

#endif
