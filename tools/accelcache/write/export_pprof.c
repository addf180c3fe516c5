/* pprof's profile, gzip'd protocol buffers (profile.proto of google/pprof): stacks with blocks and bytes in use,
 * and if known those of all requests. */
#include "command.h"
#include "write/export.h"
#include "read/stacks.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ------------------------------------------------------------------ protocol buffers */

typedef struct {
    unsigned char *data;
    size_t size, room;
} buffer_t;

static void put_bytes(buffer_t *to, const void *data, size_t size) {
    if (size > to->room - to->size) {
        to->room = (to->room + size) * 2;
        to->data = cmd_resize(to->data, to->room);
    }
    if (size)
        memcpy(to->data + to->size, data, size);
    to->size += size;
}

/* Seven bits a byte, the lowest first; the highest bit says that more follow. */
static void put_varint(buffer_t *to, uint64_t value) {
    unsigned char byte;
    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        put_bytes(to, &byte, 1);
    }
    byte = (unsigned char)value;
    put_bytes(to, &byte, 1);
}

enum { VARINT = 0, LENGTH = 2 }; /* wire types */

static void put_number(buffer_t *to, unsigned field, int64_t value) {
    put_varint(to, field << 3 | VARINT);
    put_varint(to, (uint64_t)value);
}

static void put_data(buffer_t *to, unsigned field, const void *data, size_t size) {
    put_varint(to, field << 3 | LENGTH);
    put_varint(to, size);
    put_bytes(to, data, size);
}

/* Writes a message inside another one, and frees its buffer. */
static void put_message(buffer_t *to, unsigned field, buffer_t *message) {
    put_data(to, field, message->data, message->size);
    free(message->data);
    *message = (buffer_t){0};
}

/* ------------------------------------------------------------------ the profile */

/* Field numbers of profile.proto. */
enum { PROFILE_SAMPLE_TYPE = 1, PROFILE_SAMPLE, PROFILE_LOCATION = 4, PROFILE_FUNCTION };
enum { PROFILE_STRING = 6, PROFILE_TIME = 9, PROFILE_PERIOD_TYPE = 11, PROFILE_PERIOD };
enum { PROFILE_COMMENT = 13, PROFILE_DEFAULT_TYPE };
enum { VALUE_TYPE = 1, VALUE_UNIT };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE };
enum { LOCATION_ID = 1, LOCATION_LINE = 4, LINE_FUNCTION = 1 };
enum { FUNCTION_ID = 1, FUNCTION_NAME };

/* Names get numbers as they come; a frame's location, function and name have the same. */
typedef struct {
    buffer_t profile;
    char **name;
    size_t names, room;
    size_t *slot, slots; /* open addressing, at most half full: number + 1, or 0 */
} profile_t;

static size_t *slot_of(const profile_t *p, const char *name, size_t length) {
    uint64_t hash = 0;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x9e3779b97f4a7c15;
    for (size_t at = hash >> 20;; at++) {
        size_t *slot = &p->slot[at & (p->slots - 1)];
        if (!*slot ||
            (strlen(p->name[*slot - 1]) == length && !memcmp(p->name[*slot - 1], name, length)))
            return slot;
    }
}

static void make_room(profile_t *p) {
    if (p->names < p->room)
        return;
    p->room = p->room ? p->room * 2 : 64;
    p->name = cmd_resize(p->name, p->room * sizeof *p->name);
    free(p->slot);
    p->slots = 2 * p->room;
    p->slot = cmd_alloc(p->slots * sizeof *p->slot);
    for (size_t i = 0; i < p->names; i++)
        *slot_of(p, p->name[i], strlen(p->name[i])) = i + 1;
}

static size_t name_number(profile_t *p, const char *name, size_t length) {
    make_room(p);
    size_t *slot = slot_of(p, name, length);
    if (!*slot) {
        p->name[p->names] = cmd_format("%.*s", (int)length, name);
        *slot = ++p->names;
    }
    return *slot - 1;
}

static int64_t text_number(profile_t *p, const char *text) {
    return (int64_t)name_number(p, text, strlen(text));
}

static void put_value_type(profile_t *p, unsigned field, const char *type, const char *unit) {
    buffer_t message = {0};
    put_number(&message, VALUE_TYPE, text_number(p, type));
    put_number(&message, VALUE_UNIT, text_number(p, unit));
    put_message(&p->profile, field, &message);
}

