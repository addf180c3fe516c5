/* Reading pickles (pickle.h): a stack of JSON values, a stack of marks, and the memo.  Nothing is
 * executed: an opcode that names code or objects is an error. */
#include "pickle.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const unsigned char *at, *end, *begin;
    json_t **stack, **memo;
    size_t depth, stack_room, memos, memo_room;
    size_t *mark, marks, mark_room;
    const char *wrong; /* NULL: nothing */
} reader_t;

static void fail(reader_t *r, const char *why) {
    if (!r->wrong)
        r->wrong = why;
}

/* The next `n` bytes; NULL: there are not so many. */
static const unsigned char *take(reader_t *r, size_t n) {
    const unsigned char *at = r->at;
    if (n > (size_t)(r->end - r->at)) {
        fail(r, "it ends too early");
        return NULL;
    }
    r->at += n;
    return at;
}

/* An unsigned number of `n` bytes, the lowest first. */
static uint64_t number(reader_t *r, size_t n) {
    const unsigned char *at = take(r, n);
    uint64_t value = 0;
    for (size_t i = 0; at && i < n && i < 8; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void push(reader_t *r, json_t *value) {
    if (!value) {
        fail(r, "a text in it is not UTF-8");
        return;
    }
    if (r->depth == r->stack_room) {
        r->stack_room = 2 * r->stack_room + 64;
        r->stack = cmd_resize(r->stack, r->stack_room * sizeof *r->stack);
    }
    r->stack[r->depth++] = value;
}

/* The top of the stack, which is the caller's; NULL: it is empty. */
static json_t *pop(reader_t *r) {
    if (!r->depth || (r->marks && r->depth == r->mark[r->marks - 1])) {
        fail(r, "it is damaged");
        return NULL;
    }
    return r->stack[--r->depth];
}

static void push_mark(reader_t *r) {
    if (r->marks == r->mark_room) {
        r->mark_room = 2 * r->mark_room + 64;
        r->mark = cmd_resize(r->mark, r->mark_room * sizeof *r->mark);
    }
    r->mark[r->marks++] = r->depth;
}

/* Where the values behind the last mark begin. */
static size_t pop_mark(reader_t *r) {
    if (!r->marks) {
        fail(r, "it is damaged");
        return r->depth;
    }
    return r->mark[--r->marks];
}

/* So many values of the top become a list. */
static void pack(reader_t *r, size_t first) {
    json_t *list = json_array();
    for (size_t i = first; i < r->depth; i++)
        json_array_append_new(list, r->stack[i]);
    r->depth = first;
    push(r, list);
}

static void pack_last(reader_t *r, size_t count) {
    size_t least = r->marks ? r->mark[r->marks - 1] : 0;
    if (r->depth - least < count)
        fail(r, "it is damaged");
    else
        pack(r, r->depth - count);
}

static void append(reader_t *r, size_t first) {
    json_t *list = first && first <= r->depth ? r->stack[first - 1] : NULL;
    for (size_t i = first; i < r->depth; i++)
        if (json_is_array(list) && list != r->stack[i])
            json_array_append_new(list, r->stack[i]);
        else
            json_decref(r->stack[i]);
    if (!json_is_array(list))
        fail(r, "it is damaged");
    r->depth = first < r->depth ? first : r->depth;
}

/* Keys that are no text become one: PyTorch has none of these where it matters. */
static void set_one(json_t *to, json_t *key, json_t *value) {
    char text[32];
    const char *name = json_string_value(key);
    if (!name) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(key));
        name = text;
    }
    if (json_is_object(to) && to != value)
        json_object_set_new(to, name, value);
    else
        json_decref(value);
    json_decref(key);
}

static void set(reader_t *r, size_t first) {
    json_t *to = first && first <= r->depth ? r->stack[first - 1] : NULL;
    if (!json_is_object(to) || (r->depth - first) % 2) {
        fail(r, "it is damaged");
        return;
    }
    for (size_t i = first; i < r->depth; i += 2)
        set_one(to, r->stack[i], r->stack[i + 1]);
    r->depth = first;
}

static void memoize(reader_t *r, uint64_t at) {
    enum { MOST = 1 << 28 };
    if (!r->depth || at >= MOST) {
        fail(r, "it is damaged");
        return;
    }
    if (at >= r->memo_room) {
        size_t room = (size_t)at + r->memo_room + 1024;
        r->memo = cmd_resize(r->memo, room * sizeof *r->memo);
        memset(r->memo + r->memo_room, 0, (room - r->memo_room) * sizeof *r->memo);
        r->memo_room = room;
    }
    json_decref(r->memo[at]);
    r->memo[at] = json_incref(r->stack[r->depth - 1]);
    r->memos = at >= r->memos ? (size_t)at + 1 : r->memos;
}

static void recall(reader_t *r, uint64_t at) {
    if (at >= r->memos || !r->memo[at])
        fail(r, "it is damaged");
    else
        push(r, json_incref(r->memo[at]));
}

static void text(reader_t *r, uint64_t length) {
    const unsigned char *at = take(r, length);
    if (at)
        push(r, json_stringn((const char *)at, length));
}

