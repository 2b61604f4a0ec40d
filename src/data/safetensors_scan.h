/* What cJSON does not check in the text of a header: it reads numbers as doubles, takes NULs and control
 * characters for white space, and accepts any bytes in strings. */
#ifndef BK_DATA_SAFETENSORS_SCAN_H
#define BK_DATA_SAFETENSORS_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define BK_ST_MAX_NUMBER INT64_C(9007199254740992) /* 2^53: up to here a double holds every integer */

/* After BK_OK: the text is UTF-8, nests a few levels at most, its strings hold no control character and no
 * NUL in any spelling, and each number is an integer in [0, 2^53] in plain digits. The rest of JSON's grammar
 * is left to cJSON. Messages begin with `label` and name the tensor whose entry is at fault. */
bk_status bk_st_scan(const char *text, int64_t n_bytes, const char *label, bk_err *e);

bool bk_utf8_valid(const char *text, int64_t n_bytes);

#endif
