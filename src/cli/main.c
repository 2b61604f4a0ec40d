/* birkhoff train | plan | check */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char *const *argv);
    const char *help;
} commands[] = {
    {"train", bk_cli_train, "train a model"},
    {"plan", bk_cli_plan, "print what a step would do and cost; nothing is allocated"},
    {"check", bk_cli_check, "compare gradients with finite differences, or a model with reference vectors"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to)
{
    fputs("usage: birkhoff <command> [--config FILE] [--option value ...]\n\n", to);
    for (int k = 0; k < N_COMMANDS; k++) fprintf(to, "  %-6s %s\n", commands[k].name, commands[k].help);
    fputs("\nbirkhoff help options lists every option with its default.\n", to);
}

static int print_options(void)
{
    bk_str text = {0};
    bk_config_help(&text);
    fputs(bk_str_text(&text), stdout);
    bk_str_free(&text);
    return BK_EXIT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return BK_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) return printf("birkhoff %s\n", BK_VERSION) < 0;
    if (strcmp(name, "help") == 0 && argc > 2 && strcmp(argv[2], "options") == 0) return print_options();
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return print_help(stdout), BK_EXIT_OK;
    const char *names[N_COMMANDS];
    for (int k = 0; k < N_COMMANDS; k++) {
        if (strcmp(name, commands[k].name) == 0) return commands[k].run(argc - 2, argv + 2);
        names[k] = commands[k].name;
    }
    const char *near = bk_nearest(name, names, N_COMMANDS);
    fprintf(stderr, "birkhoff: %s is no command; did you mean %s? See birkhoff help\n", name,
            near ? near : "train");
    return BK_EXIT_USAGE;
}
