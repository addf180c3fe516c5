/* Binary traces, as `trace:FILE` and `accelcache run --trace` write them (ops.h).
 *
 * Managed memory is left out: the library leaves it to the driver.  Waits for a single stream or event are left
 * out, too: which work they are behind is not in the trace. */
#include "command.h"
#include "device/cuda_abi.h"
#include "read/ops.h"
#include "base/terminal.h"
#include "read/trace_read.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST_BYTES ((uint64_t)1 << 47)

static unsigned device_of(const cmd_trace_event_t *event) {
    return event->device < 0 || event->device >= CMD_OPS_DEVICES ? 0 : (unsigned)event->device;
}

/* Counts the requests that failed for lack of memory. */
typedef struct {
    uint64_t replayed, hopeless;
} failed_t;

static uint64_t total_of(const ac_trace_header_t *header, unsigned ordinal) {
    for (size_t i = 0; i < sizeof header->device / sizeof *header->device; i++)
        if (header->device[i].used && header->device[i].ordinal == (int32_t)ordinal)
            return header->device[i].total_memory;
    return 0;
}

static void take_failed(cmd_reading_t *reading, const cmd_trace_t *trace, const cmd_trace_event_t *event,
                        uint64_t stream, failed_t *failed) {
    unsigned ordinal = device_of(event);
    if (event->error != CUDA_ERROR_OUT_OF_MEMORY || !event->bytes)
        return;
    if (cmd_ops_failed(reading, ordinal, event->bytes, stream,
                       total_of(cmd_trace_header(trace), ordinal)))
        failed->replayed++;
    else
        failed->hopeless++;
}

static void take_event(cmd_reading_t *reading, const cmd_trace_t *trace, const cmd_trace_event_t *event,
                       failed_t *failed) {
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
    case CMD_TRACE_FAILED:
        take_failed(reading, trace, event, stream, failed);
        break;
    case CMD_TRACE_SYNC:
        cmd_ops_sync(reading, device_of(event));
        break;
    default:
        break;
    }
}

static const char *ended(const cmd_trace_t *trace) {
    if (cmd_trace_counts(trace).damaged_lanes)
        return "damaged or cut short: what could not be read is missing";
    if (cmd_trace_header(trace)->state == AC_TRACE_OPEN)
        return "its process was killed or still runs: read up to the last whole event";
    if (cmd_trace_header(trace)->state == AC_TRACE_STOPPED)
        return "recording stopped before its process ended: later operations are missing";
    return NULL;
}

static char *note_of(const cmd_trace_t *trace, const failed_t *failed) {
    const char *end = ended(trace);
    char *replayed = cmd_format("%" PRIu64 " requests failed for want of memory: they are replayed, and freed at once",
                                failed->replayed);
    char *hopeless = cmd_format("%" PRIu64 " requests failed and are left out: no allocator could have served them",
                                failed->hopeless);
    const char *part[] = {end, failed->replayed ? replayed : NULL, failed->hopeless ? hopeless : NULL};
    char *note = NULL;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        char *before = note;
        if (part[i])
            note = cmd_format("%s%s%s", before ? before : "", before ? "; " : "", part[i]);
        if (note != before)
            free(before);
    }
    free(replayed);
    free(hopeless);
    return note;
}

bool cmd_ops_read_binary(cmd_reading_t *reading, const char *path, char **error) {
    cmd_trace_t *trace = cmd_trace_open(path, error);
    cmd_trace_event_t event;
    failed_t failed = {0};
    if (!trace)
        return false;
    for (size_t events = 0; cmd_trace_next(trace, &event); events++) {
        cmd_bar_step("events read", events, 0);
        take_event(reading, trace, &event, &failed);
    }
    reading->note = note_of(trace, &failed);
    cmd_trace_close(trace);
    return true;
}
