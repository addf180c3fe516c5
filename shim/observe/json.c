/* See json.h. */
#include "observe/json.h"

#include <stdlib.h>
#include <string.h>

void ac_json_put(json_t *object, const char *key, json_t *value, bool *failed) {
    /* Takes over `value` in every case, a NULL object or value included. */
    if (json_object_set_new(object, key, value) != 0)
        *failed = true;
}

void ac_json_put_integer(json_t *object, const char *key, int64_t value, bool *failed) {
    ac_json_put(object, key, json_integer(value), failed);
}

void ac_json_put_text(json_t *object, const char *key, const char *text, bool *failed) {
    ac_json_put(object, key, ac_json_text(text, strlen(text)), failed);
}

json_t *ac_json_put_object(json_t *object, const char *key, bool *failed) {
    json_t *value = json_object();
    ac_json_put(object, key, value, failed);
    /* A failed put has freed it. */
    return *failed ? NULL : value;
}

void ac_json_append(json_t *array, json_t *value, bool *failed) {
    if (json_array_append_new(array, value) != 0)
        *failed = true;
}

size_t ac_json_sequence(const unsigned char *at, size_t room) {
    static const struct {
        unsigned char first, last; /* lead byte */
        unsigned char low, high;   /* second byte */
        unsigned char length;
    } forms[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t length = forms[i].length;
        if (at[0] < forms[i].first || at[0] > forms[i].last)
            continue;
        if (length > room || (length > 1 && (at[1] < forms[i].low || at[1] > forms[i].high)))
            return 0;
        for (size_t j = 2; j < length; j++) {
            if (at[j] < 0x80 || at[j] > 0xbf)
                return 0;
        }
        return length;
    }
    return 0;
}

json_t *ac_json_text(const char *text, size_t length) {
    static const char replacement[] = "\xef\xbf\xbd";
    char *clean = malloc(3 * length + 1);
    if (!clean)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < length;) {
        size_t n = ac_json_sequence((const unsigned char *)text + i, length - i);
        memcpy(clean + used, n ? text + i : replacement, n ? n : 3);
        used += n ? n : 3;
        i += n ? n : 1;
    }
    json_t *string = json_stringn(clean, used);
    free(clean);
    return string;
}

typedef struct {
    char *data;
    size_t length, size;
} buffer_t;

static int buffer_add(const char *data, size_t length, void *arg) {
    buffer_t *buffer = arg;
    if (length >= buffer->size - buffer->length) { /* one byte more, for the NUL */
        size_t size = 2 * (buffer->length + length) + 4096;
        char *grown = realloc(buffer->data, size);
        if (!grown)
            return -1;
        buffer->data = grown;
        buffer->size = size;
    }
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    buffer->data[buffer->length] = '\0';
    return 0;
}

char *ac_json_dump(const json_t *json, size_t *length) {
    /* Not json_dumps: its text belongs to whatever allocator was set in a shared jansson. */
    buffer_t buffer = {NULL, 0, 0};
    if (json_dump_callback(json, buffer_add, &buffer, JSON_INDENT(2)) != 0 ||
        buffer_add("\n", 1, &buffer) != 0) {
        free(buffer.data);
        return NULL;
    }
    *length = buffer.length;
    return buffer.data;
}
