/* `accelcache report`: one page of HTML with everything in it, charts drawn by dygraphs. */
#include "write/report.h"
#include "command.h"
#include "read/headline.h"
#include "base/output.h"
#include "base/terminal.h"

#include <errno.h>
#include "base/option.h"
#include <stdlib.h>
#include <string.h>

/* The folder of Debian's libjs-dygraphs. */
static const char library_folder[] = "/usr/share/javascript/dygraphs";

static int print_help(void) {
    printf(
        "Usage: accelcache report FILE [-o OUT]\n"
        "Makes a page of a dump (or the figures of the process PID), a trace, or a\n"
        "snapshot in PyTorch's layout: memory over time, sizes and lifetimes, segments,\n"
        "the largest blocks, advice.  The page is one file and needs no network.\n"
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
    json_object_set_new(data, "series", cmd_report_series(history));
    json_object_set_new(data, "sizes", cmd_report_sizes(history));
    json_object_set_new(data, "lives", cmd_report_lives(history));
    json_object_set_new(data, "map", cmd_report_map(history, &list));
    json_object_set_new(data, "blocks", cmd_report_blocks(history, at));
    json_object_set_new(data, "stacks", cmd_report_stacks(history));
    json_object_set_new(data, "tables", cmd_report_tables(history));
    json_object_set_new(data, "advice", cmd_report_advice(history, &list));
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

static int report(const char *path, const char *target, const char *folder) {
    char *error, *text = NULL;
    char *style = library_file(folder, "dygraph.min.css");
    char *library = style ? library_file(folder, "dygraph.min.js") : NULL;
    cmd_history_t *history = library ? cmd_history_read(path, &error) : NULL;
    cmd_output_t output;
    int status = CMD_FAILED;
    if (library && !history) {
        cmd_say("%s", error);
        free(error);
    }
    if (history) {
        json_t *data = data_of(history, path);
        cmd_bar_end();
        text = json_dumps(data, JSON_COMPACT);
        json_decref(data);
        if (!text)
            cmd_say("out of memory");
    }
    if (text && cmd_output_open(&output, target, false)) {
        put_page(output.file, style, library, text);
        bool to_file = output.path != NULL;
        status = cmd_output_close(&output, true);
        if (status == CMD_OK && to_file)
            fprintf(stderr, "accelcache report: wrote %s\n", target);
    }
    if (history)
        cmd_history_free(history);
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
    if (argc - optind != 1)
        return cmd_usage(optind == argc ? "FILE is missing" : "one FILE at a time");
    return report(argv[optind], target, folder);
}
