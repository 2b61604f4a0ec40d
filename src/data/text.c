/* Reading a corpus. Each path given is first turned into a sorted list of files, then the files are read one
 * after the other; a folder's subfolders wait in a list, so depth costs no stack. */
#include "data/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/vec.h"

typedef struct {
    const char **paths;
    int64_t n_paths, cap_paths;
} path_list;

typedef struct {
    const bk_text_options *options;
    bk_text_report *report;
    bk_arena names; /* the paths of both lists */
    path_list files, folders;
    uint16_t *tokens;
    int64_t n_tokens, cap_tokens;
    int64_t bytes_left; /* of max_bytes */
} loader;

static bk_status no_memory(bk_err *e)
{
    return bk_err_set(e, BK_E_MEM, "text: out of memory; set a limit of bytes or name fewer files");
}

static void note_unreadable(loader *l, const char *path, int reason)
{
    if (l->report->n_unreadable++ > 0) return;
    snprintf(l->report->first_unreadable, sizeof l->report->first_unreadable, "%.180s: %s", path,
             strerror(reason));
}

/* Adds folder/name to the list that fits it, or counts it. `at` is the open folder. */
static bk_status add_entry(loader *l, const char *folder, int at, const char *name, bk_err *e)
{
    const size_t n = strlen(folder);
    const char *path =
        bk_arena_printf(&l->names, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
    if (!path) return no_memory(e);
    const bool wanted = !l->options->suffix || fnmatch(l->options->suffix, name, 0) == 0;
    struct stat info, target;
    if (fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        note_unreadable(l, path, errno);
        return BK_OK;
    }
    const bool link = S_ISLNK(info.st_mode);
    /* A link that leads nowhere goes with the files: reading it fails, in the order of paths. */
    const bool dangling = link && fstatat(at, name, &target, 0) != 0;
    const mode_t mode = dangling ? S_IFREG : link ? target.st_mode : info.st_mode;
    path_list *list = NULL;
    if (S_ISDIR(mode) && !link)
        list = &l->folders;
    else if (S_ISREG(mode) && wanted)
        list = &l->files;
    else if (S_ISDIR(mode) || (!S_ISREG(mode) && wanted))
        l->report->n_special++;
    if (!list) return BK_OK;
    bk_status st = BK_OK;
    BK_VEC_PUSH(st, list->paths, list->n_paths, list->cap_paths, path);
    return st == BK_OK ? BK_OK : no_memory(e);
}

/* Adds what one folder holds. errno is left in *reason if the folder cannot be read, else 0. */
static bk_status list_folder(loader *l, int *reason, const char *folder, bk_err *e)
{
    bk_status st = BK_OK;
    DIR *d = opendir(folder);
    *reason = d ? 0 : errno;
    while (d && st == BK_OK) {
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (!entry) {
            *reason = errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        st = add_entry(l, folder, dirfd(d), entry->d_name, e);
    }
    if (d) closedir(d);
    return st;
}

static int by_bytes(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* All files below a named folder, sorted. */
static bk_status list_tree(loader *l, const char *root, bk_err *e)
{
    int reason = 0;
    bk_status st = list_folder(l, &reason, root, e);
    if (st == BK_OK && reason != 0)
        st = bk_err_set(e, BK_E_IO, "text: cannot read folder '%s': %s", root, strerror(reason));
    while (st == BK_OK && l->folders.n_paths > 0) {
        const char *folder = l->folders.paths[--l->folders.n_paths];
        st = list_folder(l, &reason, folder, e);
        if (reason != 0) note_unreadable(l, folder, reason);
    }
    if (st == BK_OK && l->files.n_paths > 1)
        qsort(l->files.paths, (size_t)l->files.n_paths, sizeof *l->files.paths, by_bytes);
    return st;
}

/* Appends n bytes as tokens; `bytes` NULL appends the end of a document. */
static bk_status append(loader *l, const unsigned char *bytes, int64_t n, bk_err *e)
{
    if (bk_vec_grow(&l->tokens, &l->cap_tokens, l->n_tokens, n, sizeof *l->tokens) != BK_OK)
        return no_memory(e);
    for (int64_t i = 0; i < n; i++) l->tokens[l->n_tokens + i] = bytes ? bytes[i] : BK_TEXT_EOD;
    l->n_tokens += n;
    return BK_OK;
}

/* Appends one file as a document. If it cannot be read, *reason is errno and no token of it remains. */
static bk_status read_file(loader *l, int *reason, const char *path, bk_err *e)
{
    unsigned char chunk[65536];
    const int64_t before = l->n_tokens;
    bk_status st = BK_OK;
    bool cut = false;
    *reason = 0;
    if (l->bytes_left == 0) {
        l->report->n_over_limit++;
        return BK_OK;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* it may have become a pipe meanwhile */
    if (fd < 0) *reason = errno;
    while (fd >= 0 && st == BK_OK && !cut) {
        const ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) *reason = errno;
        if (n <= 0) break;
        cut = n > l->bytes_left;
        const int64_t taken = cut ? l->bytes_left : n;
        st = append(l, chunk, taken, e);
        l->bytes_left -= taken;
    }
    if (fd >= 0) close(fd);
    if (st != BK_OK) return st;
    if (*reason != 0) {
        l->bytes_left += l->n_tokens - before;
        l->n_tokens = before;
    } else if (l->n_tokens == before) {
        l->report->n_empty++;
    } else {
        l->report->n_files++;
        l->report->n_over_limit += cut;
        if (!cut) st = append(l, NULL, 1, e);
    }
    return st;
}

static bk_status load_folder(loader *l, const char *root, bk_err *e)
{
    const int64_t n_before = l->report->n_files, unreadable_before = l->report->n_unreadable;
    const bool full = l->bytes_left == 0;
    l->files.n_paths = 0;
    bk_status st = list_tree(l, root, e);
    for (int64_t i = 0; st == BK_OK && i < l->files.n_paths; i++) {
        int reason = 0;
        st = read_file(l, &reason, l->files.paths[i], e);
        if (reason != 0) note_unreadable(l, l->files.paths[i], reason);
    }
    if (st != BK_OK || full || l->report->n_files > n_before) return st;
    return bk_err_set(e, BK_E_INPUT,
                      "text: folder '%s' holds no text: %" PRId64 " files match '%s', %" PRId64
                      " files or folders cannot be read",
                      root, l->files.n_paths, l->options->suffix ? l->options->suffix : "*",
                      l->report->n_unreadable - unreadable_before);
}

static bk_status load_named_file(loader *l, const char *path, bk_err *e)
{
    const int64_t empty_before = l->report->n_empty;
    int reason = 0;
    const bk_status st = read_file(l, &reason, path, e);
    if (st != BK_OK) return st;
    if (reason != 0) return bk_err_set(e, BK_E_IO, "text: cannot read '%s': %s", path, strerror(reason));
    if (l->report->n_empty > empty_before) return bk_err_set(e, BK_E_INPUT, "text: file '%s' is empty", path);
    return BK_OK;
}

static bk_status load_path(loader *l, const char *path, bk_err *e)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return bk_err_set(e, BK_E_IO, "text: cannot read '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return load_folder(l, path, e);
    if (S_ISREG(info.st_mode)) return load_named_file(l, path, e);
    return bk_err_set(e, BK_E_INPUT, "text: '%s' is neither a file nor a folder", path);
}

static bk_status check_length(const loader *l, bk_err *e)
{
    const int64_t seq_length = l->options->seq_length;
    if (l->n_tokens > 0 && l->n_tokens > seq_length) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "text: %" PRId64 " tokens are too few; one sequence of %" PRId64
                      " needs one more than its length: name more text or lower the sequence length",
                      l->n_tokens, seq_length);
}

bk_status bk_text_load(bk_text *out, const char *const *paths, int n_paths, const bk_text_options *options,
                       bk_text_report *report, bk_err *e)
{
    bk_text_report own;
    loader l = {.options = options, .report = report ? report : &own};
    *l.report = (bk_text_report){0};
    bk_arena_init(&l.names);
    l.bytes_left = options->max_bytes > 0 ? options->max_bytes : INT64_MAX;
    bk_status st = BK_OK;
    if (options->max_bytes < 0 || options->seq_length < 0) {
        st = bk_err_set(e, BK_E_INPUT,
                        "text: a limit of %" PRId64 " bytes and a sequence length of %" PRId64
                        " must not be negative",
                        options->max_bytes, options->seq_length);
        goto done;
    }
    if (n_paths < 1) {
        st = bk_err_set(e, BK_E_INPUT, "text: no file or folder is named");
        goto done;
    }
    for (int i = 0; i < n_paths; i++) BK_TRY(load_path(&l, paths[i], e));
    BK_TRY(check_length(&l, e));
    *out = (bk_text){.tokens = l.tokens, .n_tokens = l.n_tokens};
    l.tokens = NULL;
done:
    free(l.tokens);
    free(l.files.paths);
    free(l.folders.paths);
    bk_arena_free(&l.names);
    return st;
}

void bk_text_free(bk_text *text)
{
    free(text->tokens);
    *text = (bk_text){0};
}
