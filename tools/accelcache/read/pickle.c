/* See pickle.h.  Opcodes as in the documentation of Python's pickletools. */
#include "read/pickle.h"
#include "command.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROTO = 0x80,
    STOP = '.',
    MARK = '(',
    EMPTY_DICT = '}',
    SETITEMS = 'u',
    EMPTY_LIST = ']',
    APPENDS = 'e',
    BININT1 = 'K',    /* 1 byte, unsigned */
    BININT2 = 'M',    /* 2 bytes, unsigned */
    BININT = 'J',     /* 4 bytes, signed */
    LONG1 = 0x8a,     /* a length, and as many bytes of two's complement */
    BINUNICODE = 'X', /* a length of 4 bytes, UTF-8 */
    BINFLOAT = 'G',   /* 8 bytes, the highest first */
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    NONE = 'N',
    TUPLE2 = 0x86,
    BINPUT = 'q',      /* remembers the value on top under a number of 1 byte */
    LONG_BINPUT = 'r', /* under a number of 4 bytes */
    BINGET = 'h',      /* the value of that number */
    LONG_BINGET = 'j'
};

static void put_low_first(cmd_pickle_t *pickle, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        putc((int)(value >> (8 * i) & 0xff), pickle->out);
}

typedef struct {
    const json_t *value; /* of `values`: found by its address */
    uint32_t number;
    char text[]; /* of `texts` */
} memo_t;

static int compare_texts(const void *a, const void *b) {
    return strcmp(((const memo_t *)a)->text, ((const memo_t *)b)->text);
}

static int compare_values(const void *a, const void *b) {
    uintptr_t first = (uintptr_t)((const memo_t *)a)->value;
    uintptr_t second = (uintptr_t)((const memo_t *)b)->value;
    return (first > second) - (first < second);
}

/* Returns the entry of `key` in the tree, which owns it.  *known: it was there before. */
static const memo_t *remember(cmd_pickle_t *pickle, void **tree, memo_t *key,
                              int (*compare)(const void *, const void *), bool *known) {
    memo_t **entry = tsearch(key, tree, compare);
    if (!entry) {
        cmd_say("out of memory");
        exit(CMD_FAILED);
    }
    *known = *entry != key;
    if (*known)
        free(key);
    else
        key->number = pickle->count++;
    return *entry;
}

static void put_memo(cmd_pickle_t *pickle, bool known, const memo_t *memo) {
    bool small = memo->number <= UINT8_MAX;
    putc(known ? (small ? BINGET : LONG_BINGET) : (small ? BINPUT : LONG_BINPUT), pickle->out);
    put_low_first(pickle, memo->number, small ? 1 : 4);
}

void cmd_pickle_begin(cmd_pickle_t *pickle, FILE *out) {
    *pickle = (cmd_pickle_t){.out = out};
    putc(PROTO, pickle->out);
    putc(2, pickle->out);
}

void cmd_pickle_end(cmd_pickle_t *pickle) {
    putc(STOP, pickle->out);
    tdestroy(pickle->texts, free);
    tdestroy(pickle->values, free);
}

void cmd_pickle_integer(cmd_pickle_t *pickle, int64_t value) {
    if (value >= 0 && value <= UINT16_MAX) {
        putc(value <= UINT8_MAX ? BININT1 : BININT2, pickle->out);
        put_low_first(pickle, (uint64_t)value, value <= UINT8_MAX ? 1 : 2);
        return;
    }
    if (value >= INT32_MIN && value <= INT32_MAX) {
        putc(BININT, pickle->out);
        put_low_first(pickle, (uint64_t)value, 4);
        return;
    }
    int bytes = 5;
    while (bytes < 8 && value >> (8 * bytes - 1) != value >> 63)
        bytes++;
    putc(LONG1, pickle->out);
    putc(bytes, pickle->out);
    put_low_first(pickle, (uint64_t)value, bytes);
}

void cmd_pickle_text(cmd_pickle_t *pickle, const char *text) {
    size_t length = strlen(text);
    length = length <= UINT32_MAX ? length : UINT32_MAX;
    memo_t *key = cmd_alloc(sizeof *key + length + 1);
    memcpy(key->text, text, length);
    bool known;
    const memo_t *memo = remember(pickle, &pickle->texts, key, compare_texts, &known);
    if (known) {
        put_memo(pickle, true, memo);
        return;
    }
    putc(BINUNICODE, pickle->out);
    put_low_first(pickle, length, 4);
    fwrite(text, 1, length, pickle->out);
    put_memo(pickle, false, memo);
}

