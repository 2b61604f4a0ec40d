#include "data/safetensors_scan.h"

#include <inttypes.h>
#include <string.h>

#define MAX_DEPTH 8 /* a valid header has 3: header, entry, shape */

/* Bytes of the UTF-8 sequence at p, 0 if it is none: overlong forms, surrogates and code points above
 * U+10FFFF are none. */
static int utf8_length(const unsigned char *p, int64_t left)
{
    const unsigned c = p[0];
    if (c < 0x80) return 1;
    const int n = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (n == 0 || n > left) return 0;
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
    }
    if (c == 0xE0 && p[1] < 0xA0) return 0;
    if (c == 0xED && p[1] > 0x9F) return 0;
    if (c == 0xF0 && p[1] < 0x90) return 0;
    if (c == 0xF4 && p[1] > 0x8F) return 0;
    return n;
}

bool bk_utf8_valid(const char *text, int64_t n_bytes)
{
    for (int64_t i = 0; i < n_bytes;) {
        const int n = utf8_length((const unsigned char *)text + i, n_bytes - i);
        if (n == 0) return false;
        i += n;
    }
    return true;
}

typedef struct {
    const char *text, *label;
    int64_t n_bytes, at;
    int depth;
    int64_t name, n_name; /* last string at depth 1: the tensor whose entry is being read */
} scanner;

static bk_status fault(const scanner *s, const char *what, bk_err *e)
{
    const int shown = s->n_name < 200 ? (int)s->n_name : 200;
    return bk_err_set(e, BK_E_INPUT, "%s: %s%.*s%sheader byte %" PRId64 ": %s", s->label,
                      shown ? "tensor '" : "", shown, s->text + s->name, shown ? "': " : "", s->at, what);
}

static bk_status scan_string(scanner *s, bk_err *e)
{
    const int64_t begin = ++s->at;
    for (; s->at < s->n_bytes && s->text[s->at] != '"'; s->at++) {
        if ((unsigned char)s->text[s->at] < 0x20) return fault(s, "a control character in a string", e);
        if (s->text[s->at] != '\\') continue;
        if (s->n_bytes - s->at >= 6 && memcmp(s->text + s->at, "\\u0000", 6) == 0)
            return fault(s, "a NUL in a string", e);
        s->at++; /* the escaped character: a quote does not end the string */
    }
    if (s->at >= s->n_bytes) return fault(s, "a string without end", e);
    if (s->depth == 1) s->name = begin, s->n_name = s->at - begin;
    s->at++;
    return BK_OK;
}

static bk_status scan_number(scanner *s, bk_err *e)
{
    if (s->text[s->at] == '-') return fault(s, "a negative number; sizes and offsets are at least 0", e);
    const int64_t begin = s->at;
    int64_t value = 0;
    for (; s->at < s->n_bytes && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++) {
        value = value * 10 + (s->text[s->at] - '0');
        if (value > BK_ST_MAX_NUMBER) return fault(s, "a number above 2^53", e);
    }
    if (s->text[begin] == '0' && s->at - begin > 1) return fault(s, "a number with a leading zero", e);
    if (s->at < s->n_bytes && s->text[s->at] != '\0' && strchr(".eE+-", s->text[s->at]))
        return fault(s, "a number that is not written as an integer", e);
    return BK_OK;
}

bk_status bk_st_scan(const char *text, int64_t n_bytes, const char *label, bk_err *e)
{
    if (!bk_utf8_valid(text, n_bytes))
        return bk_err_set(e, BK_E_INPUT, "%s: the header is not UTF-8 text; this is not a safetensors file",
                          label);
    scanner s = {.text = text, .label = label, .n_bytes = n_bytes};
    bk_status st = BK_OK;
    while (st == BK_OK && s.at < n_bytes) {
        const char c = text[s.at];
        if (c == '"') {
            st = scan_string(&s, e);
        } else if (c == '-' || c == '+' || c == '.' || (c >= '0' && c <= '9')) {
            st = scan_number(&s, e);
        } else {
            if ((unsigned char)c < 0x20 && c != '\t' && c != '\n' && c != '\r')
                return fault(&s, "a control character", e);
            s.depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            if (s.depth > MAX_DEPTH) return fault(&s, "nested too deeply", e);
            s.at++;
        }
    }
    return st;
}
