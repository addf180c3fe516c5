/* `accelcache ps`: a line for each process that runs under the library, for scripts. */
#include "command.h"
#include "read/processes.h"

#include "base/option.h"
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: accelcache ps [--all] [--no-header] [--json]\n"
    "A line for each process of this user (for root: of every user) that runs under\n"
    "the library, for scripts: fields are separated by one space, sizes are bytes.\n\n"
    "  PID        process id; PID@NAMESPACE for one of another pid namespace (a\n"
    "             container)\n"
    "  STATE      running, or with --all killed: a signal or _exit ended it, and the\n"
    "             number may be another process's by now (accelcache stat --remove\n"
    "             removes what it left)\n"
    "  UID        user id\n"
    "  DEVICES    number of devices that it used\n"
    "  RESERVED   bytes that the library has from the driver\n"
    "  ALLOCATED  bytes of them that the program holds\n"
    "  PEAK       peak of these, summed over devices\n"
    "  STARTED    when it first used CUDA\n"
    "  PROGRAM    its file, to the end of the line; control characters as \\x1b\n\n"
    "  --all        also killed ones\n"
    "  --no-header  no first line with these names\n"
    "  --json       the same as a JSON array\n\n"
    "Exit status: 0, also when there is none; 1 when a page could not be read (the\n"
    "others are shown), 2 wrong usage.\n";

static void print_line(const cmd_process_t *process) {
    char id[CMD_PROCESS_ID];
    cmd_figures_t f = {0};
    cmd_figures_add(&f, process->document);
    printf("%s %s %u %zu %lld %lld %lld %s ", cmd_process_id(id, process),
           cmd_process_state(process), process->name.user,
           json_array_size(json_object_get(process->document, "devices")), (long long)f.reserved,
           (long long)f.allocated, (long long)f.allocated_peak, cmd_process_start_time(process));
    cmd_print_safe(cmd_process_exe(process));
    putchar('\n');
}

int cmd_ps(int argc, char **argv) {
    bool json = false, all = false, bare = false;
    int status;
    const cmd_option_t options[] = {{"all", .flag = &all},
                                    {"no-header", .flag = &bare},
                                    {"json", 'j', .flag = &json},
                                    {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (optind < argc)
        return cmd_usage("%s: takes no argument; accelcache stat PID shows one process",
                         argv[optind]);
    cmd_processes_t list = {.quiet = false};
    cmd_processes_find(&list);
    status = list.unread ? CMD_FAILED : CMD_OK;
    if (json) {
        if (cmd_print_json(cmd_processes_json(&list, !all), 0))
            status = CMD_FAILED;
    } else {
        if (!bare)
            puts("PID STATE UID DEVICES RESERVED ALLOCATED PEAK STARTED PROGRAM");
        for (unsigned i = 0; i < list.count; i++)
            if (list.process[i].alive || all)
                print_line(&list.process[i]);
    }
    cmd_processes_clear(&list);
    return status;
}
