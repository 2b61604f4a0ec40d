#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bk_status bk_err_set(bk_err *e, bk_status status, const char *fmt, ...)
{
    if (!e) return status;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    e->status = status;
    return status;
}

bk_status bk_err_prefix(bk_err *e, const char *fmt, ...)
{
    if (!e) return BK_OK;
    char old[sizeof e->msg];
    memcpy(old, e->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->msg) snprintf(e->msg + n, sizeof e->msg - (size_t)n, "%s", old);
    return e->status;
}
