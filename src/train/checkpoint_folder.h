/* Inside the checkpoints: the folder DIR, its names and its tracker, and the two handles. */
#ifndef BK_TRAIN_CHECKPOINT_FOLDER_H
#define BK_TRAIN_CHECKPOINT_FOLDER_H

#include "base/files.h"
#include "train/checkpoint.h"
#include "train/manifest.h"

#define BK_TENSOR_FILE    "model.safetensors"
#define BK_MANIFEST_FILE  "manifest.json"
#define BK_TRACKER_FILE   "latest_checkpointed_iteration.txt"
#define BK_LOCK_FILE      ".lock"
#define BK_SAVING_FOLDER  ".tmp-saving"   /* a checkpoint that is being written */
#define BK_REMOVED_FOLDER ".tmp-removing" /* one that is being removed: never seen half empty */
#define BK_SAVING_TRACKER ".tmp-tracker"

enum { BK_ITER_LEN = 32, BK_NO_ITERATION = -1 };

struct bk_checkpoint_dir {
    int lock; /* file descriptor that holds the lock */
    char path[BK_PATH_LEN];
};

struct bk_checkpoint {
    bk_manifest m;
    bk_st *st;
    char path[BK_PATH_LEN];
};

/* "iter_0000100". Returns out. */
char *bk_checkpoint_folder_name(char out[BK_ITER_LEN], int64_t iteration);

/* The iterations that have a folder in `dir`, ascending; *out is the caller's (free). BK_E_IO, BK_E_MEM. */
bk_status bk_checkpoint_list(int64_t **out, int64_t *n, const char *dir, bk_err *e);

/* What the tracker says; BK_NO_ITERATION where there is none. BK_E_INPUT: it holds no iteration. BK_E_IO. */
bk_status bk_checkpoint_tracked(int64_t *out, const char *dir, bk_err *e);

#endif
