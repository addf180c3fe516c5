/* See history.h: which reader a file needs, and what is derived from events. */
#include "read/history.h"
#include "read/snapshot.h"
#include "command.h"
#include "read/document.h"
#include "read/ops.h"
#include "read/trace_read.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void cmd_history_add(cmd_history_t *history, size_t *room, const cmd_event_t *event) {
    if (history->events == *room) {
        *room = *room ? *room * 2 : 4096;
        history->event = cmd_resize(history->event, *room * sizeof *history->event);
    }
    history->event[history->events++] = *event;
    if (event->device >= 0 && (unsigned)event->device >= history->devices)
        history->devices = (unsigned)event->device + 1;
}

/* ------------------------------------------------------------------ reading */

/* Operations of text and of RMM's logs have no addresses. */
static bool read_operations(cmd_history_t *history, const char *path, char **error) {
    cmd_ops_t *ops = cmd_ops_read(path, -1, error);
    if (!ops)
        return false;
    uint32_t *live = cmd_alloc((ops->blocks + 1) * sizeof *live);
    size_t room = 0;
    for (size_t i = 0; i < ops->count && i < CMD_NO_PARTNER; i++) {
        const cmd_op_t *op = &ops->op[i];
        cmd_event_t event = {.time_ns = (int64_t)i,
                             .bytes = op->bytes,
                             .stream = op->stream == CMD_NO_STREAM ? 0 : op->stream,
                             .partner = CMD_NO_PARTNER,
                             .device = (int16_t)ops->device,
                             .kind = op->kind == CMD_OP_ALLOC  ? CMD_EVENT_ALLOC
                                     : op->kind == CMD_OP_FREE ? CMD_EVENT_FREE
                                                               : CMD_EVENT_WAIT};
        if (op->kind == CMD_OP_ALLOC) {
            live[op->block] = (uint32_t)i;
        } else if (op->kind == CMD_OP_FREE) {
            event.partner = live[op->block];
            event.bytes = history->event[event.partner].bytes;
            history->event[event.partner].partner = (uint32_t)i;
        }
        cmd_history_add(history, &room, &event);
    }
    free(live);
    history->source = CMD_SOURCE_TRACE;
    history->format = ops->format;
    history->note = ops->note ? cmd_format("%s", ops->note) : NULL;
    cmd_ops_free(ops);
    return true;
}

static void note_devices(cmd_history_t *history) {
    const json_t *devices = json_object_get(history->document, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        json_int_t ordinal = cmd_integer(device, "ordinal");
        if (ordinal < 0 || ordinal >= CMD_DEVICES)
            continue;
        history->total_memory[ordinal] =
            (uint64_t)cmd_integer(device, "total_memory");
        if (history->devices <= (unsigned)ordinal)
            history->devices = (unsigned)ordinal + 1;
    }
}

/* Takes over `document`. */
static void take_dump(cmd_history_t *history, json_t *document) {
    const json_t *process = json_object_get(document, "process");
    const char *host = json_string_value(json_object_get(process, "host"));
    history->source = CMD_SOURCE_DUMP;
    history->format = "dump";
    history->document = document;
    history->figures = json_incref(document);
    history->pid = (int)cmd_integer(process, "pid");
    history->host = cmd_format("%s", host ? host : "");
    note_devices(history);
    char *command = cmd_format("%s", "");
    size_t index;
    json_t *argument;
    json_array_foreach(json_object_get(process, "argv"), index, argument) {
        const char *text = json_string_value(argument);
        char *longer = cmd_format("%s%s%s", command, index ? " " : "", text ? text : "?");
        free(command);
        command = longer;
    }
    history->command = command;
}

/* Takes over `document`. */
static bool take_snapshot(cmd_history_t *history, json_t *document, char **error) {
    history->source = CMD_SOURCE_SNAPSHOT;
    history->document = document;
    return cmd_history_snapshot(history, error);
}

/* Takes over `document`, a dump. */
static bool take_recorded(cmd_history_t *history, json_t *document, char **error) {
    take_dump(history, document);
    if (!cmd_history_recorded(document))
        return true;
    bool good = take_snapshot(history, cmd_history_as_snapshot(document), error);
    json_decref(document);
    return good;
}

