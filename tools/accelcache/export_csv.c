/* Comma-separated values behind a line of names.  No value has a comma in it. */
#include "command.h"
#include "document.h"
#include "export.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ a dump */

static void put_figure(FILE *out, int64_t device, const char *name, const char *pool,
                       const char *field, const char *unit, int64_t value) {
    if (device >= 0)
        fprintf(out, "%" PRId64, device);
    fprintf(out, ",%s,%s,%s,%s,%" PRId64 "\n", name, pool, field, unit, value);
}

/* `ordinal` -1: pinned memory, whose statistics have no pools. */
static void put_stat(FILE *out, int64_t ordinal, const json_t *holder, const char *name,
                     const char *pool, const char *unit) {
    static const char *const fields[] = {"current", "peak", "allocated", "freed"};
    for (int i = 0; i < 4; i++)
        put_figure(out, ordinal, name, pool ? pool : "", fields[i], unit,
                   cmd_document_stat(holder, name, ordinal < 0 ? NULL : pool, fields[i]));
}

static void put_device(FILE *out, const json_t *device) {
    int64_t ordinal = json_integer_value(json_object_get(device, "ordinal"));
    put_figure(out, ordinal, "total_memory", "", "", "bytes",
               json_integer_value(json_object_get(device, "total_memory")));
#define STAT_COUNT(name, doc)                                                                    \
    put_figure(out, ordinal, #name, "", "", "", cmd_document_stat(device, #name, NULL, NULL));
#define STAT_POOLS(name, unit, doc)                                                              \
    put_stat(out, ordinal, device, #name, "all", #unit);                                         \
    put_stat(out, ordinal, device, #name, "small_pool", #unit);                                  \
    put_stat(out, ordinal, device, #name, "large_pool", #unit);
#define STAT_SINGLE(name, unit, doc) put_stat(out, ordinal, device, #name, NULL, #unit);
#include "observe/stats.def"
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    put_figure(out, ordinal, #name, "", "", #unit, cmd_document_counter(device, #name));
#include "observe/counters.def"
}

static void put_dump(FILE *out, const json_t *document) {
    const json_t *devices = json_object_get(document, "devices");
    const json_t *pinned = json_object_get(document, "pinned");
    fputs("device,name,pool,field,unit,value\n", out);
    for (size_t i = 0; i < json_array_size(devices); i++)
        put_device(out, json_array_get(devices, i));
#define HOST_STAT(name, unit, doc) put_stat(out, -1, pinned, #name, "pinned", #unit);
#define HOST_COUNT(name, doc)                                                                    \
    put_figure(out, -1, #name, "pinned", "", "", cmd_document_stat(pinned, #name, NULL, NULL));
#include "observe/host_stats.def"
#define PROCESS_COUNTER(name, unit, doc)                                                         \
    put_figure(out, -1, #name, "", "", #unit, cmd_document_counter(document, #name));
#include "observe/counters.def"
}

/* ------------------------------------------------------------------ a trace, a snapshot */

static void put_trace(FILE *out, const cmd_history_t *history) {
    static const char *const names[] = {
        [CMD_EVENT_ALLOC] = "alloc",     [CMD_EVENT_FREE] = "free",
        [CMD_EVENT_FAILED] = "failed",   [CMD_EVENT_WAIT] = "wait",
        [CMD_EVENT_SEGMENT] = "segment", [CMD_EVENT_SEGMENT_GONE] = "segment_gone"}; /* all of a trace */
    fprintf(out, "%s,event,device,thread,stream,address,bytes,allocated\n",
            history->timed ? "time_ns" : "operation");
    cmd_holding_t holding[CMD_HISTORY_DEVICES] = {{0}};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        cmd_bar_step("events", i, history->events);
        fprintf(out, "%" PRId64 ",%s,", event->time_ns, names[event->kind]);
        if (event->device >= 0)
            fprintf(out, "%d", event->device);
        fprintf(out, ",%u,%" PRIu64 ",", event->thread, event->stream);
        if (event->address)
            fprintf(out, "0x%" PRIx64, event->address);
        fprintf(out, ",%" PRIu64 ",", event->bytes);
        if (event->device >= 0) {
            cmd_holding_add(&holding[event->device], event);
            fprintf(out, "%" PRId64, holding[event->device].allocated);
        }
        putc('\n', out);
    }
}

static void put_snapshot(FILE *out, const cmd_segments_t *now) {
    fputs("device,segment,segment_bytes,segment_type,stream,address,bytes,requested,state\n",
          out);
    for (size_t i = 0; i < now->segments; i++) {
        const cmd_segment_t *segment = &now->segment[i];
        for (size_t k = 0; k < segment->blocks; k++) {
            const cmd_block_t *block = &now->block[segment->first + k];
            fprintf(out,
                    "%d,0x%" PRIx64 ",%" PRIu64 ",%s,%" PRIu64 ",0x%" PRIx64 ",%" PRIu64
                    ",%" PRIu64 ",%s\n",
                    segment->device, segment->address, segment->bytes,
                    segment->small ? "small" : "large", segment->stream, block->address,
                    block->bytes, block->requested,
                    block->allocated ? "allocated"
                    : block->pending ? "pending"
                                     : "free");
        }
    }
}

bool cmd_export_csv(const cmd_history_t *history, FILE *out, char **error) {
    (void)error;
    if (history->source == CMD_SOURCE_DUMP)
        put_dump(out, history->document);
    else if (history->source == CMD_SOURCE_SNAPSHOT)
        put_snapshot(out, &history->now);
    else
        put_trace(out, history);
    return true;
}
