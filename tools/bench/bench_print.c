/* `accelcache-dev bench`: the figures as aligned text or Markdown; see bench.h. */
#include "bench.h"
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 13 };

/* One table of figures[key], which is {row: {column: n}}, or {column: n} if flat. */
static const struct table {
    const char *key, *title, *corner;
    bool flat;
    int digits;
} tables[] = {
    {"rows", "ns of an allocation and its free", "", false, 1},
    {"row_instructions", "instructions of an allocation and its free", "", false, 0},
    {"hot_pair", "malloc + free of one block, ns per pair", "bytes", false, 1},
    {"instructions", "instructions per pair", "bytes", false, 0},
    {"replace_ns", "random replacement, 1,000 live blocks of 512 B to 64 MiB, ns", "", true, 1},
    {"threads", "64 KiB pairs by several threads, ns of CPU time per pair", "threads", false, 1},
    {"cross_ns", "one thread allocates, another frees, ns of CPU time per pair", "", true, 1},
    {"blocks", "64 KiB pair among live blocks, ns, by their number", "", true, 1},
    {"blocks_replace", "random replacement, ns, by the number of live blocks", "", true, 1},
    {"tail", "one call with 16 threads and 32 streams, ns (reading the clock included)", "",
     false, 0},
    {"launch", "a launch between malloc and free, ns", "streams", false, 1},
    {"hooks", "calls that submit work, ns", "call", false, 1},
    {"multistream",
     "several streams; times per iteration, ratios to the bare driver with buffers kept",
     "buffers", false, 3},
    {"pinned", "pinned host memory, with pinned_cache, ns per pair", "bytes", false, 1},
    {"observe",
     "an allocation and its free while observed: 64 KiB from the thread's cache (hit), 200 sizes "
     "in "
     "turn (miss)",
     "", false, 1},
    {"startup", "start to end of a program, ms", "program", false, 3},
    {"memory", "the library's own host memory", "what", false, 2},
};

/* Returns the label of a peer, or the key itself. */
static char *label_of(const char *key) {
    for (int i = 0; i < BENCH_PEER_COUNT; i++) {
        size_t length = strlen(bench_peers[i].id);
        if (!strncmp(key, bench_peers[i].id, length) &&
            (!key[length] || !strcmp(key + length, "_ns")))
            return cmd_format("%s", bench_peers[i].label);
    }
    return cmd_format("%s", key);
}

/* Returns the first cell of a row. */
static char *name_of(const struct table *t, const char *key) {
    char bytes[CMD_FIGURE];
    if (!strcmp(t->corner, "bytes"))
        return cmd_format("%s", cmd_text_bytes(bytes, atoll(key)));
    for (int i = 0; !strncmp(t->key, "row", strlen("row")) && i < BENCH_ROW_COUNT; i++)
        if (!strcmp(key, bench_rows[i].id))
            return cmd_format("%s", bench_rows[i].what);
    for (int i = 0; !strcmp(t->key, "observe") && i < BENCH_OBSERVE_COUNT; i++)
        if (!strcmp(key, bench_observe[i].id))
            return cmd_format("%s", bench_observe[i].what);
    return label_of(key);
}

/* Formats a number.  Whole numbers look as in the rest of the command. */
static char *number_text(char text[CMD_FIGURE], const json_t *number, int digits) {
    if (!digits)
        return cmd_text_count(text, (int64_t)(json_number_value(number) + 0.5));
    snprintf(text, CMD_FIGURE, "%.*f", digits, json_number_value(number));
    return text;
}

static char *figure_text(const json_t *figure, const json_t *pass, int digits, bool spread) {
    char median[CMD_FIGURE], least[CMD_FIGURE], greatest[CMD_FIGURE];
    if (!figure)
        return cmd_format("-");
    number_text(median, figure, digits);
    if (!spread || json_integer_value(json_object_get(pass, "passes")) < 2)
        return cmd_format("%s", median);
    return cmd_format("%s (%s..%s)", median,
                      number_text(least, json_object_get(pass, "least"), digits),
                      number_text(greatest, json_object_get(pass, "greatest"), digits));
}

/* ---------------------------------------------------------------- rows */

typedef struct {
    bool markdown;
    int columns, rows;
    cmd_table_t *table;
} output_t;

