/* Logs of RMM's logging adaptor: Thread,Time,Action,Pointer,Size,Stream (ops.h).
 *
 * Rows stand in the order in which they happened, whatever their thread and time.  A pointer is hexadecimal, or
 * "(nil)" if the allocation failed. */
#include "command.h"
#include "read/ops.h"

#include <stdlib.h>
#include <string.h>

enum { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMNS };
static const char *const column_names[COLUMNS] = {"Thread",  "Time", "Action",
                                                  "Pointer", "Size", "Stream"};

#define MOST_BYTES ((uint64_t)1 << 47)

typedef struct {
    int place[COLUMNS]; /* of each column in a row */
    int count;          /* columns of the file */
    uint64_t unknown;   /* frees of what the log did not see allocated */
    uint64_t failures;
} log_t;

enum { MOST_COLUMNS = 32 };

/* Cut the row at its commas. Returns how many fields it has. */
static int split(char *row, char *field[MOST_COLUMNS]) {
    int count = 0;
    row[strcspn(row, "\r")] = '\0';
    for (char *at = row; at && count < MOST_COLUMNS; count++) {
        field[count] = strsep(&at, ",");
        field[count] += strspn(field[count], " \t");
        char *end = field[count] + strlen(field[count]);
        while (end > field[count] && (end[-1] == ' ' || end[-1] == '\t'))
            *--end = '\0';
    }
    return count;
}

static bool is_action(const char *text) {
    return !strcmp(text, "allocate") || !strcmp(text, "free") || !strcmp(text, "allocate failure");
}

/* Whether the first row of a file is one of RMM's, in the usual order of columns. */
static bool without_header(const char *first, size_t length) {
    char *field[MOST_COLUMNS], *row = strndup(first, length);
    bool is = row && split(row, field) == COLUMNS && is_action(field[ACTION]);
    free(row);
    return is;
}

bool cmd_ops_is_rmm(const char *data) {
    return !strncmp(data, "Thread,", 7) || without_header(data, strcspn(data, "\n"));
}

/* RMM_LOG's lines begin with thread, time and level in brackets. */
bool cmd_ops_is_rmm_debug(const char *data) {
    const char *end = data + strcspn(data, "\n"), *second = strstr(data, "][");
    return *data == '[' && second && second < end;
}

static const char *read_header(log_t *log, char *row) {
    char *field[MOST_COLUMNS];
    log->count = split(row, field);
    for (int i = 0; i < COLUMNS; i++) {
        log->place[i] = -1;
        for (int j = 0; j < log->count; j++)
            if (!strcmp(field[j], column_names[i]))
                log->place[i] = j;
        if (log->place[i] < 0)
            return column_names[i];
    }
    return NULL;
}

static bool read_number(const char *text, int base, uint64_t *value) {
    char *end;
    if (*text == '-' || *text == '\0')
        return false;
    *value = strtoull(text, &end, base);
    return end != text && !*end;
}

/* Describes the fault of the row; NULL: nothing. */
static const char *read_row(cmd_reading_t *reading, log_t *log, char *row) {
    char *field[MOST_COLUMNS];
    uint64_t pointer, bytes, stream;
    int count = split(row, field);
    if (count == 1 && !*field[0])
        return NULL;
    if (count != log->count)
        return "the row and the header have different numbers of columns: is other output between "
               "the rows?";
    const char *action = field[log->place[ACTION]];
    if (!strcmp(action, "allocate failure")) {
        log->failures++;
        return NULL;
    }
    bool allocate = !strcmp(action, "allocate");
    if (!is_action(action))
        return "the action is none of allocate, allocate failure and free";
    if (!strcmp(field[log->place[POINTER]], "(nil)"))
        return NULL; /* of size 0, or nothing to free */
    if (!read_number(field[log->place[POINTER]], 16, &pointer))
        return "the pointer is no hexadecimal number";
    if (!read_number(field[log->place[SIZE]], 10, &bytes) || bytes > MOST_BYTES)
        return "the size is no number of bytes";
    if (!read_number(field[log->place[STREAM]], 0, &stream))
        return "the stream is no number";
    if (!allocate) {
        log->unknown += !cmd_ops_remove(reading, 0, pointer, stream);
        return NULL;
    }
    if (bytes == 0)
        return NULL;
    return cmd_ops_add(reading, 0, pointer, bytes, stream)
               ? NULL
               : "the address is handed out a second time without a free between: rows are "
                 "missing, or those of several devices are mixed; log each to its own file";
}

/* Reads the header, or returns false if the file begins with a row. */
static bool take_header(log_t *log, char *row, unsigned long long line, char **error) {
    log->count = COLUMNS;
    for (int i = 0; i < COLUMNS; i++)
        log->place[i] = i;
    if (without_header(row, strlen(row)))
        return false;
    const char *missing = read_header(log, row);
    if (missing)
        *error = cmd_format("line %llu: the header names no column %s; it should be "
                            "Thread,Time,Action,Pointer,Size,Stream",
                            line, missing);
    return true;
}

static char *notes_of(const log_t *log, const char *cut, unsigned long long line) {
    char *note = NULL;
    if (log->unknown)
        note = cmd_format("%llu frees of memory that the log did not see allocated were left out",
                          (unsigned long long)log->unknown);
    if (!cut)
        return note;
    char *both = cmd_format("line %llu, the last one, was cut off and is left out%s%s", line,
                            note ? "; " : "", note ? note : "");
    free(note);
    return both;
}

bool cmd_ops_read_rmm(cmd_reading_t *reading, const char *data, size_t length, char **error) {
    log_t log = {0};
    char *text = memcpy(cmd_alloc(length + 1), data, length), *rest = text, *row;
    const char *wrong = NULL;
    unsigned long long line = 0;
    while (!wrong && !*error && (row = strsep(&rest, "\n"))) {
        line++;
        if (log.count == 0 && (!row[strspn(row, " \t\r")] || take_header(&log, row, line, error)))
            continue;
        wrong = read_row(reading, &log, row);
    }
    /* The process was killed while it wrote: the last row has no end. */
    const char *cut = wrong && !rest ? wrong : NULL;
    if (wrong && !cut)
        *error = cmd_format("line %llu: %s", line, wrong);
    else if (!*error)
        reading->note = notes_of(&log, cut, line);
    free(text);
    return !*error;
}
