/* Checkpoints that are not what they were, and checkpoints of something else. */
#include "checkpoint_fixture.h"

#include "train/manifest.h"

#define TRACKER  "ck/latest_checkpointed_iteration.txt"
#define TENSORS  "ck/iter_0000002/model.safetensors"
#define MANIFEST "ck/iter_0000002/manifest.json"
#define INSTEAD  "the newest whole checkpoint before it is iter_0000001: load that with --ckpt-step 1"

/* A run with the checkpoints 1 and 2; the caller closes it. */
static void save_two(small_run *r, const char *more)
{
    open_run(r, more);
    must_save(r, 1);
    must_save(r, 2);
}

static void test_checkpoint_damage__a_flipped_bit_in_a_tensor(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_st *st = NULL;
    size_t n;
    save_two(&r, smallest);
    char *file = read_file(TENSORS, &n);
    must(bk_st_from_memory(&st, file, (int64_t)n, "t", &e), &e);
    assert_true(bk_st_count(st) > 20);
    for (int64_t i = 0; i < bk_st_count(st); i++) {
        const bk_st_tensor *t = bk_st_at(st, i);
        const int64_t first = (const char *)t->data - file, places[] = {0, t->bytes / 2, t->bytes - 1};
        for (int k = 0; k < 3; k++) {
            char name[300];
            file[first + places[k]] ^= (char)(1 << (k + i) % 8);
            write_file(TENSORS, file, n);
            file[first + places[k]] ^= (char)(1 << (k + i) % 8);
            snprintf(name, sizeof name, "iter_0000002: the bytes of tensor %s do not have", t->name);
            assert_not_opened(name);
        }
        if (i == 0) assert_not_opened("the newest checkpoint cannot be loaded: ");
        if (i == 0) assert_not_opened(INSTEAD);
    }
    write_file(TENSORS, file, n);
    assert_int_equal(newest(), 2);
    bk_st_free(st);
    free(file);
    small_run_close(&r);
}

/* Every byte of the manifest and of the header in front of the tensors, one bit each. */
static void test_checkpoint_damage__a_flipped_bit_anywhere_else(void **state)
{
    (void)state;
    small_run r;
    size_t n;
    uint64_t header;
    bk_manifest m;
    save_two(&r, smallest);
    char *file = read_file(MANIFEST, &n);
    for (size_t i = 0; i < n; i++) {
        file[i] ^= (char)(1 << i % 8);
        assert_int_equal(bk_manifest_parse(&m, file, (int64_t)n, "m", NULL), BK_E_INPUT);
        file[i] ^= (char)(1 << i % 8);
    }
    free(file);
    file = read_file(TENSORS, &n);
    memcpy(&header, file, sizeof header);
    for (size_t i = 0; i < 8 + header; i += i < 8 ? 1 : 5) {
        file[i] ^= (char)(1 << i % 8);
        write_file(TENSORS, file, n);
        file[i] ^= (char)(1 << i % 8);
        assert_not_opened("iter_0000002");
    }
    free(file);
    small_run_close(&r);
}

static void test_checkpoint_damage__files_cut_short(void **state)
{
    (void)state;
    small_run r;
    size_t n;
    save_two(&r, smallest);
    const char *const paths[] = {TENSORS, MANIFEST};
    for (int p = 0; p < 2; p++) {
        char *file = read_file(paths[p], &n);
        for (size_t left = 0; left < n; left += n / 9) {
            write_file(paths[p], file, left);
            assert_not_opened("cut short");
            assert_not_opened(INSTEAD);
        }
        write_file(paths[p], file, n + 1); /* the NUL behind it */
        assert_not_opened("altered");
        remove(paths[p]);
        assert_not_opened("cannot open: No such file");
        assert_not_opened(INSTEAD);
        write_file(paths[p], file, n);
        assert_int_equal(newest(), 2);
        free(file);
    }
    small_run_close(&r);
}

