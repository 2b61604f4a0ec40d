#include "base/mesh.h"

const char *const bk_axis_names[BK_N_AXES] = {"tp", "cp", "dp", "ep", "edp"};
