/* The cost table of the modelled device, and files that replace parts of it (model.h). */
#include "command.h"
#include "replay/model.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const cmd_call_names[CMD_CALLS] = {
#define CALL(name, text, fixed, mib, page, source) text,
#define WORK(name, text, fixed, mib, source)
#include "replay/model_calls.def"
#undef CALL
#undef WORK
};

static const struct {
    const char *name;
    size_t offset;
    cmd_cost_t cost;
} rows[] = {
#define CALL(name, text, fixed, mib, page, source)                                               \
    {text, offsetof(cmd_costs_t, name), {fixed, mib, page}},
#define WORK(name, text, fixed, mib, source) {text, offsetof(cmd_costs_t, name), {fixed, mib, 0}},
#include "replay/model_calls.def"
#undef CALL
#undef WORK
};
enum { ROWS = sizeof rows / sizeof *rows };

static cmd_cost_t *cost_at(cmd_costs_t *costs, unsigned row) {
    return (cmd_cost_t *)((char *)costs + rows[row].offset);
}

void cmd_costs_default(cmd_costs_t *costs) {
    for (unsigned i = 0; i < ROWS; i++)
        *cost_at(costs, i) = rows[i].cost;
}

/* A column of a cost: *at moves behind it and its comma. */
static bool read_column(char **at, bool last, double *value) {
    char *end;
    *value = strtod(*at, &end);
    if (end == *at || !(*value >= 0) || *value > 1e12)
        return false;
    end += strspn(end, " \t");
    bool separated = *end == ',';
    *at = end + separated;
    return separated || (last && !*end);
}

/* A row of a simulated device's table.  Its ns_per_page, which may be left out, begins with the
 * second page; the least page is no exception; and it knows calls that the model never makes. */
static char *read_measured(cmd_costs_t *costs, const char *name, char *at) {
    cmd_cost_t cost = {0};
    if (!read_column(&at, false, &cost.fixed) || !read_column(&at, true, &cost.per_mib))
        return cmd_format("behind the name come two numbers from 0 to 1e12: ns_fixed, "
                          "ns_per_mib");
    if (strncmp(name, "cu", 2) != 0)
        return cmd_format("\"%.40s\" is no function of the driver", name);
    char *end;
    double per_page = strtod(at, &end);
    if (end > at && (!*end || *end == ',')) {
        if (!(per_page >= 0) || per_page > 1e12)
            return cmd_format("ns_per_page is a number from 0 to 1e12");
        cost.per_page = per_page;
        cost.fixed = cost.fixed > per_page ? cost.fixed - per_page : 0;
    }
    for (unsigned i = 0; i < ROWS; i++)
        if (!strcmp(name, rows[i].name))
            *cost_at(costs, i) = cost;
    if (!strcmp(name, cmd_call_names[CMD_CALL_create]))
        costs->create_least = cost;
    return NULL;
}

static char *read_row(cmd_costs_t *costs, char *line, bool measured) {
    char *at = line + strcspn(line, ",");
    if (!*at)
        return cmd_format(measured ? "a row is function,ns_fixed,ns_per_mib,ns_per_page,source"
                                   : "a row is call,ns_fixed,ns_per_mib,ns_per_page,source");
    *at++ = '\0';
    if (measured)
        return read_measured(costs, line, at);
    for (unsigned i = 0; i < ROWS; i++) {
        cmd_cost_t cost;
        if (strcmp(line, rows[i].name) != 0)
            continue;
        if (!read_column(&at, false, &cost.fixed) || !read_column(&at, false, &cost.per_mib) ||
            !read_column(&at, true, &cost.per_page))
            return cmd_format("behind the name come three numbers from 0 to 1e12: ns_fixed, "
                              "ns_per_mib, ns_per_page");
        *cost_at(costs, i) = cost;
        return NULL;
    }
    char *known = cmd_format("%s", rows[0].name);
    for (unsigned i = 1; i < ROWS; i++) {
        char *more = cmd_format("%s, %s", known, rows[i].name);
        free(known);
        known = more;
    }
    char *error = cmd_format("\"%.40s\" is no call of the model; it knows %s", line, known);
    free(known);
    return error;
}

bool cmd_costs_read(cmd_costs_t *costs, const char *path, char **error) {
    char *text = cmd_file_read(path, NULL), *rest = text, *line;
    if (!text) {
        *error = cmd_format("%s: %s", path, strerror(errno));
        return false;
    }
    char *wrong = NULL;
    bool measured = !strncmp(text, "function,", 9);
    for (unsigned count = 1; !wrong && (line = strsep(&rest, "\n")); count++) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line || *line == '#' || (count == 1 && (measured || !strncmp(line, "call,", 5))))
            continue;
        wrong = read_row(costs, line, measured);
        if (wrong) {
            *error = cmd_format("%s, line %u: %s", path, count, wrong);
            free(wrong);
        }
    }
    free(text);
    return !wrong;
}
