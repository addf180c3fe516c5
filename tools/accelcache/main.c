/* The command `accelcache`: the table of its subcommands. */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *help;
    cmd_subcommand_fn *function;
} subcommands[] = {
    {"run", "run a program under libaccelcache.so, or compare it with and without", cmd_run},
    {"stat", "show statistics dumps, running processes and killed ones", cmd_stat},
    {"ps", "list processes that run under the library, a line each, for scripts", cmd_ps},
    {"config", "show the keys of ACCEL_ALLOC_CONF, check a configuration string", cmd_config},
    {"doctor", "say whether the library can work here, and with this program", cmd_doctor},
    {"trace", "show what run --trace recorded: every allocation and free", cmd_trace},
    {"gen", "write an allocation trace of a kind of program", cmd_gen},
    {"replay", "run a trace through the allocator without a GPU: memory and driver time",
     cmd_replay},
    {"tune", "search for the configuration that a program's traces ask for", cmd_tune},
    {"bench", "measure what calls cost with the library, beside other allocators", cmd_bench},
};
enum { COUNT = sizeof subcommands / sizeof subcommands[0] };

static void print_help(FILE *out) {
    fputs("Usage: accelcache SUBCOMMAND [OPTION...] [ARGUMENT...]\n"
          "A stream-aware caching allocator under unmodified CUDA programs.\n\n"
          "Subcommands (each takes --help):\n",
          out);
    for (int i = 0; i < COUNT; i++)
        fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].help);
    fputs("\nExit status: 0 done, 1 failed, 2 wrong usage; `run` ends with the program's own\n"
          "status (a shell shows 128 + number for a signal), 126 when the program cannot run\n"
          "under the library, 127 when it was not found.\n",
          out);
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

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return CMD_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return finish(CMD_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        puts("accelcache " AC_VERSION);
        return finish(CMD_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        if (!strcmp(argv[1], subcommands[i].name)) {
            cmd_name = subcommands[i].name;
            argv[1] = cmd_format("accelcache %s", cmd_name); /* getopt's messages begin with it */
            int status = finish(subcommands[i].function(argc - 1, argv + 1));
            free(argv[1]);
            return status;
        }
    }
    return cmd_usage("there is no subcommand \"%s\"", argv[1]);
}
