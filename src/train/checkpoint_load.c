/* Copies a checkpoint into a session, if the two have the same tensors. */
#include <inttypes.h>
#include <string.h>

#include "train/checkpoint_folder.h"
#include "train/checkpoint_tensors.h"

enum { MOST_NAMED = 3 };

static void append_form(bk_str *out, const bk_st_tensor *t)
{
    bk_str_appendf(out, "%s [", bk_st_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++) bk_str_appendf(out, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    bk_str_append(out, "]");
}

/* Names of the first few, a count of all. */
typedef struct {
    int64_t n;
    bk_str names;
} differing;

static void add_name(differing *d, const char *name)
{
    if (d->n < MOST_NAMED) bk_str_appendf(&d->names, "%s%.80s", d->n ? ", " : "", name);
    if (d->n++ == MOST_NAMED) bk_str_append(&d->names, ", ...");
}

static void add_forms(differing *d, const bk_st_tensor *theirs, const bk_st_tensor *ours)
{
    const bool named = d->n < MOST_NAMED;
    add_name(d, theirs->name);
    if (!named) return;
    bk_str_append(&d->names, " is ");
    append_form(&d->names, theirs);
    bk_str_append(&d->names, ", not ");
    append_form(&d->names, ours);
}

static bool same_form(const bk_st_tensor *a, const bk_st_tensor *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++) same = a->shape[d] == b->shape[d];
    return same;
}

typedef struct {
    differing missing, extra, form;
} differences;

/* Both lists are sorted by name. */
static void compare(differences *d, const bk_checkpoint *k, const bk_checkpoint_tensors *t,
                    bk_checkpoint_part part)
{
    const int64_t n = bk_st_count(k->st);
    for (int64_t i = 0, j = 0; i < t->n || j < n;) {
        const bk_st_tensor *ours = i < t->n ? &t->tensor[i] : NULL;
        const bk_st_tensor *theirs = j < n ? bk_st_at(k->st, j) : NULL;
        if (theirs && !bk_checkpoint_is_in(part, theirs->name)) {
            j++;
            continue;
        }
        const int order = !ours ? 1 : !theirs ? -1 : strcmp(ours->name, theirs->name);
        if (order < 0) add_name(&d->missing, ours->name);
        if (order > 0) add_name(&d->extra, theirs->name);
        if (order == 0 && !same_form(ours, theirs)) add_forms(&d->form, theirs, ours);
        i += order <= 0, j += order >= 0;
    }
}

static void append_differing(bk_str *out, const char *what, const differing *d)
{
    if (d->n) bk_str_appendf(out, "; %" PRId64 " %s: %s", d->n, what, bk_str_text(&d->names));
}

static bk_status is_of_this_model(const bk_checkpoint *k, const bk_checkpoint_tensors *t,
                                  bk_checkpoint_part part, bk_err *e)
{
    differences d = {0};
    bk_str text = {0};
    bk_status st = BK_OK;
    compare(&d, k, t, part);
    append_differing(&text, "missing", &d.missing);
    append_differing(&text, "too many", &d.extra);
    append_differing(&text, "of another form", &d.form);
    if (d.missing.n + d.extra.n + d.form.n > 0)
        st = bk_err_set(e, BK_E_INPUT, "%.200s is a checkpoint of another model%s", k->path,
                        bk_str_text(&text));
    bk_str_free(&d.missing.names);
    bk_str_free(&d.extra.names);
    bk_str_free(&d.form.names);
    bk_str_free(&text);
    return st;
}

bk_status bk_checkpoint_load(const bk_checkpoint *k, const bk_session *s, bk_checkpoint_part part, bk_err *e)
{
    bk_checkpoint_tensors t = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_checkpoint_tensors_of(&t, s, part, e));
    BK_TRY(is_of_this_model(k, &t, part, e));
    for (int64_t i = 0; i < t.n; i++)
        memcpy(t.data[i], bk_st_find(k->st, t.tensor[i].name)->data, (size_t)t.tensor[i].bytes);
done:
    bk_checkpoint_tensors_free(&t);
    return st;
}
