/* A growing string, numbers as people read them, and the nearest name for "did you mean". */
#ifndef BK_BASE_STR_H
#define BK_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {0} is the empty string. Once memory was short, `failed` stays set and appends do nothing: check it once,
 * at the end. */
typedef struct bk_str {
    char *s; /* NUL-terminated, or NULL while empty; bk_str_text never gives NULL */
    size_t len, cap;
    bool failed;
} bk_str;

void bk_str_append(bk_str *b, const char *s);
void bk_str_append_n(bk_str *b, const char *s, size_t n);
void bk_str_append_char(bk_str *b, char c, int64_t times);
void bk_str_appendf(bk_str *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends a text as a JSON string, quotes included. It is UTF-8 if the text is. */
void bk_str_append_json(bk_str *b, const char *text);
const char *bk_str_text(const bk_str *b); /* borrowed; "" while empty */
void bk_str_free(bk_str *b);              /* the string is empty and usable again; NULL is fine */

/* Room for any text of the functions below. */
enum { BK_HUMAN_LEN = 32 };

/* "0 B", "1023 B", "1.23 GiB": powers of 1024, three digits. Returns out. */
char *bk_human_bytes(char out[BK_HUMAN_LEN], int64_t bytes);

/* "999", "124.4 M", "1.5 T": powers of 1000, one decimal. Returns out. */
char *bk_human_count(char out[BK_HUMAN_LEN], int64_t count);

/* Bytes with an optional suffix: "1048576", "512K", "512KiB", "1.5G", "2 TiB". K, M, G, T are powers of 1024,
 * with or without "B" or "iB", in either case. False when the text is no such number or does not fit. */
bool bk_parse_bytes(int64_t *out, const char *text);

/* The candidate with the least Damerau-Levenshtein distance (insert, delete, replace, swap of neighbours;
 * case and '-' against '_' count nothing), the first of equals. NULL when none is near: a third of the name's
 * length, at least one edit, is the limit. */
const char *bk_nearest(const char *name, const char *const *candidates, int64_t n);

#endif