static char *json_fault(const json_error_t *at) {
    bool cut = json_error_code(at) == json_error_premature_end_of_input;
    return cmd_format("%s at line %d, column %d (%s): %s",
                      cut ? "the JSON ends too early" : "not valid JSON", at->line, at->column,
                      at->text,
                      cut ? "the copy is incomplete; copy it again or run the program again"
                          : "is it a dump, or a snapshot?");
}

static bool take_text(cmd_history_t *history, const char *text, size_t length, char **error) {
    json_error_t at;
    json_t *document = cmd_snapshot_parse(text, length, error);
    if (*error)
        return false;
    if (document) {
        history->format = "snapshot";
        return take_snapshot(history, document, error);
    }
    document = json_loadb(text, length, 0, &at);
    if (!document) {
        *error = json_fault(&at);
        return false;
    }
    json_decref(document);
    document = cmd_document_parse(text, length, error); /* with its checks */
    return document && take_recorded(history, document, error);
}

static bool read_json(cmd_history_t *history, const char *path, char **error) {
    size_t length;
    char *text = cmd_document_text(path, 0, &length, error);
    bool good = text && take_text(history, text, length, error);
    free(text);
    return good;
}

/* 0, or the process that the whole of `text` names. */
static int pid_of(const char *text) {
    char *end;
    long number = strtol(text, &end, 10);
    return *text >= '1' && *text <= '9' && !*end && number <= INT_MAX ? (int)number : 0;
}

static bool read_process(cmd_history_t *history, int pid, char **error) {
    ac_live_name_t name;
    bool alive;
    json_t *document =
        cmd_page_find(pid, 0, &name, error) ? cmd_document_live(&name, &alive, error) : NULL;
    if (document)
        take_dump(history, document);
    return document != NULL;
}

/* Returns the first character that is no blank, '\0' if there is none; -1 with *error if it cannot be read. Only
 * regular files are read: others might block. */
static int first_character(const char *path, char **error) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), first = '\0';
    char text[4096];
    ssize_t n = 0;
    if (fd < 0 || fstat(fd, &status) != 0)
        *error = cmd_format("%s%s", strerror(errno),
                            errno == ENOENT ? ": is the name right, did the program end?" : "");
    else if (!S_ISREG(status.st_mode))
        *error = cmd_format("%s, and a file is wanted",
                            S_ISDIR(status.st_mode) ? "a folder" : "not a regular file");
    else if ((n = read(fd, text, sizeof text)) < 0)
        *error = cmd_format("%s", strerror(errno));
    else if (n == 0)
        *error =
            cmd_format("the file is empty: nothing was recorded, or it was lost in a crash of "
                       "the machine; run the program again");
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < n && !first; i++)
        first = isspace((unsigned char)text[i]) ? '\0' : text[i];
    return n > 0 ? (unsigned char)first : -1;
}

static bool read_any(cmd_history_t *history, const char *path, char **error) {
    if (pid_of(path) && access(path, F_OK) != 0)
        return read_process(history, pid_of(path), error);
    int first = first_character(path, error);
    if (first < 0)
        return false;
    if (cmd_trace_is(path))
        return cmd_history_trace(history, path, error);
    return first == 0x80 || first == '{' || first == '[' ? read_json(history, path, error)
                                                         : read_operations(history, path, error);
}

cmd_history_t *cmd_history_read(const char *path, char **error) {
    cmd_history_t *history = cmd_alloc(sizeof *history);
    char *why = NULL;
    if (read_any(history, path, &why))
        return history;
    /* Some readers name the file by themselves. */
    size_t length = strlen(path);
    bool named = !strncmp(why, path, length) && why[length] == ':';
    *error = named ? cmd_format("%s", why) : cmd_format("%s: %s", path, why);
    free(why);
    cmd_history_free(history);
    return NULL;
}

