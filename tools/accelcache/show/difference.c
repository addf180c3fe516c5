/* `accelcache stat A B`: what differs between two documents; see summary.h. */
#include "command.h"
#include "read/document.h"
#include "show/summary.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    char *name; /* of the figure, without its device */
    int64_t value[2];
} figure_t;

/* Figures of one device, of the process, or of the hooks, that differ. */
typedef struct {
    figure_t *figure;
    size_t count;
} figures_t;

static void add_figure(figures_t *figures, const char *name, int64_t first, int64_t second) {
    if (first == second)
        return;
    figures->figure = cmd_resize(figures->figure, (figures->count + 1) * sizeof *figures->figure);
    figures->figure[figures->count++] = (figure_t){cmd_format("%s", name), {first, second}};
}

static void clear_figures(figures_t *figures) {
    for (size_t i = 0; i < figures->count; i++)
        free(figures->figure[i].name);
    free(figures->figure);
}

static const char *unit_of(const char *name) {
    static const struct {
        const char *name, *unit;
    } rows[] = {
#define STAT_POOLS(name, unit, doc)  {#name, #unit},
#define STAT_SINGLE(name, unit, doc) {#name, #unit},
#include "observe/stats.def"
#define HOST_STAT(name, unit, doc) {#name, #unit},
#include "observe/host_stats.def"
#define DEVICE_COUNTER(name, unit, doc)  {#name, #unit},
#define PROCESS_COUNTER(name, unit, doc) {#name, #unit},
#include "observe/counters.def"
    };
    size_t length = strcspn(name, ".");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i].name) == length && !strncmp(name, rows[i].name, length))
            return rows[i].unit;
    return "count";
}

/* ------------------------------------------------------------------ finding them */

static int64_t value_of(const json_t *device, const char *name, const char *pool,
                        const char *field) {
    return device ? cmd_document_stat(device, name, pool, field) : 0;
}

static void add_stat(figures_t *figures, const json_t *const device[2], const char *name,
                     const char *pool) {
    static const char *const fields[] = {"current", "peak", "allocated", "freed"};
    for (unsigned i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char *whole = cmd_format("%s%s%s.%s", name, pool ? "." : "", pool ? pool : "", fields[i]);
        add_figure(figures, whole, value_of(device[0], name, pool, fields[i]),
                   value_of(device[1], name, pool, fields[i]));
        free(whole);
    }
}

