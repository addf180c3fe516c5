/* Recorded traces for history.h. */
#include "command.h"
#include "read/history.h"
#include "base/terminal.h"
#include "read/trace_read.h"

#include <stdlib.h>
#include <string.h>

/* A damaged file may have any time: sums of two have to fit. */
static int64_t between(int64_t ns) {
    const int64_t most = INT64_MAX / 4;
    return ns < 0 ? 0 : ns < most ? ns : most;
}

static void take_header(cmd_history_t *history, const ac_trace_header_t *header) {
    history->start_ns = between(header->start_time_ns);
    history->pid = header->pid;
    history->host = cmd_format("%.*s", (int)sizeof header->host, header->host);
    history->command = cmd_trace_command(header);
    for (unsigned i = 0; i < AC_TRACE_DEVICES && i < CMD_DEVICES; i++) {
        const ac_trace_device_t *device = &header->device[i];
        if (device->used && device->ordinal >= 0 && device->ordinal < CMD_DEVICES) {
            history->total_memory[device->ordinal] = device->total_memory;
            if (history->devices <= (unsigned)device->ordinal)
                history->devices = (unsigned)device->ordinal + 1;
        }
    }
    if (header->state == AC_TRACE_STOPPED)
        history->note = cmd_format("recording ended early (%s): what came later is missing",
                                   strerror(header->stop_error));
    else if (header->state != AC_TRACE_COMPLETE)
        history->note = cmd_format("the process still ran or was killed: the trace ends there");
}

static uint8_t kind_of(cmd_trace_kind_t kind) {
    switch (kind) {
    case CMD_TRACE_ALLOC:
        return CMD_EVENT_ALLOC;
    case CMD_TRACE_FREE:
        return CMD_EVENT_FREE;
    case CMD_TRACE_FAILED:
        return CMD_EVENT_FAILED;
    default:
        return CMD_EVENT_WAIT;
    }
}

/* Frames of stacks, by number, which live as long as the history. */
static const json_t *frames_of(cmd_history_t *history, const cmd_trace_t *trace, uint32_t stack) {
    char key[16];
    cmd_frame_t *frame;
    size_t count;
    if (!history->document)
        history->document = json_object();
    snprintf(key, sizeof key, "%u", stack);
    const json_t *known = json_object_get(history->document, key);
    if (known || !cmd_trace_stack(trace, stack, &frame, &count))
        return known;
    json_object_set_new(history->document, key, cmd_frames_json(frame, count));
    free(frame);
    return json_object_get(history->document, key);
}

bool cmd_history_trace(cmd_history_t *history, const char *path, char **error) {
    cmd_trace_t *trace = cmd_trace_open(path, error);
    if (!trace)
        return false;
    take_header(history, cmd_trace_header(trace));
    history->source = CMD_SOURCE_TRACE;
    history->format = "trace";
    history->timed = history->addressed = true;
    uint32_t *request = NULL; /* by id: the event of the request */
    size_t room = 0, ids = 0;
    cmd_trace_event_t from;
    while (history->events < CMD_NO_PARTNER - 1 && cmd_trace_next(trace, &from)) {
        uint32_t at = (uint32_t)history->events;
        cmd_bar_step("events read", history->events, 0);
        cmd_event_t event = {.time_ns = between(from.time_ns),
                             .address = from.address,
                             .bytes = from.bytes,
                             .stream = from.stream,
                             .partner = CMD_NO_PARTNER,
                             .thread = (uint32_t)from.thread,
                             .device =
                                 (int16_t)(from.device < CMD_DEVICES ? from.device : -1),
                             .kind = kind_of(from.kind),
                             .implied = from.implied};
        if (from.kind == CMD_TRACE_ALLOC) {
            if (from.id >= ids) {
                ids = ids ? ids * 2 : 4096;
                request = cmd_resize(request, ids * sizeof *request);
            }
            request[from.id] = at;
        } else if (from.kind == CMD_TRACE_FREE) {
            event.partner = request[from.id];
            history->event[event.partner].partner = at;
        }
        event.frames = from.stack ? frames_of(history, trace, from.stack) : NULL;
        cmd_history_add(history, &room, &event);
    }
    free(request);
    cmd_trace_counts_t counts = cmd_trace_counts(trace);
    cmd_trace_close(trace);
    if (counts.damaged_lanes)
        *error =
            cmd_format("the trace is damaged or was cut short: %llu of its rows of events end "
                       "early; copy it again, or see what is left with accelcache trace",
                       (unsigned long long)counts.damaged_lanes);
    return !counts.damaged_lanes;
}
