/* What this program is and what it was built with and runs on. */
#ifndef BK_BASE_VERSION_H
#define BK_BASE_VERSION_H

#include "base/str.h"

/* "0.1.0" */
const char *bk_version(void);

/* The commit that was built: "1a2b3c4d5e6f", with "+dirty" behind it when tracked files differed from it;
 * "unknown" when the source stood outside its git repository. */
const char *bk_version_commit(void);

/* Appends version and commit, compiler, build type, CBLAS and OpenMP, a line each. */
void bk_version_describe(bk_str *out);

#endif
