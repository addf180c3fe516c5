/* `accelcache report`: one page of HTML with everything in it, charts drawn by dygraphs. */
#include "write/report.h"
#include "command.h"
#include "read/changes.h"
#include "read/control.h"
#include "read/headline.h"
#include "base/output.h"
#include "base/terminal.h"

#include <errno.h>
#include "base/option.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of Debian's libjs-dygraphs. */
static const char library_folder[] = "/usr/share/javascript/dygraphs";

static int print_help(void) {
    printf(
        "Usage: accelcache report [A] FILE [-o OUT]\n"
        "Makes a page of a trace, a dump, the process PID, or a snapshot in PyTorch's\n"
        "layout: advice, call sites that hold the memory, memory over time by call site,\n"
        "sizes, lifetimes, the largest blocks, segments.  A process with control:true\n"
        "is asked for all that it recorded.  With A, the page also shows which call\n"
        "sites hold more than in A, and which less.  The page is one file and needs no\n"
        "network.\n"
        "\n"
        "  -o FILE            write to FILE, which appears when it is whole\n"
        "                     (report.html); - is the standard output\n"
        "  --library FOLDER   the folder of dygraph.min.js and dygraph.min.css\n"
        "                     (%s)\n"
        "\n"
        "Exit status: 0 done, 1 FILE or the library could not be read or the page not be\n"
        "written, 2 wrong usage.\n",
        library_folder);
    return CMD_OK;
}

/* ------------------------------------------------------------------ data */

static void put_fact(json_t *facts, const char *name, const char *value) {
    if (!value || !*value)
        return;
    char *safe = cmd_safe(value);
    json_array_append_new(facts, json_pack("[so]", name, cmd_json_text(safe)));
    free(safe);
}

static json_t *facts_of(const cmd_history_t *history, const char *path) {
    json_t *facts = json_array();
    char *process = history->pid ? cmd_format("%d", history->pid) : NULL;
    put_fact(facts, "Program", history->command);
    put_fact(facts, "Process", process);
    put_fact(facts, "Host", history->host);
    put_fact(facts, "File", path);
    put_fact(facts, "Form", history->format);
    put_fact(facts, "Written", json_string_value(json_object_get(history->figures, "time")));
    put_fact(facts, "Settings",
             json_string_value(
                 json_object_get(json_object_get(history->figures, "config"), "string")));
    if (history->figures) {
        cmd_headline_t headline;
        cmd_headline(&headline, history->figures);
        put_fact(facts, "Device", headline.simulated ? "simulated" : NULL);
    }
    put_fact(facts, "Note", history->note);
    free(process);
    return facts;
}

static json_t *data_of(const cmd_history_t *history, const char *path) {
    bool snapshot = history->source == CMD_SOURCE_SNAPSHOT;
    size_t at = snapshot ? history->events : cmd_history_peak(history);
    cmd_segments_t list = cmd_history_segments(history, at);
    json_t *data = json_object();
    json_object_set_new(data, "facts", facts_of(history, path));
    json_object_set_new(data, "timed", json_boolean(history->timed));
    json_object_set_new(data, "events", json_integer((json_int_t)history->events));
    json_object_set_new(data, "sizes", cmd_report_sizes(history));
    json_object_set_new(data, "lives", cmd_report_lives(history));
    json_object_set_new(data, "map", cmd_report_map(history, &list));
    json_object_set_new(data, "blocks", cmd_report_blocks(history, at));
    json_object_set_new(data, "stacks", cmd_report_stacks(history));
    json_object_set_new(data, "figures", cmd_report_figures(history));
    json_object_set_new(data, "advice", cmd_report_advice(history, &list));
    cmd_report_series(history, data);
    cmd_segments_free(&list);
    return data;
}

/* ------------------------------------------------------------------ the page */

/* `text` with another text in place of each `mark`. */
static void put_replaced(FILE *out, const char *text, const char *mark, const char *other) {
    for (const char *at; (at = strstr(text, mark)); text = at + strlen(mark)) {
        fwrite(text, 1, (size_t)(at - text), out);
        fputs(other, out);
    }
    fputs(text, out);
}

static char *library_file(const char *folder, const char *name) {
    char *path = cmd_format("%s/%s", folder, name);
    char *text = cmd_file_read(path, &(size_t){0});
    if (!text)
        cmd_say("%s: %s; dygraphs draws the charts: apt-get install libjs-dygraphs, or say with "
                "--library where it is",
                path, strerror(errno));
    free(path);
    return text;
}

static void put_page(FILE *out, const char *style, const char *library, const char *data) {
    /* Nothing may end the element that it stands in, or begin another one. */
    const struct {
        const char *mark, *text, *from, *to;
    } parts[] = {{"@style@\n", style, "</style", ""},
                 {"@library@\n", library, "</script", "<\\/script"},
                 {"@data@\n", data, "<", "\\u003c"}};
    const char *rest = cmd_report_page;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *mark = strstr(rest, parts[i].mark);
        fwrite(rest, 1, (size_t)(mark - rest), out);
        put_replaced(out, parts[i].text, parts[i].from, parts[i].to);
        putc('\n', out);
        rest = mark + strlen(parts[i].mark);
    }
    fputs(rest, out);
}

