/* See where_recorded.h. */
#include "show/where_recorded.h"
#include "read/naming.h"
#include "read/recorded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Frames of a process's answer as naming.h takes them. */
static json_t *frames_named(const json_t *frames) {
    json_t *list = json_array();
    size_t index;
    const json_t *from;
    json_array_foreach((json_t *)(uintptr_t)frames, index, from) {
        cmd_frame_t frame = cmd_recorded_frame(from);
        cmd_frame_append(list, &frame);
    }
    return list;
}

void cmd_where_rows(cmd_table_t *table, const char *title, const json_t *recorded,
                    int64_t now_ns) {
    char ago[CMD_FIGURE];
    const json_t *frames = json_object_get(recorded, "frames");
    int64_t time_ns = cmd_integer(recorded, "time_ns");
    int64_t stream = cmd_integer(recorded, "stream");
    if (!json_is_object(recorded))
        return;
    char *when = cmd_format("%s ago", cmd_text_ns(ago, now_ns > time_ns ? now_ns - time_ns : 0));
    char *on =
        stream ? cmd_format(", on stream 0x%" PRIx64, (uint64_t)stream) : cmd_format("%s", "");
    json_t *named = frames_named(frames), *telling = cmd_naming_stack(named);
    size_t count = json_array_size(telling);
    for (size_t i = 0; i < count || !i; i++) {
        char *frame = count ? cmd_naming_frame(json_array_get(telling, i)) : cmd_format("not recorded");
        char *text = i ? cmd_format("%s", frame)
                       : cmd_format("%s, by thread %" PRId64 "%s", frame,
                                    (int64_t)cmd_integer(recorded, "thread"), on);
        cmd_table_row(table, i ? "" : title, i ? "" : when, text, NULL);
        free(frame);
        free(text);
    }
    json_decref(telling);
    json_decref(named);
    free(when);
    free(on);
}

/* The document's frames of the block, in the form of a process's answer. */
static json_t *frames_json(const json_t *document, int64_t stack) {
    cmd_frame_t *frame;
    size_t count;
    json_t *list = json_array();
    cmd_recorded_frames(document, stack, &frame, &count);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            list,
            frame[i].text
                ? json_pack("[s, s?, I]", frame[i].text, frame[i].path, (json_int_t)frame[i].line)
                : json_pack("[s?, I, n, s?]", frame[i].path, (json_int_t)frame[i].offset,
                            frame[i].id));
    free(frame);
    return list;
}

/* An event of the history: what, time, address, bytes, stream, stack, thread. */
static json_t *event_json(const json_t *document, const json_t *event) {
    json_int_t part[7];
    for (size_t i = 1; i < 7; i++)
        part[i] = json_integer_value(json_array_get(event, i));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "address", part[2], "bytes", part[3],
                     "time_ns", part[1], "stream", part[4], "thread", part[6], "frames",
                     frames_json(document, part[5]));
}

static bool is_free(const char *word) {
    return !strcmp(word, "free") || !strcmp(word, "passed_free") || !strcmp(word, "pinned_free");
}

/* Returns the newest event of that kind with the address in its block; a free that was refused is none. */
static const json_t *find_event(const json_t *document, const char *kind, uint64_t address) {
    size_t index;
    const json_t *device, *recorded = json_object_get(document, "recorded");
    if (!cmd_integer(recorded, "history"))
        return NULL; /* it was off: its events may belong to former owners */
    json_array_foreach(json_object_get(document, "history"), index, device) {
        const json_t *events = json_object_get(device, "event");
        json_int_t refused = 0; /* by this thread, the free before it, of whatever memory */
        for (size_t i = json_array_size(events); i-- > 0;) {
            const json_t *event = json_array_get(events, i);
            const char *word = json_string_value(json_array_get(event, 0));
            uint64_t begin = (uint64_t)json_integer_value(json_array_get(event, 2));
            uint64_t bytes = (uint64_t)json_integer_value(json_array_get(event, 3));
            json_int_t thread = json_integer_value(json_array_get(event, 6));
            if (word && !strcmp(word, "begin"))
                break;
            if (!word || address < begin || (address != begin && address - begin >= bytes))
                continue;
            if (!strcmp(word, "refused") && begin == address)
                refused = thread;
            if (refused && refused == thread && begin == address && is_free(word))
                refused = 0;
            else if (!strcmp(word, kind))
                return event;
        }
    }
    return NULL;
}

json_t *cmd_where_recorded(const json_t *document, const cmd_block_t *block,
                           uint64_t address) {
    json_t *known = json_object_get(document, "asked");
    const json_t *event;
    if (known)
        return json_incref(known);
    json_t *all = json_pack("{s:O?}", "time_ns",
                            json_object_get(json_object_get(document, "recorded"), "time_ns"));
    bool held = block && block->state == AC_LAID_ALLOCATED;
    if ((event = find_event(document, "alloc", held ? block->address : address)))
        json_object_set_new(all, "alloc", event_json(document, event));
    else if (held && block->since_ns)
        json_object_set_new(all, "alloc",
                            json_pack("{s:I, s:o}", "time_ns", (json_int_t)block->since_ns,
                                      "frames", frames_json(document, block->stack)));
    if (!held && (event = find_event(document, "free", address)))
        json_object_set_new(all, "free", event_json(document, event));
    return all;
}

json_t *cmd_where_named(const json_t *recorded) {
    json_t *copy =
        json_is_object(recorded) ? json_copy((json_t *)(uintptr_t)recorded) : json_null();
    json_t *names = json_array(), *named = frames_named(json_object_get(recorded, "frames"));
    size_t index;
    const json_t *frame;
    json_array_foreach(named, index, frame) {
        char *name = cmd_naming_frame(frame);
        json_array_append_new(names, cmd_json_text(name));
        free(name);
    }
    json_decref(named);
    if (json_is_object(recorded))
        json_object_set(copy, "frames", names);
    json_decref(names);
    return copy;
}
