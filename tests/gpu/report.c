/* Prints lines of PROTOCOL.md (report.h).  Escapes texts itself, so it needs no JSON library. */
#include "report.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 2000, LINE = 6 * TEXT + 4096 }; /* an escaped byte takes at most six */

typedef struct {
    char text[LINE];
    size_t used;
} line_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool failed;

REPORT_PRINTF(2)
static void put(line_t *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line->text + line->used, LINE - line->used, format, arguments);
    va_end(arguments);
    if (more > 0 && line->used + (size_t)more < LINE)
        line->used += (size_t)more;
}

/* Prints a JSON string.  Bytes above 127 are not changed: the reader replaces invalid UTF-8. */
static void put_string(line_t *line, const char *text) {
    put(line, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if (*at == '"' || *at == '\\')
            put(line, "\\%c", *at);
        else if (*at < ' ' || *at == 127)
            put(line, "\\u%04x", *at);
        else
            put(line, "%c", *at);
    put(line, "\"");
}

static void put_text(line_t *line, const char *name, const char *text) {
    put(line, ", \"%s\": ", name);
    put_string(line, text);
}

/* Prints a number.  JSON has no infinity and no NaN, so they become null. */
static void put_number(line_t *line, double value) {
    if (isfinite(value))
        put(line, "%.17g", value);
    else
        put(line, "null");
}

static void begin(line_t *line, const char *check, const char *result) {
    line->used = 0;
    put(line, "{\"check\": \"%s\", \"result\": \"%s\"", check, result);
}

static void end(line_t *line, const char *name, const char *format, va_list arguments) {
    char text[TEXT];
    vsnprintf(text, sizeof text, format, arguments);
    put_text(line, name, text);
    put(line, "}\n");
    fwrite(line->text, 1, line->used, stdout);
    fflush(stdout);
}

static void say(const char *check, const char *result, const char *answer, const char *name,
                const char *format, va_list arguments) {
    line_t line;
    pthread_mutex_lock(&lock);
    begin(&line, check, result);
    if (answer)
        put_text(&line, "value", answer);
    if (!strcmp(result, "fail")) {
        failed = true;
        if (strcmp(name, "reason"))
            put_text(&line, "reason", "the answer is not the one that the library is built on");
    }
    end(&line, name, format, arguments);
    pthread_mutex_unlock(&lock);
}

#define SAY(result, answer, name, last)                                                          \
    do {                                                                                         \
        va_list arguments;                                                                       \
        va_start(arguments, last);                                                               \
        say(check, result, answer, name, last, arguments);                                       \
        va_end(arguments);                                                                       \
    } while (0)

void report_pass(const char *check, const char *evidence, ...) {
    SAY("pass", NULL, "evidence", evidence);
}

void report_fail(const char *check, const char *reason, ...) {
    SAY("fail", NULL, "reason", reason);
}

void report_skip(const char *check, const char *reason, ...) {
    SAY("skip", NULL, "reason", reason);
}

void report_answer(const char *check, bool answer, bool wanted, const char *evidence, ...) {
    SAY(answer == wanted ? "pass" : "fail", answer ? "yes" : "no", "evidence", evidence);
}

void report_fact(const char *check, bool answer, const char *evidence, ...) {
    SAY("fact", answer ? "yes" : "no", "evidence", evidence);
}

static void figure(const char *check, double value, const char *unit, double most,
                   const report_peer_t *peers, const char *evidence, va_list arguments) {
    line_t line;
    bool good = isfinite(value) && (most <= 0 || value <= most);
    pthread_mutex_lock(&lock);
    failed = failed || !good;
    begin(&line, check, !good ? "fail" : most > 0 ? "pass" : "fact");
    put(&line, ", \"value\": ");
    put_number(&line, value);
    put_text(&line, "unit", unit);
    if (most > 0)
        put(&line, ", \"bound\": \"<= %g\"", most);
    if (!good)
        put_text(&line, "reason", isfinite(value) ? "above its bound" : "not a number");
    if (peers && peers->name) {
        put(&line, ", \"peers\": {");
        for (const report_peer_t *peer = peers; peer->name; peer++) {
            put(&line, peer == peers ? "" : ", ");
            put_string(&line, peer->name);
            put(&line, ": ");
            put_number(&line, peer->value);
        }
        put(&line, "}");
    }
    end(&line, "evidence", evidence, arguments);
    pthread_mutex_unlock(&lock);
}

void report_value(const char *check, double value, const char *unit, const char *evidence, ...) {
    va_list arguments;
    va_start(arguments, evidence);
    figure(check, value, unit, 0, NULL, evidence, arguments);
    va_end(arguments);
}

void report_figure(const char *check, double value, const char *unit, double most,
                   const report_peer_t *peers, const char *evidence, ...) {
    va_list arguments;
    va_start(arguments, evidence);
    figure(check, value, unit, most, peers, evidence, arguments);
    va_end(arguments);
}

int report_end(void) {
    pthread_mutex_lock(&lock);
    int status = failed;
    pthread_mutex_unlock(&lock);
    return status;
}
