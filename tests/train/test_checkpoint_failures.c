/* Every call of the system by which a save writes fails once, and the process dies at each of them. The calls
 * are wrapped by the linker; syncs are counted and not done. */
#include "checkpoint_fixture.h"

#include <errno.h>
#include <sys/wait.h>

typedef enum { COUNT, FAIL, DIE } injection;

static injection mode;
static int n_calls, at_call;

/* What was synced and renamed, in order, while `logging`. */
static bool logging;
static bk_str sequence;

/* Whether this call is the one; in mode DIE there is no return. */
static bool is_hit(void)
{
    if (mode == COUNT || n_calls++ != at_call) return false;
    if (mode == DIE) _exit(9);
    errno = ENOSPC;
    return true;
}

ssize_t __real_write(int fd, const void *bytes, size_t n);
int __real_rename(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t permissions);
int __real_unlinkat(int folder, const char *path, int flags);
int __real_rmdir(const char *path);
int __real_open(const char *path, int flags, mode_t permissions);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __wrap_rename(const char *from, const char *to);
int __wrap_mkdir(const char *path, mode_t permissions);
int __wrap_unlinkat(int folder, const char *path, int flags);
int __wrap_rmdir(const char *path);
int __wrap_open(const char *path, int flags, mode_t permissions);
int __wrap_fsync(int fd);

/* A write that dies has written half. */
ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (mode == DIE && n_calls == at_call) (void)!__real_write(fd, bytes, n / 2);
    return is_hit() ? -1 : __real_write(fd, bytes, n);
}

int __wrap_rename(const char *from, const char *to)
{
    if (logging) bk_str_appendf(&sequence, "%s -> %s\n", from, to);
    return is_hit() ? -1 : __real_rename(from, to);
}

int __wrap_mkdir(const char *path, mode_t permissions)
{
    return is_hit() ? -1 : __real_mkdir(path, permissions);
}

int __wrap_unlinkat(int folder, const char *path, int flags)
{
    return is_hit() ? -1 : __real_unlinkat(folder, path, flags);
}

int __wrap_rmdir(const char *path)
{
    return is_hit() ? -1 : __real_rmdir(path);
}

int __wrap_open(const char *path, int flags, mode_t permissions)
{
    return is_hit() ? -1 : __real_open(path, flags, permissions);
}

int __wrap_fsync(int fd)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (logging && readlink(link, path, sizeof path - 1) > 0)
        bk_str_appendf(&sequence, "sync %s\n", strstr(path, "/ck") + 1);
    return is_hit() ? -1 : 0;
}

/* The folder with one checkpoint, iteration 1. */
static void begin_with_one(small_run *r)
{
    mode = COUNT;
    remove_tree("ck");
    must_save(r, 1);
}

static void test_checkpoint_failures__each_call_fails_once(void **state)
{
    (void)state;
    small_run r;
    int n_unsaved = 0, n_saved = 0;
    open_run(&r, smallest);
    r.c.save_keep = 1;
    bool hit = true;
    for (at_call = 0; hit; at_call++) {
        bk_err e = {0};
        bk_checkpoint_dir *d = NULL;
        begin_with_one(&r);
        must(bk_checkpoint_dir_open(&d, "ck", 1, &r.c, &e), &e);
        mode = FAIL, n_calls = 0;
        const bk_status st = save_in(d, &r, 2, &e);
        hit = n_calls > at_call;
        mode = COUNT;
        if (hit && st == BK_OK) fail_msg("call %d failed and nobody saw it", at_call);
        if (!hit) must(st, &e);
        const bool saved = st == BK_OK || strstr(e.msg, "ck/iter_0000002 is saved, but: ");
        if (!saved) {
            assert_says(&e, "the checkpoint of iteration 2 is not saved");
            assert_says(&e, strerror(ENOSPC));
            assert_int_equal(count_entries("ck", ".tmp"), 0);
            assert_int_equal(count_entries("ck", "iter_"), 1);
        }
        assert_int_equal(newest(), saved ? 2 : 1);
        n_saved += saved, n_unsaved += !saved;
        must(save_in(d, &r, saved ? 3 : 2, &e), &e);
        assert_int_equal(newest(), saved ? 3 : 2);
        assert_int_equal(count_entries("ck", ".tmp"), 0);
        bk_checkpoint_dir_close(d);
    }
    assert_true(n_unsaved > 15 && n_saved > 3); /* both sides of the moment of publishing were met */
    small_run_close(&r);
}

