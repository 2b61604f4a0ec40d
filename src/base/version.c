#include "base/version.h"

#include <omp.h>

#include "base/version_build.h" /* BK_COMMIT, written by cmake/version.cmake at each build */

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

/* OpenBLAS says what it is; another CBLAS lacks these, and they are NULL. */
extern char *openblas_get_config(void) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));

const char *bk_version(void)
{
    return BK_VERSION;
}

const char *bk_version_commit(void)
{
    return BK_COMMIT;
}

static void describe_cblas(bk_str *out)
{
    if (!openblas_get_config) {
        bk_str_append(out, "cblas     not OpenBLAS\n");
        return;
    }
    bk_str_appendf(out, "cblas     %s", openblas_get_config());
    if (openblas_get_corename) bk_str_appendf(out, ", kernels for %s", openblas_get_corename());
    bk_str_append(out, "\n");
}

void bk_version_describe(bk_str *out)
{
    const int n_threads = omp_get_max_threads();
    bk_str_appendf(out, "birkhoff  %s\ncommit    %s\ncompiler  %s\nbuild     %s\n", bk_version(),
                   bk_version_commit(), COMPILER, BK_BUILD_TYPE);
    describe_cblas(out);
    bk_str_appendf(out, "openmp    " TEXT(_OPENMP) ", %d thread%s\n", n_threads, n_threads == 1 ? "" : "s");
}
