/* See snapshot.h. */
#include "read/snapshot.h"
#include "command.h"
#include "read/naming.h"
#include "read/pickle.h"

#include <stdlib.h>
#include <string.h>


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

static uint64_t number(const json_t *object, const char *key) {
    return (uint64_t)cmd_integer(object, key);
}

static char *site_of(const json_t *object) {
    return cmd_naming_site(json_object_get(object, "frames"));
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