/* The manifest with one text replaced, sealed again. */
static void write_manifest(const char *manifest, const char *old, const char *new)
{
    bk_str text = {0};
    const char *at = strstr(manifest, old), *seal = strstr(manifest, "  \"checksum\"");
    if (!at) fail_msg("%s is not in the manifest", old);
    bk_str_append_n(&text, manifest, (size_t)(at - manifest));
    bk_str_append(&text, new);
    at += strlen(old);
    bk_str_append_n(&text, at, (size_t)(seal - at));
    bk_manifest_seal(&text);
    write_file(MANIFEST, text.s, text.len);
    bk_str_free(&text);
}

static void test_checkpoint_damage__manifests_that_lie(void **state)
{
    (void)state;
    small_run r;
    size_t n;
    save_two(&r, smallest);
    char *m = read_file(MANIFEST, &n);
    static const char *const lies[][3] = {
        {"\"format_version\": 1", "\"format_version\": 2", "format version 2, this birkhoff reads version 1"},
        {"\"format_version\": 1", "\"format_version\": \"1\"", "format_version is not a whole number"},
        {"\"format_version\": 1,", "", "format_version is not a whole number"},
        {"\"iteration\": 2", "\"iteration\": 3", "it is of iteration 3, its folder is not"},
        {"\"iteration\": 2", "\"iteration\": -2", "iteration is not a whole number"},
        {"\"iteration\": 2", "\"iteration\": 1e300", "iteration is not a whole number"},
        {"\"iteration\": 2,", "", "iteration is missing"},
        {"\"iteration\": 2", "\"iteration\": 2, \"iteration\": 2", "member iteration is given twice"},
        {"\"iteration\": 2", "\"iteration\": 2, \"rank\": 2", "member rank is not known"},
        {"\"consumed_samples\": 4", "\"consumed_samples\": 4.5", "consumed_samples is not a whole number"},
        {"\"file_bytes\": ", "\"file_bytes\": 1", "cut short"},
        {"\"config\": {", "\"config\": {\"seed\": \"1\", ", "option seed is given twice"},
        {"\"config\": {", "\"config\": {\"a\": [], ", "the list of option a is empty"},
        {"\"config\": {", "\"config\": {\"a\": 1, ", "a is not a text"},
        {"\"config\": {", "\"config\": [], \"b\": {", "member b is not known"},
        {"\"tensors\": {",
         "\"tensors\": {\"z\": {\"dtype\": \"F32\", \"shape\": [1], \"xxh3\": "
         "\"0123456789abcdef\"}, ",
         "manifest and file do not have the same tensors, from z on"},
        {"\"tensors\": {", "\"tensors\": {\"z\": {\"dtype\": \"F33\", \"shape\": [1], \"xxh3\": \"0\"}, ",
         "tensor z has an unknown dtype"},
        {"\"tensors\": {", "\"tensors\": {\"z\": {\"dtype\": \"F32\", \"shape\": [1], \"xxh3\": \"0\"}, ",
         "tensor z has no checksum"},
        {"\"tensors\": {", "\"tensors\": {\"z\": {\"dtype\": \"F32\", \"shape\": [1]}, ",
         "the entry of tensor z is not dtype, shape and xxh3"},
        {"\"tensors\": {",
         "\"tensors\": {\"z\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,1], "
         "\"xxh3\": \"0\"}, ",
         "tensor z has no shape of at most 8 dims"},
        {"\"tensors\": {",
         "\"tensors\": {\"z\": {\"dtype\": \"F32\", \"shape\": [], \"xxh3\": "
         "\"0123456789abcdef\"}, \"z\": {\"dtype\": \"F32\", \"shape\": [], \"xxh3\": "
         "\"0123456789abcdef\"}, ",
         "tensor z is given twice"},
        {"\"dtype\": \"F32\"", "\"dtype\": \"I32\"", "is not of the type and shape that the manifest has"},
        {"  },\n", "  ,\n", "it is not a JSON object"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        write_manifest(m, lies[i][0], lies[i][1]);
        assert_not_opened(lies[i][2]);
    }
    /* "file_bytes": 1... is too large: that the other way round is seen as well. */
    write_manifest(m, "\"file_bytes\": ", "\"file_bytes\": 0, \"x\": ");
    assert_not_opened("member x is not known");
    write_file(MANIFEST, m, n);
    assert_int_equal(newest(), 2);
    free(m);
    small_run_close(&r);
}

static void test_checkpoint_damage__trackers(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    assert_int_equal(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), BK_E_INPUT);
    assert_says(&e, "ck: no checkpoint can be loaded: No such file or directory");
    save_two(&r, smallest);
    remove(TRACKER);
    assert_not_opened("ck: no checkpoint can be loaded: it has no latest_checkpointed_iteration.txt; the "
                      "newest whole checkpoint there is iter_0000002: load that with --ckpt-step 2");
    static const char *const bad[] = {"", "release", "-2", "2x", "2 3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(TRACKER, bad[i], strlen(bad[i]));
        assert_not_opened("is not the number of an iteration");
        assert_not_opened("; the newest whole checkpoint there is iter_0000002");
        assert_int_equal(save_alone(&r, 3, &e), BK_E_INPUT); /* nor is it overwritten */
    }
    write_file(TRACKER, "7", 1);
    assert_not_opened("ck/iter_0000007: there is no such checkpoint");
    assert_not_opened("is iter_0000002: load that with --ckpt-step 2");
    write_file(TRACKER, "2\n", 2); /* as an editor leaves it */
    assert_int_equal(newest(), 2);
    must(bk_checkpoint_open(&k, "ck", 1, &e), &e);
    assert_int_equal(bk_checkpoint_get_state(k).iteration, 1);
    bk_checkpoint_close(k);
    k = NULL;
    assert_int_equal(bk_checkpoint_open(&k, "ck", 0, &e), BK_E_INPUT);
    assert_says(&e, "no whole checkpoint is before it");
    /* Two in a row are damaged: none is called whole. */
    write_file(MANIFEST, "x", 1);
    write_file("ck/iter_0000001/manifest.json", "x", 1);
    assert_not_opened("no whole checkpoint is before it");
    small_run_close(&r);
}

