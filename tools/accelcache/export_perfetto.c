/* Chrome's JSON trace format, which Perfetto reads: a counter track for each device and figure, and
 * instants for what the driver was asked for, waits and failures.  Times are in microseconds; where
 * the trace has none, an operation is one. */
#include "command.h"
#include "export.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdlib.h>

static void put_time(FILE *out, const cmd_history_t *history, int64_t ns) {
    if (history->timed)
        fprintf(out, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
    else
        fprintf(out, "%" PRId64, ns);
}

static void put_counter(FILE *out, const cmd_history_t *history, int64_t time, int device,
                        const char *figure, const char *unit, int64_t value) {
    fprintf(out, ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"device %d %s\",\"ts\":", history->pid,
            device, figure);
    put_time(out, history, time);
    fprintf(out, ",\"args\":{\"%s\":%" PRId64 "}}", unit, value);
}

static void put_instant(FILE *out, const cmd_history_t *history, const cmd_event_t *event,
                        const char *name) {
    fprintf(out, ",\n{\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%u,\"name\":\"%s\",\"ts\":",
            history->pid, event->thread, name);
    put_time(out, history, event->time_ns);
    fprintf(out, ",\"args\":{\"device\":%d,\"bytes\":%" PRIu64 "}}", event->device, event->bytes);
}

static void put_holding(FILE *out, const cmd_history_t *history, const cmd_event_t *event,
                        const cmd_holding_t *holding) {
    switch ((cmd_event_kind_t)event->kind) {
    case CMD_EVENT_ALLOC:
    case CMD_EVENT_FREE:
        put_counter(out, history, event->time_ns, event->device, "allocated", "bytes",
                    holding->allocated);
        put_counter(out, history, event->time_ns, event->device, "blocks", "blocks",
                    holding->blocks);
        break;
    case CMD_EVENT_SEGMENT:
    case CMD_EVENT_SEGMENT_GONE:
        put_counter(out, history, event->time_ns, event->device, "reserved", "bytes",
                    holding->reserved);
        break;
    case CMD_EVENT_FAILED:
    case CMD_EVENT_WAIT:
        break;
    }
}

bool cmd_export_perfetto(const cmd_history_t *history, FILE *out, char **error) {
    static const char *const instants[] = {[CMD_EVENT_FAILED] = "request failed",
                                           [CMD_EVENT_WAIT] = "wait for the device",
                                           [CMD_EVENT_SEGMENT] = "memory from the driver",
                                           [CMD_EVENT_SEGMENT_GONE] = "memory to the driver"};
    cmd_holding_t holding[CMD_HISTORY_DEVICES];
    char *name = json_dumps(cmd_json_text(history->command ? history->command : history->format),
                            JSON_ENCODE_ANY);
    (void)error;
    fprintf(out,
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%d,"
            "\"name\":\"process_name\",\"args\":{\"name\":%s}}",
            history->pid, name ? name : "\"\"");
    free(name);
    for (unsigned device = 0; device < history->devices; device++) {
        holding[device] = cmd_history_before(history, (int)device);
        put_counter(out, history, 0, (int)device, "allocated", "bytes",
                    holding[device].allocated);
        put_counter(out, history, 0, (int)device, "blocks", "blocks", holding[device].blocks);
        if (history->source == CMD_SOURCE_SNAPSHOT)
            put_counter(out, history, 0, (int)device, "reserved", "bytes",
                        holding[device].reserved);
    }
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        cmd_bar_step("events", i, history->events);
        if (event->device >= 0) {
            cmd_holding_add(&holding[event->device], event);
            put_holding(out, history, event, &holding[event->device]);
        }
        if (instants[event->kind])
            put_instant(out, history, event, instants[event->kind]);
    }
    fputs("\n]}\n", out);
    return true;
}
