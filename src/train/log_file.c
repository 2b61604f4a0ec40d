#include "train/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

bk_status bk_log_file_open(bk_log_file *f, const char *path, bool fresh, bk_err *e)
{
    *f = (bk_log_file){.path = strdup(path)};
    if (!f->path) return bk_err_set(e, BK_E_MEM, "%s: out of memory", path);
    f->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (fresh ? O_EXCL : 0), 0666);
    if (f->fd >= 0) return BK_OK;
    free(f->path);
    f->path = NULL;
    return bk_err_set(e, fresh && errno == EEXIST ? BK_E_INPUT : BK_E_IO, "cannot open %s for metrics: %s",
                      path, strerror(errno));
}

bk_status bk_log_file_write(bk_log_file *f, const void *record, size_t n, bk_err *e)
{
    struct stat s;
    if (fstat(f->fd, &s) != 0)
        return bk_err_set(e, BK_E_IO, "cannot write metrics to %s: %s", f->path, strerror(errno));
    /* The system would let us write on, and then drop all of it. */
    if (S_ISREG(s.st_mode) && s.st_nlink == 0)
        return bk_err_set(e, BK_E_IO, "%s was removed while the run writes metrics to it", f->path);
    if (bk_files_write_all(f->fd, record, n)) return BK_OK;
    const int failure = errno;
    /* A file that cannot be cut keeps a part of the record; the failure is told in any case. */
    const bool cut = S_ISREG(s.st_mode) && ftruncate(f->fd, s.st_size) == 0;
    return bk_err_set(e, BK_E_IO, "cannot write metrics to %s: %s%s", f->path, strerror(failure),
                      cut ? "; it ends with the record before" : "");
}

bk_status bk_log_file_close(bk_log_file *f, bk_err *e)
{
    if (!f->path) return BK_OK;
    bk_status st = BK_OK;
    if (close(f->fd) != 0 && errno != EINTR)
        st = bk_err_set(e, BK_E_IO, "cannot write metrics to %s: %s", f->path, strerror(errno));
    free(f->path);
    *f = (bk_log_file){0};
    return st;
}