static void assert_other_model(const bk_checkpoint *k, const char *more, bk_dtype real, const char *part)
{
    small_run r;
    bk_err e = {0};
    small_run_graphs(&r, more, 1, real);
    small_run_open(&r);
    const size_t bytes = (size_t)r.session.run.bytes;
    void *before = malloc(bytes);
    memcpy(before, small_run_state(&r), bytes);
    assert_int_equal(bk_checkpoint_load(k, &r.session, BK_CHECKPOINT_ALL, &e), BK_E_INPUT);
    assert_says(&e, "ck/iter_0000002 is a checkpoint of another model; ");
    assert_says(&e, part);
    assert_memory_equal(before, small_run_state(&r), bytes);
    free(before);
    small_run_close(&r);
}

static void test_checkpoint_damage__another_model(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    save_two(&r, NULL);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    assert_other_model(k, "num_layers: 3\n", BK_F32, "missing: decoder.layers.2.");
    assert_other_model(k, "num_layers: 1\n", BK_F32, "too many: decoder.layers.1.");
    assert_other_model(k, "vocab_size: 40\n", BK_F32,
                       "; 6 of another form: embedding.word_embeddings.weight is F32 [32, 16], not F32 [40, "
                       "16], optimizer.state.exp_avg.embedding.word_embeddings.weight is");
    assert_other_model(k, NULL, BK_F64, "decoder.final_layernorm.weight is F32 [16], not F64 [16], ");
    assert_other_model(k, "enable_mhc_connections: false\n", BK_F32, " too many: decoder.");
    bk_checkpoint_close(k);
    small_run_close(&r);
}

int main(void)
{
#define IN_A_FOLDER(t) cmocka_unit_test_setup_teardown(t, enter_new_folder, leave_folder)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(test_checkpoint_damage__a_flipped_bit_in_a_tensor),
        IN_A_FOLDER(test_checkpoint_damage__a_flipped_bit_anywhere_else),
        IN_A_FOLDER(test_checkpoint_damage__files_cut_short),
        IN_A_FOLDER(test_checkpoint_damage__manifests_that_lie),
        IN_A_FOLDER(test_checkpoint_damage__trackers),
        IN_A_FOLDER(test_checkpoint_damage__another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
