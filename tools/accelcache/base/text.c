/* Messages and figures for all subcommands. */
#include "command.h"
#include "base/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cmd_name = "";

static void say(const char *format, va_list args) {
    char *text = NULL;
    int length = vasprintf(&text, format, args);
    char *safe = length < 0 ? NULL : cmd_safe(text);
    fflush(stdout);
    cmd_bar_end();
    char *line = NULL;
    int columns = cmd_columns(stderr);
    if (asprintf(&line, "%s%s%s: %s", program_invocation_short_name, *cmd_name ? " " : "",
                 cmd_name, safe ? safe : "out of memory") < 0)
        line = NULL;
    if (columns && line)
        cmd_print_wrapped(stderr, line, columns, 0, 2);
    else
        fprintf(stderr, "%s\n", line ? line : "accelcache: out of memory");
    free(line);
    free(safe);
    if (length >= 0)
        free(text);
}

void cmd_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int cmd_usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return cmd_usage_hint();
}

int cmd_usage_hint(void) {
    fflush(stdout);
    fprintf(stderr, "Try: %s%s%s --help\n", program_invocation_short_name, *cmd_name ? " " : "",
            cmd_name);
    return CMD_USAGE;
}

void *cmd_resize(void *memory, size_t size) {
    void *result = realloc(memory, size ? size : 1);
    if (!result) {
        cmd_say("out of memory");
        exit(CMD_FAILED);
    }
    return result;
}

const char *cmd_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void *cmd_alloc(size_t size) {
    return memset(cmd_resize(NULL, size), 0, size ? size : 1);
}

char *cmd_format(const char *format, ...) {
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) {
        cmd_say("out of memory");
        exit(CMD_FAILED);
    }
    va_end(args);
    return text;
}

char *cmd_file_read(const char *path, size_t *length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : cmd_file_take(fd, length);
}

char *cmd_file_take(int fd, size_t *length) {
    size_t used = 0, size = 65536;
    char *text = cmd_resize(NULL, size);
    for (;;) {
        if (used + 1 == size)
            text = cmd_resize(text, size *= 2);
        ssize_t n = read(fd, text + used, size - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int error = errno;
            close(fd);
            free(text);
            errno = error;
            return NULL;
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    text[used] = '\0';
    if (length)
        *length = used;
    return text;
}

/* ------------------------------------------------------------------ figures */

char *cmd_text_count(char text[CMD_FIGURE], int64_t n) {
    char digits[CMD_FIGURE];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), out = 0;
    for (int i = 0; i < length; i++) {
        text[out++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-')
            text[out++] = ',';
    }
    text[out] = '\0';
    return text;
}

int64_t cmd_sum(int64_t to, int64_t value, int64_t times) {
    int64_t result;
    bool falls = (value < 0) != (times < 0);
    if (__builtin_mul_overflow(value, times, &result) ||
        __builtin_add_overflow(to, result, &result))
        return falls ? INT64_MIN : INT64_MAX;
    return result;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t cmd_median(int64_t *values, size_t count) {
    if (!count)
        return 0;
    qsort(values, count, sizeof *values, by_value);
    int64_t low = values[(count - 1) / 2], high = values[count / 2];
    return low + (int64_t)(((uint64_t)high - (uint64_t)low) / 2);
}

/* Three significant digits of `value` in the largest unit that keeps it at least 1. */
static char *scaled(char text[CMD_FIGURE], double value, double step, const char *const *units,
                    int count) {
    int unit = 0;
    double magnitude = value < 0 ? -value : value;
    while (unit + 1 < count && magnitude >= step) {
        magnitude /= step;
        value /= step;
        unit++;
    }
    int digits = unit == 0 || magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
    snprintf(text, CMD_FIGURE, "%.*f %s", digits, value, units[unit]);
    return text;
}

char *cmd_text_bytes(char text[CMD_FIGURE], int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled(text, (double)bytes, 1024, units, 5);
}

char *cmd_text_ns(char text[CMD_FIGURE], int64_t ns) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(text, (double)ns, 1000, units, 4);
}

char *cmd_text_unit(char text[CMD_FIGURE], const char *unit, int64_t value) {
    if (!strcmp(unit, "bytes"))
        return cmd_text_bytes(text, value);
    if (!strcmp(unit, "ns"))
        return cmd_text_ns(text, value);
    return cmd_text_count(text, value);
}
