/* Snapshots in PyTorch's layout, as JSON, for history.h: `segments` with their `blocks`, and `device_traces`.
 * PyTorch keeps the newest events only: a free without its request has no partner. */
#include "command.h"
#include "read/history.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((json_int_t)1 << 47) /* as many addresses as there are */

typedef struct {
    cmd_history_t *history;
    size_t room;
    int64_t first_ns;
    char *wrong;
} reading_t;

/* Addresses may be negative, if the writer had only signed numbers. */
static bool get_address(const json_t *object, const char *key, uint64_t *value) {
    const json_t *number = json_object_get(object, key);
    *value = (uint64_t)json_integer_value(number);
    return json_is_integer(number);
}

/* False: it is there, and no number of bytes. */
static bool get_bytes(const json_t *object, const char *key, uint64_t *value) {
    const json_t *number = json_object_get(object, key);
    json_int_t bytes = json_integer_value(number);
    *value = bytes > 0 ? (uint64_t)bytes : 0;
    return !number || (json_is_integer(number) && bytes >= 0 && bytes <= MOST_BYTES);
}

/* ------------------------------------------------------------------ events */

static const struct {
    const char *action;
    cmd_event_kind_t kind;
} actions[] = {
    /* A free counts at its request; when it took effect is the allocator's business. */
    {"alloc", CMD_EVENT_ALLOC},
    {"free_requested", CMD_EVENT_FREE},
    {"free", CMD_EVENT_FREE},
    {"segment_alloc", CMD_EVENT_SEGMENT},
    {"segment_map", CMD_EVENT_SEGMENT},
    {"segment_free", CMD_EVENT_SEGMENT_GONE},
    {"segment_unmap", CMD_EVENT_SEGMENT_GONE},
    {"oom", CMD_EVENT_FAILED},
    {"pinned_alloc", CMD_EVENT_PINNED},
    {"pinned_free", CMD_EVENT_PINNED_GONE},
    {"passed_alloc", CMD_EVENT_PASSED},
    {"passed_free", CMD_EVENT_PASSED_GONE},
    {"physical", CMD_EVENT_PHYSICAL},
    {"physical_free", CMD_EVENT_PHYSICAL_GONE},
    {"array", CMD_EVENT_ARRAY},
    {"array_free", CMD_EVENT_ARRAY_GONE},
};

/* Nanoseconds; 0: not known. Our own snapshots have time_ns in addition to PyTorch's time_us. */
static json_int_t time_of(const json_t *event) {
    json_int_t us = cmd_integer(event, "time_us");
    json_int_t ns = cmd_integer(event, "time_ns");
    if (ns > 0)
        return ns;
    return us > 0 && us < INT64_MAX / 1000 ? us * 1000 : 0;
}

static bool take_event(reading_t *r, const json_t *from, unsigned device) {
    const char *action = json_string_value(json_object_get(from, "action"));
    cmd_event_t event = {.partner = CMD_NO_PARTNER, .device = (int16_t)device};
    size_t i = 0, kinds = sizeof actions / sizeof *actions;
    if (!action)
        return false;
    while (i < kinds && strcmp(action, actions[i].action) != 0)
        i++;
    if (i == kinds)
        return true; /* free_completed, snapshot, and what is newer */
    event.kind = (uint8_t)actions[i].kind;
    get_address(from, "addr", &event.address);
    get_address(from, "stream", &event.stream);
    event.frames = json_object_get(from, "frames");
    json_int_t ns = time_of(from);
    event.time_ns = ns > r->first_ns ? ns - r->first_ns : 0;
    if (!get_bytes(from, "size", &event.bytes))
        return false;
    cmd_history_add(r->history, &r->room, &event);
    return true;
}

/* A device's ring may begin earlier than that of one before it. */
static void find_first(reading_t *r, const json_t *traces) {
    size_t device, index;
    const json_t *trace, *event;
    json_array_foreach((json_t *)(uintptr_t)traces, device, trace) {
        json_array_foreach((json_t *)(uintptr_t)trace, index, event) {
            json_int_t ns = time_of(event);
            if (ns && (!r->first_ns || ns < r->first_ns))
                r->first_ns = ns;
        }
    }
}

static bool take_traces(reading_t *r, const json_t *traces) {
    size_t device, index;
    const json_t *trace, *event;
    json_array_foreach((json_t *)(uintptr_t)traces, device, trace) {
        json_array_foreach((json_t *)(uintptr_t)trace, index, event) {
            if (device >= CMD_DEVICES || !take_event(r, event, (unsigned)device)) {
                r->wrong = cmd_format("device_traces[%zu][%zu]: no action or size that is known",
                                      device, index);
                return false;
            }
        }
    }
    return true;
}

