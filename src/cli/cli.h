/* What the commands share: reading the configuration, printing errors, exit codes. */
#ifndef BK_CLI_CLI_H
#define BK_CLI_CLI_H

#include "base/err.h"
#include "config/config.h"

enum { BK_EXIT_OK = 0, BK_EXIT_FAILED = 1, BK_EXIT_USAGE = 2 };

/* One command: arguments without program and command name; returns the exit code. */
int bk_cli_train(int argc, char *const *argv);
int bk_cli_plan(int argc, char *const *argv);
int bk_cli_check(int argc, char *const *argv);
int bk_cli_generate(int argc, char *const *argv);

/* Fills and resolves a configuration: the file of --config, or the built-in one, then the flags. own[0] must
 * be "config"; the rest of `own` are the command's flags. The caller frees c in any case. */
bk_status bk_cli_config(bk_config *c, bk_flag *own, int64_t n_own, int argc, char *const *argv, bk_err *e);

/* Reads the flags of a command that takes no option; BK_E_INPUT for one, with `because` as the reason. */
bk_status bk_cli_own_flags(bk_flag *own, int64_t n_own, int argc, char *const *argv, const char *because,
                           bk_err *e);

/* How the program was called, for commands that it suggests; main sets it. */
extern const char *bk_cli_program;

/* Prints "birkhoff: <message>" to the error stream and gives the exit code of a status. */
int bk_cli_report(bk_status st, const bk_err *e);

/* The text of the built-in configuration, configs/tiny.yaml. */
extern const unsigned char bk_builtin_config[];
extern const int bk_builtin_config_bytes;

#endif
