/* The terminal behind stdout and stderr: how wide it is, text that keeps to it, and one line of
 * progress.  Not thread-safe. */
#ifndef CMD_TERMINAL_H
#define CMD_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Columns of the terminal behind `file`; 0: it is none, and lines may have any length.  A terminal
 * that does not tell has COLUMNS, else 80. */
int cmd_columns(FILE *file);

/* From here to the end of the page, output for a terminal is kept: then only as many lines appear as it has, and
 * behind them how many more there are and that `more` shows them. */
void cmd_page_begin(void);
void cmd_page_end(const char *more);

/* Columns that UTF-8 text takes. */
int cmd_text_width(const char *text);

/* Bytes of `text` that make its next line of at most `width` columns (at least 1): to the last blank that fits,
 * else behind the last , / : or =, else as much as fits.  *`next` is the start of the line after it. */
size_t cmd_text_line(const char *text, int width, const char **next);

/* `text` to `file` in lines of at most `width` columns, the first behind `indent` blanks, the
 * others behind `hang`. */
void cmd_print_wrapped(FILE *file, const char *text, int width, int indent, int hang);

/* One line on stderr, written over by the next: "[===== ] WHAT, about 12 s left".  Nothing if stderr is no
 * terminal.  `done` is the part that is over, from 0 to 1; time left is told from the first call with 0 on, once
 * there is something to tell it from (before that, time gone: see cmd_bar_begin). */
void cmd_bar(double done, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for step `at` of `of` (0: how many is not known), which are short: the line appears if
 * they take longer than a moment, and is not written more often than ten times a second. */
void cmd_bar_step(const char *what, size_t at, size_t of);

/* For work that may be short: time left counts from here, and until cmd_bar_end cmd_bar shows
 * nothing before the work has taken a second. */
void cmd_bar_begin(void);

/* Remove the line; before anything else is printed. */
void cmd_bar_end(void);

#endif
