#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>

bk_status bk_cli_config(bk_config *c, bk_flag *own, int64_t n_own, int argc, char *const *argv, bk_err *e)
{
    bk_config_init(c);
    bk_status st = BK_OK;
    BK_TRY(bk_config_read_flags(NULL, own, n_own, argc, argv, e)); /* where is --config? */
    if (own[0].value)
        BK_TRY(bk_config_read_yaml(c, own[0].value, e));
    else
        BK_TRY(
            bk_config_read_yaml_memory(c, bk_builtin_config, (size_t)bk_builtin_config_bytes, "built-in", e));
    BK_TRY(bk_config_read_flags(c, own, n_own, argc, argv, e));
    BK_TRY(bk_config_resolve(c, e));
done:
    return st;
}

bk_status bk_cli_own_flags(bk_flag *own, int64_t n_own, int argc, char *const *argv, const char *because,
                           bk_err *e)
{
    bk_config c;
    bk_config_init(&c);
    bk_status st = bk_config_read_flags(&c, own, n_own, argc, argv, e);
    for (int k = 0; k < BK_N_OPTIONS && st == BK_OK; k++) {
        char cite[BK_CITE_LEN];
        if (c.origin[k].where)
            st = bk_err_set(e, BK_E_INPUT, "%s: %s; drop it", bk_config_cite(cite, &c, (bk_option_id)k),
                            because);
    }
    bk_config_free(&c);
    return st;
}

const char *bk_cli_program = "birkhoff";

int bk_cli_report(bk_status st, const bk_err *e)
{
    if (st == BK_OK) return BK_EXIT_OK;
    fflush(stdout); /* what was printed before the error stands before it */
    fputs("birkhoff: ", stderr);
    /* A message may quote a file's name: it stays one line and sends a terminal no control sequences. */
    for (const char *c = e->msg; *c; c++) fputc(iscntrl((unsigned char)*c) ? '?' : *c, stderr);
    fputc('\n', stderr);
    return st == BK_E_INPUT ? BK_EXIT_USAGE : BK_EXIT_FAILED;
}
