#include "ir/lexer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool bk_span_is(bk_span s, const char *text)
{
    return (int64_t)strlen(text) == s.len && memcmp(s.s, text, (size_t)s.len) == 0;
}

static void skip_blanks(bk_lexer *x)
{
    while (x->at < x->end && (*x->at == ' ' || *x->at == '\t' || *x->at == '\r')) x->at++;
    if (x->at < x->end && *x->at == '#')
        while (x->at < x->end && *x->at != '\n') x->at++;
}

/* What is next, fit to be printed. */
static void describe_next(char *buf, size_t cap, bk_lexer *x)
{
    enum { MOST = 24 };
    if (bk_lex_at_end(x)) {
        snprintf(buf, cap, "%s", x->at < x->end ? "the end of the line" : "the end of the text");
        return;
    }
    char text[MOST + 1];
    int n = 0;
    for (const char *c = x->at; c < x->end && *c != '\n' && n < MOST && (n == 0 || *c != ' '); c++)
        text[n++] = *c >= 0x20 && *c < 0x7f ? *c : '?';
    text[n] = '\0';
    snprintf(buf, cap, "'%s'", text);
}

bool bk_lex_fail(bk_lexer *x, const char *fmt, ...)
{
    if (x->st != BK_OK) return false;
    char message[512], next[64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    describe_next(next, sizeof next, x);
    x->st = bk_err_set(x->e, BK_E_INPUT, "%s:%" PRId32 ": %s, found %s", x->where, x->line, message, next);
    return false;
}

bool bk_lex_at_end(bk_lexer *x)
{
    skip_blanks(x);
    return x->at == x->end || *x->at == '\n';
}

bool bk_lex_next_line(bk_lexer *x)
{
    while (x->st == BK_OK && bk_lex_at_end(x)) {
        if (x->at == x->end) return false;
        if (x->line == INT32_MAX) return bk_lex_fail(x, "too many lines");
        x->at++, x->line++;
    }
    return x->st == BK_OK;
}

bool bk_lex_end_line(bk_lexer *x)
{
    return bk_lex_at_end(x) || bk_lex_fail(x, "expected the end of the line");
}

bool bk_lex_accept(bk_lexer *x, char c)
{
    skip_blanks(x);
    if (x->at == x->end || *x->at != c) return false;
    x->at++;
    return true;
}

bool bk_lex_expect(bk_lexer *x, char c)
{
    return bk_lex_accept(x, c) || bk_lex_fail(x, "expected '%c'", c);
}

static bk_span word_next(bk_lexer *x)
{
    skip_blanks(x);
    const char *stop = x->at;
    while (stop < x->end && is_word(*stop)) stop++;
    return (bk_span){x->at, stop - x->at};
}

bool bk_lex_accept_word(bk_lexer *x, const char *word)
{
    const bk_span next = word_next(x);
    if (!bk_span_is(next, word)) return false;
    x->at += next.len;
    return true;
}

bool bk_lex_word(bk_lexer *x, bk_span *out, const char *what)
{
    *out = word_next(x);
    if (out->len == 0) return bk_lex_fail(x, "expected %s", what);
    x->at += out->len;
    return true;
}

bool bk_lex_number_next(const bk_lexer *x)
{
    return x->at < x->end && is_digit(*x->at);
}

bool bk_lex_int(bk_lexer *x, int64_t *out, int64_t lo, int64_t hi, const char *what)
{
    skip_blanks(x);
    const char *at = x->at;
    const bool minus = at < x->end && *at == '-';
    if (minus) at++;
    bool fits = at < x->end && is_digit(*at);
    int64_t n = 0;
    for (; at < x->end && is_digit(*at); at++) {
        const int digit = *at - '0';
        fits = fits && bk_mul64(&n, n, 10) && bk_add64(&n, n, minus ? -digit : digit);
    }
    if (!fits || n < lo || n > hi || (at < x->end && is_word(*at)))
        return bk_lex_fail(x, "expected %s, a whole number from %" PRId64 " to %" PRId64, what, lo, hi);
    x->at = at, *out = n;
    return true;
}

bool bk_lex_float(bk_lexer *x, double *out, const char *what)
{
    char text[64];
    size_t n = 0;
    skip_blanks(x);
    while (x->at + n < x->end && n < sizeof text - 1) {
        const char c = x->at[n];
        if (!is_word(c) && c != '.' && c != '-' && c != '+') break;
        text[n++] = c;
    }
    text[n] = '\0';
    char *stop = text;
    const double v = strtod(text, &stop);
    if (n == 0 || *stop) return bk_lex_fail(x, "expected %s, a number", what);
    x->at += n, *out = v;
    return true;
}

static int hex(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool quoted_name(bk_lexer *x, const char **out)
{
    const char *stop = x->at;
    while (stop < x->end && *stop != '"' && *stop != '\n') stop++;
    if (stop == x->end || *stop != '"') return bk_lex_fail(x, "expected a name that ends with '\"'");
    char *copy = bk_arena_alloc(x->names, stop - x->at + 1, 1), *to = copy;
    if (!copy) {
        x->st = bk_err_set(x->e, BK_E_MEM, "%s:%" PRId32 ": out of memory", x->where, x->line);
        return false;
    }
    for (; x->at < stop; to++) {
        if (*x->at == '\\') {
            const bool whole =
                stop - x->at >= 4 && x->at[1] == 'x' && hex(x->at[2]) >= 0 && hex(x->at[3]) >= 0;
            const int byte = whole ? hex(x->at[2]) * 16 + hex(x->at[3]) : 0;
            if (byte == 0) return bk_lex_fail(x, "expected \\x01 to \\xff");
            *to = (char)(unsigned char)byte, x->at += 4;
        } else if (*x->at == '\0') {
            return bk_lex_fail(x, "a name cannot hold a zero byte");
        } else {
            *to = *x->at++;
        }
    }
    x->at++;
    *out = copy;
    return true;
}

bool bk_lex_name(bk_lexer *x, const char **out, const char *what)
{
    if (bk_lex_accept(x, '"')) return quoted_name(x, out);
    const char *stop = x->at;
    while (stop < x->end && (is_word(*stop) || *stop == '.' || *stop == '-' || *stop == '/')) stop++;
    if (stop == x->at) return bk_lex_fail(x, "expected %s, a name", what);
    *out = bk_arena_strndup(x->names, x->at, (size_t)(stop - x->at));
    if (!*out) {
        x->st = bk_err_set(x->e, BK_E_MEM, "%s:%" PRId32 ": out of memory", x->where, x->line);
        return false;
    }
    x->at = stop;
    return true;
}

bool bk_lex_choice(bk_lexer *x, int *out, const char *const *names, int n, const char *what)
{
    const bk_span next = word_next(x);
    for (int k = 0; k < n; k++)
        if (bk_span_is(next, names[k])) {
            x->at += next.len, *out = k;
            return true;
        }
    return bk_lex_fail(x, "expected %s, such as '%s'", what, names[0]);
}
