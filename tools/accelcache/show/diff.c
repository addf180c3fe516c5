/* `accelcache diff`: two recordings, by call site. */
#include "command.h"
#include "read/changes.h"
#include "base/option.h"
#include "base/terminal.h"

#include <stdlib.h>

static const char help[] =
    "Usage: accelcache diff [--json] [--all] [--at MOMENT] A B\n"
    "Compares two recordings by call site: what B holds more than A, what is new in\n"
    "B, what A alone has.  A and B are traces, dumps with recorded stacks, or\n"
    "snapshots.  Call sites match by their functions and lines; offsets of code\n"
    "without lines are left out, since they move with every build.\n\n"
    "  --at MOMENT  compare at the peak (the default), at the end, or what the\n"
    "               program never freed: peak, end or leaked\n"
    "  --all        every call site, also those that hold the same\n"
    "  --json       the same as JSON\n\n"
    "Exit status: 0 compared, 1 one of them could not be read or does not tell of\n"
    "that moment, 2 wrong usage.\n";

/* "+12.5 MiB". */
static char *signed_bytes(char text[CMD_FIGURE], int64_t bytes) {
    char plain[CMD_FIGURE];
    snprintf(text, CMD_FIGURE, "%s%s", bytes > 0 ? "+" : "", cmd_text_bytes(plain, bytes));
    return text;
}

static void print_text(const cmd_changes_t *changes, cmd_moment_t moment, bool all) {
    char a[CMD_FIGURE], b[CMD_FIGURE], c[CMD_FIGURE];
    size_t shown = 0;
    printf("%s%s%s  %s in A, %s in B (%s)\n", cmd_bold(), cmd_moment_text(moment), cmd_plain(),
           cmd_text_bytes(a, changes->bytes[0]), cmd_text_bytes(b, changes->bytes[1]),
           signed_bytes(c, changes->bytes[1] - changes->bytes[0]));
    cmd_table_t *table = cmd_table_new("lrrrl");
    cmd_table_row(table, "", "change", "A", "B", "call site");
    for (size_t i = 0; i < changes->count; i++) {
        const cmd_change_t *change = &changes->change[i];
        if (!all && change->bytes[0] == change->bytes[1])
            continue;
        shown++;
        cmd_table_row(table, cmd_change_word(change),
                      signed_bytes(c, change->bytes[1] - change->bytes[0]),
                      cmd_text_bytes(a, change->bytes[0]), cmd_text_bytes(b, change->bytes[1]),
                      change->site);
    }
    cmd_table_print(table, 2);
    if (!shown)
        puts("  every call site holds the same");
}

static int print_json(const cmd_changes_t *changes, const char *at) {
    json_t *sites = json_array();
    for (size_t i = 0; i < changes->count; i++) {
        const cmd_change_t *change = &changes->change[i];
        json_array_append_new(
            sites, json_pack("{s:o, s:s, s:[I, I], s:[I, I]}", "site",
                             cmd_json_text(change->site), "change", cmd_change_word(change), "bytes",
                             (json_int_t)change->bytes[0], (json_int_t)change->bytes[1], "blocks",
                             (json_int_t)change->blocks[0], (json_int_t)change->blocks[1]));
    }
    return cmd_print_json(json_pack("{s:s, s:i, s:s, s:[I, I], s:o}", "schema", "accelcache-diff",
                                    "version", 1, "at", at, "bytes",
                                    (json_int_t)changes->bytes[0], (json_int_t)changes->bytes[1],
                                    "sites", sites),
                          JSON_PRESERVE_ORDER);
}

static int compare(char *const path[2], cmd_moment_t moment, const char *at, bool json,
                   bool all) {
    cmd_history_t *history[2] = {NULL, NULL};
    cmd_changes_t changes;
    char *error = NULL;
    int wrong = 0, status = CMD_FAILED;
    bool good = (history[0] = cmd_history_read(path[0], &error)) &&
                (history[1] = cmd_history_read(path[1], &error));
    bool read = good; /* else the message names the file */
    const cmd_history_t *const both[2] = {history[0], history[1]};
    good = good && cmd_changes(both, moment, &changes, &wrong, &error);
    cmd_bar_end();
    if (!good)
        cmd_say("%s%s%s", read ? path[wrong] : "", read ? ": " : "", error);
    else if (json)
        status = print_json(&changes, at);
    else
        print_text(&changes, moment, all);
    if (good) {
        status = json ? status : CMD_OK;
        cmd_changes_free(&changes);
    }
    for (int i = 0; i < 2; i++)
        if (history[i])
            cmd_history_free(history[i]);
    free(error);
    return status;
}

int cmd_diff(int argc, char **argv) {
    cmd_moment_t moment = CMD_AT_PEAK;
    const char *at = "peak";
    bool json = false, all = false;
    int status;
    const cmd_option_t options[] = {{"at", .text = &at},
                                    {"all", .flag = &all},
                                    {"json", 'j', .flag = &json},
                                    {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (!cmd_moment_find(at, &moment))
        return cmd_usage("--at: expected end, peak or leaked, got \"%s\"", at);
    if (argc - optind != 2)
        return cmd_usage("two recordings are compared, A and B");
    return compare(argv + optind, moment, at, json, all);
}
