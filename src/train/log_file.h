/* A file that a run appends to, record by record. A record is in the file when bk_log_file_write returns:
 * what the run wrote survives its end, however that comes. */
#ifndef BK_TRAIN_LOG_FILE_H
#define BK_TRAIN_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* {0} is closed. */
typedef struct {
    int fd;
    char *path; /* owned; NULL: closed */
} bk_log_file;

/* Opens for appending, and makes the file if there is none; fresh: BK_E_INPUT if there is one. BK_E_IO when
 * it cannot be opened, BK_E_MEM. */
bk_status bk_log_file_open(bk_log_file *f, const char *path, bool fresh, bk_err *e);

/* Appends a record. On BK_E_IO (full disk, file or folder removed meanwhile) nothing of it stays in a regular
 * file, and the message has the path. */
bk_status bk_log_file_write(bk_log_file *f, const void *record, size_t n, bk_err *e);

/* BK_E_IO when the system kept an error until now. The file is closed in any case; a closed one is fine. */
bk_status bk_log_file_close(bk_log_file *f, bk_err *e);

#endif
