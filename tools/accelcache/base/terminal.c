/* See terminal.h. */
#include "base/terminal.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Takes the place of stdout while a page is made. */
static struct {
    FILE *terminal;
    char *text;
    size_t length;
    int columns, rows;
} page;

static int size_of(int fd, int *rows) {
    struct winsize size = {0};
    const char *told = getenv("COLUMNS");
    if (fd < 0 || !isatty(fd))
        return 0;
    bool known = ioctl(fd, TIOCGWINSZ, &size) == 0;
    int columns = known ? size.ws_col : 0;
    *rows = known && size.ws_row ? size.ws_row : 24;
    if (!columns && told)
        columns = atoi(told);
    return columns > 0 ? columns : 80;
}

int cmd_columns(FILE *file) {
    int rows;
    return page.terminal && file == stdout ? page.columns : size_of(fileno(file), &rows);
}

void cmd_page_begin(void) {
    page.columns = size_of(STDOUT_FILENO, &page.rows);
    FILE *kept = page.columns ? open_memstream(&page.text, &page.length) : NULL;
    if (!kept)
        return;
    page.terminal = stdout;
    stdout = kept;
}

void cmd_page_end(const char *more) {
    unsigned lines = 0, shown = 0;
    if (!page.terminal)
        return;
    fclose(stdout);
    stdout = page.terminal;
    page.terminal = NULL;
    for (size_t i = 0; i < page.length; i++)
        lines += page.text[i] == '\n';
    /* The last line of the terminal is the next prompt's. */
    unsigned room = page.rows > 4 ? (unsigned)page.rows - 1 : 3;
    bool cut = lines > room;
    for (const char *at = page.text; *at && (!cut || shown < room - 1); shown++) {
        const char *end = strchrnul(at, '\n');
        printf("%.*s\n", (int)(end - at), at);
        at = end + (*end == '\n');
    }
    if (cut) {
        char *text = cmd_format("%u more lines: %s", lines - shown, more);
        const char *rest;
        printf("%.*s\n", (int)cmd_text_line(text, page.columns, &rest), text);
        free(text);
    }
    free(page.text);
}

static bool begins_character(char c) {
    return ((unsigned char)c & 0xc0) != 0x80;
}

int cmd_text_width(const char *text) {
    int width = 0;
    for (; *text; text++)
        width += begins_character(*text);
    return width;
}

size_t cmd_text_line(const char *text, int width, const char **next) {
    size_t length = 0, blank = 0, mark = 0;
    for (int used = 0; text[length]; length++) {
        if (begins_character(text[length]) && ++used > width)
            break;
        if (text[length] == ' ')
            blank = length;
        else if (strchr(",/:=", text[length]))
            mark = length + 1;
    }
    if (text[length] && text[length] != ' ')
        length = blank ? blank : mark ? mark : length;
    *next = text + length + strspn(text + length, " ");
    return length;
}

void cmd_print_wrapped(FILE *file, const char *text, int width, int indent, int hang) {
    do {
        int room = width - indent > 8 ? width - indent : 8;
        const char *line = text;
        size_t length = cmd_text_line(line, room, &text);
        fprintf(file, "%*s%.*s\n", length ? indent : 0, "", (int)length, line);
        indent = hang;
    } while (*text);
}

/* ------------------------------------------------------------------ progress */

static bool open_line, held_back; /* held_back: nothing is shown in the first second */
static double began;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void left_text(char *text, size_t size, double done) {
    enum { FIRST_S = 2 }; /* sooner it would be a guess */
    double spent = now() - began, left = spent / done * (1 - done);
    if (spent < FIRST_S)
        *text = '\0';
    else if (done <= 0)
        snprintf(text, size, ", %.0f s so far", spent);
    else if (left < 100)
        snprintf(text, size, ", about %.0f s left", left);
    else
        snprintf(text, size, ", about %.0f min left", left / 60);
}

void cmd_bar(double done, const char *format, ...) {
    enum { BAR = 20 };
    char bar[BAR + 1], left[40], *what = NULL;
    int columns = cmd_columns(stderr);
    va_list args;
    if (!columns || (held_back && now() - began < 1))
        return;
    if (done <= 0 && !held_back)
        began = now();
    done = done < 0 ? 0 : done > 1 ? 1 : done;
    for (int i = 0; i < BAR; i++)
        bar[i] = (i + 0.5) / BAR < done ? '=' : ' ';
    bar[BAR] = '\0';
    left_text(left, sizeof left, done);
    va_start(args, format);
    int length = vasprintf(&what, format, args);
    va_end(args);
    if (length < 0)
        return;
    char *line = cmd_format("[%s] %s%s", bar, what, left), *safe = cmd_safe(line);
    const char *rest;
    int shown = (int)cmd_text_line(safe, columns - 1, &rest);
    fprintf(stderr, "\r\033[K%.*s", shown, safe);
    fflush(stderr);
    open_line = true;
    free(what);
    free(line);
    free(safe);
}

void cmd_bar_step(const char *what, size_t at, size_t of) {
    enum { EVERY = 1 << 14 };
    const double pause = 0.1;
    static double last;
    if (at % EVERY)
        return;
    double time = now();
    if (at == 0)
        began = last = time;
    if (time - last < pause)
        return;
    last = time;
    if (of)
        cmd_bar((double)at / (double)of, "%s", what);
    else
        cmd_bar(0, "%s: %zu", what, at);
}

void cmd_bar_begin(void) {
    held_back = true;
    began = now();
}

void cmd_bar_end(void) {
    if (open_line)
        fputs("\r\033[K", stderr);
    open_line = held_back = false;
}
