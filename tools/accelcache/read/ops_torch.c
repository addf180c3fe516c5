/* `device_traces` of a PyTorch memory snapshot, as pickle or JSON (ops.h).
 *
 * PyTorch keeps the newest events only.  Earlier allocations are derived: by the frees of addresses that no
 * event allocated, and by the snapshot's `segments`, which tell what is live at its end. */
#include "command.h"
#include "read/ops.h"
#include "read/pickle.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((uint64_t)1 << 47)

typedef struct {
    cmd_reading_t *reading;
    unsigned device;
    size_t event;
    const char *wrong;
} state_t;

static bool get_number(const json_t *event, const char *key, uint64_t *value) {
    const json_t *number = json_object_get(event, key);
    if (!json_is_integer(number) || json_integer_value(number) < 0)
        return false;
    *value = (uint64_t)json_integer_value(number);
    return true;
}

/* An address may be negative, since JSON has no unsigned numbers. */
static bool get_address(const json_t *event, const char *key, uint64_t *value) {
    const json_t *number = json_object_get(event, key);
    *value = (uint64_t)json_integer_value(number);
    return json_is_integer(number);
}

static bool take_event(state_t *s, const json_t *event) {
    const char *action = json_string_value(json_object_get(event, "action"));
    uint64_t address, bytes, stream = 0;
    if (!action) {
        s->wrong = "it has no action";
        return false;
    }
    bool allocate = !strcmp(action, "alloc");
    /* A free counts at its request; when it took effect is the allocator's business. */
    if (!allocate && strcmp(action, "free_requested") != 0 && strcmp(action, "free") != 0)
        return true;
    if (!get_address(event, "addr", &address) || !get_number(event, "size", &bytes) ||
        bytes > MOST_BYTES) {
        s->wrong = "addr or size is no number";
        return false;
    }
    get_number(event, "stream", &stream);
    if (bytes == 0)
        return true;
    if (allocate) {
        /* Handed out again: the event of its free was lost. */
        cmd_ops_remove(s->reading, s->device, address, CMD_FREE_STREAM);
        cmd_ops_add(s->reading, s->device, address, bytes, stream);
    } else if (!cmd_ops_remove(s->reading, s->device, address, CMD_FREE_STREAM)) {
        cmd_ops_before(s->reading, s->device, address, bytes, stream);
        cmd_ops_remove(s->reading, s->device, address, CMD_FREE_STREAM);
    }
    return true;
}

/* Blocks that are live at the end and that no event allocated were there before the first. */
static void take_segment(state_t *s, const json_t *segment) {
    size_t index;
    const json_t *block;
    uint64_t device, address = 0, stream = 0;
    if (!get_number(segment, "device", &device) || device >= CMD_OPS_DEVICES ||
        !s->reading->device[device])
        return;
    get_address(segment, "address", &address);
    get_number(segment, "stream", &stream);
    json_array_foreach(json_object_get(segment, "blocks"), index, block) {
        const char *state = json_string_value(json_object_get(block, "state"));
        uint64_t bytes = 0, size = 0;
        get_address(block, "address", &address);
        get_number(block, "size", &size);
        if (!get_number(block, "requested_size", &bytes) || bytes == 0)
            bytes = size;
        if (state && !strcmp(state, "active_allocated") && bytes && bytes <= MOST_BYTES)
            cmd_ops_before(s->reading, (unsigned)device, address, bytes, stream);
        address += size;
    }
}

static bool take_traces(state_t *s, const json_t *traces) {
    size_t device, index;
    const json_t *trace, *event;
    json_array_foreach((json_t *)(uintptr_t)traces, device, trace) {
        if (device >= CMD_OPS_DEVICES)
            break;
        s->device = (unsigned)device;
        json_array_foreach((json_t *)(uintptr_t)trace, index, event) {
            s->event = index;
            if (!take_event(s, event))
                return false;
        }
    }
    return true;
}

bool cmd_ops_read_torch(cmd_reading_t *reading, const char *data, size_t length, char **error) {
    json_error_t at;
    bool pickle = cmd_pickle_is(data, length);
    json_t *document =
        pickle ? cmd_pickle_read(data, length, error) : json_loadb(data, length, 0, &at);
    if (!document && !pickle) {
        bool cut = json_error_code(&at) == json_error_premature_end_of_input;
        *error = cmd_format("%s at line %d, column %d (%s): %s",
                            cut ? "the JSON ends too early" : "not valid JSON", at.line,
                            at.column, at.text,
                            cut ? "the copy is incomplete; write the snapshot again"
                                : "is it a snapshot of PyTorch's, converted to JSON?");
        return false;
    }
    if (!document)
        return false;
    const json_t *traces = json_object_get(document, "device_traces");
    state_t s = {.reading = reading};
    bool good = json_is_array(traces) && take_traces(&s, traces);
    const char *schema = json_string_value(json_object_get(document, "schema"));
    if (schema && !strcmp(schema, "accelcache-dump"))
        *error = cmd_format("a dump has figures and no operations: record the program with "
                            "accelcache run --trace FILE");
    else if (!json_is_array(traces))
        *error = cmd_format("it has no list device_traces: take the snapshot after "
                            "torch.cuda.memory._record_memory_history(), or is it a statistics "
                            "dump?");
    else if (!good)
        *error = cmd_format("device_traces[%u][%zu]: %s; was the file changed after it was "
                            "written?",
                            s.device, s.event, s.wrong);
    size_t index;
    json_t *segment;
    if (good)
        json_array_foreach(json_object_get(document, "segments"), index, segment)
            take_segment(&s, segment);
    json_decref(document);
    return good;
}
