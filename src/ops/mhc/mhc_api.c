/* The public mHC operators on the CPU: arguments are checked here, the kernels do the work. A check that
 * fails leaves one sentence in the call's message and touches nothing else. */
#include "birkhoff/mhc.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "ops/mhc/mhc_sizes.h"
#define BK_BOTH "ops/mhc/mhc_cpu.h"
#include "base/real_both.h"

/* Keeps the sums of sizes below, in bytes of doubles, inside 63 bits. */
#define MAX_ELEMENTS (INT64_MAX / 16)

/* Each stream's elements are numbered in blocks of four by 32 bits of a random counter. */
#define MAX_DROPOUT_WIDTH (INT64_C(1) << 34)

typedef struct {
    const char *name;
    const void *pointer;
} named;

__attribute__((format(printf, 3, 4))) static bk_mhc_status fail(const bk_mhc_call *call, bk_mhc_status status,
                                                                const char *format, ...)
{
    if (!call->message || call->message_bytes == 0) return status;
    va_list args;
    va_start(args, format);
    vsnprintf(call->message, call->message_bytes, format, args);
    va_end(args);
    return status;
}

/* The call's own fields, for every operator. A call that is not a call has no message to write to. */
static bk_mhc_status check_call(const bk_mhc_call *call, const char *op)
{
    if (!call || call->struct_size < sizeof *call) return BK_MHC_E_ARGUMENT;
    if (call->backend == BK_MHC_CUDA)
        return fail(call, BK_MHC_E_UNSUPPORTED, "%s: this library was built without CUDA; use BK_MHC_CPU",
                    op);
    if (call->backend != BK_MHC_CPU)
        return fail(call, BK_MHC_E_ARGUMENT, "%s: backend %d is none of bk_mhc_backend", op,
                    (int)call->backend);
    if (call->dtype == BK_MHC_BF16)
        return fail(call, BK_MHC_E_UNSUPPORTED, "%s: the CPU has no bf16; use BK_MHC_F32 or BK_MHC_F64", op);
    if (call->dtype != BK_MHC_F32 && call->dtype != BK_MHC_F64)
        return fail(call, BK_MHC_E_ARGUMENT, "%s: dtype %d is none of bk_mhc_dtype", op, (int)call->dtype);
    if (call->stream) return fail(call, BK_MHC_E_ARGUMENT, "%s: the CPU has no stream; set it to NULL", op);
    if (call->n < 1 || call->n > BK_MHC_MAX_STREAMS)
        return fail(call, BK_MHC_E_ARGUMENT, "%s: n is %" PRId64 ", must be 1..%d", op, call->n,
                    BK_MHC_MAX_STREAMS);
    if (call->C < 1 || call->T < 0)
        return fail(call, BK_MHC_E_ARGUMENT,
                    "%s: T is %" PRId64 " and C is %" PRId64 ", must be T >= 0, C >= 1", op, call->T,
                    call->C);
    const int64_t n = call->n, rows = bk_mhc_rows(n);
    if (call->C > MAX_ELEMENTS / (rows * n))
        return fail(call, BK_MHC_E_SIZE, "%s: C is %" PRId64 ", too large to index the mapping's weight", op,
                    call->C);
    if (call->T > MAX_ELEMENTS / (n * call->C) || call->T > MAX_ELEMENTS / (rows + 4))
        return fail(call, BK_MHC_E_SIZE,
                    "%s: T*n*C is %" PRId64 "*%" PRId64 "*%" PRId64 ", too large to index", op, call->T, n,
                    call->C);
    return BK_MHC_OK;
}

static bk_mhc_status check_pointers(const bk_mhc_call *call, const char *op, const named *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!list[i].pointer) return fail(call, BK_MHC_E_ARGUMENT, "%s: %s is NULL", op, list[i].name);
    return BK_MHC_OK;
}

static bk_mhc_status check_iterations(const bk_mhc_call *call, const char *op, int64_t iterations)
{
    if (iterations >= 1 && iterations <= INT32_MAX) return BK_MHC_OK;
    return fail(call, BK_MHC_E_ARGUMENT, "%s: iterations is %" PRId64 ", must be 1..%" PRId32, op, iterations,
                INT32_MAX);
}

