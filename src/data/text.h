/* A corpus of bytes: the files named, and those below the folders named, as one array of tokens.
 *
 * The vocabulary is the 256 bytes and BK_TEXT_EOD, which follows each document, the last one included. Files
 * of a folder come in the byte order of their paths, so the tokens do not depend on the file system. Links to
 * files are followed, links to folders below a named folder are not (they could loop). What is left out is
 * counted in the report. */
#ifndef BK_DATA_TEXT_H
#define BK_DATA_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define BK_TEXT_EOD   256
#define BK_TEXT_VOCAB 257

typedef struct {
    const char *suffix; /* pattern (fnmatch) for the names of files in folders, such as "*.h"; NULL: all */
    int64_t max_bytes;  /* stop after so many bytes of text; 0: no limit */
    int64_t
        seq_length; /* refuse a text shorter than seq_length + 1 tokens; 0: any text of one token is fine */
} bk_text_options;

typedef struct {
    int64_t n_files;      /* documents in the corpus */
    int64_t n_unreadable; /* files and folders that could not be read: no permission, a dangling link, ... */
    int64_t n_empty;      /* files of 0 bytes: they make no document */
    int64_t n_special;    /* links to folders, pipes, sockets, devices: not followed, not read */
    int64_t n_over_limit; /* files cut or left out because of max_bytes */
    char first_unreadable[256]; /* its path (cut at the buffer) and the reason; "" if there is none */
} bk_text_report;

typedef struct {
    uint16_t *tokens; /* [n_tokens], each below BK_TEXT_VOCAB */
    int64_t n_tokens;
} bk_text;

/* Reads paths[0..n_paths), files or folders, in the order given; `suffix` does not apply to a file named
 * itself. A file that max_bytes cuts has no BK_TEXT_EOD after it. `report` may be NULL and is filled on
 * failure as well. `*out` is written on success only and is the caller's: bk_text_free. Errors: BK_E_IO a
 * named path is missing or cannot be read; BK_E_INPUT a named file is empty or is neither file nor folder, or
 * the whole is too short; BK_E_MEM. */
bk_status bk_text_load(bk_text *out, const char *const *paths, int n_paths, const bk_text_options *options,
                       bk_text_report *report, bk_err *e);

void bk_text_free(bk_text *text); /* of zeros: fine */

#endif
