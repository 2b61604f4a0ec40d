#include "cli/sparkline.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <string.h>

enum { LEVELS = 8 };
static const char *const blocks[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char letters[LEVELS + 1] = "_.,-=+*#";

/* Where column c of `width` begins in n numbers. */
static int64_t column_begin(int64_t n, int64_t width, int64_t c)
{
    return n / width * c + n % width * c / width;
}

/* The mean of the finite numbers of a column; NaN without one. */
static double column_mean(const double *x, int64_t n, int64_t width, int64_t c)
{
    const int64_t begin = column_begin(n, width, c), end = column_begin(n, width, c + 1);
    double sum = 0, count = 0;
    for (int64_t i = begin; i < end; i++)
        if (isfinite(x[i])) sum += x[i], count++;
    return sum / count;
}

/* 0 .. LEVELS-1. Halves first: the difference of two finite numbers may overflow. */
static int level_of(double v, double least, double most)
{
    if (!(most > least)) return LEVELS / 2;
    const double share = (v / 2 - least / 2) / (most / 2 - least / 2);
    const int level = (int)(share * LEVELS);
    return level < 0 ? 0 : level < LEVELS ? level : LEVELS - 1;
}

int64_t bk_sparkline(char *out, const double *x, int64_t n, int64_t width, bool utf8)
{
    const int64_t columns = n < width ? n : width;
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (int64_t c = 0; c < columns; c++) {
        const double v = column_mean(x, n, columns, c);
        least = fmin(least, v), most = fmax(most, v);
    }
    for (int64_t c = 0; c < columns; c++) {
        const double v = column_mean(x, n, columns, c);
        if (!isfinite(v))
            *out++ = ' ';
        else if (utf8)
            out = stpcpy(out, blocks[level_of(v, least, most)]);
        else
            *out++ = letters[level_of(v, least, most)];
    }
    *out = '\0';
    return columns > 0 ? columns : 0;
}

bool bk_locale_is_utf8(void)
{
    const locale_t l = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!l) return false;
    const bool utf8 = strcmp(nl_langinfo_l(CODESET, l), "UTF-8") == 0;
    freelocale(l);
    return utf8;
}
