/* Elements of floating-point tensors as float or double. Data may lie at any address: memcpy. */
#include "data/safetensors.h"

#include <string.h>

static float float_of_bits(uint32_t bits)
{
    float f = 0.0f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float bf16_to_f32(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

static float f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3FFu;
    if (exponent == 31) return float_of_bits(sign | 0x7F800000u | fraction << 13);
    if (exponent != 0) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float tiny = (float)fraction * 0x1p-24f; /* subnormal or zero */
    return sign ? -tiny : tiny;
}

static double element(const bk_st_tensor *t, int64_t i)
{
    const unsigned char *p = (const unsigned char *)t->data + i * bk_st_dtype_size(t->dtype);
    uint16_t h = 0;
    float f = 0.0f;
    double d = 0.0;
    switch (t->dtype) {
    case BK_ST_F64:
        memcpy(&d, p, sizeof d);
        return d;
    case BK_ST_F32:
        memcpy(&f, p, sizeof f);
        return (double)f;
    case BK_ST_F16:
        memcpy(&h, p, sizeof h);
        return (double)f16_to_f32(h);
    default: /* BF16: convertible() let nothing else through */
        memcpy(&h, p, sizeof h);
        return (double)bf16_to_f32(h);
    }
}

static bk_status convertible(const bk_st_tensor *t, bk_err *e)
{
    if (t->dtype == BK_ST_F64 || t->dtype == BK_ST_F32 || t->dtype == BK_ST_F16 || t->dtype == BK_ST_BF16)
        return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "tensor '%.200s': %s elements where F64, F32, F16 or BF16 are expected",
                      t->name, bk_st_dtype_name(t->dtype));
}

bk_status bk_st_to_f64(double *out, const bk_st_tensor *t, bk_err *e)
{
    const bk_status st = convertible(t, e);
    if (st != BK_OK) return st;
    const int64_t n = bk_st_n_elems(t);
    for (int64_t i = 0; i < n; i++) out[i] = element(t, i);
    return BK_OK;
}

bk_status bk_st_to_f32(float *out, const bk_st_tensor *t, bk_err *e)
{
    const bk_status st = convertible(t, e);
    if (st != BK_OK) return st;
    const int64_t n = bk_st_n_elems(t);
    if (t->dtype == BK_ST_F32) { /* the case of every checkpoint: plain copy, NaN payloads included */
        if (n > 0) memcpy(out, t->data, (size_t)t->bytes);
        return BK_OK;
    }
    for (int64_t i = 0; i < n; i++) out[i] = (float)element(t, i);
    return BK_OK;
}
