/* See snapshot.h. */
#include "snapshot.h"
#include "command.h"
#include "document.h"
#include "pickle.h"

#include <stdlib.h>
#include <string.h>

#include "observe/stats.h"

static bool is_snapshot(const json_t *document) {
    return json_object_get(document, "segments") || json_object_get(document, "device_traces");
}

json_t *cmd_snapshot_parse(const char *data, size_t length, char **error) {
    json_t *document = NULL;
    *error = NULL;
    bool pickle = cmd_pickle_is(data, length);
    if (pickle)
        document = cmd_pickle_read(data, length, error);
    else
        document = json_loadb(data, length, 0, NULL);
    if (document && !is_snapshot(document)) {
        json_decref(document);
        document = NULL;
        if (pickle)
            *error = cmd_format("a pickle without segments or device_traces: no memory snapshot");
    }
    return document;
}

/* ------------------------------------------------------------------ as a dump */

static uint64_t number(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* The innermost frame; NULL: none is known. */
static char *frame_of(const json_t *object) {
    const json_t *frame = json_array_get(json_object_get(object, "frames"), 0);
    const char *name = json_string_value(json_object_get(frame, "name"));
    const char *file = json_string_value(json_object_get(frame, "filename"));
    if (!name)
        return NULL;
    if (!file || !*file)
        return cmd_format("%s", name);
    return cmd_format("%s (%s:%lld)", name, file, (long long)number(frame, "line"));
}

/* The number of that name, added if need be; 0: there are too many. */
static size_t name_of(json_t *names, char *name) {
    size_t at = 1;
    while (name && at < json_array_size(names) &&
           strcmp(json_string_value(json_array_get(names, at)), name) != 0)
        at++;
    if (!name || at >= UINT8_MAX) {
        free(name);
        return 0;
    }
    if (at == json_array_size(names))
        json_array_append_new(names, cmd_json_text(name));
    free(name);
    return at;
}

static const char *state_of(const char *state) {
    return !strcmp(state, "active_allocated") ? "allocated"
           : !strncmp(state, "active", 6)     ? "pending"
                                              : "free";
}

/* NULL: it has no such form. */
static json_t *blocks_of(const json_t *segment, json_t *names) {
    json_t *blocks = json_array();
    uint64_t at = number(segment, "address");
    size_t index;
    const json_t *from;
    json_array_foreach(json_object_get(segment, "blocks"), index, from) {
        const char *word = json_string_value(json_object_get(from, "state"));
        uint64_t size = number(from, "size"), asked = number(from, "requested_size");
        if (!word || !size || size > INT64_MAX) {
            json_decref(blocks);
            return NULL;
        }
        const char *state = state_of(word);
        json_t *block = json_pack("{s:I, s:I, s:s}", "address", (json_int_t)at, "size",
                                  (json_int_t)size, "state", state);
        if (strcmp(state, "free") != 0) {
            json_object_set_new(
                block, "requested",
                json_integer((json_int_t)(asked && asked <= size ? asked : size)));
            json_object_set_new(block, "module",
                                json_integer((json_int_t)name_of(names, frame_of(from))));
        }
        json_array_append_new(blocks, block);
        at += size;
    }
    return blocks;
}

json_t *cmd_snapshot_as_dump(json_t *snapshot, char **error) {
    json_t *layout = json_array(), *names = json_array();
    size_t index;
    const json_t *from;
    json_array_append_new(names, json_null());
    json_array_foreach(json_object_get(snapshot, "segments"), index, from) {
        const char *type = json_string_value(json_object_get(from, "segment_type"));
        json_t *blocks = blocks_of(from, names);
        json_array_append_new(
            layout, json_pack("{s:I, s:I, s:I, s:s, s:b, s:b, s:o}", "device",
                              (json_int_t)number(from, "device"), "address",
                              (json_int_t)number(from, "address"), "size",
                              (json_int_t)number(from, "total_size"), "pool",
                              type && !strcmp(type, "small") ? "small" : "large", "expandable",
                              json_is_true(json_object_get(from, "is_expandable")), "exported", 0,
                              "blocks", blocks ? blocks : json_null()));
        if (!blocks && !*error)
            *error = cmd_format("segments[%zu] has another form than PyTorch writes", index);
    }
    json_object_set_new(snapshot, "layout", layout);
    json_object_set_new(snapshot, "module_names", names);
    if (!*error)
        return snapshot;
    json_decref(snapshot);
    return NULL;
}

/* ------------------------------------------------------------------ what its traces tell */

/* The newest event of an action at or around the address, before number `before`. */
static const json_t *newest(const json_t *trace, const char *action, uint64_t address,
                            size_t *before) {
    while (*before) {
        const json_t *event = json_array_get(trace, --*before);
        const char *word = json_string_value(json_object_get(event, "action"));
        uint64_t begin = number(event, "addr"), bytes = number(event, "size");
        if (word && !strncmp(word, action, strlen(action)) && address >= begin &&
            address - begin < (bytes ? bytes : 1))
            return event;
    }
    return NULL;
}

bool cmd_snapshot_life(const json_t *document, uint64_t address, cmd_snapshot_life_t *life) {
    size_t device;
    const json_t *trace;
    json_array_foreach(json_object_get(document, "device_traces"), device, trace) {
        size_t at = json_array_size(trace), last = at;
        const json_t *alloc = newest(trace, "alloc", address, &at);
        if (!alloc)
            continue;
        *life = (cmd_snapshot_life_t){.address = number(alloc, "addr"),
                                      .bytes = number(alloc, "size"),
                                      .asked_by = frame_of(alloc)};
        const json_t *gone = newest(trace, "free", life->address, &last);
        life->freed = gone && last > at;
        life->freed_by = life->freed ? frame_of(gone) : NULL;
        return true;
    }
    return false;
}
