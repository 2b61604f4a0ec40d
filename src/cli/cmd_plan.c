/* birkhoff plan: prints what a step of the configuration would do and cost, and whether it may run here.
 * Nothing of the model is allocated. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "ir/print.h"
#include "plan/report.h"
#include "train/run.h"

/* What --dump takes, in the order of the pipeline. "graph" is the graph after the last pass. */
static const char *const stages[] = {"config", "model",     "autodiff", "accumulate", "step",
                                     "graph",  "partition", "schedule", "plan"};
enum { N_STAGES = sizeof stages / sizeof *stages };

typedef struct {
    bk_config c;
    bk_layout l;
    bk_session session;
    bk_generator gen;
    bk_target target;
    const char *stage; /* to dump, or NULL */
    bk_dump dump;
    bk_str text; /* what is to be printed */
} job;

static bool stage_is(const job *j, const char *name)
{
    return j->stage && strcmp(j->stage, name) == 0;
}

static bk_status read_stage(job *j, const char *name, bk_err *e)
{
    for (int k = 0; name && k < N_STAGES; k++)
        if (strcmp(name, stages[k]) == 0) j->stage = stages[k];
    if (!name || j->stage) return BK_OK;
    bk_str list = {0};
    for (int k = 0; k < N_STAGES; k++) bk_str_appendf(&list, "%s%s", k ? ", " : "", stages[k]);
    const char *near = bk_nearest(name, stages, N_STAGES);
    const bk_status st =
        near
            ? bk_err_set(e, BK_E_INPUT, "--dump %s: no such stage; did you mean %s? Give one of %s", name,
                         near, bk_str_text(&list))
            : bk_err_set(e, BK_E_INPUT, "--dump %s: no such stage; give one of %s", name, bk_str_text(&list));
    bk_str_free(&list);
    return st;
}

static void dump_stage(void *ctx, const char *name, const bk_graph *g, const bk_schedule *s, const bk_plan *p)
{
    job *j = ctx;
    if (!stage_is(j, name) && !(stage_is(j, "graph") && strcmp(name, "partition") == 0)) return;
    if (strcmp(name, "schedule") == 0)
        bk_schedule_print(&j->text, s, g);
    else if (strcmp(name, "plan") == 0)
        bk_plan_print(&j->text, p);
    else
        bk_graph_print(&j->text, g);
}

/* A program beside the one that trains; `of`: what it does once. */
static void print_program(bk_str *out, const char *name, const char *of, const bk_plan *p)
{
    char peak[BK_HUMAN_LEN], step[BK_HUMAN_LEN], flop[BK_HUMAN_LEN];
    bk_str_appendf(out, "%-9s %s: peak %s, step part %s, matrix products %sflop\n", name, of,
                   bk_human_bytes(peak, p->peak_bytes), bk_human_bytes(step, p->step_bytes),
                   bk_human_count(flop, bk_plan_matrix_flops(p)));
}

static void print_measure(job *j)
{
    char of[64];
    const bk_session *s = &j->session;
    if (!bk_run_measures(&j->c)) return;
    snprintf(of, sizeof of, "every %lld steps", (long long)j->c.log_health_interval);
    print_program(&j->text, "measure", of, s->program[s->n_programs - 1].p);
}

/* The plan with room for `rows` routed tokens, as a line. */
static bk_status print_room(job *j, const char *name, int64_t rows, bk_err *e)
{
    char marked[64];
    bk_session s = {0};
    bk_generator gen = {0};
    bk_plan_report r;
    bk_layout l = j->l;
    bk_status st = BK_OK;
    l.routed_rows = rows;
    BK_TRY(bk_run_add_programs(&s, &gen, &j->c, &l, true, NULL, e));
    BK_TRY(bk_session_plan(&s, &j->target, e));
    BK_TRY(bk_plan_report_make(&r, s.program[BK_RUN_TRAIN].p, e));
    snprintf(marked, sizeof marked, "%s%s", name, rows == j->l.routed_rows ? ", as planned" : "");
    bk_plan_report_print_room(&j->text, marked, rows, &r, s.program[BK_RUN_TRAIN].p);
done:
    bk_generator_free(&gen);
    bk_session_close(&s);
    return st;
}

