/* Dumps with recorded events or blocks, as snapshots in PyTorch's layout, for history.h: `segments` of `layout`,
 * `device_traces` of `history`, with the frames of `recorded`.
 *
 * The library records a free at its request, and if the memory had to wait, again when that work is over; what
 * waited for nothing, or was handed out again in the order of its stream, was complete at once.  Events behind
 * the moment of the layout, the last "snapshot", are left out, since a viewer goes back from there.  Events
 * outside of the cache keep their names: PyTorch's viewer lists them, and draws nothing. */
#include "command.h"
#include "read/history.h"
#include "read/recorded.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ frames */

/* Frames by number of the stack; all events with that number share them. */
typedef struct {
    json_t **list;
    size_t count;
} frames_t;

static json_t *frames_of(frames_t *frames, const json_t *document, int64_t stack) {
    if (stack <= 0 || (size_t)stack > frames->count)
        return json_array();
    if (!frames->list[stack - 1]) {
        cmd_frame_t *frame;
        size_t count;
        cmd_recorded_frames(document, stack, &frame, &count);
        frames->list[stack - 1] = cmd_frames_json(frame, count);
        free(frame);
    }
    return json_incref(frames->list[stack - 1]);
}

/* ------------------------------------------------------------------ segments */

static bool is_state(const json_t *block, const char *state) {
    const char *word = json_string_value(json_object_get(block, "state"));
    return word && !strcmp(word, state);
}

static bool is_pending(const json_t *block) {
    return is_state(block, "pending") || is_state(block, "held");
}

typedef struct {
    const json_t *document;
    frames_t frames;
    json_t *segments, *traces;
    json_t *segment, *blocks; /* the one in the making */
    int64_t allocated, active, requested;
} making_t;

static void end_segment(making_t *m, int64_t end) {
    if (!m->segment)
        return;
    json_object_set_new(m->segment, "total_size",
                        json_integer(cmd_sum(end, cmd_integer(m->segment, "address"), -1)));
    json_object_set_new(m->segment, "allocated_size", json_integer(m->allocated));
    json_object_set_new(m->segment, "active_size", json_integer(m->active));
    json_object_set_new(m->segment, "requested_size", json_integer(m->requested));
    json_object_set_new(m->segment, "blocks", m->blocks);
    json_array_append_new(m->segments, m->segment);
    m->segment = NULL;
}

static void begin_segment(making_t *m, const json_t *from, int64_t address) {
    const char *pool = json_string_value(json_object_get(from, "pool"));
    m->segment = json_pack(
        "{s:I, s:I, s:i, s:s, s:[i, i], s:b, s:[]}", "device",
        (json_int_t)cmd_integer(from, "device"), "address", (json_int_t)address, "stream", 0,
        "segment_type", pool && !strcmp(pool, "small") ? "small" : "large", "segment_pool_id", 0,
        0, "is_expandable", json_is_true(json_object_get(from, "expandable")), "frames");
    m->blocks = json_array();
    m->allocated = m->active = m->requested = 0;
}

static void add_block(making_t *m, const json_t *from) {
    bool held = is_state(from, "allocated"), pending = is_pending(from);
    int64_t size = cmd_integer(from, "size"), asked = cmd_integer(from, "requested");
    json_array_append_new(
        m->blocks,
        json_pack("{s:I, s:I, s:I, s:s, s:o}", "address", (json_int_t)cmd_integer(from, "address"),
                  "size", (json_int_t)size, "requested_size",
                  (json_int_t)(held || pending ? asked : 0), "state",
                  held      ? "active_allocated"
                  : pending ? "active_pending_free"
                            : "inactive",
                  "frames", frames_of(&m->frames, m->document, cmd_integer(from, "stack"))));
    m->allocated = cmd_sum(m->allocated, size, held);
    m->active = cmd_sum(m->active, size, held || pending);
    m->requested = cmd_sum(m->requested, asked, held || pending);
}

/* A gap in an expandable segment, without memory, ends it: another one begins behind the gap. */
static void add_segment(making_t *m, const json_t *from) {
    int64_t end = cmd_integer(from, "address");
    size_t index;
    const json_t *block;
    json_array_foreach(json_object_get(from, "blocks"), index, block) {
        int64_t address = cmd_integer(block, "address");
        if (!m->segment || address != end) {
            end_segment(m, end);
            begin_segment(m, from, address);
        }
        add_block(m, block);
        end = cmd_sum(address, cmd_integer(block, "size"), 1);
    }
    end_segment(m, end);
}

/* ------------------------------------------------------------------ events */

/* Parts of an event: places in the array that the library writes. */
enum { WORD, TIME, ADDRESS, BYTES, STREAM, STACK, THREAD };

static int64_t part(const json_t *event, int which) {
    return json_integer_value(json_array_get(event, (size_t)which));
}

static bool is(const json_t *event, const char *word) {
    const char *is = json_string_value(json_array_get(event, WORD));
    return is && !strcmp(is, word);
}

/* A free that the driver or the library may refuse. */
static bool is_free(const json_t *event) {
    return is(event, "free") || is(event, "pinned_free") || is(event, "passed_free");
}

/* Allocations, frees and their ends by address, in their order. */
typedef struct {
    int64_t address;
    size_t at;
} use_t;

