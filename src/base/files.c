#include "base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bk_status refused(const char *path, const char *what, int reason, bk_err *e)
{
    return bk_err_set(e, BK_E_IO, "%s: cannot %s: %s", path, what, strerror(reason));
}

bk_status bk_files_path(char out[BK_PATH_LEN], const char *dir, const char *name, bk_err *e)
{
    const int n = snprintf(out, BK_PATH_LEN, "%s/%s", dir, name);
    if (n >= 0 && n < BK_PATH_LEN) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%.200s...: a path of more than %d bytes; choose a shorter one", dir,
                      BK_PATH_LEN - 1);
}

bk_status bk_files_make_folder(const char *path, bk_err *e)
{
    char part[BK_PATH_LEN];
    struct stat info;
    if (*path == '\0') return bk_err_set(e, BK_E_INPUT, "a folder needs a name; the given one is empty");
    if (strlen(path) >= sizeof part) return bk_files_path(part, path, "", e);
    for (size_t i = 1; i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return refused(part, "make the folder", errno, e);
    }
    if (stat(path, &info) != 0) return refused(path, "look at the folder", errno, e);
    return S_ISDIR(info.st_mode) ? BK_OK : refused(path, "use it as a folder", ENOTDIR, e);
}

bk_status bk_files_remove_folder(const char *path, bk_err *e)
{
    DIR *d = opendir(path);
    if (!d) return errno == ENOENT ? BK_OK : refused(path, "open the folder", errno, e);
    bk_status st = BK_OK;
    for (struct dirent *f = readdir(d); f && st == BK_OK; f = readdir(d)) {
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(d), f->d_name, 0) != 0) {
            st = refused(path, "remove a file in it", errno, e);
            bk_err_prefix(e, "%.255s in ", f->d_name);
        }
    }
    closedir(d);
    if (st == BK_OK && rmdir(path) != 0) st = refused(path, "remove the folder", errno, e);
    return st;
}

bool bk_files_write_all(int fd, const void *bytes, size_t n)
{
    for (const char *at = bytes; n > 0;) {
        const ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            if (done == 0) errno = EIO;
            return false;
        }
        at += done, n -= (size_t)done;
    }
    return true;
}

bk_status bk_files_write(const char *path, const char *bytes, size_t n, bk_err *e)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return refused(path, "create the file", errno, e);
    bool ok = bk_files_write_all(fd, bytes, n) && fsync(fd) == 0;
    int reason = errno;
    if (close(fd) != 0 && ok) ok = false, reason = errno;
    if (ok) return BK_OK;
    unlink(path);
    return refused(path, "write", reason, e);
}

bk_status bk_files_read(bk_str *out, const char *path, int64_t max_bytes, bk_err *e)
{
    struct stat info;
    bk_status st = BK_OK;
    /* O_NONBLOCK: opening a pipe by mistake must not wait for its writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return refused(path, "open", errno, e);
    if (fstat(fd, &info) != 0)
        st = refused(path, "look at the file", errno, e);
    else if (!S_ISREG(info.st_mode))
        st = bk_err_set(e, BK_E_INPUT, "%s: not a regular file", path);
    else if (info.st_size > max_bytes)
        st = bk_err_set(e, BK_E_INPUT, "%s: it has %lld bytes, at most %lld are sensible", path,
                        (long long)info.st_size, (long long)max_bytes);
    char block[16384];
    ssize_t n = 1;
    while (st == BK_OK && n > 0 && (int64_t)out->len <= max_bytes) {
        n = read(fd, block, sizeof block);
        if (n > 0) bk_str_append_n(out, block, (size_t)n);
        if (n < 0 && errno == EINTR) n = 1;
        if (n < 0) st = refused(path, "read", errno, e);
    }
    if (st == BK_OK && out->failed) st = bk_err_set(e, BK_E_MEM, "%s: out of memory", path);
    close(fd);
    return st;
}

static bool sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* File systems that cannot sync a folder say EINVAL: nothing to do there. */
    const bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    const int reason = errno;
    if (fd >= 0) close(fd);
    errno = reason;
    return ok;
}

bk_status bk_files_sync_folder(const char *path, bk_err *e)
{
    return sync_folder(path) ? BK_OK : refused(path, "sync the folder", errno, e);
}

bool bk_files_sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    bk_str folder = {0};
    bk_str_append_n(&folder, slash ? path : ".", slash && slash > path ? (size_t)(slash - path) : 1);
    const bool ok = !folder.failed && sync_folder(folder.s);
    const int reason = folder.failed ? ENOMEM : errno;
    bk_str_free(&folder);
    errno = reason;
    return ok;
}

bk_status bk_files_rename(const char *from, const char *to, bk_err *e)
{
    if (rename(from, to) == 0) return BK_OK;
    return refused(from, "rename", errno, e);
}