/* Prints a row; takes over the cells. */
static void print_row(output_t *out, char **cell) {
    static const char align[] = "lrrrrrrrrrrrr";
    if (out->markdown) {
        for (int i = 0; i < out->columns; i++)
            printf("| %s ", cell[i]);
        puts("|");
        for (int i = 0; !out->rows && i < out->columns; i++)
            printf("%s%s", i ? "---:|" : "|---|", i + 1 < out->columns ? "" : "\n");
    } else {
        if (!out->table)
            out->table = cmd_table_new(align);
        for (int i = out->columns; i < COLUMNS; i++)
            cell[i] = NULL;
        cmd_table_row(out->table, cell[0], cell[1], cell[2], cell[3], cell[4], cell[5], cell[6],
                      cell[7], cell[8], cell[9], cell[10], cell[11], cell[12]);
    }
    out->rows++;
    for (int i = 0; i < out->columns; i++)
        free(cell[i]);
}

/* Finds every column that any row has, usually in the order of the first row. */
static int find_columns(const json_t *rows, const char **column) {
    int count = 0;
    const char *name, *key;
    json_t *row, *figure;
    json_object_foreach((json_t *)rows, name, row) {
        json_object_foreach(row, key, figure) {
            bool known = false;
            for (int i = 0; i < count; i++)
                known |= !strcmp(column[i], key);
            if (!known && count < COLUMNS - 1)
                column[count++] = key;
        }
    }
    return count;
}

static void print_table(const bench_t *b, const struct table *t) {
    json_t *rows = json_object_get(b->figures, t->key), *row,
           *passes = json_object_get(b->passes, t->key);
    if (!json_object_size(rows))
        return;
    json_t *one = NULL, *one_passes = NULL;
    if (t->flat) {
        rows = one = json_pack("{s:O}", "", rows);
        passes = one_passes = json_pack("{s:O}", "", passes);
    }
    const char *column[COLUMNS], *name;
    char *cell[COLUMNS];
    int count = find_columns(rows, column);
    output_t out = {.markdown = b->markdown, .columns = count + 1};
    if (b->markdown) {
        printf("\n**%s**\n\n", t->title);
    } else {
        printf("\n%s", cmd_bold());
        cmd_print_paragraph(t->title, 0);
        fputs(cmd_plain(), stdout);
    }
    cell[0] = cmd_format("%s", t->corner);
    for (int i = 0; i < count; i++)
        cell[i + 1] = label_of(column[i]);
    print_row(&out, cell);
    json_object_foreach(rows, name, row) {
        cell[0] = name_of(t, name);
        for (int i = 0; i < count; i++)
            cell[i + 1] = figure_text(json_object_get(row, column[i]),
                                      json_object_get(json_object_get(passes, name), column[i]),
                                      t->digits, b->spread);
        print_row(&out, cell);
    }
    if (out.table)
        cmd_table_print(out.table, 2);
    json_decref(one);
    json_decref(one_passes);
}

static void print_skipped(const bench_t *b) {
    const char *name;
    json_t *reason;
    if (!json_object_size(b->skipped))
        return;
    printf("\n%s\n%s", "Left out:", b->markdown ? "\n" : "");
    json_object_foreach(b->skipped, name, reason) {
        char *line =
            cmd_format(b->markdown ? "* `%s`: %s" : "%s: %s", name, json_string_value(reason));
        if (b->markdown) {
            cmd_print_safe(line);
            putchar('\n');
        } else {
            cmd_print_hanging(line, 2, 4);
        }
        free(line);
    }
}

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void print_machine(const json_t *machine) {
    char *text =
        cmd_format("%s, %.0f cores; load %.1f before, %.1f after",
                   json_string_value(json_object_get(machine, "cpu")), number(machine, "cpus"),
                   number(machine, "load_before"), number(machine, "load_after"));
    cmd_print_paragraph(text, 0);
    free(text);
    text = cmd_format(
        "Noise: the same loop took %.2f times its least CPU time on average, %.2f at "
        "worst, and %.2f times its CPU time until it was over",
        number(machine, "noise_mean"), number(machine, "noise_worst"), number(machine, "waited"));
    cmd_print_paragraph(text, 0);
    free(text);
}

void bench_print(const bench_t *b) {
    char *text = cmd_format("%s; %ld round%s, passes of %ld us; median%s of the passes",
                            b->simulated ? "A driver whose calls cost nothing: the host's side "
                                           "alone"
                                         : "CUDA device",
                            b->rounds, b->rounds == 1 ? "" : "s", b->pass_us, b->spread ? " (least..greatest)" : "");
    cmd_print_paragraph(text, 0);
    free(text);
    print_machine(b->machine);
    if (b->changed) {
        text = cmd_format("Stopped in round %ld of %ld: %s", b->round + 1, b->rounds, b->changed);
        cmd_print_paragraph(text, 0);
        free(text);
    }
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++)
        print_table(b, &tables[i]);
    print_skipped(b);
}
