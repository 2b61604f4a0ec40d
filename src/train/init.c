#include "train/init.h"

#include <math.h>

#include "base/hash.h"
#include "base/philox.h"

static const double pi = 3.14159265358979323846;

/* Four draws of one counter: uniform in (0, 1). */
static void unit4(double u[4], bk_rng_key key, int64_t block)
{
    uint32_t w[4];
    bk_rng_block(w, key, (uint64_t)block >> 32, 0, (uint32_t)block);
    for (int k = 0; k < 4; k++) u[k] = bk_rng_unit(w[k]);
}

/* Two normals from two uniforms (Box and Muller, 1958). */
static void normal2(double z[2], const double u[2])
{
    const double r = sqrt(-2 * log(u[0]));
    z[0] = r * cos(2 * pi * u[1]), z[1] = r * sin(2 * pi * u[1]);
}

static void draw4(double x[4], const bk_param *row, bk_rng_key key, int64_t block)
{
    if (row->init == BK_INIT_NORMAL || row->init == BK_INIT_XAVIER) {
        double u[4];
        unit4(u, key, block);
        if (row->init == BK_INIT_NORMAL) {
            normal2(x, u), normal2(x + 2, u + 2);
            for (int k = 0; k < 4; k++) x[k] *= row->init_arg;
            return;
        }
        const double a = sqrt(6.0 / ((double)row->shape[0] + (double)row->shape[1]));
        for (int k = 0; k < 4; k++) x[k] = a * (2 * u[k] - 1);
        return;
    }
    const double all = row->init == BK_INIT_CONST ? row->init_arg : row->init == BK_INIT_ONE ? 1 : 0;
    for (int k = 0; k < 4; k++) x[k] = all;
}

void bk_param_init(void *dst, const bk_graph *g, bk_pid p, uint64_t seed)
{
    const bk_param *row = &g->param[p];
    const bk_rng_key key = bk_rng_key_make(seed, BK_RNG_INIT, 0, bk_hash_str(row->name));
    const int64_t n = bk_elements(&g->value[row->value]);
    const int64_t n_blocks = (n + 3) / 4;
#pragma omp parallel for schedule(static) if (n_blocks > 1 << 14)
    for (int64_t block = 0; block < n_blocks; block++) {
        double x[4];
        draw4(x, row, key, block);
        for (int k = 0; k < 4 && 4 * block + k < n; k++) {
            if (g->value[row->value].dtype == BK_F64)
                ((double *)dst)[4 * block + k] = x[k];
            else
                ((float *)dst)[4 * block + k] = (float)x[k];
        }
    }
}
