/* The command `accelcache`: the table of its subcommands. */
#include "child.h"
#include "command.h"
#include "option.h"
#include "terminal.h"

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
    {"export",
     "write a dump, trace or snapshot for PyTorch's viewer, Perfetto, pprof, Prometheus",
     cmd_export},
    {"report", "draw a page: memory over time, sizes, lifetimes, segments, advice", cmd_report},
    {"ctl", "have a running process write its dump, trim, reset peaks, change settings", cmd_ctl},
    {"oom", "say who held the memory when a request failed, and what would have served it",
     cmd_oom},
    {"where", "say what lies at a device address: which block, of which module, held or freed",
     cmd_where},
    {"top", "watch devices and processes under the library while they run", cmd_top},
    {"env", "print the lines that put the library under all that a shell starts", cmd_env},
    {"bench", "measure what calls cost with the library, beside other allocators", cmd_bench},
    {NULL, NULL, NULL}};
enum { COUNT = sizeof subcommands / sizeof subcommands[0] - 1 };

static void print_help(FILE *out) {
    fputs("Usage: accelcache SUBCOMMAND [OPTION...] [ARGUMENT...]\n"
          "A stream-aware caching allocator under unmodified CUDA programs.\n\n"
          "Subcommands (accelcache help SUBCOMMAND says more):\n",
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

/* The row of a subcommand; -1: there is none of that name. */
static int find(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(name, subcommands[i].name))
            return i;
    return -1;
}

static int unknown(const char *name) {
    const char *near = cmd_nearest(name, &subcommands[0].name, sizeof *subcommands);
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
        puts("accelcache " AC_VERSION);
        return finish(CMD_OK);
    }
    if (help) { /* "help SUBCOMMAND" is "SUBCOMMAND --help" */
        argv[1] = argv[2];
        argv[2] = help_option;
        argc = 3;
    }
    int row = find(argv[1]);
    if (row < 0)
        return unknown(argv[1]);
    cmd_name = subcommands[row].name;
    int status = subcommands[row].function(argc - 1, argv + 1);
    cmd_bar_end();
    return finish(status);
}