/* ------------------------------------------------------------------ what is read */

/* Asks the process PID for a snapshot.  NULL: it gives none, and *why says so; both malloc'd. */
static cmd_history_t *read_snapshot(int pid, char **why) {
    const char *folder = getenv("TMPDIR");
    char *path = cmd_format("%s/accelcache-report-XXXXXX", folder && *folder == '/' ? folder : "/tmp");
    ac_control_answer_t answer;
    ac_live_name_t name;
    cmd_history_t *history = NULL;
    int fd = mkstemp(path); /* the process, of the same user, replaces it */
    if (fd < 0)
        *why = cmd_format("%s: %s", path, strerror(errno));
    else if (cmd_control_find(pid, 0, &name, why) && cmd_control(&name, AC_CONTROL_SNAPSHOT, path, &answer, why))
        history = cmd_history_read(path, why);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    free(path);
    return history;
}

/* A process is asked for all that it recorded; else its figures are read, and the page says what is missing. */
static cmd_history_t *read_any(const char *path, char **error) {
    char *end, *why = NULL;
    long pid = strtol(path, &end, 10);
    bool is_process = *path >= '1' && *path <= '9' && !*end && pid <= INT_MAX && access(path, F_OK) != 0;
    cmd_history_t *history = is_process ? read_snapshot((int)pid, &why) : NULL;
    if (!history && (history = cmd_history_read(path, error)) && why && !history->note)
        history->note = cmd_format("figures alone: %s", why);
    free(why);
    return history;
}

/* [{site, change, bytes: [A, B]}] of the peak; false: *error, with the name of the file. */
static bool put_changes(json_t *data, const cmd_history_t *a, const char *name, const cmd_history_t *b,
                        char **error) {
    cmd_changes_t changes;
    int wrong;
    json_t *list = json_array();
    if (!cmd_changes((const cmd_history_t *const[2]){a, b}, CMD_AT_PEAK, &changes, &wrong, error))
        return false;
    for (size_t i = 0; i < changes.count; i++) {
        const cmd_change_t *change = &changes.change[i];
        if (change->bytes[0] != change->bytes[1])
            json_array_append_new(list, json_pack("{s:o, s:s, s:[I, I]}", "site", cmd_json_text(change->site), "change",
                                                  cmd_change_word(change), "bytes", (json_int_t)change->bytes[0],
                                                  (json_int_t)change->bytes[1]));
    }
    json_object_set_new(data, "changes",
                        json_pack("{s:o, s:[I, I], s:o}", "from", cmd_json_text(name), "bytes",
                                  (json_int_t)changes.bytes[0], (json_int_t)changes.bytes[1], "sites", list));
    cmd_changes_free(&changes);
    return true;
}

/* The page's data as text; `before` NULL: no other recording.  NULL: *error. */
static char *text_of(const char *before, const char *path, char **error) {
    cmd_history_t *history = read_any(path, error), *other = NULL;
    bool good = history && (!before || (other = cmd_history_read(before, error)));
    json_t *data = good ? data_of(history, path) : NULL;
    good = good && (!before || put_changes(data, other, before, history, error));
    cmd_bar_end();
    char *text = good ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    if (good && !text)
        *error = cmd_format("out of memory");
    json_decref(data);
    if (other)
        cmd_history_free(other);
    if (history)
        cmd_history_free(history);
    return text;
}

static int report(const char *before, const char *path, const char *target, const char *folder) {
    char *error = NULL, *style = library_file(folder, "dygraph.min.css");
    char *library = style ? library_file(folder, "dygraph.min.js") : NULL;
    char *text = library ? text_of(before, path, &error) : NULL;
    cmd_output_t output;
    int status = CMD_FAILED;
    if (error)
        cmd_say("%s", error);
    if (text && cmd_output_open(&output, target, false)) {
        put_page(output.file, style, library, text);
        bool to_file = output.path != NULL;
        status = cmd_output_close(&output, true);
        if (status == CMD_OK && to_file)
            fprintf(stderr, "accelcache report: wrote %s\n", target);
    }
    free(error);
    free(text);
    free(library);
    free(style);
    return status;
}

int cmd_report(int argc, char **argv) {
    const char *target = "report.html", *folder = library_folder;
    int status;
    const cmd_option_t options[] = {{"output", 'o', .text = &target},
                                    {"library", .text = &folder},
                                    {"help", 'h', .stop = print_help},
                                    {.name = NULL}};
    if (!cmd_options(argc, argv, options, NULL, &status))
        return status;
    int files = argc - optind;
    if (files != 1 && files != 2)
        return cmd_usage(files ? "one FILE, or two that are compared" : "FILE is missing");
    return report(files == 2 ? argv[optind] : NULL, argv[argc - 1], target, folder);
}
