/* Reads words, names and numbers of the text form of a graph (docs/ir.md). Private to ir/parse.c.
 *
 * A line is the unit: nothing here passes a line's end but bk_lex_next_line. The first error sticks. */
#ifndef BK_IR_LEXER_H
#define BK_IR_LEXER_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *at, *end; /* not NUL-terminated */
    int32_t line;         /* 1-based */
    const char *where;
    bk_arena *names; /* owns names that are read */
    bk_err *e;
    bk_status st;
} bk_lexer;

/* Text of a word or name, borrowed from the input. */
typedef struct {
    const char *s;
    int64_t len;
} bk_span;

/* "where:line: message, found '...'" once; always returns false. */
bool bk_lex_fail(bk_lexer *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool bk_lex_at_end(bk_lexer *x);    /* of the line: only blanks and a comment are left */
bool bk_lex_next_line(bk_lexer *x); /* to the next line that has something; false at the end of the text */
bool bk_lex_end_line(bk_lexer *x);  /* requires the end */

bool bk_lex_accept(bk_lexer *x, char c);                       /* takes a character if it is next */
bool bk_lex_expect(bk_lexer *x, char c);                       /* requires it */
bool bk_lex_accept_word(bk_lexer *x, const char *word);        /* takes a whole word if it is next */
bool bk_lex_word(bk_lexer *x, bk_span *out, const char *what); /* letters, digits, '_' */
bool bk_lex_number_next(const bk_lexer *x);                    /* a digit is next */
bool bk_lex_int(bk_lexer *x, int64_t *out, int64_t lo, int64_t hi, const char *what);
bool bk_lex_float(bk_lexer *x, double *out, const char *what);
bool bk_lex_name(bk_lexer *x, const char **out, const char *what); /* bare or in quotes; copied */

/* A word out of n names. */
bool bk_lex_choice(bk_lexer *x, int *out, const char *const *names, int n, const char *what);

bool bk_span_is(bk_span s, const char *text);

#endif