void cmd_pickle_truth(cmd_pickle_t *pickle, bool value) {
    putc(value ? NEWTRUE : NEWFALSE, pickle->out);
}

void cmd_pickle_dictionary(cmd_pickle_t *pickle) {
    putc(EMPTY_DICT, pickle->out);
    putc(MARK, pickle->out);
}

void cmd_pickle_dictionary_close(cmd_pickle_t *pickle) {
    putc(SETITEMS, pickle->out);
}

void cmd_pickle_list(cmd_pickle_t *pickle) {
    putc(EMPTY_LIST, pickle->out);
    putc(MARK, pickle->out);
}

void cmd_pickle_list_close(cmd_pickle_t *pickle) {
    putc(APPENDS, pickle->out);
}

void cmd_pickle_list_next(cmd_pickle_t *pickle, size_t count) {
    if (count % CMD_PICKLE_BATCH == 0) {
        putc(APPENDS, pickle->out);
        putc(MARK, pickle->out);
    }
}

void cmd_pickle_pair(cmd_pickle_t *pickle, int64_t first, int64_t second) {
    cmd_pickle_integer(pickle, first);
    cmd_pickle_integer(pickle, second);
    putc(TUPLE2, pickle->out);
}

static void put_real(cmd_pickle_t *pickle, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    putc(BINFLOAT, pickle->out);
    for (int i = 7; i >= 0; i--)
        putc((int)(bits >> (8 * i) & 0xff), pickle->out);
}

/* Writes a reference to `value` if the pickle has it.  Otherwise the caller writes it, after `empty`. */
static bool put_known(cmd_pickle_t *pickle, const json_t *value, int empty) {
    const memo_t *memo = NULL;
    bool known = false;
    if (json_is_array(value) || value->refcount > 1) { /* frames of a trace have one reference for all */
        memo_t *key = cmd_alloc(sizeof *key);
        key->value = value;
        memo = remember(pickle, &pickle->values, key, compare_values, &known);
    }
    if (known) {
        put_memo(pickle, true, memo);
        return true;
    }
    putc(empty, pickle->out);
    if (memo)
        put_memo(pickle, false, memo);
    putc(MARK, pickle->out);
    return false;
}

static void put_array(cmd_pickle_t *pickle, const json_t *array) {
    size_t index;
    const json_t *element;
    if (put_known(pickle, array, EMPTY_LIST))
        return;
    json_array_foreach((json_t *)(uintptr_t)array, index, element) {
        cmd_pickle_json(pickle, element);
        cmd_pickle_list_next(pickle, index + 1);
    }
    cmd_pickle_list_close(pickle);
}

static bool is_pool(const char *key, const json_t *value) {
    return (!strcmp(key, "segment_pool_id") || !strcmp(key, "pool_id")) && json_array_size(value) == 2;
}

static void put_object(cmd_pickle_t *pickle, const json_t *object) {
    const char *key;
    const json_t *value;
    if (put_known(pickle, object, EMPTY_DICT))
        return;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        cmd_pickle_text(pickle, key);
        if (is_pool(key, value))
            cmd_pickle_pair(pickle, json_integer_value(json_array_get(value, 0)),
                            json_integer_value(json_array_get(value, 1)));
        else
            cmd_pickle_json(pickle, value);
    }
    cmd_pickle_dictionary_close(pickle);
}

void cmd_pickle_json(cmd_pickle_t *pickle, const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(pickle, value);
        break;
    case JSON_ARRAY:
        put_array(pickle, value);
        break;
    case JSON_STRING:
        cmd_pickle_text(pickle, json_string_value(value));
        break;
    case JSON_INTEGER:
        cmd_pickle_integer(pickle, json_integer_value(value));
        break;
    case JSON_REAL:
        put_real(pickle, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        cmd_pickle_truth(pickle, json_is_true(value));
        break;
    case JSON_NULL:
        putc(NONE, pickle->out);
        break;
    }
}