/* Devices come one after the other in the file: one row by time, the order of each kept. */
typedef struct {
    cmd_event_t event;
    size_t place;
} placed_t;

static int by_time(const void *a, const void *b) {
    const placed_t *x = a, *y = b;
    if (x->event.time_ns != y->event.time_ns)
        return x->event.time_ns < y->event.time_ns ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static void sort_events(cmd_history_t *history) {
    placed_t *placed = cmd_alloc((history->events + 1) * sizeof *placed);
    int64_t latest[CMD_DEVICES] = {0};
    for (size_t i = 0; i < history->events; i++) {
        cmd_event_t *event = &history->event[i];
        int64_t *last = &latest[event->device];
        if (event->time_ns < *last)
            event->time_ns = *last;
        *last = event->time_ns;
        placed[i] = (placed_t){*event, i};
    }
    qsort(placed, history->events, sizeof *placed, by_time);
    for (size_t i = 0; i < history->events; i++)
        history->event[i] = placed[i].event;
    free(placed);
}

/* Finds the request of each free: by address, requests and frees of one address in turn. */
typedef struct {
    uint64_t address;
    uint32_t at;
    int16_t device;
    uint8_t group; /* kinds of one group share a space of addresses */
} use_t;

static int by_use(const void *a, const void *b) {
    const use_t *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

static bool ends(const cmd_event_t *event) {
    return event->kind == CMD_EVENT_FREE || event->kind == CMD_EVENT_PINNED_GONE ||
           event->kind == CMD_EVENT_PASSED_GONE || event->kind == CMD_EVENT_PHYSICAL_GONE ||
           event->kind == CMD_EVENT_ARRAY_GONE;
}

/* cuMemFree takes pinned memory, too: such a free ends the pinned memory. */
static void match(cmd_history_t *history) {
    enum { NONE, CACHED, BESIDE, MEMORY, ARRAYS };
    static const uint8_t groups[CMD_EVENT_KINDS] = {
        [CMD_EVENT_ALLOC] = CACHED,           [CMD_EVENT_FREE] = CACHED,
        [CMD_EVENT_PINNED] = BESIDE,          [CMD_EVENT_PINNED_GONE] = BESIDE,
        [CMD_EVENT_PASSED] = BESIDE,          [CMD_EVENT_PASSED_GONE] = BESIDE,
        [CMD_EVENT_PHYSICAL] = MEMORY,        [CMD_EVENT_PHYSICAL_GONE] = MEMORY,
        [CMD_EVENT_ARRAY] = ARRAYS,           [CMD_EVENT_ARRAY_GONE] = ARRAYS};
    use_t *use = cmd_alloc((history->events + 1) * sizeof *use);
    size_t count = 0;
    for (size_t i = 0; i < history->events; i++) {
        cmd_event_t *event = &history->event[i];
        if (groups[event->kind])
            use[count++] =
                (use_t){event->address, (uint32_t)i, event->device, groups[event->kind]};
        if (ends(event) && groups[event->kind] != CACHED)
            event->bytes = 0; /* nothing is taken off for what did not begin here */
    }
    qsort(use, count, sizeof *use, by_use);
    for (size_t i = 1; i < count; i++) {
        cmd_event_t *before = &history->event[use[i - 1].at], *event = &history->event[use[i].at];
        if (use[i].device != use[i - 1].device || use[i].address != use[i - 1].address ||
            use[i].group != use[i - 1].group || ends(before) || !ends(event))
            continue;
        before->partner = use[i].at;
        event->partner = use[i - 1].at;
        event->kind = (uint8_t)(before->kind + 1);
        event->bytes = before->bytes;
    }
    free(use);
}

bool cmd_history_snapshot(cmd_history_t *history, char **error) {
    reading_t r = {.history = history};
    cmd_segments_t *now = &history->now;
    const json_t *segments = json_object_get(history->document, "segments");
    const json_t *traces = json_object_get(history->document, "device_traces");
    find_first(&r, traces);
    if ((segments && !json_is_array(segments)) || (traces && !json_is_array(traces)))
        r.wrong = cmd_format("segments or device_traces is no list");
    else if (cmd_segments_of_snapshot(now, segments, &r.wrong))
        (void)take_traces(&r, traces);
    for (size_t i = 0; i < now->segments; i++)
        if ((unsigned)now->segment[i].device >= history->devices)
            history->devices = (unsigned)now->segment[i].device + 1;
    if (r.wrong) {
        *error = cmd_format("no snapshot in PyTorch's layout: %s; was it changed after it was "
                            "written?",
                            r.wrong);
        free(r.wrong);
        return false;
    }
    history->start_ns = r.first_ns;
    history->timed = history->addressed = true;
    if (history->events < CMD_NO_PARTNER) {
        sort_events(history);
        match(history);
    }
    return true;
}
