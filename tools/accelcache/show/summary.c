/* Several documents in a table (summary.h): a line each, then the sum, the least and the greatest of each
 * figure, and the outliers among the documents. */
#include "show/summary.h"
#include "command.h"
#include "read/document.h"

#include <stdlib.h>
#include <string.h>

/* One column each.
 *   COLUMN(key, unit, "head", expression of the figures `f`) */
#define COLUMNS                                                                                  \
    COLUMN(reserved_peak, bytes, "peak reserved", f->reserved_peak)                              \
    COLUMN(allocated_peak, bytes, "peak allocated", f->allocated_peak)                           \
    COLUMN(saved_calls, calls, "calls saved",                                                    \
           (int64_t)(f->device.cached_allocs + f->device.cached_frees))                          \
    COLUMN(driver_calls, calls, "driver calls",                                                  \
           (int64_t)(f->device.driver_allocs + f->device.driver_frees) +                         \
               PROCESS(passed_allocs) + PROCESS(passed_frees) + PROCESS(passed_async) +          \
               PROCESS(passed_async_frees))                                                      \
    COLUMN(driver_ns, ns, "driver time",                                                         \
           (int64_t)(f->device.driver_alloc_ns + f->device.driver_free_ns) + PROCESS(passed_ns)) \
    COLUMN(ooms, calls, "OOMs", f->ooms)
#define PROCESS(name) (int64_t) f->process[AC_COUNT_##name]

enum {
#define COLUMN(key, unit, head, expression) COLUMN_##key,
    COLUMNS
#undef COLUMN
        COLUMN_COUNT
};

static const struct {
    const char *key, *unit, *head;
} columns[] = {
#define COLUMN(key, unit, head, expression) {#key, #unit, head},
    COLUMNS
#undef COLUMN
};

typedef struct {
    int64_t value[COLUMN_COUNT];
} row_t;

static row_t row_of(const json_t *document) {
    cmd_figures_t figures = {0}, *f = &figures;
    cmd_figures_add(f, document);
    return (row_t){{
#define COLUMN(key, unit, head, expression) expression,
        COLUMNS
#undef COLUMN
    }};
}

typedef enum { SUM, LEAST, GREATEST, MEDIAN, TOTALS } total_t;
static const char *const total_names[TOTALS] = {"sum", "least", "greatest", "median"};

/* An outlier: the document that is furthest from the median in a column, if it is off by more than a tenth of
 * the median and by more than five times the median distance. */
typedef struct {
    bool found;
    unsigned document;
} outlier_t;

typedef struct {
    const cmd_rendered_t *documents;
    unsigned count;
    row_t *row;
    row_t total[TOTALS];
    outlier_t outlier[COLUMN_COUNT];
} summary_t;

enum { LEAST_FOR_OUTLIERS = 4, USUAL_DISTANCES = 5, SHARE_OF_MEDIAN = 10 };

static int64_t distance(int64_t a, int64_t b) {
    return cmd_sum(a < b ? b : a, a < b ? a : b, -1);
}

static void find_column(summary_t *s, int column, int64_t *values) {
    for (unsigned i = 0; i < s->count; i++) {
        values[i] = s->row[i].value[column];
        s->total[SUM].value[column] = cmd_sum(s->total[SUM].value[column], values[i], 1);
    }
    int64_t median = cmd_median(values, s->count);
    s->total[MEDIAN].value[column] = median;
    s->total[LEAST].value[column] = values[0];
    s->total[GREATEST].value[column] = values[s->count - 1];
    unsigned furthest = 0;
    for (unsigned i = 0; i < s->count; i++) {
        values[i] = distance(s->row[i].value[column], median);
        if (values[i] > values[furthest])
            furthest = i;
    }
    int64_t most = values[furthest], usual = cmd_median(values, s->count);
    s->outlier[column].document = furthest;
    s->outlier[column].found = s->count >= LEAST_FOR_OUTLIERS &&
                               most > median / SHARE_OF_MEDIAN &&
                               most > cmd_sum(0, usual, USUAL_DISTANCES);
}

static summary_t summarise(const cmd_rendered_t *documents, unsigned count) {
    summary_t s = {.documents = documents, .count = count};
    int64_t *values = cmd_alloc(count * sizeof *values);
    s.row = cmd_alloc(count * sizeof *s.row);
    for (unsigned i = 0; i < count; i++)
        s.row[i] = row_of(documents[i].document);
    for (int column = 0; column < COLUMN_COUNT; column++)
        find_column(&s, column, values);
    free(values);
    return s;
}

/* ------------------------------------------------------------------ for people */

static void add_row(cmd_table_t *table, const char *pid, const char *rank, const char *reason,
                    const row_t *row, const char *host, const char *program, const char *source) {
    char text[COLUMN_COUNT][CMD_FIGURE];
    for (int i = 0; i < COLUMN_COUNT; i++)
        cmd_text_unit(text[i], columns[i].unit, row->value[i]);
    cmd_table_row(table, pid, rank, reason, text[0], text[1], text[2], text[3], text[4], text[5],
                  host, program, source);
}