static bk_mhc_status check_flag(const bk_mhc_call *call, const char *op, const char *name, int flag)
{
    if (flag == 0 || flag == 1) return BK_MHC_OK;
    return fail(call, BK_MHC_E_ARGUMENT, "%s: %s is %d, must be 0 (write) or 1 (add)", op, name, flag);
}

static bk_mhc_status check_eps(const bk_mhc_call *call, const char *op, double eps)
{
    const double used = call->dtype == BK_MHC_F64 ? eps : (double)(float)eps;
    if (isfinite(used) && used > 0) return BK_MHC_OK;
    return fail(call, BK_MHC_E_ARGUMENT, "%s: eps is %g, must be positive and finite", op, eps);
}

static bk_mhc_status check_dropout(const bk_mhc_call *call, const char *op, const bk_mhc_dropout *d)
{
    if (!d) return BK_MHC_OK;
    if (!(d->p >= 0 && d->p < 1))
        return fail(call, BK_MHC_E_ARGUMENT, "%s: dropout p is %g, must be in [0, 1)", op, d->p);
    if (d->p == 0 || call->T == 0) return BK_MHC_OK;
    if (d->S < 1 || d->B < 1 || call->T % d->B != 0 || call->T / d->B != d->S)
        return fail(call, BK_MHC_E_ARGUMENT,
                    "%s: dropout has S %" PRId64 " and B %" PRId64 ", their product must be T = %" PRId64, op,
                    d->S, d->B, call->T);
    if (!d->samples) return fail(call, BK_MHC_E_ARGUMENT, "%s: dropout samples is NULL", op);
    for (int64_t b = 0; b < d->B; b++)
        if (d->samples[b] < 0)
            return fail(call, BK_MHC_E_ARGUMENT,
                        "%s: dropout sample %" PRId64 " is %" PRId64 ", must be >= 0", op, b, d->samples[b]);
    for (int64_t s = 0; d->positions && s < d->S; s++)
        if (d->positions[s] < 0 || d->positions[s] > UINT32_MAX)
            return fail(call, BK_MHC_E_ARGUMENT,
                        "%s: dropout position %" PRId64 " is %" PRId64 ", must fit 32 bits", op, s,
                        d->positions[s]);
    if (d->S > (int64_t)UINT32_MAX + 1 || call->C > MAX_DROPOUT_WIDTH / call->n)
        return fail(call, BK_MHC_E_SIZE, "%s: dropout numbers at most 2^32 positions and 2^34 elements n*C",
                    op);
    return BK_MHC_OK;
}

static int64_t scalar_bytes(const bk_mhc_call *call)
{
    return call->dtype == BK_MHC_F64 ? 8 : 4;
}

static bk_mhc_status check_workspace(const bk_mhc_call *call, const char *op, int64_t bytes)
{
    if (bytes == 0) return BK_MHC_OK;
    if (!call->workspace || call->workspace_bytes < (uint64_t)bytes)
        return fail(call, BK_MHC_E_WORKSPACE,
                    "%s: workspace has %zu bytes, needs %" PRId64 " (bk_mhc_workspace_size)", op,
                    call->workspace ? call->workspace_bytes : 0, bytes);
    if ((uintptr_t)call->workspace % (uintptr_t)scalar_bytes(call) != 0)
        return fail(call, BK_MHC_E_WORKSPACE, "%s: workspace must be aligned to %" PRId64 " bytes", op,
                    scalar_bytes(call));
    return BK_MHC_OK;
}

/* In the operators below: `op` is the operator's name, `st` the status. ALWAYS lists pointers that are needed
 * for any T, TOKENS those that may be NULL for T = 0. */
#define TRY(check)                                                                                           \
    do {                                                                                                     \
        const bk_mhc_status st = (check);                                                                    \
        if (st != BK_MHC_OK) return st;                                                                      \
    } while (0)
#define P(pointer)                                                                                           \
    {                                                                                                        \
#pointer, pointer                                                                                    \
    }
#define ALWAYS(...)                                                                                          \
    do {                                                                                                     \
        const named list[] = {__VA_ARGS__};                                                                  \
        TRY(check_pointers(call, op, list, sizeof list / sizeof list[0]));                                   \
    } while (0)
#define TOKENS(...)                                                                                          \
    do {                                                                                                     \
        if (call->T > 0) ALWAYS(__VA_ARGS__);                                                                \
    } while (0)
#define KERNEL(name, ...) BK_REAL_CALL(call->dtype == BK_MHC_F64, name, __VA_ARGS__)
#define SIZES             call->T, call->n, call->C

