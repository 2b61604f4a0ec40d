/* birkhoff check [--config FILE] [--option value ...]          gradients against finite differences
 * birkhoff check --against FILE [--allow-missing] [--precision f32|f64] [--option value ...]
 *
 * Exit codes: 0 every row passes, 1 one fails, 2 nothing could be compared. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "train/against.h"
#include "train/against_fused.h"
#include "train/compare.h"
#include "train/difference.h"

enum { CONFIG, AGAINST, ALLOW_MISSING, PRECISION, N_OWN };

/* Prints the rows and gives the exit code of their verdict. */
static int conclude(const bk_check_report *report)
{
    bk_str text = {0};
    bk_check_report_print(&text, report);
    fputs(bk_str_text(&text), stdout);
    const bool failed = text.failed || report->n_failed > 0 || report->n_rows == 0;
    bk_str_free(&text);
    return failed ? BK_EXIT_FAILED : BK_EXIT_OK;
}

/* Whatever kept us from comparing must not look like a comparison that failed. */
static int refuse(bk_status st, const bk_err *e)
{
    bk_cli_report(st, e);
    return BK_EXIT_USAGE;
}

static bk_status read_precision(bk_dtype *out, const char *text, bk_err *e)
{
    *out = text && strcmp(text, "f64") == 0 ? BK_F64 : BK_F32;
    if (!text || *out == BK_F64 || strcmp(text, "f32") == 0) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "--precision %.100s: give f32 or f64", text);
}

static bk_status run_model_file(bk_outcome *out, bk_st *file, bk_dtype real, bk_flag *own, int argc,
                                char *const *argv, bk_err *e)
{
    bk_config c;
    bk_status st;
    bk_config_init(&c);
    BK_TRY(bk_against_config(&c, file, own[AGAINST].value, e));
    BK_TRY(bk_config_read_flags(&c, own, N_OWN, argc, argv, e));
    BK_TRY(bk_config_resolve(&c, e));
    st = bk_against_split_fused(file, &c, e);
    if (st == BK_OK) st = bk_against_model(out, file, &c, real, e);
    if (st != BK_OK) bk_err_prefix(e, "%.200s: ", own[AGAINST].value);
done:
    bk_config_free(&c);
    return st;
}

/* No option of a model reaches one operator, and none is ignored in silence. */
static bk_status run_op_file(bk_outcome *out, const bk_st *file, bk_dtype real, bk_flag *own, int argc,
                             char *const *argv, bk_err *e)
{
    char because[256];
    snprintf(because, sizeof because, "%.200s holds one operator, which has no options", own[AGAINST].value);
    bk_status st = bk_cli_own_flags(own, N_OWN, argc, argv, because, e);
    if (st != BK_OK) return st;
    if ((st = bk_against_op(out, file, real, e)) != BK_OK) bk_err_prefix(e, "%.200s: ", own[AGAINST].value);
    return st;
}

static int check_against(bk_flag *own, int argc, char *const *argv)
{
    bk_err e = {0};
    bk_st *file = NULL;
    bk_outcome ours = {0};
    bk_check_report report = {0};
    bk_dtype real;
    bk_status st = BK_OK;
    int code;
    BK_TRY(read_precision(&real, own[PRECISION].value, &e));
    if (own[CONFIG].value) {
        st = bk_err_set(
            &e, BK_E_INPUT,
            "--config contradicts --against, whose file holds the configuration; drop one of them");
        goto done;
    }
    BK_TRY(bk_st_open(&file, own[AGAINST].value, &e));
    if (bk_against_is_op(file))
        BK_TRY(run_op_file(&ours, file, real, own, argc, argv, &e));
    else
        BK_TRY(run_model_file(&ours, file, real, own, argc, argv, &e));
    BK_TRY(bk_compare(&report, &ours, file, own[ALLOW_MISSING].value != NULL, &e));
done:
    code = st == BK_OK ? conclude(&report) : refuse(st, &e);
    bk_check_report_free(&report);
    bk_outcome_free(&ours);
    bk_st_free(file);
    return code;
}

static int check_differences(bk_flag *own, int argc, char *const *argv)
{
    bk_err e = {0};
    bk_config c = {0};
    bk_str text = {0};
    bk_difference *d = NULL;
    bk_check_report report = {0};
    bk_status st;
    int code;
    BK_TRY(bk_cli_config(&c, own, N_OWN, argc, argv, &e));
    BK_TRY(bk_difference_shrink(&c, &e));
    bk_difference_describe(&text, &c);
    fputs(bk_str_text(&text), stdout);
    fflush(stdout);
    BK_TRY(bk_difference_open(&d, &c, &e));
    BK_TRY(bk_difference_compare(&report, d, &e));
done:
    code = st == BK_OK ? conclude(&report) : refuse(st, &e);
    bk_difference_close(d);
    bk_check_report_free(&report);
    bk_str_free(&text);
    bk_config_free(&c);
    return code;
}

/* Options that say how to compare with a file mean nothing without one. */
static bk_status need_file(const bk_flag *own, bk_err *e)
{
    static const int needs[] = {ALLOW_MISSING, PRECISION};
    for (size_t k = 0; k < sizeof needs / sizeof *needs; k++)
        if (own[needs[k]].value)
            return bk_err_set(e, BK_E_INPUT,
                              "--%s has a meaning with --against alone; finite differences are in double; "
                              "drop it, or give --against FILE",
                              own[needs[k]].name);
    return BK_OK;
}

int bk_cli_check(int argc, char *const *argv)
{
    bk_flag own[N_OWN] = {[CONFIG] = {"config", true, NULL},
                          [AGAINST] = {"against", true, NULL},
                          [ALLOW_MISSING] = {"allow-missing", false, NULL},
                          [PRECISION] = {"precision", true, NULL}};
    bk_err e = {0};
    bk_status st = bk_config_read_flags(NULL, own, N_OWN, argc, argv, &e);
    if (st != BK_OK) return refuse(st, &e);
    if (own[AGAINST].value) return check_against(own, argc, argv);
    if ((st = need_file(own, &e)) != BK_OK) return refuse(st, &e);
    return check_differences(own, argc, argv);
}
