/* See render.h.  Rows come from stats.def, host_stats.def and counters.def. */
#include "show/render.h"
#include "command.h"
#include "read/document.h"
#include "read/headline.h"
#include "read/sites.h"
#include "read/passed.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOOKS = 12 };

static bool all; /* also rows that are 0 */
static unsigned hidden;

/* Returns the meaning of `reason`; a killed process wrote nothing, its page did. */
static const char *reason_text(const char *reason) {
    static const char *const texts[][2] = {
        {"exit", "written at exit"},
        {"signal", "written on a signal, the process went on"},
        {"interval", "written at an interval, the process went on"},
        {"request", "written on request of the program"},
        {"running", "running: figures of this moment"},
        {"killed", "killed: figures as it left them (a signal or _exit ended it)"},
    };
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!strcmp(reason, texts[i][0]))
            return texts[i][1];
    return reason;
}

/* ------------------------------------------------------------------ one document */

/* `text` with more behind it; both are freed. */
static char *joined(char *text, char *more) {
    char *whole = cmd_format("%s%s", text, more);
    free(text);
    free(more);
    return whole;
}

static void print_long(char *text, int indent) {
    cmd_print_hanging(text, indent, indent + 2);
    free(text);
}

static char *command_text(const json_t *document) {
    const json_t *process = json_object_get(document, "process");
    const json_t *argv = json_object_get(process, "argv"),
                 *rank = json_object_get(process, "rank");
    char *text = cmd_format("process %lld on %s:", (long long)cmd_integer(process, "pid"),
                            cmd_text(process, "host"));
    for (size_t i = 0; i < json_array_size(argv); i++) {
        const char *argument = json_string_value(json_array_get(argv, i));
        text = joined(text, cmd_format(" %s", argument ? argument : "?"));
    }
    if (!json_array_size(argv))
        text = joined(text, cmd_format(" %s", cmd_text(process, "exe")));
    if (json_is_integer(rank))
        text = joined(text, cmd_format("  (rank %lld)", (long long)json_integer_value(rank)));
    return text;
}

static void render_process(const json_t *document, const char *source) {
    const json_t *process = json_object_get(document, "process");
    const json_t *config = json_object_get(document, "config");
    int64_t driver = cmd_integer(document, "driver_version");
    printf("\n%s", cmd_bold());
    print_long(cmd_format("%s", source), 0);
    fputs(cmd_plain(), stdout);
    print_long(command_text(document), 0);
    char *text =
        cmd_format("%s; started %s; figures of %s", reason_text(cmd_text(document, "reason")),
                   cmd_text(process, "start_time"), cmd_text(document, "time"));
    if (driver > 0)
        text = joined(text, cmd_format("; driver of CUDA %lld.%lld", (long long)driver / 1000,
                                       (long long)driver % 1000 / 10));
    print_long(text, 0);
    if (*cmd_text(config, "string"))
        print_long(cmd_format("ACCEL_ALLOC_CONF %s", cmd_text(config, "string")), 0);
}

static void render_stat(cmd_table_t *table, const json_t *device, const char *name,
                        const char *pool, const char *label, const char *unit) {
    static const char *const fields[] = {"current", "peak", "allocated", "freed"};
    char text[4][CMD_FIGURE];
    bool zero = true;
    for (int i = 0; i < 4; i++) {
        int64_t value = cmd_document_stat(device, name, pool, fields[i]);
        cmd_text_unit(text[i], unit, value);
        zero &= !value;
    }
    if (zero && !all) {
        hidden++;
        return;
    }
    cmd_table_row(table, pool && strcmp(pool, "all") != 0 ? "" : name, label, text[0], text[1],
                  text[2], text[3]);
}

static void render_pools(cmd_table_t *table, const json_t *device, const char *name,
                         const char *unit) {
    render_stat(table, device, name, "all", "all", unit);
    render_stat(table, device, name, "small_pool", "small", unit);
    render_stat(table, device, name, "large_pool", "large", unit);
}

static void render_count(cmd_table_t *table, const char *name, const char *unit, int64_t value,
                         const char *doc) {
    char text[CMD_FIGURE];
    if (value || all)
        cmd_table_row(table, name, cmd_text_unit(text, unit, value), doc);
    else
        hidden++;
}

static int64_t asked_bytes(const json_t *module, const char *field) {
    return cmd_integer(json_object_get(module, "allocated_bytes"), field);
}

static int64_t held_by(const json_t *module) {
    return asked_bytes(module, "current");
}

static int by_held(const void *a, const void *b) {
    const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
    if (held_by(x) != held_by(y))
        return held_by(x) < held_by(y) ? 1 : -1;
    int64_t more = asked_bytes(y, "allocated") - asked_bytes(x, "allocated");
    return more < 0 ? -1 : more > 0;
}