/* What other room for routed tokens would take. One rank knows how many come. */
static bk_status print_rooms(job *j, bk_err *e)
{
    bk_status st = BK_OK;
    if (j->l.n_local_experts == 0) return BK_OK;
    bk_plan_report_print_rooms(&j->text);
    if (bk_layout_room(&j->l, &j->c, 1) == j->l.most_rows) {
        BK_TRY(print_room(j, "all that come", j->l.most_rows, e));
    } else {
        BK_TRY(print_room(j, "headroom 1", bk_layout_room(&j->l, &j->c, 1), e));
        BK_TRY(print_room(j, "headroom 2", bk_layout_room(&j->l, &j->c, 2), e));
        BK_TRY(print_room(j, "worst case", j->l.most_rows, e));
    }
    bk_str_append(&j->text, "\n");
done:
    return st;
}

static bk_status print_report(job *j, bk_err *e)
{
    const bk_plan *p = j->session.program[BK_RUN_TRAIN].p;
    bk_plan_report r;
    bk_status st = bk_plan_report_make(&r, p, e);
    if (st != BK_OK) return st;
    bk_plan_report_print_run(&j->text, &j->c, &j->l);
    bk_plan_report_print(&j->text, &r, p, j->l.n_micro * j->l.micro_batch * j->l.seq);
    st = print_rooms(j, e);
    if (st != BK_OK) return st;
    print_program(&j->text, "evaluate", "one micro-batch", j->session.program[BK_RUN_EVALUATE].p);
    print_measure(j);
    bk_str_append(&j->text, "plan checked: rules 1 2 3 5 6 hold\n");
    return BK_OK;
}

/* Builds as far as is needed and writes the text. */
static bk_status make_text(job *j, bk_err *e)
{
    bk_status st = BK_OK;
    j->target = (bk_target){.kind = BK_TARGET_CPU, .deterministic = j->c.deterministic};
    if (stage_is(j, "config")) return bk_config_dump(&j->text, &j->c), BK_OK;
    BK_TRY(bk_layout_resolve(&j->l, &j->c, bk_layout_ranks(&j->c), e));
    BK_TRY(bk_run_add_programs(&j->session, &j->gen, &j->c, &j->l, true, j->stage ? &j->dump : NULL, e));
    if (j->stage && !stage_is(j, "schedule") && !stage_is(j, "plan")) goto done;
    BK_TRY(bk_session_plan(&j->session, &j->target, e));
    if (!j->stage) BK_TRY(print_report(j, e));
done:
    return st;
}

/* The plan does not fit: the report stands, and the sentence follows as an error. */
static bk_status verdict(job *j, bk_err *e)
{
    const bk_status st = bk_session_fits(&j->session, j->c.memory_limit, e);
    char need[BK_HUMAN_LEN];
    if (st == BK_OK)
        bk_str_appendf(&j->text, "plan fits: %s are needed, %s\n",
                       bk_human_bytes(need, bk_session_bytes(&j->session)),
                       j->c.memory_limit == BK_UNSET_COUNT ? "and this machine has them free"
                                                           : "and memory_limit allows them");
    return st;
}

static bk_status write_out(const bk_str *text, bk_err *e)
{
    if (text->failed) return bk_err_set(e, BK_E_MEM, "plan: out of memory for the text");
    const bool ok = fwrite(bk_str_text(text), 1, text->len, stdout) == text->len && fflush(stdout) == 0;
    return ok ? BK_OK : bk_err_set(e, BK_E_IO, "plan: the text cannot be written to the standard output");
}

int bk_cli_plan(int argc, char *const *argv)
{
    bk_flag own[] = {{.name = "config", .takes_value = true}, {.name = "dump", .takes_value = true}};
    bk_err e = {0};
    job j = {.dump = {&j, dump_stage}};
    bk_status st = BK_OK;
    BK_TRY(bk_cli_config(&j.c, own, sizeof own / sizeof *own, argc, argv, &e));
    BK_TRY(read_stage(&j, own[1].value, &e));
    BK_TRY(make_text(&j, &e));
    const bk_status fits = j.stage ? BK_OK : verdict(&j, &e);
    BK_TRY(write_out(&j.text, &e));
    st = fits;
done:
    bk_str_free(&j.text);
    bk_generator_free(&j.gen);
    bk_session_close(&j.session);
    bk_config_free(&j.c);
    return bk_cli_report(st, &e);
}
