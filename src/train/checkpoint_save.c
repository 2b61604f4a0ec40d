/* Saving. The order makes a kill at any moment harmless: all is written and synced under temporary names, the
 * new tracker included; then the folder gets its name, then the tracker.
 *
 *     .tmp-saving/model.safetensors, .tmp-saving/manifest.json, .tmp-tracker     write, sync
 *     .tmp-saving -> iter_N                                                      rename, sync
 *     .tmp-tracker -> latest_checkpointed_iteration.txt                          rename, sync
 *     what save_keep no longer keeps: -> .tmp-removing, removed */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint_folder.h"
#include "train/checkpoint_options.h"
#include "train/checkpoint_tensors.h"

typedef struct {
    const bk_checkpoint_dir *d;
    int64_t iteration, tracked; /* of this checkpoint, and of the one before */
    char saving[BK_PATH_LEN], removed[BK_PATH_LEN], new_tracker[BK_PATH_LEN];
    char target[BK_PATH_LEN], tracker[BK_PATH_LEN];
} save;

static bk_status find_paths(save *s, bk_err *e)
{
    char name[BK_ITER_LEN];
    const char *dir = s->d->path;
    bk_status st = BK_OK;
    BK_TRY(bk_files_path(s->saving, dir, BK_SAVING_FOLDER, e));
    BK_TRY(bk_files_path(s->removed, dir, BK_REMOVED_FOLDER, e));
    BK_TRY(bk_files_path(s->new_tracker, dir, BK_SAVING_TRACKER, e));
    BK_TRY(bk_files_path(s->tracker, dir, BK_TRACKER_FILE, e));
    BK_TRY(bk_files_path(s->target, dir, bk_checkpoint_folder_name(name, s->iteration), e));
done:
    return st;
}

/* The lock makes this process the only one that writes here: what has a temporary name is a killed save's. */
static bk_status clear_leftovers(const save *s, bk_err *e)
{
    bk_status st = BK_OK;
    BK_TRY(bk_files_remove_folder(s->saving, e));
    BK_TRY(bk_files_remove_folder(s->removed, e));
    if (unlink(s->new_tracker) != 0 && errno != ENOENT)
        st = bk_err_set(e, BK_E_IO, "%s: cannot remove it: %s", s->new_tracker, strerror(errno));
done:
    return st;
}

static bk_status write_manifest(const save *s, bk_manifest *m, const bk_checkpoint_tensors *t, bk_err *e)
{
    char path[BK_PATH_LEN];
    struct stat info;
    bk_str text = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_files_path(path, s->saving, BK_TENSOR_FILE, e));
    if (stat(path, &info) != 0) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot look at the file: %s", path, strerror(errno));
        goto done;
    }
    m->file_bytes = info.st_size;
    m->n_tensors = t->n;
    m->tensor = bk_arena_alloc(&m->arena, t->n, sizeof *m->tensor);
    if (!m->tensor) {
        st = bk_err_set(e, BK_E_MEM, "no memory for a manifest");
        goto done;
    }
    for (int64_t i = 0; i < t->n; i++) {
        const bk_st_tensor *x = &t->tensor[i];
        m->tensor[i] = (bk_manifest_tensor){.name = x->name,
                                            .dtype = x->dtype,
                                            .rank = x->rank,
                                            .checksum = bk_manifest_checksum(x->data, x->bytes)};
        memcpy(m->tensor[i].shape, x->shape, sizeof x->shape);
    }
    BK_TRY(bk_manifest_print(&text, m, e));
    BK_TRY(bk_files_path(path, s->saving, BK_MANIFEST_FILE, e));
    BK_TRY(bk_files_write(path, bk_str_text(&text), text.len, e));
done:
    bk_str_free(&text);
    return st;
}

/* All bytes of the checkpoint and of the new tracker, on the disk, under temporary names. */
static bk_status write_all(const save *s, const bk_session *session, const bk_checkpoint_state *state,
                           const bk_config *c, bk_err *e)
{
    bk_manifest m = {.birkhoff_version = BK_VERSION,
                     .iteration = state->iteration,
                     .consumed_samples = state->consumed_samples,
                     .skipped_steps = state->skipped_steps,
                     .line_steps = state->line_steps,
                     .line_loss_sum = state->line_loss_sum};
    bk_checkpoint_tensors t = {0};
    char path[BK_PATH_LEN], number[24];
    bk_status st = BK_OK;
    BK_TRY(bk_checkpoint_options(&m, c, e));
    BK_TRY(bk_checkpoint_tensors_of(&t, session, BK_CHECKPOINT_ALL, e));
    BK_TRY(bk_files_make_folder(s->saving, e));
    BK_TRY(bk_files_path(path, s->saving, BK_TENSOR_FILE, e));
    BK_TRY(bk_st_write(path, t.tensor, t.n, NULL, 0, e));
    BK_TRY(write_manifest(s, &m, &t, e));
    BK_TRY(bk_files_sync_folder(s->saving, e));
    const int n = snprintf(number, sizeof number, "%" PRId64, s->iteration);
    BK_TRY(bk_files_write(s->new_tracker, number, (size_t)n, e));
done:
    bk_manifest_free(&m);
    bk_checkpoint_tensors_free(&t);
    return st;
}

