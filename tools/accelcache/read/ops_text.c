/* Text traces: `a ID BYTES STREAM|-`, `f ID`, `s`, and # for comments (ops.h). */
#include "command.h"
#include "read/ops.h"
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>

/* Larger ones are no sizes of device memory, and sums of them could overflow. */
#define MOST_BYTES ((uint64_t)1 << 47)

typedef struct {
    const char *at, *end; /* of the line */
} line_t;

static void skip_blanks(line_t *line) {
    while (line->at < line->end && (*line->at == ' ' || *line->at == '\t' || *line->at == '\r'))
        line->at++;
}

static bool at_end(line_t *line) {
    skip_blanks(line);
    return line->at == line->end || *line->at == '#';
}

static bool number(line_t *line, uint64_t *value) {
    skip_blanks(line);
    const char *begin = line->at;
    uint64_t result = 0;
    for (; line->at < line->end && *line->at >= '0' && *line->at <= '9'; line->at++) {
        uint64_t digit = (uint64_t)(*line->at - '0');
        if (result > (UINT64_MAX - 2 - digit) / 10)
            return false;
        result = result * 10 + digit;
    }
    bool ended = line->at == line->end || strchr(" \t\r#", *line->at);
    *value = result;
    return line->at > begin && ended;
}

/* `-`: the request names none. */
static bool stream_of(line_t *line, uint64_t *stream) {
    skip_blanks(line);
    if (line->at == line->end || *line->at != '-')
        return number(line, stream);
    *stream = CMD_PLAIN_STREAM;
    line->at++;
    return line->at == line->end || strchr(" \t\r#", *line->at);
}

/* Describes the fault of the line; NULL: nothing. */
static const char *read_line(cmd_reading_t *reading, line_t line, uint64_t *block) {
    uint64_t bytes, stream;
    if (at_end(&line))
        return NULL;
    char kind = *line.at++;
    if (line.at < line.end && !strchr(" \t\r#", *line.at))
        return "unknown operation";
    switch (kind) {
    case 'a':
        if (!number(&line, block) || !number(&line, &bytes) || !stream_of(&line, &stream) ||
            !at_end(&line))
            return "an allocation is written `a ID BYTES STREAM`, three whole numbers, or - for no stream";
        if (bytes == 0 || bytes > MOST_BYTES)
            return "the size has to be from 1 byte to 128 TiB";
        return cmd_ops_add(reading, 0, *block, bytes, stream)
                   ? NULL
                   : "the block is allocated a second time; free it first, or give it another "
                     "number";
    case 'f':
        if (!number(&line, block) || !at_end(&line))
            return "a free is written `f ID`, a whole number";
        return cmd_ops_remove(reading, 0, *block, CMD_FREE_STREAM)
                   ? NULL
                   : "the block is freed without being allocated";
    case 's':
        if (!at_end(&line))
            return "a synchronisation is written `s` alone";
        cmd_ops_sync(reading, 0);
        return NULL;
    default:
        return "unknown operation";
    }
}

bool cmd_ops_read_text(cmd_reading_t *reading, const char *data, size_t length, char **error) {
    const char *end = data + length;
    if (memchr(data, '\0', length)) {
        *error = cmd_format("damaged: text with bytes in it that text has not; copy it again");
        return false;
    }
    unsigned long long count = 1;
    for (const char *at = data; at < end; count++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        line_t line = {at, next ? next : end};
        cmd_bar_step("lines read", count - 1, 0);
        uint64_t block;
        const char *wrong = read_line(reading, line, &block);
        if (wrong && !next && count > 1) {
            reading->note = cmd_format("line %llu, the last one, was cut off and is left out", count);
            return true;
        }
        if (wrong) {
            int shown = line.end - line.at > 60 ? 60 : (int)(line.end - line.at);
            *error = cmd_format("line %llu, \"%.*s\": %s", count, shown, line.at, wrong);
            return false;
        }
        at = next ? next + 1 : end;
    }
    return true;
}
