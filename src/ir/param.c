#include "ir/param.h"

const char *const bk_param_class_names[BK_N_CLASSES] = {"embedding", "attention", "mlp", "router",
                                                        "experts",   "norm",      "mhc", "output"};