/* Whether the folder's manifest is that of the checkpoint just written, checksums of all tensors included. */
static bk_status is_this_one(bool *same, const save *s, const char *folder, bk_err *e)
{
    char path[BK_PATH_LEN];
    bk_str ours = {0}, theirs = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_files_path(path, s->saving, BK_MANIFEST_FILE, e));
    BK_TRY(bk_files_read(&ours, path, BK_MANIFEST_MAX_BYTES, e));
    BK_TRY(bk_files_path(path, folder, BK_MANIFEST_FILE, e));
    BK_TRY(bk_files_read(&theirs, path, BK_MANIFEST_MAX_BYTES, e));
    *same = ours.len == theirs.len && memcmp(bk_str_text(&ours), bk_str_text(&theirs), ours.len) == 0;
done:
    bk_str_free(&ours);
    bk_str_free(&theirs);
    return st;
}

/* A folder of this iteration may be there already. After the tracker's, it was left by a save that was killed
 * between the two renames, and makes room. Without a tracker it may be such a one, or may be all that is left
 * of somebody's run: then it has to be this very checkpoint, of which the tracker alone is missing. */
static bk_status make_room(bool *moved, const save *s, bk_err *e)
{
    struct stat info;
    bool ours = s->tracked != BK_NO_ITERATION && s->iteration > s->tracked;
    if (lstat(s->target, &info) != 0 && errno == ENOENT) return BK_OK;
    if (s->tracked == BK_NO_ITERATION && is_this_one(&ours, s, s->target, NULL) != BK_OK) ours = false;
    if (!ours)
        return bk_err_set(e, BK_E_INPUT,
                          "%s is there already and is not overwritten; move it away or save elsewhere",
                          s->target);
    const bk_status st = bk_files_rename(s->target, s->removed, e);
    *moved = st == BK_OK;
    return st;
}

/* Gives the folder and the tracker their names; both or neither. */
static bk_status publish(const save *s, bk_err *e)
{
    bk_status st = BK_OK;
    bool made_room = false, named = false;
    BK_TRY(make_room(&made_room, s, e));
    BK_TRY(bk_files_rename(s->saving, s->target, e));
    named = true;
    BK_TRY(bk_files_sync_folder(s->d->path, e));
    BK_TRY(bk_files_rename(s->new_tracker, s->tracker, e));
    return BK_OK;
done:
    if (named) bk_files_rename(s->target, s->saving, NULL);
    if (made_room) bk_files_rename(s->removed, s->target, NULL);
    return st;
}

/* Each goes under its temporary name first, so that none is ever seen half empty. */
static bk_status remove_old(const save *s, int64_t keep, bk_err *e)
{
    int64_t *list = NULL, n = 0, n_old = 0;
    char name[BK_ITER_LEN], path[BK_PATH_LEN];
    bk_status st = BK_OK;
    if (keep == 0) return BK_OK;
    BK_TRY(bk_checkpoint_list(&list, &n, s->d->path, e));
    while (n_old < n && list[n_old] <= s->iteration) n_old++;
    for (int64_t i = 0; i < n_old - keep; i++) {
        BK_TRY(bk_files_path(path, s->d->path, bk_checkpoint_folder_name(name, list[i]), e));
        BK_TRY(bk_files_rename(path, s->removed, e));
        BK_TRY(bk_files_sync_folder(s->d->path, e));
        BK_TRY(bk_files_remove_folder(s->removed, e));
    }
done:
    free(list);
    return st;
}

/* What is left to do once the checkpoint can be seen. */
static bk_status settle(const save *s, int64_t keep, bk_err *e)
{
    bk_status st = BK_OK;
    BK_TRY(bk_files_sync_folder(s->d->path, e));
    BK_TRY(bk_files_remove_folder(s->removed, e));
    BK_TRY(remove_old(s, keep, e));
done:
    if (st != BK_OK) bk_err_prefix(e, "%s is saved, but: ", s->target);
    return st;
}

/* Says what was not saved and what is left. */
static void not_saved(const save *s, bk_err *e)
{
    char name[BK_ITER_LEN];
    if (s->tracked == BK_NO_ITERATION)
        bk_err_prefix(e,
                      "the checkpoint of iteration %" PRId64 " is not saved, and there is none before it: ",
                      s->iteration);
    else
        bk_err_prefix(e, "the checkpoint of iteration %" PRId64 " is not saved, the newest one remains %s: ",
                      s->iteration, bk_checkpoint_folder_name(name, s->tracked));
}

bk_status bk_checkpoint_save(bk_checkpoint_dir *d, const bk_session *session,
                             const bk_checkpoint_state *state, const bk_config *c, bk_err *e)
{
    save s = {.d = d, .iteration = state->iteration, .tracked = BK_NO_ITERATION};
    bk_status st = BK_OK;
    BK_TRY(find_paths(&s, e));
    BK_TRY(bk_checkpoint_tracked(&s.tracked, d->path, e));
    BK_TRY(clear_leftovers(&s, e));
    BK_TRY(write_all(&s, session, state, c, e));
    BK_TRY(publish(&s, e));
done:
    if (st == BK_OK) return settle(&s, c->save_keep, e);
    clear_leftovers(&s, NULL); /* the first error is the one to tell */
    not_saved(&s, e);
    return st;
}
