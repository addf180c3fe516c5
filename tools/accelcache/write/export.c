/* `accelcache export`: what a dump, a trace or a snapshot tells, in the formats of other tools. */
#include "write/export.h"
#include "command.h"
#include "base/output.h"
#include "base/terminal.h"

#include "base/option.h"
#include <stdlib.h>
#include <string.h>

#define DUMP   ((unsigned)CMD_SOURCE_DUMP)
#define EVENTS ((unsigned)CMD_SOURCE_TRACE | CMD_SOURCE_SNAPSHOT)
#define ANY    (DUMP | EVENTS)

static const struct {
    const char *name, *doc;
    cmd_export_fn *function;
    unsigned sources;
    bool binary, moments; /* moments: --at goes with it */
} formats[] = {
    {"torch-snapshot",
     "pickle for pytorch.org/memory_viz: blocks and their history",
     cmd_export_torch, EVENTS, true, false},
    {"perfetto", "JSON for ui.perfetto.dev: memory over time, driver calls",
     cmd_export_perfetto, EVENTS, false, false},
    {"pprof", "for go tool pprof and speedscope: bytes and blocks",
     cmd_export_pprof, ANY, true, true},
    {"prometheus", "text for Prometheus, with labels pod, container, job",
     cmd_export_prometheus, DUMP, false, false},
    {"folded", "a line for each stack with its bytes in use, for flame graphs", cmd_export_folded,
     ANY, false, true},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static int print_help(void) {
    fputs(
        "Usage: accelcache export --format FORMAT FILE [-o OUT]\n"
        "Writes a dump (or the figures of the process PID), a trace, or a snapshot in\n"
        "PyTorch's layout (pickle or JSON) in the format of another tool.\n"
        "\n"
        "Formats:\n",
        stdout);
    for (int i = 0; i < FORMATS; i++) {
        printf("  %-15s %s\n", formats[i].name, formats[i].doc);
        if (formats[i].sources != ANY)
            printf("  %-15s (of %s)\n", "",
                   formats[i].sources == DUMP ? "dumps" : "traces and snapshots");
    }
    fputs(
        "\n"
        "  -f, --format FORMAT  one of them\n"
        "  --at MOMENT          pprof and folded: memory in use at the end (the\n"
        "                       default), at the peak, or leaked: never freed, also if\n"
        "                       its context has ended\n"
        "  -o FILE              write to FILE, which appears when it is whole; - and the\n"
        "                       default is the standard output\n"
        "\n"
        "Exit status: 0 done, 1 FILE could not be read or the result not be written,\n"
        "2 wrong usage.\n",
        stdout);
    return CMD_OK;
}

static int find_format(const char *name) {
    for (int i = 0; i < FORMATS; i++)
        if (!strcmp(name, formats[i].name))
            return i;
    return -1;
}

static int export_as(int format, cmd_moment_t moment, const char *path, const char *target) {
    char *error = NULL;
    cmd_output_t output;
    cmd_history_t *history = cmd_history_read(path, &error);
    if (!history) {
        cmd_bar_end();
        cmd_say("%s", error);
        free(error);
        return CMD_FAILED;
    }
    int status = CMD_FAILED;
    unsigned sources = history->source | (history->figures ? DUMP : 0);
    if (!(formats[format].sources & sources)) {
        cmd_say("%s: a %s has %s for the format %s: give %s", path, history->format,
                history->source == CMD_SOURCE_DUMP ? "no blocks and no time line" : "no counters",
                formats[format].name,
                formats[format].sources == DUMP
                    ? "a dump, or the PID of a process that runs"
                    : "a trace (accelcache run --trace) or a snapshot");
    } else if (cmd_output_open(&output, target, formats[format].binary)) {
        bool written = formats[format].function(history, moment, output.file, &error);
        cmd_bar_end();
        if (!written)
            cmd_say("%s: %s", path, error);
        status = cmd_output_close(&output, written);
    }
    free(error);
    cmd_history_free(history);
    return status;
}

int cmd_export(int argc, char **argv) {
    const char *name = NULL, *target = NULL, *at = NULL;
    cmd_moment_t moment = CMD_AT_END;
    int status;
    const cmd_option_t options[] = {{"format", 'f', .text = &name},
                                    {"at", .text = &at},
                                    {"output", 'o', .text = &target},
                                    {"help", 'h', .stop = print_help},
                                    {.name = NULL}};
    if (!cmd_options(argc, argv, options, NULL, &status))
        return status;
    if (!name)
        return cmd_usage("--format is missing");
    if (find_format(name) < 0)
        return cmd_usage_names("format", name, &formats[0].name, sizeof *formats, FORMATS);
    if (at && !formats[find_format(name)].moments)
        return cmd_usage("--at goes with pprof and folded");
    if (at && !cmd_moment_find(at, &moment))
        return cmd_usage("--at: expected end, peak or leaked, got \"%s\"", at);
    if (argc - optind != 1)
        return cmd_usage(optind == argc ? "FILE is missing" : "one FILE at a time");
    return export_as(find_format(name), moment, argv[optind], target);
}