static void put_sample(profile_t *p, const cmd_stack_t *stack, bool has_all) {
    buffer_t sample = {0};
    const char *end = stack->frames + strlen(stack->frames);
    while (end > stack->frames) { /* the innermost first */
        const char *start = end;
        while (start > stack->frames && start[-1] != '\n')
            start--;
        put_number(&sample, SAMPLE_LOCATION,
                   (int64_t)name_number(p, start, (size_t)(end - start)));
        end = start > stack->frames ? start - 1 : start;
    }
    if (has_all) {
        put_number(&sample, SAMPLE_VALUE, stack->all_blocks);
        put_number(&sample, SAMPLE_VALUE, stack->all_bytes);
    }
    put_number(&sample, SAMPLE_VALUE, stack->blocks);
    put_number(&sample, SAMPLE_VALUE, stack->bytes);
    put_message(&p->profile, PROFILE_SAMPLE, &sample);
}

/* Every name is a function and a location, also the few that are not frames. */
static void put_names(profile_t *p) {
    for (size_t i = 1; i < p->names; i++) {
        buffer_t line = {0}, location = {0}, function = {0};
        put_number(&line, LINE_FUNCTION, (int64_t)i);
        put_number(&location, LOCATION_ID, (int64_t)i);
        put_message(&location, LOCATION_LINE, &line);
        put_message(&p->profile, PROFILE_LOCATION, &location);
        put_number(&function, FUNCTION_ID, (int64_t)i);
        put_number(&function, FUNCTION_NAME, (int64_t)i);
        put_message(&p->profile, PROFILE_FUNCTION, &function);
    }
    for (size_t i = 0; i < p->names; i++) {
        put_data(&p->profile, PROFILE_STRING, p->name[i], strlen(p->name[i]));
        free(p->name[i]);
    }
    free(p->name);
    free(p->slot);
}

/* ------------------------------------------------------------------ gzip */

static bool put_compressed(const buffer_t *profile, FILE *out, char **error) {
    enum { GZIP = 15 + 16, LEVEL = 8 };
    z_stream stream = {.next_in = profile->data};
    unsigned char block[65536];
    size_t left = profile->size;
    int state =
        deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP, LEVEL, Z_DEFAULT_STRATEGY);
    while (state == Z_OK) {
        if (stream.avail_in == 0) {
            stream.avail_in = left < 1 << 30 ? (unsigned)left : 1 << 30;
            left -= stream.avail_in;
        }
        stream.next_out = block;
        stream.avail_out = sizeof block;
        state = deflate(&stream, left ? Z_NO_FLUSH : Z_FINISH);
        fwrite(block, 1, sizeof block - stream.avail_out, out);
    }
    if (state != Z_STREAM_END)
        *error = cmd_format("zlib could not compress the profile: %s",
                            stream.msg ? stream.msg : "out of memory");
    deflateEnd(&stream);
    return state == Z_STREAM_END;
}

bool cmd_export_pprof(const cmd_history_t *history, cmd_moment_t moment, FILE *out, char **error) {
    cmd_stacks_t stacks;
    if (!cmd_stacks(history, moment, &stacks, error))
        return false;
    profile_t p = {.names = 0};
    name_number(&p, "", 0); /* number 0, as the format wants it */
    if (stacks.has_all) {
        put_value_type(&p, PROFILE_SAMPLE_TYPE, "alloc_objects", "count");
        put_value_type(&p, PROFILE_SAMPLE_TYPE, "alloc_space", "bytes");
    }
    put_value_type(&p, PROFILE_SAMPLE_TYPE, "inuse_objects", "count");
    put_value_type(&p, PROFILE_SAMPLE_TYPE, "inuse_space", "bytes");
    put_value_type(&p, PROFILE_PERIOD_TYPE, "space", "bytes");
    put_number(&p.profile, PROFILE_PERIOD, 1); /* every byte counts, nothing is sampled */
    put_number(&p.profile, PROFILE_DEFAULT_TYPE, text_number(&p, "inuse_space"));
    if (history->start_ns)
        put_number(&p.profile, PROFILE_TIME, history->start_ns);
    if (history->command && *history->command) {
        char *safe = cmd_safe(history->command);
        put_number(&p.profile, PROFILE_COMMENT, text_number(&p, safe));
        free(safe);
    }
    for (size_t i = 0; i < stacks.count; i++)
        put_sample(&p, &stacks.stack[i], stacks.has_all);
    cmd_stacks_free(&stacks);
    put_names(&p);
    bool done = put_compressed(&p.profile, out, error);
    free(p.profile.data);
    return done;
}
