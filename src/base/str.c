#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Room for n more characters and the terminator. */
static bool reserve(bk_str *b, size_t n)
{
    if (b->failed || n >= SIZE_MAX / 4 - b->len) {
        b->failed = true;
        return false;
    }
    const size_t need = b->len + n + 1;
    if (need <= b->cap) return true;
    const size_t cap = need < 32 ? 64 : need * 2;
    char *s = realloc(b->s, cap);
    if (!s) {
        b->failed = true;
        return false;
    }
    b->s = s, b->cap = cap;
    return true;
}

void bk_str_append_n(bk_str *b, const char *s, size_t n)
{
    if (!reserve(b, n)) return;
    if (n > 0) memcpy(b->s + b->len, s, n);
    b->len += n;
    b->s[b->len] = '\0';
}

void bk_str_append(bk_str *b, const char *s)
{
    bk_str_append_n(b, s, strlen(s));
}

void bk_str_append_char(bk_str *b, char c, int64_t times)
{
    if (times <= 0 || !reserve(b, (size_t)times)) return;
    memset(b->s + b->len, c, (size_t)times);
    b->len += (size_t)times;
    b->s[b->len] = '\0';
}

void bk_str_appendf(bk_str *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) b->failed = true;
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->s + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void bk_str_append_json(bk_str *b, const char *text)
{
    bk_str_append_char(b, '"', 1);
    for (const char *s = text; *s; s++) {
        if (*s == '"' || *s == '\\')
            bk_str_appendf(b, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            bk_str_appendf(b, "\\u%04x", (unsigned)*s);
        else
            bk_str_append_char(b, *s, 1);
    }
    bk_str_append_char(b, '"', 1);
}

const char *bk_str_text(const bk_str *b)
{
    return b->s ? b->s : "";
}

void bk_str_free(bk_str *b)
{
    if (!b) return;
    free(b->s);
    *b = (bk_str){0};
}

char *bk_human_bytes(char out[BK_HUMAN_LEN], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int unit = 0;
    /* 1023.5 would print as 1024 of the smaller unit */
    while (fabs(v) >= (unit == 0 ? 1024.0 : 1023.5) && unit < 6) v /= 1024, unit++;
    const int decimals = unit == 0 || fabs(v) >= 99.95 ? 0 : fabs(v) >= 9.995 ? 1 : 2;
    snprintf(out, BK_HUMAN_LEN, "%.*f %s", decimals, v, units[unit]);
    return out;
}

char *bk_human_count(char out[BK_HUMAN_LEN], int64_t count)
{
    static const char *const units[] = {"", " K", " M", " G", " T", " P", " E"};
    double v = (double)count;
    int unit = 0;
    while (fabs(v) >= (unit == 0 ? 1000.0 : 999.95) && unit < 6) v /= 1000, unit++;
    snprintf(out, BK_HUMAN_LEN, "%.*f%s", unit == 0 ? 0 : 1, v, units[unit]);
    return out;
}

bool bk_parse_bytes(int64_t *out, const char *text)
{
    if (!isdigit((unsigned char)*text) && *text != '.') return false;
    char *end;
    errno = 0;
    const double v = strtod(text, &end);
    const char *hex = memchr(text, 'x', (size_t)(end - text));
    if (end == text || hex || !isfinite(v)) return false;
    while (*end == ' ') end++;
    static const char letters[] = "kmgt";
    const char *letter = *end ? strchr(letters, tolower((unsigned char)*end)) : NULL;
    const int power = letter ? (int)(letter - letters) + 1 : 0;
    if (letter) end++;
    if (*end && strcasecmp(end, "b") != 0 && (!letter || strcasecmp(end, "ib") != 0)) return false;
    if (power == 0) { /* whole bytes, exact above 2^53 too */
        char *stop;
        errno = 0;
        const long long whole = strtoll(text, &stop, 10);
        if (errno == 0 && (*stop == '\0' || *stop == ' ' || tolower((unsigned char)*stop) == 'b')) {
            *out = whole;
            return true;
        }
        return false;
    }
    const double bytes = ldexp(v, 10 * power);
    if (bytes >= 0x1p63) return false;
    *out = (int64_t)bytes;
    return true;
}

enum { NEAR_LEN = 96 }; /* longer names get no suggestion */

static char folded(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

/* Optimal string alignment distance; a and b are shorter than NEAR_LEN. */
static int distance(const char *a, const char *b)
{
    int rows[3][NEAR_LEN + 1];
    const int m = (int)strlen(a), n = (int)strlen(b);
    for (int j = 0; j <= n; j++) rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *now = rows[i % 3];
        const int *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= n; j++) {
            const char x = folded(a[i - 1]), y = folded(b[j - 1]);
            int d = up[j - 1] + (x != y);
            if (up[j] + 1 < d) d = up[j] + 1;
            if (now[j - 1] + 1 < d) d = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y && up2[j - 2] + 1 < d)
                d = up2[j - 2] + 1;
            now[j] = d;
        }
    }
    return rows[m % 3][n];
}

const char *bk_nearest(const char *name, const char *const *candidates, int64_t n)
{
    const size_t len = strlen(name);
    if (len >= NEAR_LEN) return NULL;
    int best = len < 6 ? 2 : (int)(len / 3) + 1; /* one more than the limit */
    const char *found = NULL;
    for (int64_t i = 0; i < n; i++) {
        const size_t n_chars = strlen(candidates[i]);
        const size_t apart = n_chars > len ? n_chars - len : len - n_chars; /* at least that many edits */
        if (n_chars >= NEAR_LEN || apart >= (size_t)best) continue;
        const int d = distance(name, candidates[i]);
        if (d < best) best = d, found = candidates[i];
    }
    return found;
}
