/* A row of numbers as a row of bars, for a line of a terminal. */
#ifndef BK_CLI_SPARKLINE_H
#define BK_CLI_SPARKLINE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes for `width` columns and the final NUL. */
#define BK_SPARKLINE_LEN(width) (3 * (width) + 1)

/* Draws x[0..n-1] in at most `width` columns: where there are more numbers than columns, a column is the mean
 * of its share of them. Columns are scaled from the least to the greatest one; if all are alike, they are
 * drawn at half height. NaNs and infinities count for nothing; a column of such alone is blank. utf8: eight
 * block characters, otherwise letters of ASCII that rise. `out` has room for BK_SPARKLINE_LEN(width) bytes;
 * returns the number of columns, the lesser of n and width. */
int64_t bk_sparkline(char *out, const double *x, int64_t n, int64_t width, bool utf8);

/* Whether the environment (LC_ALL, LC_CTYPE, LANG) says that the terminal speaks UTF-8. The locale of the
 * process stays as it is. */
bool bk_locale_is_utf8(void);

#endif