/* The folder has a checkpoint of which the tracker is missing; saving it once more makes room for itself. */
static void test_checkpoint_failures__what_made_room_comes_back(void **state)
{
    (void)state;
    small_run r;
    open_run(&r, smallest);
    bool hit = true;
    for (at_call = 0; hit; at_call++) {
        bk_err e = {0};
        bk_checkpoint *k = NULL;
        bk_checkpoint_dir *d = NULL;
        begin_with_one(&r);
        assert_int_equal(unlink("ck/latest_checkpointed_iteration.txt"), 0);
        must(bk_checkpoint_dir_open(&d, "ck", 0, &r.c, &e), &e);
        mode = FAIL, n_calls = 0;
        const bk_status st = save_in(d, &r, 1, &e);
        hit = n_calls > at_call;
        mode = COUNT;
        if (!hit) must(st, &e);
        must(bk_checkpoint_open(&k, "ck", 1, &e), &e);
        bk_checkpoint_close(k);
        bk_checkpoint_dir_close(d);
    }
    assert_true(at_call > 15);
    small_run_close(&r);
}

/* A power cut shows no file that was renamed before it was synced. */
static void test_checkpoint_failures__syncs_before_it_renames(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint_dir *d = NULL;
    char expected[1024], part[32];
    open_run(&r, smallest);
    r.c.save_keep = 1;
    begin_with_one(&r);
    must(bk_checkpoint_dir_open(&d, "ck", 1, &r.c, &e), &e);
    logging = true;
    must(save_in(d, &r, 2, &e), &e);
    logging = false;
    snprintf(part, sizeof part, "tmp-%ld-0", (long)getpid());
    snprintf(expected, sizeof expected,
             "sync ck/.tmp-saving/model.safetensors.%s\n"
             "ck/.tmp-saving/model.safetensors.%s -> ck/.tmp-saving/model.safetensors\n"
             "sync ck/.tmp-saving\n"
             "sync ck/.tmp-saving/manifest.json\n"
             "sync ck/.tmp-saving\n"
             "sync ck/.tmp-tracker\n"
             "ck/.tmp-saving -> ck/iter_0000002\n"
             "sync ck\n"
             "ck/.tmp-tracker -> ck/latest_checkpointed_iteration.txt\n"
             "sync ck\n"
             "ck/iter_0000001 -> ck/.tmp-removing\n"
             "sync ck\n",
             part, part);
    assert_string_equal(bk_str_text(&sequence), expected);
    bk_str_free(&sequence);
    bk_checkpoint_dir_close(d);
    small_run_close(&r);
}

/* Saves `iteration` in a child that dies at call `at_call`; false when it came to its end before. */
static bool die_while_saving(small_run *r, int64_t iteration)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        mode = DIE, n_calls = 0;
        _exit(save_alone(r, iteration, NULL) == BK_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
    return WEXITSTATUS(status) == 9;
}

static void test_checkpoint_failures__dies_at_each_call(void **state)
{
    (void)state;
    small_run r;
    bool n_died[4] = {0};
    open_run(&r, smallest);
    r.c.save_keep = 1;
    bool died = true;
    for (at_call = 0; died; at_call++) {
        begin_with_one(&r);
        died = die_while_saving(&r, 2);
        const int64_t found = newest(); /* opened, so whole */
        assert_in_range(found, 1, 2);
        n_died[found] = true;
        must_save(&r, found + 1);
        assert_int_equal(newest(), found + 1);
        assert_int_equal(count_entries("ck", ".tmp"), 0);
        assert_int_equal(count_entries("ck", "iter_"), 1);
    }
    assert_true(n_died[1] && n_died[2]);
    small_run_close(&r);
}

/* The first checkpoint of a folder: the run begins again and saves the same. */
static void test_checkpoint_failures__dies_in_the_first_save(void **state)
{
    (void)state;
    small_run r;
    open_run(&r, smallest);
    bool died = true;
    for (at_call = 0; died; at_call++) {
        mode = COUNT;
        remove_tree("ck");
        died = die_while_saving(&r, 1);
        if (bk_checkpoint_exists("ck"))
            assert_int_equal(newest(), 1);
        else
            must_save(&r, 1);
        must_save(&r, 2);
        assert_int_equal(newest(), 2);
        assert_int_equal(count_entries("ck", ".tmp"), 0);
    }
    small_run_close(&r);
}

int main(void)
{
#define IN_A_FOLDER(t) cmocka_unit_test_setup_teardown(t, enter_new_folder, leave_folder)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(test_checkpoint_failures__each_call_fails_once),
        IN_A_FOLDER(test_checkpoint_failures__what_made_room_comes_back),
        IN_A_FOLDER(test_checkpoint_failures__syncs_before_it_renames),
        IN_A_FOLDER(test_checkpoint_failures__dies_at_each_call),
        IN_A_FOLDER(test_checkpoint_failures__dies_in_the_first_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