static int by_use(const void *a, const void *b) {
    const use_t *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

typedef enum { PLAIN, LEFT_OUT, COMPLETE, WAITS } fate_t;

/* Returns true if freed memory at the address still waited when the blocks were written. */
static bool waited(const json_t *document, int64_t address) {
    size_t i, k;
    const json_t *segment, *block;
    json_array_foreach(json_object_get(document, "layout"), i, segment) {
        if (address < cmd_integer(segment, "address") ||
            cmd_sum(address, cmd_integer(segment, "address"), -1) >= cmd_integer(segment, "size"))
            continue;
        json_array_foreach(json_object_get(segment, "blocks"), k, block) {
            if (cmd_integer(block, "address") == address)
                return is_pending(block);
        }
    }
    return false;
}

/* Decides the fate of each event: of a free, whether it is complete at once. */
static fate_t *fates(const json_t *document, const json_t *events, size_t count) {
    fate_t *fate = cmd_alloc((count + 1) * sizeof *fate);
    use_t *use = cmd_alloc((count + 1) * sizeof *use);
    size_t uses = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *event = json_array_get(events, i);
        fate[i] = PLAIN;
        if (is(event, "alloc") || is(event, "ready") || is(event, "refused") || is_free(event))
            use[uses++] = (use_t){part(event, ADDRESS), i};
    }
    if (uses)
        qsort(use, uses, sizeof *use, by_use);
    for (size_t i = 0; i < uses; i++) {
        const json_t *event = json_array_get(events, use[i].at);
        bool more = i + 1 < uses && use[i + 1].address == use[i].address;
        const json_t *next = more ? json_array_get(events, use[i + 1].at) : NULL;
        if (is(event, "refused"))
            fate[use[i].at] = LEFT_OUT;
        if (is(event, "ready") && fate[use[i].at] != WAITS)
            fate[use[i].at] = LEFT_OUT; /* of a free that is not here */
        if (!is_free(event))
            continue;
        if (next && is(next, "refused")) {
            fate[use[i].at] = LEFT_OUT;
        } else if (!is(event, "free")) {
            continue;
        } else if (next && is(next, "ready")) {
            fate[use[i + 1].at] = WAITS;
        } else if (next || !waited(document, use[i].address)) {
            fate[use[i].at] = COMPLETE;
        }
    }
    free(use);
    return fate;
}

static void add_entry(making_t *m, json_t *trace, const json_t *event, const char *action) {
    bool oom = is(event, "oom");
    json_array_append_new(
        trace,
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "action", action,
                  oom ? "device_free" : "addr", (json_int_t)part(event, ADDRESS), "size",
                  (json_int_t)part(event, BYTES), "stream", (json_int_t)part(event, STREAM),
                  "time_us", (json_int_t)(part(event, TIME) / 1000), "time_ns",
                  (json_int_t)part(event, TIME), "frames",
                  frames_of(&m->frames, m->document, part(event, STACK))));
}

/* Counts the events up to the last snapshot. */
static size_t count_events(const json_t *events) {
    size_t count = json_array_size(events), last = count;
    while (last && !is(json_array_get(events, last - 1), "snapshot"))
        last--;
    return last ? last : count;
}

static void add_device(making_t *m, const json_t *device) {
    const json_t *events = json_object_get(device, "event");
    size_t count = count_events(events);
    int64_t ordinal = cmd_integer(device, "device");
    fate_t *fate = fates(m->document, events, count);
    while (ordinal >= 0 && ordinal < CMD_DEVICES &&
           json_array_size(m->traces) <= (size_t)ordinal)
        json_array_append_new(m->traces, json_array());
    json_t *trace = json_array_get(m->traces, (size_t)ordinal);
    for (size_t i = 0; trace && i < count; i++) {
        const json_t *event = json_array_get(events, i);
        const char *word = json_string_value(json_array_get(event, WORD));
        if (fate[i] == LEFT_OUT || !word || is(event, "begin"))
            continue;
        if (is(event, "free"))
            add_entry(m, trace, event, "free_requested");
        if (fate[i] == COMPLETE || is(event, "ready"))
            add_entry(m, trace, event, "free_completed");
        else if (!is(event, "free"))
            add_entry(m, trace, event, word);
    }
    free(fate);
}

/* ------------------------------------------------------------------ the whole */

bool cmd_history_recorded(const json_t *document) {
    return json_object_get(document, json_object_get(document, "history") ? "recorded" : "layout");
}

json_t *cmd_history_as_snapshot(const json_t *document) {
    making_t m = {.document = document, .segments = json_array(), .traces = json_array()};
    size_t index;
    const json_t *from;
    m.frames.count =
        json_array_size(json_object_get(json_object_get(document, "recorded"), "stack"));
    m.frames.list = cmd_alloc((m.frames.count + 1) * sizeof *m.frames.list);
    memset(m.frames.list, 0, (m.frames.count + 1) * sizeof *m.frames.list);
    json_array_foreach(json_object_get(document, "layout"), index, from) add_segment(&m, from);
    json_array_foreach(json_object_get(document, "history"), index, from) add_device(&m, from);
    for (size_t i = 0; i < m.frames.count; i++)
        json_decref(m.frames.list[i]);
    free(m.frames.list);
    return json_pack("{s:o, s:o}", "segments", m.segments, "device_traces", m.traces);
}