static figures_t device_figures(const json_t *const device[2]) {
    static const char *const pools[] = {"all", "small_pool", "large_pool"};
    figures_t figures = {0};
#define STAT_COUNT(name, doc)                                                                    \
    add_figure(&figures, #name, value_of(device[0], #name, NULL, NULL),                          \
               value_of(device[1], #name, NULL, NULL));
#define STAT_POOLS(name, unit, doc)                                                              \
    for (unsigned i = 0; i < 3; i++)                                                             \
        add_stat(&figures, device, #name, pools[i]);
#define STAT_SINGLE(name, unit, doc) add_stat(&figures, device, #name, NULL);
#include "observe/stats.def"
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    add_figure(&figures, #name, cmd_document_counter(device[0], #name),                          \
               cmd_document_counter(device[1], #name));
#include "observe/counters.def"
    return figures;
}

static figures_t process_figures(const json_t *const document[2]) {
    const json_t *const pinned[2] = {json_object_get(document[0], "pinned"),
                                     json_object_get(document[1], "pinned")};
    figures_t figures = {0};
#define HOST_STAT(name, unit, doc) add_stat(&figures, pinned, #name, NULL);
#define HOST_COUNT(name, doc)                                                                    \
    add_figure(&figures, #name, value_of(pinned[0], #name, NULL, NULL),                          \
               value_of(pinned[1], #name, NULL, NULL));
#include "observe/host_stats.def"
#define PROCESS_COUNTER(name, unit, doc)                                                         \
    add_figure(&figures, #name, cmd_document_counter(document[0], #name),                        \
               cmd_document_counter(document[1], #name));
#include "observe/counters.def"
    return figures;
}

/* Hooks have the names of whatever version wrote the document. */
static figures_t hook_figures(const json_t *const document[2]) {
    figures_t figures = {0};
    json_t *hooks[2] = {json_object_get(document[0], "hooks"),
                        json_object_get(document[1], "hooks")};
    const char *name;
    json_t *value;
    json_object_foreach(hooks[0], name, value) {
        add_figure(&figures, name, json_integer_value(value),
                   cmd_integer(hooks[1], name));
    }
    json_object_foreach(hooks[1], name, value) {
        if (!json_object_get(hooks[0], name))
            add_figure(&figures, name, 0, json_integer_value(value));
    }
    return figures;
}

static const json_t *device_at(const json_t *document, json_int_t ordinal) {
    const json_t *devices = json_object_get(document, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        if (cmd_integer(device, "ordinal") == ordinal)
            return device;
    }
    return NULL;
}

/* Calls `visit` for each device of the first document, and for devices of the second that the first lacks. */
static void each_device(const json_t *const document[2],
                        void (*visit)(json_int_t ordinal, const figures_t *figures, void *arg),
                        void *arg) {
    for (int which = 0; which < 2; which++) {
        const json_t *devices = json_object_get(document[which], "devices");
        for (size_t i = 0; i < json_array_size(devices); i++) {
            json_int_t ordinal =
                cmd_integer(json_array_get(devices, i), "ordinal");
            const json_t *device[2] = {device_at(document[0], ordinal),
                                       device_at(document[1], ordinal)};
            if (which == 1 && device[0])
                continue;
            figures_t figures = device_figures(device);
            visit(ordinal, &figures, arg);
            clear_figures(&figures);
        }
    }
}

/* ------------------------------------------------------------------ for people */

static char *change_text(char text[CMD_FIGURE], const char *unit, int64_t first, int64_t second) {
    char size[CMD_FIGURE];
    snprintf(text, CMD_FIGURE, "%s%s", second > first ? "+" : "-",
             cmd_text_unit(size, unit, second > first ? second - first : first - second));
    return text;
}

static void print_figures(const char *head, const figures_t *figures) {
    if (!figures->count)
        return;
    printf("\n%s%s%s\n", cmd_bold(), head, cmd_plain());
    cmd_table_t *table = cmd_table_new("lrrr");
    cmd_table_row(table, "", "first", "second", "difference");
    for (size_t i = 0; i < figures->count; i++) {
        const figure_t *figure = &figures->figure[i];
        const char *unit = unit_of(figure->name);
        char text[3][CMD_FIGURE];
        cmd_table_row(table, figure->name, cmd_text_unit(text[0], unit, figure->value[0]),
                      cmd_text_unit(text[1], unit, figure->value[1]),
                      change_text(text[2], unit, figure->value[0], figure->value[1]));
    }
    cmd_table_print(table, 2);
}

static void print_device(json_int_t ordinal, const figures_t *figures, void *arg) {
    bool *any = arg;
    char *head = cmd_format("device %lld", (long long)ordinal);
    *any |= figures->count > 0;
    print_figures(head, figures);
    free(head);
}

void cmd_render_difference(const cmd_rendered_t *first, const cmd_rendered_t *second) {
    const json_t *document[2] = {first->document, second->document};
    bool any = false;
    figures_t process = process_figures(document), hooks = hook_figures(document);
    fputs("\nfrom ", stdout);
    cmd_print_safe(first->source);
    fputs(" to ", stdout);
    cmd_print_safe(second->source);
    puts("; what is equal is left out");
    each_device(document, print_device, &any);
    print_figures("process", &process);
    print_figures("hooks", &hooks);
    if (!any && !process.count && !hooks.count)
        puts("\nno figure differs");
    clear_figures(&process);
    clear_figures(&hooks);
}

/* ------------------------------------------------------------------ JSON */

static json_t *figures_json(const figures_t *figures) {
    json_t *json = json_object();
    for (size_t i = 0; i < figures->count; i++) {
        const figure_t *figure = &figures->figure[i];
        json_object_set_new(json, figure->name,
                            json_pack("{s:I, s:I, s:I}", "first", (json_int_t)figure->value[0],
                                      "second", (json_int_t)figure->value[1], "difference",
                                      (json_int_t)(figure->value[1] - figure->value[0])));
    }
    return json;
}

static void add_device(json_int_t ordinal, const figures_t *figures, void *arg) {
    json_array_append_new(
        arg, json_pack("{s:I, s:o}", "ordinal", ordinal, "figures", figures_json(figures)));
}

json_t *cmd_difference_json(const cmd_rendered_t *first, const cmd_rendered_t *second) {
    const json_t *document[2] = {first->document, second->document};
    json_t *devices = json_array();
    figures_t process = process_figures(document), hooks = hook_figures(document);
    each_device(document, add_device, devices);
    json_t *whole = json_pack(
        "{s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "schema", "accelcache-difference", "version", 1,
        "first", cmd_json_text(first->source), "second", cmd_json_text(second->source), "devices",
        devices, "counters", figures_json(&process), "hooks", figures_json(&hooks));
    clear_figures(&process);
    clear_figures(&hooks);
    return whole;
}
