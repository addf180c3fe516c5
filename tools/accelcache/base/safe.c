/* Text of unknown origin on its way out: program names, paths and arguments hold any bytes, and a
 * file may have been made to deceive.  For people every byte that could command a terminal or
 * turn the direction of a line is written as an escape; JSON is valid whatever it is made of. */
#include "command.h"
#include "observe/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    uint32_t first, last;
} range_t;

/* Control characters (C0, DEL, C1), and what changes the direction or the lines of text. */
static bool is_harmful(uint32_t c) {
    static const range_t ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},
                                     {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
                                     {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

/* The character at `at`, of `length` bytes; both come from ac_json_sequence. */
static uint32_t character(const unsigned char *at, size_t length) {
    uint32_t c = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        c = c << 6 | (at[i] & 0x3f);
    return c;
}

char *cmd_safe(const char *text) {
    enum { MOST = 10 }; /* \U0010ffff */
    size_t left = strlen(text), used = 0;
    char *safe = cmd_alloc(MOST * left + 1);
    const unsigned char *at = (const unsigned char *)text;
    while (left > 0) {
        size_t length = ac_json_sequence(at, left);
        uint32_t c = length ? character(at, length) : *at;
        if (length && !is_harmful(c)) {
            memcpy(safe + used, at, length);
            used += length;
        } else {
            used += (size_t)sprintf(safe + used,
                                    length <= 1   ? "\\x%02x"
                                    : c < 0x10000 ? "\\u%04x"
                                                  : "\\U%08x",
                                    c);
            length = length ? length : 1;
        }
        at += length;
        left -= length;
    }
    safe[used] = '\0';
    return safe;
}

void cmd_print_safe(const char *text) {
    char *safe = cmd_safe(text);
    fputs(safe, stdout);
    free(safe);
}

json_t *cmd_json_text(const char *text) {
    /* Without an archive of jansson the text's functions are found at run time. */
    json_t *json = ac_json_ready() ? ac_json_text(text, strlen(text)) : NULL;
    if (!json) {
        cmd_say("out of memory");
        exit(CMD_FAILED);
    }
    return json;
}

int cmd_print_json(json_t *whole, size_t flags) {
    /* A terminal obeys some characters that JSON may hold as they are. */
    if (isatty(STDOUT_FILENO))
        flags |= JSON_ENSURE_ASCII;
    char *text = whole ? json_dumps(whole, JSON_INDENT(2) | flags) : NULL;
    json_decref(whole);
    if (!text) {
        cmd_say("the result cannot be written as JSON: out of memory");
        return CMD_FAILED;
    }
    bool written = puts(text) >= 0 && !fflush(stdout);
    free(text);
    if (!written)
        cmd_say("the output could not be written: %s", strerror(errno));
    return written ? CMD_OK : CMD_FAILED;
}
