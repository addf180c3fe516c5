/* Search in the recorded events (recorded_of.h). */
#include "tell/recorded_of.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "device/cuda_device.h"
#include "observe/history.h"
#include "observe/holding.h"
#include "observe/json.h"
#include "observe/live.h"
#include "observe/raw.h"
#include "observe/sites.h"

static void take_event(const ac_event_t *event, ac_recorded_t *recorded) {
    *recorded = (ac_recorded_t){.time_ns = event->time_ns,
                                .address = event->address,
                                .bytes = event->bytes,
                                .stream = event->stream,
                                .stack = event->stack,
                                .thread = event->thread};
}

static bool is_free(const ac_event_t *event) {
    return event->kind == AC_EVENT_FREE || event->kind == AC_EVENT_PASSED_FREE ||
           event->kind == AC_EVENT_PINNED_FREE;
}

/* Finds the newest event of the kind for a block that contains the address; with `skip` the one
 * before it. A refused free does not count. */
static bool find_event(ac_event_kind_t kind, uint64_t address, bool skip, ac_recorded_t *found) {
    ac_arena_t *arena = ac_block_arena(address);
    const ac_cuda_context_t *context = arena ? ac_arena_context(arena) : NULL;
    uint64_t dropped, room = ac_history_room();
    if (!context || !ac_history_is_on()) /* off: its events may belong to former blocks */
        return false;
    const ac_history_t *history = ac_history_of((unsigned)context->device);
    uint64_t count = ac_history_count(history, &dropped);
    uint32_t refused = 0; /* thread of a refused free: the free itself comes next */
    for (uint64_t i = 1; i <= count && i <= room; i++) {
        ac_event_t event;
        bool there = ac_history_get(history, count - i, &event);
        if (there && event.kind == AC_EVENT_BEGIN)
            return false;
        if (!there || address < event.address ||
            (address != event.address && address - event.address >= event.bytes))
            continue;
        if (event.kind == AC_EVENT_REFUSED && event.address == address)
            refused = event.thread;
        if (refused && refused == event.thread && event.address == address && is_free(&event)) {
            refused = 0;
        } else if (event.kind == kind && skip) {
            skip = false;
        } else if (event.kind == kind) {
            take_event(&event, found);
            return true;
        }
    }
    return false;
}

bool ac_recorded_alloc(uint64_t address, ac_recorded_t *alloc) {
    ac_holding_t holding;
    struct timespec deadline = ac_raw_time(CLOCK_REALTIME);
    deadline.tv_sec++;
    if (!ac_holding_get(address, &deadline, &holding))
        return find_event(AC_EVENT_ALLOC, address, false, alloc);
    *alloc = (ac_recorded_t){.time_ns = holding.time_ns,
                             .address = holding.address,
                             .bytes = holding.bytes,
                             .stream = holding.stream,
                             .stack = holding.stack,
                             .thread = holding.thread};
    return true;
}

bool ac_recorded_free(uint64_t address, bool skip_latest, ac_recorded_t *freed) {
    return find_event(AC_EVENT_FREE, address, skip_latest, freed);
}

/* ------------------------------------------------------------------ for another process */

/* [file, offset], [file, offset, null, build ID] or [function, file, line]. */
static json_t *frame_json(uint64_t frame, const char *exe, bool *failed) {
    json_t *json = json_array();
    if (frame & AC_FRAME_TEXT) {
        const char *text = ac_site_text_of((uint32_t)((frame & ~AC_FRAME_TEXT) >> 32));
        const char *end = text ? strchr(text, '\n') : NULL;
        ac_json_append(json, end ? ac_json_text(text, (size_t)(end - text)) : json_null(),
                       failed);
        ac_json_append(json, end ? ac_json_text(end + 1, strlen(end + 1)) : json_null(), failed);
        ac_json_append(json, json_integer((json_int_t)(frame & UINT32_MAX)), failed);
        return json;
    }
    const char *path = ac_site_file_path(ac_frame_file(frame));
    path = path && !*path ? exe : path;
    ac_json_append(json, path ? ac_json_text(path, strlen(path)) : json_null(), failed);
    ac_json_append(json, json_integer((json_int_t)ac_frame_offset(frame)), failed);
    const char *id = ac_site_file_id(ac_frame_file(frame));
    if (*id) {
        ac_json_append(json, json_null(), failed); /* tells it from a frame of three entries */
        ac_json_append(json, ac_json_text(id, strlen(id)), failed);
    }
    return json;
}

static void put(json_t *root, const char *key, const ac_recorded_t *recorded, unsigned frames,
                bool *failed) {
    char exe[AC_LIVE_EXE];
    ac_site_t site = {NULL, 0, 0, 0};
    json_t *json = ac_json_put_object(root, key, failed), *list = json_array();
    ac_live_exe(ac_live, exe);
    ac_json_put_integer(json, "address", (int64_t)recorded->address, failed);
    ac_json_put_integer(json, "bytes", (int64_t)recorded->bytes, failed);
    ac_json_put_integer(json, "time_ns", recorded->time_ns, failed);
    ac_json_put_integer(json, "stream", (int64_t)recorded->stream, failed);
    ac_json_put_integer(json, "thread", recorded->thread, failed);
    ac_json_put(json, "frames", list, failed);
    ac_site_get(recorded->stack, &site);
    for (unsigned i = 0; i < site.count && i < frames && !*failed; i++)
        ac_json_append(list, frame_json(site.frame[i], exe, failed), failed);
}

int ac_recorded_tell(uint64_t address, char *text, size_t size) {
    ac_recorded_t alloc, freed;
    ac_block_info_t block;
    int error = ENOBUFS;
    if (!ac_json_ready())
        return ENOTSUP;
    bool held = ac_block_find(address, &block) == AC_OK && block.allocated;
    bool has_free = !held && ac_recorded_free(address, false, &freed);
    bool has_alloc = ac_recorded_alloc(held ? block.address : address, &alloc);
    for (unsigned frames = AC_SITE_FRAMES; error == ENOBUFS && frames; frames /= 2) {
        bool failed = false;
        size_t length = 0;
        json_t *root = json_object();
        ac_json_put_integer(root, "time_ns", ac_raw_ns(CLOCK_REALTIME), &failed);
        if (has_alloc)
            put(root, "alloc", &alloc, frames, &failed);
        if (has_free)
            put(root, "free", &freed, frames, &failed);
        char *whole = failed ? NULL : ac_json_dump(root, &length);
        ac_json_free(root);
        error = !whole ? ENOMEM : length < size ? 0 : ENOBUFS;
        if (!error)
            memcpy(text, whole, length + 1);
        free(whole);
    }
    return error;
}
