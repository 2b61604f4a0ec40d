#include "train/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vec.h"
#include "train/checkpoint_options.h"

char *bk_checkpoint_folder_name(char out[BK_ITER_LEN], int64_t iteration)
{
    snprintf(out, BK_ITER_LEN, "iter_%07" PRId64, iteration);
    return out;
}

/* The iteration of a folder's name, exactly as we write it; BK_NO_ITERATION for any other name. */
static int64_t parse_folder_name(const char *name)
{
    char again[BK_ITER_LEN];
    if (strncmp(name, "iter_", 5) != 0 || name[5] < '0' || name[5] > '9') return BK_NO_ITERATION;
    const int64_t n = strtoll(name + 5, NULL, 10);
    return strcmp(name, bk_checkpoint_folder_name(again, n)) == 0 ? n : BK_NO_ITERATION;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

bk_status bk_checkpoint_list(int64_t **out, int64_t *n, const char *dir, bk_err *e)
{
    int64_t *list = NULL, n_list = 0, cap = 0;
    bk_status st = BK_OK;
    DIR *d = opendir(dir);
    if (!d) return bk_err_set(e, BK_E_IO, "%s: cannot open the folder: %s", dir, strerror(errno));
    for (struct dirent *f = readdir(d); f && st == BK_OK; f = readdir(d)) {
        const int64_t iteration = parse_folder_name(f->d_name);
        struct stat info;
        if (iteration == BK_NO_ITERATION || fstatat(dirfd(d), f->d_name, &info, 0) != 0 ||
            !S_ISDIR(info.st_mode))
            continue;
        BK_VEC_PUSH(st, list, n_list, cap, iteration);
    }
    closedir(d);
    if (st != BK_OK) {
        free(list);
        return bk_err_set(e, BK_E_MEM, "%s: no memory for the list of its checkpoints", dir);
    }
    if (n_list > 1) qsort(list, (size_t)n_list, sizeof *list, by_number);
    *out = list, *n = n_list;
    return BK_OK;
}

bk_status bk_checkpoint_tracked(int64_t *out, const char *dir, bk_err *e)
{
    char path[BK_PATH_LEN], quoted[24];
    bk_str text = {0};
    struct stat info;
    bk_status st = BK_OK;
    *out = BK_NO_ITERATION;
    BK_TRY(bk_files_path(path, dir, BK_TRACKER_FILE, e));
    if (stat(path, &info) != 0 && errno == ENOENT) goto done;
    BK_TRY(bk_files_read(&text, path, 1024, e));
    const char *s = bk_str_text(&text);
    const size_t digits = strspn(s, "0123456789");
    if (digits > 0 && digits < 19 && strspn(s + digits, " \r\n") == text.len - digits) {
        *out = strtoll(s, NULL, 10);
        goto done;
    }
    snprintf(quoted, sizeof quoted, "%.*s", (int)strcspn(s, "\r\n"), s);
    st = bk_err_set(e, BK_E_INPUT, "%s: '%s' is not the number of an iteration", path, quoted);
done:
    bk_str_free(&text);
    return st;
}

bool bk_checkpoint_exists(const char *dir)
{
    char path[BK_PATH_LEN];
    struct stat info;
    return bk_files_path(path, dir, BK_TRACKER_FILE, NULL) == BK_OK && stat(path, &info) == 0;
}

/* The lock file holds the number of the process, for the message of the next one. */
static bk_status take_lock(bk_checkpoint_dir *d, bk_err *e)
{
    char path[BK_PATH_LEN], pid[24] = "";
    const bk_status st = bk_files_path(path, d->path, BK_LOCK_FILE, e);
    if (st != BK_OK) return st;
    d->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (d->lock < 0)
        return bk_err_set(e, BK_E_IO, "%s: checkpoints cannot be written there: %s", path, strerror(errno));
    if (flock(d->lock, LOCK_EX | LOCK_NB) == 0) {
        const int n = snprintf(pid, sizeof pid, "%ld", (long)getpid());
        /* On a full disk the message lacks the number, which is no reason to stop. */
        if (ftruncate(d->lock, 0) != 0 || pwrite(d->lock, pid, (size_t)n, 0) != n) errno = 0;
        return BK_OK;
    }
    if (errno != EWOULDBLOCK)
        return bk_err_set(e, BK_E_IO, "%s: cannot be locked: %s", path, strerror(errno));
    if (pread(d->lock, pid, sizeof pid - 1, 0) <= 0 || pid[strspn(pid, "0123456789")] != '\0')
        snprintf(pid, sizeof pid, "unknown");
    return bk_err_set(e, BK_E_INPUT,
                      "%s: another run (process %s) saves into this folder; wait for it, or give this run "
                      "a folder of its own with --save",
                      d->path, pid);
}

/* Iterations in a folder only grow: a run that would come to overwrite checkpoints is refused at its start,
 * not at its first save. Those after the tracker were left by a killed save: they were never handed out. */
static bk_status nothing_is_ahead(const bk_checkpoint_dir *d, int64_t begins_at, bk_err *e)
{
    int64_t *list = NULL, n = 0, tracked;
    char name[BK_ITER_LEN];
    bk_status st = BK_OK;
    BK_TRY(bk_checkpoint_tracked(&tracked, d->path, e));
    BK_TRY(bk_checkpoint_list(&list, &n, d->path, e));
    for (int64_t i = n - 1; i >= 0; i--) {
        if (list[i] > tracked) continue;
        if (list[i] <= begins_at) break;
        st = bk_err_set(e, BK_E_INPUT,
                        "%s: it has the checkpoint %s, and this run begins after iteration %" PRId64
                        "; go on from that one with --load %s, or save elsewhere, or move it away",
                        d->path, bk_checkpoint_folder_name(name, list[i]), begins_at, d->path);
        goto done;
    }
done:
    free(list);
    return st;
}

bk_status bk_checkpoint_dir_open(bk_checkpoint_dir **out, const char *path, int64_t begins_at,
                                 const bk_config *c, bk_err *e)
{
    bk_status st = BK_OK;
    bk_checkpoint_dir *d = calloc(1, sizeof *d);
    if (!d) return bk_err_set(e, BK_E_MEM, "%s: out of memory", path);
    d->lock = -1;
    bk_manifest m = {.birkhoff_version = ""};
    bk_str text = {0};
    BK_TRY(bk_checkpoint_options(&m, c, e));
    BK_TRY(bk_manifest_print(&text, &m, e));
    BK_TRY(bk_files_make_folder(path, e));
    BK_TRY(bk_files_path(d->path, path, BK_TENSOR_FILE, e)); /* that names in it are not too long */
    memcpy(d->path, path, strlen(path) + 1);
    BK_TRY(take_lock(d, e));
    BK_TRY(nothing_is_ahead(d, begins_at, e));
    *out = d, d = NULL;
done:
    bk_str_free(&text);
    bk_manifest_free(&m);
    bk_checkpoint_dir_close(d);
    return st;
}

void bk_checkpoint_dir_close(bk_checkpoint_dir *d)
{
    if (!d) return;
    if (d->lock >= 0) close(d->lock);
    free(d);
}
