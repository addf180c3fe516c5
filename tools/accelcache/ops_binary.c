/* Binary traces, as `trace:FILE` and `accelcache run --trace` write them (ops.h).
 *
 * Managed memory is left out: the library leaves it to the driver.  So are waits for a single
 * stream or event: which work they are behind is not in the trace. */
#include "command.h"
#include "ops.h"
#include "terminal.h"
#include "trace_read.h"

#define MOST_BYTES ((uint64_t)1 << 47)

static unsigned device_of(const cmd_trace_event_t *event) {
    return event->device < 0 || event->device >= CMD_OPS_DEVICES ? 0 : (unsigned)event->device;
}

static void take_event(cmd_reading_t *reading, const cmd_trace_event_t *event) {
    uint64_t stream = event->stream ? event->stream : CMD_PLAIN_STREAM;
    if (event->managed)
        return;
    switch (event->kind) {
    case CMD_TRACE_ALLOC:
        if (event->bytes && event->bytes <= MOST_BYTES)
            cmd_ops_add(reading, device_of(event), event->id, event->bytes, stream);
        break;
    case CMD_TRACE_FREE:
        cmd_ops_remove(reading, device_of(event), event->id, stream);
        break;
    case CMD_TRACE_SYNC:
        cmd_ops_sync(reading, device_of(event));
        break;
    default:
        break;
    }
}

bool cmd_ops_read_binary(cmd_reading_t *reading, const char *path, char **error) {
    cmd_trace_t *trace = cmd_trace_open(path, error);
    cmd_trace_event_t event;
    if (!trace)
        return false;
    for (size_t events = 0; cmd_trace_next(trace, &event); events++) {
        cmd_bar_step("events read", events, 0);
        take_event(reading, &event);
    }
    if (cmd_trace_counts(trace).damaged_lanes)
        reading->note = cmd_format("damaged or cut short: what could not be read is missing");
    else if (cmd_trace_header(trace)->state == AC_TRACE_OPEN)
        reading->note = cmd_format("its process was killed or still runs: read up to the last "
                                   "whole event");
    else if (cmd_trace_header(trace)->state == AC_TRACE_STOPPED)
        reading->note = cmd_format("recording stopped before its process ended: later operations "
                                   "are missing");
    cmd_trace_close(trace);
    return true;
}
