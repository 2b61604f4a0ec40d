/* Files that are on the disk, whole, when a call returns, and their folders. Messages name the path and the
 * system's reason; all errors are BK_E_IO unless said otherwise. */
#ifndef BK_BASE_FILES_H
#define BK_BASE_FILES_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

enum { BK_PATH_LEN = 4096 };

/* "dir/name". BK_E_INPUT where it is too long. */
bk_status bk_files_path(char out[BK_PATH_LEN], const char *dir, const char *name, bk_err *e);

/* Makes the folder and those above it; one that is there is fine. */
bk_status bk_files_make_folder(const char *path, bk_err *e);

/* Removes the folder and the files in it, not folders in it; none there is fine. */
bk_status bk_files_remove_folder(const char *path, bk_err *e);

/* Writes the file, in place of one that is there, and syncs it; removed again on failure. */
bk_status bk_files_write(const char *path, const char *bytes, size_t n, bk_err *e);

/* Appends the contents. BK_E_INPUT: more than max_bytes, or no regular file. BK_E_MEM. */
bk_status bk_files_read(bk_str *out, const char *path, int64_t max_bytes, bk_err *e);

/* What was made, renamed or removed in the folder is on the disk afterwards. */
bk_status bk_files_sync_folder(const char *path, bk_err *e);

/* For callers with messages of their own: false, with the reason in errno. Writes all n bytes to an open
 * file; syncs the folder that the file `path` is in. */
bool bk_files_write_all(int fd, const void *bytes, size_t n);
bool bk_files_sync_parent(const char *path);

/* Renames and syncs nothing: the caller syncs the folder. */
bk_status bk_files_rename(const char *from, const char *to, bk_err *e);

#endif
