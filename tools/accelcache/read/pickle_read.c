/* Reading pickles (pickle.h): a stack of JSON values, a stack of marks, and the memo.  Nothing is
 * executed: an opcode that names code or objects is an error. */
#include "read/pickle.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

/* Functions that read and free values recurse for each level, and visit a shared value each time it is named: a
 * few bytes must not become a deep or an endless value.  The depth is jansson's own. */
enum { MOST_DEPTH = 2048 };
#define MOST_VALUES ((uint64_t)1 << 30)

/* A list or dictionary: its depth, its number of values (a shared one counts each time it is named), and true if
 * it lies in another one.  From then on it must not change: its figures are part of the other's, and one that
 * lies in itself would have no end.  Python fills each before it puts it anywhere. */
typedef struct {
    uint64_t values;
    uint32_t depth;
    bool closed;
} container_t;

typedef struct {
    json_t *value;
    size_t container; /* in reader_t; 0: a number, text, ... */
} item_t;

typedef struct {
    const unsigned char *at, *end, *begin;
    item_t *stack, *memo;
    size_t depth, stack_room, memos, memo_room;
    container_t *container;
    size_t containers, container_room; /* the first is not used */
    size_t *mark, marks, mark_room;
    const char *wrong; /* NULL: nothing */
} reader_t;

static void fail(reader_t *r, const char *why) {
    if (!r->wrong)
        r->wrong = why;
}

/* The next `n` bytes; NULL: there are fewer. */
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

static void push_item(reader_t *r, item_t item) {
    if (r->depth == r->stack_room) {
        r->stack_room = 2 * r->stack_room + 64;
        r->stack = cmd_resize(r->stack, r->stack_room * sizeof *r->stack);
    }
    r->stack[r->depth++] = item;
}

static void push(reader_t *r, json_t *value) {
    if (value)
        push_item(r, (item_t){.value = value});
    else
        fail(r, "a text in it is not UTF-8");
}

static void push_container(reader_t *r, json_t *value) {
    if (!value) {
        fail(r, "memory is short");
        return;
    }
    if (r->containers + 1 >= r->container_room) {
        r->container_room = 2 * r->container_room + 64;
        r->container = cmd_resize(r->container, r->container_room * sizeof *r->container);
    }
    r->container[++r->containers] = (container_t){.values = 1, .depth = 1};
    push_item(r, (item_t){value, r->containers});
}

/* Start of the values behind the topmost mark: most opcodes do not see the values below. */
static size_t bottom(const reader_t *r) {
    return r->marks ? r->mark[r->marks - 1] : 0;
}

/* Returns true if there are `count` values. */
static bool has(reader_t *r, size_t count) {
    if (r->depth >= bottom(r) + count)
        return true;
    fail(r, "it is damaged");
    return false;
}

static void pop(reader_t *r) {
    if (has(r, 1))
        json_decref(r->stack[--r->depth].value);
}

static void push_mark(reader_t *r) {
    if (r->marks == r->mark_room) {
        r->mark_room = 2 * r->mark_room + 64;
        r->mark = cmd_resize(r->mark, r->mark_room * sizeof *r->mark);
    }
    r->mark[r->marks++] = r->depth;
}

/* Returns the start of the values behind the last mark. */
static size_t pop_mark(reader_t *r) {
    if (!r->marks) {
        fail(r, "it is damaged");
        return r->depth;
    }
    return r->mark[--r->marks];
}

static const char closed[] =
    "a list or dictionary in it lies in itself, or is filled where it lies in another";

/* Returns true if `item` may go into the container `into`: from now on it is in there. */
static bool enclose(reader_t *r, const item_t *into, const item_t *item) {
    container_t *outer = &r->container[into->container], *inner = &r->container[item->container];
    if (!item->container) {
        outer->values++;
        return true;
    }
    inner->closed = true;
    if (outer->closed) { /* it is the same */
        fail(r, closed);
        return false;
    }
    outer->depth = inner->depth < outer->depth ? outer->depth : inner->depth + 1;
    outer->values += inner->values;
    if (outer->depth > MOST_DEPTH)
        fail(r, "it is nested too deeply");
    else if (outer->values > MOST_VALUES)
        fail(r, "it names the same lists and dictionaries too often");
    return !r->wrong;
}