int bk_mhc_abi_version(void)
{
    return BK_MHC_ABI_VERSION;
}

bk_mhc_status bk_mhc_workspace_size(size_t *bytes, const bk_mhc_call *call, bk_mhc_op which,
                                    int64_t iterations)
{
    static const char op[] = "workspace_size";
    TRY(check_call(call, op));
    ALWAYS(P(bytes));
    switch (which) {
    case BK_MHC_MAP_BWD:
        TRY(check_iterations(call, op, iterations));
        *bytes = (size_t)bk_mhc_map_bwd_workspace(call->T, call->n, iterations, scalar_bytes(call));
        return BK_MHC_OK;
    case BK_MHC_CONTRACT_BWD:
        *bytes = (size_t)bk_mhc_contract_bwd_workspace(call->T, call->n, scalar_bytes(call));
        return BK_MHC_OK;
    case BK_MHC_MAP:
        TRY(check_iterations(call, op, iterations));
        break;
    case BK_MHC_EXPAND:
    case BK_MHC_EXPAND_BWD:
    case BK_MHC_AGGREGATE:
    case BK_MHC_AGGREGATE_BWD:
    case BK_MHC_POST:
    case BK_MHC_POST_BWD:
    case BK_MHC_CONTRACT:
        break;
    default:
        return fail(call, BK_MHC_E_ARGUMENT, "%s: operator %d is none of bk_mhc_op", op, (int)which);
    }
    *bytes = 0;
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_expand(void *x, const bk_mhc_call *call, const void *h)
{
    static const char op[] = "expand";
    TRY(check_call(call, op));
    TOKENS(P(x), P(h));
    KERNEL(bk_mhc_expand, x, h, SIZES);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_expand_bwd(void *dh, const bk_mhc_call *call, const void *dx, int add_dh)
{
    static const char op[] = "expand_bwd";
    TRY(check_call(call, op));
    TRY(check_flag(call, op, "add_dh", add_dh));
    TOKENS(P(dh), P(dx));
    KERNEL(bk_mhc_expand_bwd, dh, dx, add_dh, SIZES);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_map(void *h_pre, void *h_post, void *h_res, void *p, void *q, const bk_mhc_call *call,
                         const void *x, const void *W, const void *alpha_pre, const void *alpha_post,
                         const void *alpha_res, const void *bias, int64_t iterations)
{
    static const char op[] = "map";
    TRY(check_call(call, op));
    TRY(check_iterations(call, op, iterations));
    ALWAYS(P(W), P(alpha_pre), P(alpha_post), P(alpha_res), P(bias));
    TOKENS(P(h_pre), P(h_post), P(h_res), P(p), P(q), P(x));
    KERNEL(bk_mhc_map, h_pre, h_post, h_res, p, q, x, W, alpha_pre, alpha_post, alpha_res, bias, SIZES,
           iterations);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_map_bwd(void *dx, void *dW, void *dalpha_pre, void *dalpha_post, void *dalpha_res,
                             void *dbias, const bk_mhc_call *call, const void *dh_pre, const void *dh_post,
                             const void *dh_res, const void *x, const void *W, const void *alpha_pre,
                             const void *alpha_post, const void *alpha_res, const void *bias, const void *p,
                             const void *q, int64_t iterations, int add_dx, int add_params)
{
    static const char op[] = "map_bwd";
    TRY(check_call(call, op));
    TRY(check_iterations(call, op, iterations));
    TRY(check_flag(call, op, "add_dx", add_dx));
    TRY(check_flag(call, op, "add_params", add_params));
    ALWAYS(P(dW), P(dalpha_pre), P(dalpha_post), P(dalpha_res), P(dbias));
    ALWAYS(P(W), P(alpha_pre), P(alpha_post), P(alpha_res), P(bias));
    TOKENS(P(dx), P(dh_pre), P(dh_post), P(dh_res), P(x), P(p), P(q));
    TRY(check_workspace(call, op,
                        bk_mhc_map_bwd_workspace(call->T, call->n, iterations, scalar_bytes(call))));
    KERNEL(bk_mhc_map_bwd, dx, add_dx, dW, dalpha_pre, dalpha_post, dalpha_res, dbias, add_params, dh_pre,
           dh_post, dh_res, x, W, alpha_pre, alpha_post, alpha_res, bias, p, q, SIZES, iterations,
           call->workspace);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_aggregate(void *a, const bk_mhc_call *call, const void *x, const void *h_pre)
{
    static const char op[] = "aggregate";
    TRY(check_call(call, op));
    TOKENS(P(a), P(x), P(h_pre));
    KERNEL(bk_mhc_aggregate, a, x, h_pre, SIZES);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_aggregate_bwd(void *dh_pre, void *dx, const bk_mhc_call *call, const void *da,
                                   const void *x, const void *h_pre, int add_dx)
{
    static const char op[] = "aggregate_bwd";
    TRY(check_call(call, op));
    TRY(check_flag(call, op, "add_dx", add_dx));
    TOKENS(P(dh_pre), P(dx), P(da), P(x), P(h_pre));
    KERNEL(bk_mhc_aggregate_bwd, dh_pre, dx, add_dx, da, x, h_pre, SIZES);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_post(void *x_next, const bk_mhc_call *call, const void *x, const void *h_res,
                          const void *h_post, const void *y, const void *bias, const bk_mhc_dropout *dropout)
{
    static const char op[] = "post";
    TRY(check_call(call, op));
    TOKENS(P(x_next), P(x), P(h_res), P(h_post), P(y));
    TRY(check_dropout(call, op, dropout));
    KERNEL(bk_mhc_post, x_next, x, h_res, h_post, y, bias, dropout, SIZES);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_post_bwd(void *dx, void *dh_res, void *dh_post, void *dy, void *dbias,
                              const bk_mhc_call *call, const void *dx_next, const void *x, const void *h_res,
                              const void *h_post, const void *y, const void *bias,
                              const bk_mhc_dropout *dropout, int add_dx, int add_dbias)
{
    static const char op[] = "post_bwd";
    TRY(check_call(call, op));
    TRY(check_flag(call, op, "add_dx", add_dx));
    TRY(check_flag(call, op, "add_dbias", add_dbias));
    TOKENS(P(dx), P(dh_res), P(dh_post), P(dy), P(dx_next), P(x), P(h_res), P(h_post), P(y));
    TRY(check_dropout(call, op, dropout));
    KERNEL(bk_mhc_post_bwd, dx, add_dx, dh_res, dh_post, dy, dbias, add_dbias, dx_next, x, h_res, h_post, y,
           bias, dropout, SIZES);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_contract(void *h, void *w, void *m, void *rho, const bk_mhc_call *call, const void *x,
                              const void *V, const void *scale, const void *base, double eps)
{
    static const char op[] = "contract";
    TRY(check_call(call, op));
    TRY(check_eps(call, op, eps));
    ALWAYS(P(V), P(scale), P(base));
    TOKENS(P(h), P(w), P(m), P(rho), P(x));
    if (call->dtype == BK_MHC_F64)
        bk_mhc_contract_f64(h, w, m, rho, x, V, scale, base, eps, SIZES);
    else
        bk_mhc_contract_f32(h, w, m, rho, x, V, scale, base, (float)eps, SIZES);
    return BK_MHC_OK;
}

bk_mhc_status bk_mhc_contract_bwd(void *dx, void *dV, void *dscale, void *dbase, const bk_mhc_call *call,
                                  const void *dh, const void *x, const void *V, const void *scale,
                                  const void *w, const void *m, const void *rho, double eps, int add_dx,
                                  int add_params)
{
    static const char op[] = "contract_bwd";
    TRY(check_call(call, op));
    TRY(check_eps(call, op, eps));
    TRY(check_flag(call, op, "add_dx", add_dx));
    TRY(check_flag(call, op, "add_params", add_params));
    ALWAYS(P(dV), P(dscale), P(dbase), P(V), P(scale));
    TOKENS(P(dx), P(dh), P(x), P(w), P(m), P(rho));
    TRY(check_workspace(call, op, bk_mhc_contract_bwd_workspace(call->T, call->n, scalar_bytes(call))));
    if (call->dtype == BK_MHC_F64)
        bk_mhc_contract_bwd_f64(dx, add_dx, dV, dscale, dbase, add_params, dh, x, V, scale, w, m, rho, eps,
                                SIZES, call->workspace);
    else
        bk_mhc_contract_bwd_f32(dx, add_dx, dV, dscale, dbase, add_params, dh, x, V, scale, w, m, rho,
                                (float)eps, SIZES, call->workspace);
    return BK_MHC_OK;
}
