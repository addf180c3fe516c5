/* Common parts of the subcommands of `accelcache`: their entry points, exit codes, messages, text and tables.
 * The command is single-threaded. */
#ifndef CMD_COMMAND_H
#define CMD_COMMAND_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

enum {
    CMD_OK = 0,           /* done */
    CMD_FAILED = 1,       /* tried, and failed or found a problem */
    CMD_USAGE = 2,        /* the command line makes no sense */
    CMD_DIFFERS = 117,    /* run --compare --strict: the outputs differ */
    CMD_PEAK = 118,       /* run --max-peak: more was held */
    CMD_LEAK = 119,       /* run --fail-on-leak: something was held at exit */
    CMD_CANNOT_RUN = 126, /* run: the program is there, and cannot run under the library */
    CMD_NOT_FOUND = 127   /* run: the program was not found */
};

/* argv[0] is the name of the subcommand; the result is the exit status. */
typedef int cmd_subcommand_fn(int argc, char **argv);
cmd_subcommand_fn cmd_run, cmd_stat, cmd_ps, cmd_trace, cmd_gen, cmd_replay, cmd_tune, cmd_config,
    cmd_doctor, cmd_bench, cmd_export, cmd_report, cmd_ctl, cmd_top, cmd_env, cmd_where, cmd_oom,
    cmd_record, cmd_diff;

/* Defined by each program in its subcommands.c: one line about the program, a text about its exit status, and
 * its subcommands.  A subcommand without a name ends the list. */
typedef struct {
    const char *name, *help;
    cmd_subcommand_fn *function;
} cmd_subcommand_t;
extern const char cmd_about[], cmd_statuses[];
extern const cmd_subcommand_t cmd_subcommands[];

/* One line on stderr, with "accelcache <subcommand>: " in front, by the name of the program. */
void cmd_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints like cmd_say, then a hint at --help; returns CMD_USAGE. */
int cmd_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the hint alone, after a message about an option. */
int cmd_usage_hint(void);
/* The name that cmd_say prints. */
extern const char *cmd_name;

/* malloc and friends that end the command with a message when memory is short. */
void *cmd_alloc(size_t size);
void *cmd_resize(void *memory, size_t size);
char *cmd_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns the part of `path` behind its last slash. */
const char *cmd_base_name(const char *path);

/* A whole file as NUL-terminated text, malloc'd; NULL with errno set.  Works for /proc. */
char *cmd_file_read(const char *path, size_t *length);
/* Reads a descriptor like a file, and closes it. */
char *cmd_file_take(int fd, size_t *length);

/* Figures as people read them, into a buffer of the caller; they return it. */
enum { CMD_FIGURE = 40 };
char *cmd_text_bytes(char text[CMD_FIGURE], int64_t bytes); /* 12.5 MiB */
char *cmd_text_ns(char text[CMD_FIGURE], int64_t ns);       /* 3.21 ms */
char *cmd_text_count(char text[CMD_FIGURE], int64_t n);     /* 1,234,567 */
/* Formats by the unit of a row of stats.def or counters.def: "bytes", "ns", else a count. */
char *cmd_text_unit(char text[CMD_FIGURE], const char *unit, int64_t value);

/* Figures of files: any number, so that sums may leave what holds them.  `to` + `times` * `value`, or
 * the nearest number that there is. */
int64_t cmd_sum(int64_t to, int64_t value, int64_t times);
/* 0 of none; halves are rounded down.  Sorts the values. */
int64_t cmd_median(int64_t *values, size_t count);

/* Text of unknown origin for people (safe.c): control characters, what turns the direction of a
 * line, and bytes that are not UTF-8 appear as \x1b, \u202e, \xff.  cmd_say, cmd_usage and cells
 * of tables do so by themselves.  malloc'd; or to stdout. */
char *cmd_safe(const char *text);
void cmd_print_safe(const char *text);

/* Makes a JSON string: bytes that are not UTF-8 become U+FFFD, as in the library's dumps. */
json_t *cmd_json_text(const char *text);
/* The document and a newline to stdout, all of it or, with a message, nothing; takes it over.
 * Returns the exit status. */
int cmd_print_json(json_t *whole, size_t flags);

/* A member of an object: its number, or 0; its text, or "". */
static inline int64_t cmd_integer(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}
static inline const char *cmd_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* A string with a mark under its byte number `position`, to stderr. */
void cmd_say_position(const char *text, size_t position);

/* Prints `text`, safe or not, in lines that fit the terminal (80 columns without one), behind `indent` blanks. */
void cmd_print_paragraph(const char *text, int indent);
/* Prints one line.  A narrow terminal gets several; all but the first stand behind `hang` blanks. */
void cmd_print_hanging(const char *text, int indent, int hang);

/* Headings: an escape sequence if stdout is a terminal, else "". */
const char *cmd_bold(void);
const char *cmd_plain(void);

/* Rows of cells, printed with aligned columns.  `align` has one letter a column: l or r. */
typedef struct cmd_table cmd_table_t;
cmd_table_t *cmd_table_new(const char *align);
/* One string per column, copied.  NULL cells end the row early. */
void cmd_table_row(cmd_table_t *table, ...);
/* Prints every row behind `indent` spaces to stdout, and frees the table.  If the terminal is too narrow, a last
 * column of text (l) is broken into lines.  Other columns that do not fit follow in a second table, after the
 * first column. */
void cmd_table_print(cmd_table_t *table, int indent);

#endif
