/* See pickle.h.  The opcodes are those of Python's pickletools documentation. */
#include "pickle.h"

#include <string.h>

enum {
    PROTO = 0x80,
    STOP = '.',
    MARK = '(',
    EMPTY_DICT = '}',
    SETITEMS = 'u',
    EMPTY_LIST = ']',
    APPENDS = 'e',
    BININT = 'J',     /* 4 bytes, signed */
    LONG1 = 0x8a,     /* a length, and so many bytes of two's complement */
    BINUNICODE = 'X', /* a length of 4 bytes, UTF-8 */
    BINFLOAT = 'G',   /* 8 bytes, the highest first */
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    NONE = 'N',
    TUPLE2 = 0x86
};

static void put_low_first(FILE *out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        putc((int)(value >> (8 * i) & 0xff), out);
}

void cmd_pickle_begin(FILE *out) {
    putc(PROTO, out);
    putc(2, out);
}

void cmd_pickle_end(FILE *out) {
    putc(STOP, out);
}

void cmd_pickle_integer(FILE *out, int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) {
        putc(BININT, out);
        put_low_first(out, (uint64_t)value, 4);
        return;
    }
    putc(LONG1, out);
    putc(8, out);
    put_low_first(out, (uint64_t)value, 8);
}

void cmd_pickle_text(FILE *out, const char *text) {
    size_t length = strlen(text);
    length = length <= UINT32_MAX ? length : UINT32_MAX;
    putc(BINUNICODE, out);
    put_low_first(out, length, 4);
    fwrite(text, 1, length, out);
}

void cmd_pickle_truth(FILE *out, bool value) {
    putc(value ? NEWTRUE : NEWFALSE, out);
}

void cmd_pickle_dictionary(FILE *out) {
    putc(EMPTY_DICT, out);
    putc(MARK, out);
}

void cmd_pickle_dictionary_close(FILE *out) {
    putc(SETITEMS, out);
}

void cmd_pickle_list(FILE *out) {
    putc(EMPTY_LIST, out);
    putc(MARK, out);
}

void cmd_pickle_list_close(FILE *out) {
    putc(APPENDS, out);
}

void cmd_pickle_list_next(FILE *out, size_t count) {
    if (count % CMD_PICKLE_BATCH == 0) {
        putc(APPENDS, out);
        putc(MARK, out);
    }
}

void cmd_pickle_pair(FILE *out, int64_t first, int64_t second) {
    cmd_pickle_integer(out, first);
    cmd_pickle_integer(out, second);
    putc(TUPLE2, out);
}

static void put_real(FILE *out, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    putc(BINFLOAT, out);
    for (int i = 7; i >= 0; i--)
        putc((int)(bits >> (8 * i) & 0xff), out);
}

static void put_array(FILE *out, const json_t *array) {
    size_t index;
    const json_t *element;
    cmd_pickle_list(out);
    json_array_foreach((json_t *)(uintptr_t)array, index, element) {
        cmd_pickle_json(out, element);
        cmd_pickle_list_next(out, index + 1);
    }
    cmd_pickle_list_close(out);
}

static void put_object(FILE *out, const json_t *object) {
    const char *key;
    const json_t *value;
    cmd_pickle_dictionary(out);
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        cmd_pickle_text(out, key);
        if (!strcmp(key, "segment_pool_id") && json_array_size(value) == 2)
            cmd_pickle_pair(out, json_integer_value(json_array_get(value, 0)),
                            json_integer_value(json_array_get(value, 1)));
        else
            cmd_pickle_json(out, value);
    }
    cmd_pickle_dictionary_close(out);
}

void cmd_pickle_json(FILE *out, const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(out, value);
        break;
    case JSON_ARRAY:
        put_array(out, value);
        break;
    case JSON_STRING:
        cmd_pickle_text(out, json_string_value(value));
        break;
    case JSON_INTEGER:
        cmd_pickle_integer(out, json_integer_value(value));
        break;
    case JSON_REAL:
        put_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        cmd_pickle_truth(out, json_is_true(value));
        break;
    case JSON_NULL:
        putc(NONE, out);
        break;
    }
}