/* Bytes: in snapshots they stand for text, if at all. */
static void bytes(reader_t *r, uint64_t length) {
    const unsigned char *at = take(r, length);
    json_t *value = at ? json_stringn((const char *)at, length) : NULL;
    if (at)
        push(r, value ? value : json_string("(bytes)"));
}

/* Two's complement; what needs more than 64 bits is cut. */
static void integer(reader_t *r, uint64_t length) {
    const unsigned char *at = take(r, length);
    uint64_t value = 0;
    if (!at)
        return;
    for (uint64_t i = 0; i < length && i < 8; i++)
        value |= (uint64_t)at[i] << (8 * i);
    if (length && length < 8 && at[length - 1] & 0x80)
        value |= UINT64_MAX << (8 * length);
    push(r, json_integer((json_int_t)value));
}

static void real(reader_t *r) {
    const unsigned char *at = take(r, 8);
    uint64_t bits = 0;
    double value;
    for (int i = 0; at && i < 8; i++)
        bits = bits << 8 | at[i];
    memcpy(&value, &bits, sizeof value);
    json_t *json = json_real(value);
    push(r, json ? json : json_null()); /* not a number, or without an end */
}

/* False: the end. */
static bool step(reader_t *r) {
    const unsigned char *opcode = take(r, 1);
    json_t *key, *value;
    if (!opcode)
        return false;
    switch (*opcode) {
    case 0x80: /* PROTO */
        take(r, 1);
        break;
    case 0x95: /* FRAME */
        take(r, 8);
        break;
    case '.': /* STOP */
        return false;
    case '(': /* MARK */
        push_mark(r);
        break;
    case '0': /* POP */
        json_decref(pop(r));
        break;
    case '}': /* EMPTY_DICT */
        push(r, json_object());
        break;
    case ']': /* EMPTY_LIST */
    case ')': /* EMPTY_TUPLE */
        push(r, json_array());
        break;
    case 't': /* TUPLE */
        pack(r, pop_mark(r));
        break;
    case 0x85: /* TUPLE1, 2, 3 */
    case 0x86:
    case 0x87:
        pack_last(r, (size_t)*opcode - 0x84);
        break;
    case 'a': /* APPEND */
        append(r, r->depth ? r->depth - 1 : 0);
        break;
    case 'e': /* APPENDS */
        append(r, pop_mark(r));
        break;
    case 's': /* SETITEM */
        value = pop(r);
        key = pop(r);
        if (key && value && r->depth)
            set_one(r->stack[r->depth - 1], key, value);
        else
            fail(r, "it is damaged");
        break;
    case 'u': /* SETITEMS */
        set(r, pop_mark(r));
        break;
    case 'N': /* NONE */
        push(r, json_null());
        break;
    case 0x88: /* NEWTRUE */
        push(r, json_true());
        break;
    case 0x89: /* NEWFALSE */
        push(r, json_false());
        break;
    case 'J': /* BININT */
        push(r, json_integer((int32_t)number(r, 4)));
        break;
    case 'K': /* BININT1 */
        push(r, json_integer((json_int_t)number(r, 1)));
        break;
    case 'M': /* BININT2 */
        push(r, json_integer((json_int_t)number(r, 2)));
        break;
    case 0x8a: /* LONG1 */
        integer(r, number(r, 1));
        break;
    case 0x8b: /* LONG4 */
        integer(r, number(r, 4));
        break;
    case 'G': /* BINFLOAT */
        real(r);
        break;
    case 'X': /* BINUNICODE */
        text(r, number(r, 4));
        break;
    case 0x8c: /* SHORT_BINUNICODE */
        text(r, number(r, 1));
        break;
    case 0x8d: /* BINUNICODE8 */
        text(r, number(r, 8));
        break;
    case 'C': /* SHORT_BINBYTES */
        bytes(r, number(r, 1));
        break;
    case 'B': /* BINBYTES */
        bytes(r, number(r, 4));
        break;
    case 0x94: /* MEMOIZE */
        memoize(r, r->memos);
        break;
    case 'q': /* BINPUT */
        memoize(r, number(r, 1));
        break;
    case 'r': /* LONG_BINPUT */
        memoize(r, number(r, 4));
        break;
    case 'h': /* BINGET */
        recall(r, number(r, 1));
        break;
    case 'j': /* LONG_BINGET */
        recall(r, number(r, 4));
        break;
    default:
        fail(r, "it has objects other than dictionaries, lists, numbers and text");
    }
    return !r->wrong;
}

json_t *cmd_pickle_read(const char *data, size_t length, char **error) {
    const unsigned char *begin = (const unsigned char *)data;
    reader_t r = {.at = begin, .begin = begin, .end = begin + length};
    while (step(&r))
        continue;
    if (!r.wrong && (r.depth != 1 || r.marks))
        fail(&r, "it is damaged");
    json_t *value = r.wrong ? NULL : json_incref(r.stack[0]);
    if (r.wrong)
        *error = cmd_format("no pickle that is read here, at byte %zu: %s",
                            (size_t)(r.at - r.begin), r.wrong);
    while (r.depth)
        json_decref(r.stack[--r.depth]);
    for (size_t i = 0; i < r.memos; i++)
        json_decref(r.memo[i]);
    free(r.stack);
    free(r.memo);
    free(r.mark);
    return value;
}
