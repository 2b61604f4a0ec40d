/* Initial values of parameters, by the rule in each row of the table. A draw is keyed by (seed, name of the
 * parameter, number of the element in the whole parameter), so it does not depend on the layout. */
#ifndef BK_TRAIN_INIT_H
#define BK_TRAIN_INIT_H

#include "ir/graph.h"

/* Writes the initial values of row p to `dst`, which holds them all in the dtype of its value (f32 or f64).
 */
void bk_param_init(void *dst, const bk_graph *g, bk_pid p, uint64_t seed);

#endif
