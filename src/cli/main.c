/* birkhoff train | plan | check | generate */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "cli/cli.h"

typedef struct {
    const char *name;
    int (*run)(int argc, char *const *argv);
    const char *help;
    const char *flags; /* a line for each way to call it */
} command;

#define OPTIONS "[--config FILE] [--option value ...]"

static const command commands[] = {
    {"train", bk_cli_train, "train a model", "  birkhoff train " OPTIONS "\n"},
    {"plan", bk_cli_plan, "print what a step would do and cost; nothing is allocated",
     "  birkhoff plan [--dump STAGE] " OPTIONS "\n"},
    {"check", bk_cli_check, "compare gradients with finite differences, or a model with reference vectors",
     "  birkhoff check " OPTIONS "\n"
     "  birkhoff check --against FILE [--allow-missing] [--precision f32|f64] [--option value ...]\n"},
    {"generate", bk_cli_generate, "continue a prompt with the model of a checkpoint",
     "  birkhoff generate --load DIR [--iteration N] [--prompt TEXT | --prompt-tokens 1,2,3]\n"
     "                    [--num-tokens-to-generate N] [--temperature X] [--top-k N] [--top-p X]\n"
     "                    [--seed N]\n"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to)
{
    fputs("usage: birkhoff <command> " OPTIONS "\n\n", to);
    for (int k = 0; k < N_COMMANDS; k++) fprintf(to, "  %-8s %s\n", commands[k].name, commands[k].help);
    fputs(
        "\nbirkhoff <command> --help shows its flags, birkhoff help options every option with its default,\n"
        "birkhoff --version what was built.\n",
        to);
}

static int print_command_help(const command *c)
{
    print_help(stdout);
    printf("\n%s: %s\n\n%s", c->name, c->help, c->flags);
    return BK_EXIT_OK;
}

static int print_options(void)
{
    bk_str text = {0};
    bk_config_help(&text);
    fputs(bk_str_text(&text), stdout);
    bk_str_free(&text);
    return BK_EXIT_OK;
}

static int print_version(void)
{
    bk_str text = {0};
    bk_version_describe(&text);
    fputs(bk_str_text(&text), stdout);
    bk_str_free(&text);
    return BK_EXIT_OK;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run_command(const char *name, int argc, char *const *argv)
{
    const char *names[N_COMMANDS];
    for (int k = 0; k < N_COMMANDS; k++) {
        names[k] = commands[k].name;
        if (strcmp(name, names[k]) != 0) continue;
        if (argc > 0 && asks_for_help(argv[0])) return print_command_help(&commands[k]);
        return commands[k].run(argc, argv);
    }
    const char *near = bk_nearest(name, names, N_COMMANDS);
    bk_err e;
    if (near)
        bk_err_set(&e, BK_E_INPUT, "there is no command %.60s; did you mean %s?", name, near);
    else
        bk_err_set(&e, BK_E_INPUT, "there is no command %.60s; see birkhoff help", name);
    return bk_cli_report(e.status, &e);
}

/* A full disk or a closed pipe shows at the end: a run whose output is lost has failed. */
static int finish(int rc)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return rc;
    fprintf(stderr, "birkhoff: cannot write to the standard output: %s\n", strerror(errno));
    return rc == BK_EXIT_OK ? BK_EXIT_FAILED : rc;
}

int main(int argc, char **argv)
{
    if (argc > 0 && argv[0]) bk_cli_program = argv[0];
    if (argc < 2) {
        print_help(stderr);
        return BK_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) return finish(print_version());
    if (asks_for_help(name) && argc > 2 && strcmp(argv[2], "options") == 0) return finish(print_options());
    if (asks_for_help(name)) return print_help(stdout), finish(BK_EXIT_OK);
    return finish(run_command(name, argc - 2, argv + 2));
}
