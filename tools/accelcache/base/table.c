/* Text and aligned tables on stdout; see command.h and terminal.h. */
#include "command.h"
#include "base/terminal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_wrapped(const char *text, int width, int indent, int hang) {
    char *safe = cmd_safe(text);
    cmd_print_wrapped(stdout, safe, width, indent, hang);
    free(safe);
}

void cmd_print_paragraph(const char *text, int indent) {
    enum { USUAL = 80, MOST = 100 }; /* longer lines are hard to read */
    int columns = cmd_columns(stdout);
    print_wrapped(text, !columns ? USUAL : columns > MOST ? MOST : columns, indent, indent);
}

void cmd_print_hanging(const char *text, int indent, int hang) {
    int columns = cmd_columns(stdout);
    print_wrapped(text, columns ? columns : INT_MAX, indent, hang);
}

static bool on_terminal(void) {
    static int known = -1;
    if (known < 0)
        known = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    return known;
}

const char *cmd_bold(void) {
    return on_terminal() ? "\033[1m" : "";
}

const char *cmd_plain(void) {
    return on_terminal() ? "\033[0m" : "";
}

struct cmd_table {
    const char *align;
    unsigned columns, cells; /* cells: a multiple of columns */
    char **cell;
};

cmd_table_t *cmd_table_new(const char *align) {
    cmd_table_t *table = cmd_alloc(sizeof *table);
    table->align = align;
    table->columns = (unsigned)strlen(align);
    return table;
}

void cmd_table_row(cmd_table_t *table, ...) {
    va_list args;
    va_start(args, table);
    table->cell = cmd_resize(table->cell, (table->cells + table->columns) * sizeof(char *));
    bool ended = false;
    for (unsigned i = 0; i < table->columns; i++) {
        const char *text = ended ? NULL : va_arg(args, const char *);
        ended |= !text;
        table->cell[table->cells++] = cmd_safe(text ? text : "");
    }
    va_end(args);
}

void cmd_say_position(const char *text, size_t position) {
    char *front = cmd_format("%.*s", (int)position, text), *safe = cmd_safe(front);
    char *rest = cmd_safe(text + strlen(front));
    fprintf(stderr, "  %s%s\n  %*s^\n", safe, rest, cmd_text_width(safe), "");
    free(front);
    free(safe);
    free(rest);
}

/* ------------------------------------------------------------------ printing tables */

enum { GAP = 2, LEAST_TEXT = 24 }; /* LEAST_TEXT: narrower columns of text are no pleasure */

/* The lines of one row: column 0, and the columns from `first` to before `end`. */
static void print_row(const cmd_table_t *table, char *const *cell, const int *width,
                      unsigned first, unsigned end, int indent) {
    const char **rest = cmd_alloc(table->columns * sizeof *rest);
    bool more = true;
    for (unsigned i = 0; i < table->columns; i++)
        rest[i] = i && (i < first || i >= end) ? "" : cell[i];
    while (more) {
        unsigned last = end; /* no blanks at the end of a line */
        more = false;
        while (last > 0 && !*rest[last - 1])
            last--;
        printf("%*s", last ? indent : 0, "");
        for (unsigned i = 0; i < last; i = i ? i + 1 : first) {
            const char *text = rest[i];
            size_t length = cmd_text_line(text, width[i] ? width[i] : 1, &rest[i]);
            char *line = cmd_format("%.*s", (int)length, text);
            int blanks = width[i] - cmd_text_width(line);
            if (table->align[i] == 'r')
                printf("%*s%s", blanks, "", line);
            else
                printf("%s%*s", line, i + 1 < last ? blanks : 0, "");
            if (i + 1 < last)
                printf("%*s", width[i] ? GAP : 0, ""); /* a column without cells takes no room */
            more |= *rest[i] != '\0';
            free(line);
        }
        putchar('\n');
    }
    free(rest);
}

static void print_columns(const cmd_table_t *table, const int *width, unsigned first,
                          unsigned end, int indent) {
    for (unsigned row = 0; row < table->cells; row += table->columns)
        print_row(table, &table->cell[row], width, first, end, indent);
}

/* Columns that do not fit next to each other go below, with the first column again. */
static void print_folded(const cmd_table_t *table, int *width, int indent, int room) {
    if (table->align[0] == 'l' && width[0] > room / 2)
        width[0] = room / 2;
    for (unsigned first = 1, end; first < table->columns; first = end) {
        int used = indent + width[0];
        for (end = first; end < table->columns && used + GAP + width[end] <= room; end++)
            used += GAP + width[end];
        if (end == first) {
            int left = room - used - GAP;
            if (table->align[end] == 'l')
                width[end] = left > LEAST_TEXT ? left : LEAST_TEXT;
            end++;
        }
        if (first > 1)
            putchar('\n');
        print_columns(table, width, first, end, indent);
    }
}

/* Column widths that the cells ask for; their sum with gaps. */
static int measure(const cmd_table_t *table, int *width) {
    int sum = 0;
    for (unsigned i = 0; i < table->cells; i++) {
        int w = cmd_text_width(table->cell[i]);
        if (w > width[i % table->columns])
            width[i % table->columns] = w;
    }
    for (unsigned i = 0; i < table->columns; i++)
        sum += width[i] ? width[i] + (i ? GAP : 0) : 0;
    return sum;
}

void cmd_table_print(cmd_table_t *table, int indent) {
    int *width = cmd_alloc(table->columns * sizeof *width), room = cmd_columns(stdout);
    unsigned last = table->columns - 1;
    int sum = indent + measure(table, width), before = sum - width[last];
    if (room && sum > room && table->align[last] == 'l' && room - before >= LEAST_TEXT) {
        width[last] = room - before;
        sum = room;
    }
    if (room && sum > room && table->columns > 1)
        print_folded(table, width, indent, room);
    else
        print_columns(table, width, 1, table->columns, indent);
    for (unsigned i = 0; i < table->cells; i++)
        free(table->cell[i]);
    free(table->cell);
    free(width);
    free(table);
}