cmd_history_t *cmd_history_of(json_t *document, char **error) {
    cmd_history_t *history = cmd_alloc(sizeof *history);
    if (take_recorded(history, json_incref(document), error))
        return history;
    cmd_history_free(history);
    return NULL;
}

void cmd_history_free(cmd_history_t *history) {
    json_decref(history->document);
    json_decref(history->figures);
    cmd_segments_free(&history->now);
    free(history->event);
    free(history->command);
    free(history->host);
    free(history->note);
    free(history);
}

/* ------------------------------------------------------------------ the peak */

size_t cmd_history_peak(const cmd_history_t *history) {
    int64_t live = 0, most = 0;
    size_t at = 0;
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        if (event->kind == CMD_EVENT_ALLOC)
            live += (int64_t)event->bytes;
        else if (event->kind == CMD_EVENT_FREE)
            live -= (int64_t)event->bytes;
        if (live > most) {
            most = live;
            at = i + 1;
        }
    }
    return at;
}

/* ------------------------------------------------------------------ holdings */

void cmd_holding_add(cmd_holding_t *holding, const cmd_event_t *event) {
    int64_t bytes = (int64_t)event->bytes;
    switch ((cmd_event_kind_t)event->kind) {
    case CMD_EVENT_ALLOC:
        holding->allocated += bytes;
        holding->blocks++;
        break;
    case CMD_EVENT_FREE:
        holding->allocated -= bytes;
        holding->blocks--;
        break;
    case CMD_EVENT_SEGMENT:
        holding->reserved += bytes;
        break;
    case CMD_EVENT_SEGMENT_GONE:
        holding->reserved -= bytes;
        break;
    case CMD_EVENT_PINNED:
        holding->pinned += bytes;
        break;
    case CMD_EVENT_PINNED_GONE:
        holding->pinned -= bytes;
        break;
    case CMD_EVENT_PASSED:
    case CMD_EVENT_PHYSICAL:
    case CMD_EVENT_ARRAY:
        holding->passed += bytes;
        break;
    case CMD_EVENT_PASSED_GONE:
    case CMD_EVENT_PHYSICAL_GONE:
    case CMD_EVENT_ARRAY_GONE:
        holding->passed -= bytes;
        break;
    case CMD_EVENT_FAILED:
    case CMD_EVENT_WAIT:
    case CMD_EVENT_KINDS:
        break;
    }
}

cmd_holding_t cmd_history_before(const cmd_history_t *history, int device) {
    cmd_holding_t before = {0}, change = {0};
    if (history->source != CMD_SOURCE_SNAPSHOT)
        return before;
    for (size_t i = 0; i < history->now.segments; i++) {
        const cmd_segment_t *segment = &history->now.segment[i];
        if (segment->device != device)
            continue;
        before.reserved += (int64_t)segment->bytes;
        for (size_t k = 0; k < segment->blocks; k++) {
            const cmd_block_t *block = &history->now.block[segment->first + k];
            before.allocated += cmd_block_is_held(block) ? (int64_t)block->requested : 0;
            before.blocks += cmd_block_is_held(block);
        }
    }
    for (size_t i = 0; i < history->events; i++)
        if (history->event[i].device == device)
            cmd_holding_add(&change, &history->event[i]);
    /* Of a damaged history events may add more than there is: nothing was held before then. */
    before.allocated = before.allocated > change.allocated ? before.allocated - change.allocated : 0;
    before.blocks = before.blocks > change.blocks ? before.blocks - change.blocks : 0;
    before.reserved = before.reserved > change.reserved ? before.reserved - change.reserved : 0;
    return before;
}

bool cmd_history_cut(const cmd_history_t *history, int device) {
    cmd_holding_t before = cmd_history_before(history, device);
    size_t index;
    const json_t *ring;
    if (history->source != CMD_SOURCE_SNAPSHOT)
        return false;
    json_array_foreach(json_object_get(history->figures, "history"), index, ring) {
        if (cmd_integer(ring, "device") == device)
            return before.blocks ||
                   cmd_integer(ring, "events") >
                       (json_int_t)json_array_size(json_object_get(ring, "event"));
    }
    return true;
}