static const json_t *process_of(const cmd_rendered_t *document, const char *key) {
    return json_object_get(json_object_get(document->document, "process"), key);
}

/* Returns a member of the process if not all processes have the same, else "".  A program has its name without
 * folders. */
static const char *if_differs(const summary_t *s, unsigned document, const char *key) {
    const json_t *first = process_of(&s->documents[0], key);
    bool differs = false;
    for (unsigned i = 1; i < s->count; i++) {
        const json_t *other = process_of(&s->documents[i], key);
        differs |= (first || other) && !(first && other && json_equal(first, other));
    }
    const char *text = json_string_value(process_of(&s->documents[document], key));
    const char *name = text ? strrchr(text, '/') : NULL;
    return !differs || !text ? "" : name ? name + 1 : text;
}

static void print_outliers(const summary_t *s) {
    for (int i = 0; i < COLUMN_COUNT; i++) {
        char value[CMD_FIGURE], median[CMD_FIGURE];
        const cmd_rendered_t *document = &s->documents[s->outlier[i].document];
        const json_t *rank = process_of(document, "rank");
        if (!s->outlier[i].found)
            continue;
        printf("outlier: %s %lld, ", json_is_integer(rank) ? "rank" : "process",
               (long long)json_integer_value(
                   json_is_integer(rank) ? rank : process_of(document, "pid")));
        cmd_print_safe(document->source);
        printf(": %s %s, the median is %s\n", columns[i].head,
               cmd_text_unit(value, columns[i].unit, s->row[s->outlier[i].document].value[i]),
               cmd_text_unit(median, columns[i].unit, s->total[MEDIAN].value[i]));
    }
}

void cmd_render_many(const cmd_rendered_t *documents, unsigned count, bool totals_alone) {
    summary_t s = summarise(documents, count);
    cmd_table_t *table = cmd_table_new("rrlrrrrrrlll");
    cmd_table_row(table, "pid", "rank", "reason", columns[0].head, columns[1].head,
                  columns[2].head, columns[3].head, columns[4].head, columns[5].head,
                  *if_differs(&s, 0, "host") ? "host" : "",
                  *if_differs(&s, 0, "exe") ? "program" : "", "file");
    for (unsigned i = 0; i < count && !totals_alone; i++) {
        const json_t *rank = process_of(&documents[i], "rank");
        const char *reason = json_string_value(json_object_get(documents[i].document, "reason"));
        char pid[CMD_FIGURE], place[CMD_FIGURE] = "-";
        snprintf(pid, sizeof pid, "%lld",
                 (long long)json_integer_value(process_of(&documents[i], "pid")));
        if (json_is_integer(rank))
            snprintf(place, sizeof place, "%lld", (long long)json_integer_value(rank));
        add_row(table, pid, place, reason ? reason : "", &s.row[i], if_differs(&s, i, "host"),
                if_differs(&s, i, "exe"), documents[i].source);
    }
    char label[CMD_FIGURE];
    snprintf(label, sizeof label, "%u files", count);
    for (int i = 0; i < (totals_alone ? TOTALS : MEDIAN); i++)
        add_row(table, total_names[i], "", "", &s.total[i], "", "", i == SUM ? label : "");
    cmd_table_print(table, 0);
    print_outliers(&s);
    free(s.row);
}

/* ------------------------------------------------------------------ JSON */

json_t *cmd_summary_json(const cmd_rendered_t *documents, unsigned count) {
    summary_t s = summarise(documents, count);
    json_t *whole = json_pack("{s:s, s:i, s:I}", "schema", "accelcache-summary", "version", 1,
                              "documents", (json_int_t)count);
    for (int i = 0; i < TOTALS; i++) {
        json_t *total = json_object();
        for (int c = 0; c < COLUMN_COUNT; c++)
            json_object_set_new(total, columns[c].key, json_integer(s.total[i].value[c]));
        json_object_set_new(whole, total_names[i], total);
    }
    json_t *outliers = json_array();
    for (int c = 0; c < COLUMN_COUNT; c++) {
        const cmd_rendered_t *document = &documents[s.outlier[c].document];
        if (s.outlier[c].found)
            json_array_append_new(outliers,
                                  json_pack("{s:s, s:O?, s:O?, s:o, s:I, s:I}", "figure",
                                            columns[c].key, "pid", process_of(document, "pid"),
                                            "rank", process_of(document, "rank"), "source",
                                            cmd_json_text(document->source), "value",
                                            (json_int_t)s.row[s.outlier[c].document].value[c],
                                            "median", (json_int_t)s.total[MEDIAN].value[c]));
    }
    json_object_set_new(whole, "outliers", outliers);
    free(s.row);
    return whole;
}
