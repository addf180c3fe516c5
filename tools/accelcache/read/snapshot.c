/* See snapshot.h. */
#include "read/snapshot.h"
#include "command.h"
#include "read/document.h"
#include "read/naming.h"
#include "read/pickle.h"

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

static char *site_of(const json_t *object) {
    return cmd_naming_site(json_object_get(object, "frames"));
}

/* Call sites of blocks by number, from 1 on. */
typedef struct {
    json_t *names;  /* array */
    json_t *number; /* by name */
} sites_t;

/* The site's number, added if need be; 0: the block has no frames. */
static json_int_t number_of(sites_t *sites, char *site) {
    if (!site)
        return 0;
    const json_t *known = json_object_get(sites->number, site);
    json_int_t at = known ? json_integer_value(known) : (json_int_t)json_array_size(sites->names);
    if (!known) {
        json_array_append_new(sites->names, cmd_json_text(site));
        json_object_set_new(sites->number, site, json_integer(at));
    }
    free(site);
    return at;
}

static const char *state_of(const char *state) {
    return !strcmp(state, "active_allocated") ? "allocated"
           : !strncmp(state, "active", 6)     ? "pending"
                                              : "free";
}

/* NULL: it has no such form. */
static json_t *blocks_of(const json_t *segment, sites_t *sites) {
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
            json_object_set_new(block, "stack", json_integer(number_of(sites, site_of(from))));
        }
        json_array_append_new(blocks, block);
        at += size;
    }
    return blocks;
}

json_t *cmd_snapshot_as_dump(json_t *snapshot, char **error) {
    json_t *layout = json_array();
    sites_t sites = {json_array(), json_object()};
    size_t index;
    const json_t *from;
    json_array_append_new(sites.names, json_null());
    json_array_foreach(json_object_get(snapshot, "segments"), index, from) {
        const char *type = json_string_value(json_object_get(from, "segment_type"));
        json_t *blocks = blocks_of(from, &sites);
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
    json_object_set_new(snapshot, "site_names", sites.names);
    json_decref(sites.number);
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
                                      .asked_by = site_of(alloc)};
        const json_t *gone = newest(trace, "free", life->address, &last);
        life->freed = gone && last > at;
        life->freed_by = life->freed ? site_of(gone) : NULL;
        return true;
    }
    return false;
}
