/* See shares.h. */
#include "read/shares.h"
#include "command.h"
#include "naming.h"

#include <stdlib.h>
#include <string.h>

/* Two integers in `recorded.stack`; NULL: the stack is not known. */
static const json_t *frames_of(const json_t *document, int64_t stack) {
    const json_t *list = json_object_get(json_object_get(document, "recorded"), "stack");
    return stack > 0 ? json_object_get(json_array_get(list, (size_t)stack - 1), "frames") : NULL;
}

/* A number for the phases at the stack's end; 0: it has none. */
static int64_t phases_of(const json_t *document, const json_t *frames) {
    const json_t *texts = json_object_get(json_object_get(document, "recorded"), "texts");
    int64_t number = 0;
    for (size_t at = json_array_size(frames) / 2; at-- > 0;) {
        int64_t text = -json_integer_value(json_array_get(frames, 2 * at));
        const json_t *pair = text > 0 ? json_array_get(texts, (size_t)text - 1) : NULL;
        const char *name = json_string_value(json_array_get(pair, 0));
        if (!name || json_is_string(json_array_get(pair, 1)) || !cmd_naming_is_phase(name, ""))
            break;
        number = (int64_t)(((uint64_t)number + (uint64_t)text) * 0x9e3779b97f4a7c15u);
    }
    return number;
}

typedef struct {
    cmd_share_t share;
    int64_t by[3]; /* the innermost frame, and the phases */
} row_t;

static int by_frame(const void *a, const void *b) {
    const row_t *x = a, *y = b;
    if (x->share.device != y->share.device)
        return x->share.device < y->share.device ? -1 : 1;
    for (int i = 0; i < 3; i++)
        if (x->by[i] != y->by[i])
            return x->by[i] < y->by[i] ? -1 : 1;
    return (x->share.stack > y->share.stack) - (x->share.stack < y->share.stack);
}

static bool same_frame(const row_t *a, const row_t *b) {
    return a->share.device == b->share.device && !memcmp(a->by, b->by, sizeof a->by);
}

/* Returns the part of `whole` that lies before `at` of `all`. */
static int64_t before(int64_t whole, int64_t at, int64_t all) {
    return at == all ? whole : (int64_t)((double)whole / (double)all * (double)at);
}

static void share_out(row_t *row, size_t count) {
    const int64_t most = (int64_t)1 << 60; /* of a damaged dump a number may be anything */
    int64_t blocks = 0, bytes = 0, all = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        blocks = cmd_sum(blocks, row[i].share.blocks, 1);
        bytes = cmd_sum(bytes, row[i].share.bytes, 1);
        all = cmd_sum(all, row[i].share.estimate, 1);
    }
    blocks = blocks < most ? blocks : most;
    bytes = bytes < most ? bytes : most;
    for (size_t i = 0; i < count && all > 0; i++) {
        int64_t to = cmd_sum(at, row[i].share.estimate, 1);
        row[i].share.blocks = before(blocks, to, all) - before(blocks, at, all);
        row[i].share.bytes = before(bytes, to, all) - before(bytes, at, all);
        at = to;
    }
}

cmd_share_t *cmd_shares(const json_t *document, const json_t *sites, size_t *count) {
    size_t index;
    const json_t *from;
    *count = json_array_size(sites);
    row_t *row = cmd_alloc((*count + 1) * sizeof *row);
    json_array_foreach((json_t *)(uintptr_t)sites, index, from) {
        int64_t stack = cmd_integer(from, "stack"), estimate = cmd_integer(from, "estimated");
        const json_t *frames = frames_of(document, stack);
        row[index] = (row_t){{cmd_integer(from, "device"), stack, cmd_integer(from, "blocks"),
                              cmd_integer(from, "requested"), estimate > 0 ? estimate : 0},
                             {json_integer_value(json_array_get(frames, 0)),
                              json_integer_value(json_array_get(frames, 1)), phases_of(document, frames)}};
    }
    if (*count)
        qsort(row, *count, sizeof *row, by_frame);
    for (size_t first = 0, end; first < *count; first = end) {
        for (end = first + 1; end < *count && same_frame(&row[first], &row[end]); end++)
            continue;
        share_out(&row[first], end - first);
    }
    cmd_share_t *share = cmd_alloc((*count + 1) * sizeof *share);
    for (size_t i = 0; i < *count; i++)
        share[i] = row[i].share;
    free(row);
    return share;
}