/* Who holds what and asks for how much, the largest first; `seconds` since the start. */
static void render_modules(const json_t *modules, double seconds) {
    size_t count = json_array_size(modules);
    if (!count)
        return;
    const json_t **list = cmd_alloc(count * sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = json_array_get(modules, i);
    qsort(list, count, sizeof *list, by_held);
    puts("\n  by module that asked");
    cmd_table_t *table = cmd_table_new("lrrrrr");
    cmd_table_row(table, "", "held", "requests", "a second", "asked for", "a second");
    for (size_t i = 0; i < count; i++) {
        char text[5][CMD_FIGURE];
        int64_t requests = cmd_integer(list[i], "num_allocs");
        int64_t bytes = asked_bytes(list[i], "allocated");
        cmd_text_bytes(text[0], held_by(list[i]));
        cmd_text_count(text[1], requests);
        cmd_text_bytes(text[3], bytes);
        strcpy(text[2], "-");
        strcpy(text[4], "-");
        if (seconds > 0) {
            cmd_text_count(text[2], (int64_t)((double)requests / seconds + 0.5));
            cmd_text_bytes(text[4], (int64_t)((double)bytes / seconds + 0.5));
        }
        const char *name = cmd_text(list[i], "name");
        cmd_table_row(table, *name ? name : "(not known)", text[0], text[1], text[2], text[3],
                      text[4]);
    }
    cmd_table_print(table, 2);
    free(list);
}

static void render_device(const json_t *device, double seconds) {
    char total[CMD_FIGURE];
    cmd_text_bytes(total, cmd_integer(device, "total_memory"));
    printf("\n%sdevice %lld%s  ", cmd_bold(), (long long)cmd_integer(device, "ordinal"),
           cmd_plain());
    cmd_print_safe(cmd_text(device, "name"));
    printf(", %s%s", total, *cmd_text(device, "uuid") ? ", " : "");
    cmd_print_safe(cmd_text(device, "uuid"));
    puts("");
    cmd_table_t *table = cmd_table_new("llrrrr");
    cmd_table_row(table, "", "", "current", "peak", "allocated", "freed");
#define STAT_POOLS(name, unit, doc)  render_pools(table, device, #name, #unit);
#define STAT_SINGLE(name, unit, doc) render_stat(table, device, #name, NULL, "", #unit);
#include "observe/stats.def"
    cmd_table_print(table, 2);
    puts("");
    table = cmd_table_new("lrl");
#define STAT_COUNT(name, doc)                                                                    \
    render_count(table, #name, "count", cmd_document_stat(device, #name, NULL, NULL), doc);
#include "observe/stats.def"
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    render_count(table, #name, #unit, cmd_document_counter(device, #name), doc);
#include "observe/counters.def"
    cmd_table_print(table, 2);
    render_modules(json_object_get(device, "modules"), seconds);
}

/* Blocks that were not freed at exit, if the key leak_report is set. */
static void render_leaks(const json_t *leaks) {
    if (!json_array_size(leaks))
        return;
    printf("\n%snot freed at exit%s\n", cmd_bold(), cmd_plain());
    cmd_table_t *table = cmd_table_new("rlrrl");
    cmd_table_row(table, "device", "module that asked", "blocks", "bytes", "of which sizes");
    for (size_t i = 0; i < json_array_size(leaks); i++) {
        enum { MOST_SIZES = 3 };
        const json_t *leak = json_array_get(leaks, i), *sizes = json_object_get(leak, "sizes");
        char device[CMD_FIGURE], blocks[CMD_FIGURE], bytes[CMD_FIGURE], one[CMD_FIGURE];
        char *text = cmd_format("%s", "");
        for (size_t k = 0; k < json_array_size(sizes) && k < MOST_SIZES; k++) {
            const json_t *size = json_array_get(sizes, k);
            cmd_text_bytes(one, cmd_integer(size, "requested_bytes"));
            text = joined(text, cmd_format("%s%lld of %s", k ? ", " : "",
                                           (long long)cmd_integer(size, "blocks"), one));
        }
        if (json_array_size(sizes) > MOST_SIZES)
            text = joined(text, cmd_format(", ..."));
        const char *name = cmd_text(leak, "name");
        cmd_table_row(table, cmd_text_count(device, cmd_integer(leak, "device")),
                      *name ? name : "(not known)",
                      cmd_text_count(blocks, cmd_integer(leak, "blocks")),
                      cmd_text_bytes(bytes, cmd_integer(leak, "bytes")), text);
        free(text);
    }
    cmd_table_print(table, 2);
}

/* With the keys stacks or history. */
static void render_sites(json_t *document) {
    enum { MOST = 10 };
    char *error = NULL;
    cmd_history_t *history =
        json_object_get(document, "recorded") ? cmd_history_of(document, &error) : NULL;
    if (history) {
        cmd_sites_print(history, all ? UINT_MAX : MOST);
        cmd_history_free(history);
    }
    free(error);
}

/* Pinned memory, if pinned_cache kept any. */
static void render_pinned(const json_t *pinned) {
    if (!cmd_document_stat(pinned, "num_host_alloc", NULL, NULL))
        return;
    printf("\n%spinned host memory%s\n", cmd_bold(), cmd_plain());
    cmd_table_t *table = cmd_table_new("llrrrr");
    cmd_table_row(table, "", "", "current", "peak", "allocated", "freed");
#define HOST_STAT(name, unit, doc) render_stat(table, pinned, #name, NULL, "", #unit);
#include "observe/host_stats.def"
    cmd_table_print(table, 2);
    puts("");
    table = cmd_table_new("lrl");
#define HOST_COUNT(name, doc)                                                                    \
    render_count(table, #name, "count", cmd_document_stat(pinned, #name, NULL, NULL), doc);
#include "observe/host_stats.def"
    cmd_table_print(table, 2);
}

typedef struct {
    const char *name;
    int64_t calls;
} hook_t;

static int by_calls(const void *a, const void *b) {
    const hook_t *x = a, *y = b;
    if (x->calls != y->calls)
        return x->calls < y->calls ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void render_hooks(const json_t *hooks) {
    unsigned count = 0;
    hook_t *list = cmd_alloc((json_object_size(hooks) + 1) * sizeof *list);
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)hooks, name, value) {
        list[count++] = (hook_t){name, json_integer_value(value)};
    }
    qsort(list, count, sizeof *list, by_calls);
    printf("\n%shooks%s  %s\n", cmd_bold(), cmd_plain(),
           count > MOST_HOOKS ? "most called first; the JSON has all" : "calls");
    cmd_table_t *table = cmd_table_new("lr");
    for (unsigned i = 0; i < count && i < MOST_HOOKS; i++) {
        char calls[CMD_FIGURE];
        cmd_table_row(table, list[i].name, cmd_text_count(calls, list[i].calls));
    }
    cmd_table_print(table, 2);
    free(list);
}

/* Memory shared with other processes, if there is any. */
static void render_shares(const json_t *document) {
    static const struct {
        const char *label, *counter[2], *unit, *doc;
    } rows[] = {
        {"exports", {"ipc_exported", NULL}, "blocks", "blocks that others may open"},
        {"held now", {"ipc_exported_bytes", NULL}, "bytes", "of them"},
        {"exports", {"exported_segments", NULL}, "segments", "whole segments"},
        {"imports", {"ipc_imported", NULL}, "calls", "of other processes' memory"},
        {"refusals", {"ipc_refused", "refused_shares"}, "calls", "of handles asked for"},
        {"not found", {"ipc_unresolved", NULL}, "calls", "processes of handles to be opened"},
    };
    cmd_table_t *table = NULL;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t value = 0;
        for (int k = 0; k < 2 && rows[i].counter[k]; k++)
            value += cmd_document_counter(document, rows[i].counter[k]);
        if (!value)
            continue;
        if (!table)
            table = cmd_table_new("lrl");
        render_count(table, rows[i].label, rows[i].unit, value, rows[i].doc);
    }
    if (!table)
        return;
    printf("\n%sshared with other processes%s  accelcache doctor says what it costs\n",
           cmd_bold(), cmd_plain());
    cmd_table_print(table, 2);
}

void cmd_render(json_t *document, const char *source, cmd_render_t how) {
    cmd_headline_t headline;
    cmd_headline(&headline, document);
    cmd_headline_print(&headline);
    if (how == CMD_RENDER_BRIEF)
        return;
    all = how == CMD_RENDER_ALL;
    hidden = 0;
    render_process(document, source);
    render_sites(document);
    const json_t *devices = json_object_get(document, "devices");
    double start =
        cmd_document_seconds(cmd_text(json_object_get(document, "process"), "start_time"));
    double seconds = start > 0 ? cmd_document_seconds(cmd_text(document, "time")) - start : 0;
    for (size_t i = 0; i < json_array_size(devices); i++)
        render_device(json_array_get(devices, i), seconds);
    if (!json_array_size(devices))
        puts("\nno device was used");
    render_leaks(json_object_get(document, "leaks"));
    render_pinned(json_object_get(document, "pinned"));
    printf("\n%sprocess%s\n", cmd_bold(), cmd_plain());
    cmd_table_t *table = cmd_table_new("lrl");
#define PROCESS_COUNTER(name, unit, doc)                                                         \
    render_count(table, #name, #unit, cmd_document_counter(document, #name), doc);
#include "observe/counters.def"
    cmd_table_print(table, 2);
    cmd_figures_t figures = {0};
    char passed[CMD_PASSED_TEXT];
    cmd_figures_add(&figures, document);
    if (cmd_passed_text(passed, &figures)) {
        putchar('\n');
        print_long(cmd_format("%s", passed), 0);
    }
    render_shares(document);
    const json_t *hooks = json_object_get(document, "hooks");
    if (json_object_size(hooks))
        render_hooks(hooks);
    const json_t *warnings = json_object_get(document, "warnings");
    if (json_array_size(warnings))
        printf("\n%swarnings%s\n", cmd_bold(), cmd_plain());
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        const char *text = json_string_value(json_array_get(warnings, i));
        fputs("  ", stdout);
        cmd_print_safe(text ? text : "");
        putchar('\n');
    }
    if (hidden)
        printf("\n%u figures that are 0 are left out: --all shows them\n", hidden);
}
