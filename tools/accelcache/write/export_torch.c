/* PyTorch's memory snapshot as a pickle, for its viewer and the functions of _memory_viz.py. A snapshot is
 * written as it was read.  A trace gives the blocks that live at its end, in ranges of addresses in place of
 * segments (history.h), and every request and free. */
#include "command.h"
#include "write/export.h"
#include "base/terminal.h"
#include "read/pickle.h"

#include <stdlib.h>
#include <string.h>

static void put_text(cmd_pickle_t *out, const char *key, const char *text) {
    cmd_pickle_text(out, key);
    cmd_pickle_text(out, text);
}

static void put_number(cmd_pickle_t *out, const char *key, uint64_t number) {
    cmd_pickle_text(out, key);
    cmd_pickle_integer(out, (int64_t)number);
}

static void put_frames(cmd_pickle_t *out, const json_t *frames) {
    cmd_pickle_text(out, "frames");
    if (frames) {
        cmd_pickle_json(out, frames);
        return;
    }
    cmd_pickle_list(out);
    cmd_pickle_list_close(out);
}

static void put_block(cmd_pickle_t *out, const cmd_block_t *block) {
    cmd_pickle_dictionary(out);
    put_number(out, "address", block->address);
    put_number(out, "size", block->bytes);
    put_number(out, "requested_size", block->requested);
    put_text(out, "state", cmd_block_is_held(block) ? "active_allocated" : "inactive");
    put_frames(out, block->frames);
    cmd_pickle_dictionary_close(out);
}

static void put_segment(cmd_pickle_t *out, const cmd_segments_t *list, const cmd_segment_t *segment) {
    uint64_t allocated = 0, requested = 0;
    for (size_t i = 0; i < segment->blocks; i++) {
        const cmd_block_t *block = &list->block[segment->first + i];
        allocated += cmd_block_is_held(block) ? block->bytes : 0;
        requested += block->requested;
    }
    cmd_pickle_dictionary(out);
    put_number(out, "device", (uint64_t)segment->device);
    put_number(out, "address", segment->address);
    put_number(out, "total_size", segment->bytes);
    put_number(out, "allocated_size", allocated);
    put_number(out, "active_size", allocated);
    put_number(out, "requested_size", requested);
    put_number(out, "stream", segment->stream);
    put_text(out, "segment_type", segment->small ? "small" : "large");
    cmd_pickle_text(out, "segment_pool_id");
    cmd_pickle_pair(out, 0, 0);
    cmd_pickle_text(out, "is_expandable");
    cmd_pickle_truth(out, segment->expandable);
    put_frames(out, NULL);
    cmd_pickle_text(out, "blocks");
    cmd_pickle_list(out);
    for (size_t i = 0; i < segment->blocks; i++) {
        put_block(out, &list->block[segment->first + i]);
        cmd_pickle_list_next(out, i + 1);
    }
    cmd_pickle_list_close(out);
    cmd_pickle_dictionary_close(out);
}

/* `place` is the key of an address, or for an "oom" of the bytes that the device has left. */
static void put_event(cmd_pickle_t *out, const cmd_history_t *history, const cmd_event_t *event,
                      const char *action, const char *place, uint64_t value) {
    cmd_pickle_dictionary(out);
    put_text(out, "action", action);
    put_number(out, place, value);
    put_number(out, "size", event->bytes);
    put_number(out, "stream", event->stream);
    put_number(out, "time_us", (uint64_t)((history->start_ns + event->time_ns) / 1000));
    put_frames(out, event->frames);
    cmd_pickle_dictionary_close(out);
}

static void put_device(cmd_pickle_t *out, const cmd_history_t *history, int device) {
    uint64_t live = 0, total = history->total_memory[device];
    size_t count = 0;
    cmd_pickle_list(out);
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        cmd_bar_step("events", i, history->events);
        if (event->device != device)
            continue;
        if (event->kind == CMD_EVENT_ALLOC) {
            live += event->bytes;
            put_event(out, history, event, "alloc", "addr", event->address);
        } else if (event->kind == CMD_EVENT_FREE) {
            live -= event->bytes;
            put_event(out, history, event, "free_requested", "addr", event->address);
            cmd_pickle_list_next(out, ++count);
            put_event(out, history, event, "free_completed", "addr", event->address);
        } else if (event->kind == CMD_EVENT_FAILED) {
            put_event(out, history, event, "oom", "device_free", total > live ? total - live : 0);
        } else {
            continue;
        }
        cmd_pickle_list_next(out, ++count);
    }
    cmd_pickle_list_close(out);
}

bool cmd_export_torch(const cmd_history_t *history, cmd_moment_t moment, FILE *out, char **error) {
    (void)moment;
    if (!history->addressed) {
        *error = cmd_format("it has no addresses, and the viewer draws them: record the program "
                            "with accelcache run --trace");
        return false;
    }
    cmd_pickle_t pickle;
    cmd_pickle_begin(&pickle, out);
    if (history->source == CMD_SOURCE_SNAPSHOT) {
        cmd_pickle_json(&pickle, history->document);
        cmd_pickle_end(&pickle);
        return true;
    }
    cmd_segments_t list = cmd_history_segments(history, history->events);
    cmd_pickle_dictionary(&pickle);
    cmd_pickle_text(&pickle, "segments");
    cmd_pickle_list(&pickle);
    for (size_t i = 0; i < list.segments; i++) {
        put_segment(&pickle, &list, &list.segment[i]);
        cmd_pickle_list_next(&pickle, i + 1);
    }
    cmd_pickle_list_close(&pickle);
    cmd_pickle_text(&pickle, "device_traces");
    cmd_pickle_list(&pickle);
    for (unsigned device = 0; device < history->devices; device++)
        put_device(&pickle, history, (int)device);
    cmd_pickle_list_close(&pickle);
    cmd_pickle_dictionary_close(&pickle);
    cmd_pickle_end(&pickle);
    cmd_segments_free(&list);
    return true;
}
