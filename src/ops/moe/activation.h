/* The activation of experts; shared by the rules and the kernels of both scalar types. */
#ifndef BK_OPS_MOE_ACTIVATION_H
#define BK_OPS_MOE_ACTIVATION_H

#include <stdbool.h>

/* swiglu of [R, 2f], otherwise gelu of [R, f] in its tanh or exact form. */
typedef struct {
    bool swiglu, tanh_form;
} bk_expert_activation;

#endif