/* ------------------------------------------------------------------ segments of a trace */

enum { ROUND = 512 };

/* A block that was ever there. */
typedef struct {
    uint64_t address, end, requested, stream;
    const json_t *frames;
    int device;
    bool lives;
} place_t;

static int by_address(const void *a, const void *b) {
    const place_t *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->lives - y->lives;
}

static size_t find_places(const cmd_history_t *history, size_t at, place_t **places) {
    size_t count = 0;
    for (size_t i = 0; i < history->events; i++)
        count += history->event[i].kind == CMD_EVENT_ALLOC;
    *places = cmd_alloc((count + 1) * sizeof **places);
    count = 0;
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        if (event->kind != CMD_EVENT_ALLOC || event->device < 0)
            continue;
        uint64_t bytes = event->bytes ? event->bytes : 1;
        (*places)[count++] = (place_t){
            .address = event->address,
            .end = event->address + (bytes + ROUND - 1) / ROUND * ROUND,
            .requested = event->bytes,
            .stream = event->stream,
            .frames = event->frames,
            .device = event->device,
            .lives = i < at && (event->partner == CMD_NO_PARTNER || event->partner >= at)};
    }
    qsort(*places, count, sizeof **places, by_address);
    return count;
}

static void add_block(cmd_segments_t *list, cmd_segment_t *segment, const cmd_block_t *block) {
    if (block->bytes == 0)
        return;
    list->block[list->blocks++] = *block;
    segment->blocks++;
}

/* The places from `from` to `to` lie in one range, which ends at `end`. */
static void add_range(cmd_segments_t *list, const place_t *place, size_t from, size_t to,
                      uint64_t end) {
    cmd_segment_t *segment = &list->segment[list->segments++];
    uint64_t at = place[from].address;
    *segment = (cmd_segment_t){.address = at,
                               .bytes = end - at,
                               .stream = place[from].stream,
                               .first = list->blocks,
                               .device = place[from].device,
                               .small = true};
    for (size_t i = from; i < to; i++) {
        segment->small &= place[i].requested <= 1 << 20;
        segment->stream = place[i].stream == segment->stream ? segment->stream : 0;
        if (!place[i].lives || place[i].address < at)
            continue;
        add_block(list, segment, &(cmd_block_t){.address = at, .bytes = place[i].address - at});
        add_block(list, segment,
                  &(cmd_block_t){.address = place[i].address,
                                 .bytes = place[i].end - place[i].address,
                                 .requested = place[i].requested,
                                 .frames = place[i].frames,
                                 .state = AC_LAID_ALLOCATED});
        at = place[i].end;
    }
    add_block(list, segment, &(cmd_block_t){.address = at, .bytes = end - at});
}

static cmd_segments_t copy_of(const cmd_segments_t *from) {
    cmd_segments_t list = *from;
    list.segment = cmd_alloc((list.segments + 1) * sizeof *list.segment);
    list.block = cmd_alloc((list.blocks + 1) * sizeof *list.block);
    if (list.segments)
        memcpy(list.segment, from->segment, list.segments * sizeof *list.segment);
    if (list.blocks)
        memcpy(list.block, from->block, list.blocks * sizeof *list.block);
    return list;
}

cmd_segments_t cmd_history_segments(const cmd_history_t *history, size_t at) {
    if (history->source == CMD_SOURCE_SNAPSHOT)
        return copy_of(&history->now);
    cmd_segments_t list = {0};
    if (!history->addressed)
        return list;
    place_t *place;
    size_t count = find_places(history, at, &place);
    list.segment = cmd_alloc((count + 1) * sizeof *list.segment);
    /* Before each living block a free one, and one at each range's end. */
    list.block = cmd_alloc((3 * count + 1) * sizeof *list.block);
    for (size_t from = 0, to; from < count; from = to) {
        uint64_t end = place[from].end;
        for (to = from + 1;
             to < count && place[to].device == place[from].device && place[to].address <= end;
             to++)
            end = place[to].end > end ? place[to].end : end;
        add_range(&list, place, from, to, end);
    }
    free(place);
    return list;
}
