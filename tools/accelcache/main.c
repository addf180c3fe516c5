/* A command with subcommands: `accelcache`, and `accelcache-dev` for developers. */
#include "base/child.h"
#include "command.h"
#include "base/option.h"
#include "base/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void print_help(FILE *out) {
    fprintf(out,
            "Usage: %s SUBCOMMAND [OPTION...] [ARGUMENT...]\n%s\n\n"
            "Subcommands (%s help SUBCOMMAND says more):\n",
            program_invocation_short_name, cmd_about, program_invocation_short_name);
    for (const cmd_subcommand_t *row = cmd_subcommands; row->name; row++)
        fprintf(out, "  %-8s %s\n", row->name, row->help);
    fprintf(out, "\n%s", cmd_statuses);
}

/* Output that did not arrive (a full disk) must not look like success; a reader that went
 * away (`| head`) ends the command by SIGPIPE before this. */
static int finish(int status) {
    errno = 0; /* an earlier write may have failed, then the reason is lost */
    if ((fflush(stdout) || ferror(stdout)) && status == CMD_OK) {
        cmd_say("the output could not be written%s%s", errno ? ": " : "",
                errno ? strerror(errno) : "");
        return CMD_FAILED;
    }
    return status;
}

/* The row of a subcommand; NULL: there is none of that name. */
static const cmd_subcommand_t *find(const char *name) {
    const cmd_subcommand_t *row = cmd_subcommands;
    while (row->name && strcmp(name, row->name) != 0)
        row++;
    return row->name ? row : NULL;
}

static int unknown(const char *name) {
    const char *near = cmd_nearest(name, &cmd_subcommands[0].name, sizeof *cmd_subcommands);
    if (near)
        return cmd_usage("there is no subcommand \"%s\"; did you mean \"%s\"?", name, near);
    return cmd_usage("there is no subcommand \"%s\"", name);
}

int main(int argc, char **argv) {
    static char help_option[] = "--help";
    cmd_child_begin();
    if (argc < 2) {
        print_help(stderr);
        return CMD_USAGE;
    }
    bool help = !strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h");
    if (help && argc == 2) {
        print_help(stdout);
        return finish(CMD_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("%s " AC_VERSION "\n", program_invocation_short_name);
        return finish(CMD_OK);
    }
    if (help) { /* "help SUBCOMMAND" is "SUBCOMMAND --help" */
        argv[1] = argv[2];
        argv[2] = help_option;
        argc = 3;
    }
    const cmd_subcommand_t *row = find(argv[1]);
    if (!row)
        return unknown(argv[1]);
    cmd_name = row->name;
    int status = row->function(argc - 1, argv + 1);
    cmd_bar_end();
    return finish(status);
}