/* The container below the values from `first` on; NULL: there is none of the type. */
static const item_t *container_below(reader_t *r, size_t first, json_type type) {
    const item_t *item = first > bottom(r) && first <= r->depth ? &r->stack[first - 1] : NULL;
    bool right = item && json_typeof(item->value) == type;
    if (right && !r->container[item->container].closed)
        return item;
    fail(r, right ? closed : "it is damaged");
    return NULL;
}

/* The values from `first` on are put into a list, as far as that is possible. */
static void move(reader_t *r, const item_t *list, size_t first) {
    size_t count = first;
    while (count < r->depth && enclose(r, list, &r->stack[count]))
        json_array_append_new(list->value, r->stack[count++].value);
    for (size_t i = count; i < r->depth; i++)
        json_decref(r->stack[i].value);
    r->depth = first;
}

static void append(reader_t *r, size_t first) {
    const item_t *list = container_below(r, first, JSON_ARRAY);
    if (list)
        move(r, list, first);
}

/* Turns the topmost `count` values into a list. */
static void pack(reader_t *r, size_t first) {
    push_container(r, json_array());
    if (r->wrong)
        return;
    item_t list = r->stack[--r->depth];
    move(r, &list, first);
    push_item(r, list);
}

static void pack_last(reader_t *r, size_t count) {
    if (has(r, count))
        pack(r, r->depth - count);
}

/* Keys that are no text become text.  PyTorch has none in the parts that matter. */
static void set_one(json_t *to, const json_t *key, json_t *value) {
    char text[32];
    const char *name = json_string_value(key);
    if (!name) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(key));
        name = text;
    }
    json_object_set(to, name, value);
}

static void set(reader_t *r, size_t first) {
    const item_t *to = container_below(r, first, JSON_OBJECT);
    if (!to)
        return;
    if ((r->depth - first) % 2)
        fail(r, "it is damaged");
    for (size_t i = first; i + 1 < r->depth && enclose(r, to, &r->stack[i + 1]); i += 2)
        set_one(to->value, r->stack[i].value, r->stack[i + 1].value);
    while (r->depth > first)
        json_decref(r->stack[--r->depth].value);
}

/* Python counts from 0, and names a value of two bytes at least each time. */
static void memoize(reader_t *r, uint64_t at) {
    if (!r->depth || at >= (uint64_t)(r->end - r->begin)) {
        fail(r, "it is damaged");
        return;
    }
    if (at >= r->memo_room) {
        size_t room = at < 2 * r->memo_room ? 2 * r->memo_room : (size_t)at + 64;
        r->memo = cmd_resize(r->memo, room * sizeof *r->memo);
        memset(r->memo + r->memo_room, 0, (room - r->memo_room) * sizeof *r->memo);
        r->memo_room = room;
    }
    json_decref(r->memo[at].value);
    r->memo[at] = r->stack[r->depth - 1];
    json_incref(r->memo[at].value);
    r->memos = at >= r->memos ? (size_t)at + 1 : r->memos;
}

static void recall(reader_t *r, uint64_t at) {
    if (at >= r->memos || !r->memo[at].value) {
        fail(r, "it is damaged");
        return;
    }
    json_incref(r->memo[at].value);
    push_item(r, r->memo[at]);
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

/* Two's complement; more than 64 bits are cut. */
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
        pop(r);
        break;
    case '}': /* EMPTY_DICT */
        push_container(r, json_object());
        break;
    case ']': /* EMPTY_LIST */
    case ')': /* EMPTY_TUPLE */
        push_container(r, json_array());
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
        if (has(r, 2))
            append(r, r->depth - 1);
        break;
    case 'e': /* APPENDS */
        append(r, pop_mark(r));
        break;
    case 's': /* SETITEM */
        if (has(r, 3))
            set(r, r->depth - 2);
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
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        bytes(r, number(r, 8));
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
    json_t *value = r.wrong ? NULL : json_incref(r.stack[0].value);
    if (r.wrong)
        *error = cmd_format("no pickle that is read here, at byte %zu: %s",
                            (size_t)(r.at - r.begin), r.wrong);
    while (r.depth)
        json_decref(r.stack[--r.depth].value);
    for (size_t i = 0; i < r.memos; i++)
        json_decref(r.memo[i].value);
    free(r.container);
    free(r.stack);
    free(r.memo);
    free(r.mark);
    return value;
}
