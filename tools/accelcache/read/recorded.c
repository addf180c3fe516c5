/* See recorded.h. */
#include "read/recorded.h"
#include "command.h"
#include "read/naming.h"
#include "read/symbols.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ frames as JSON */

static json_t *pack_frame(const char *name, const char *file, int64_t line) {
    return json_pack("{s:o, s:o, s:I}", "name", cmd_json_text(name), "filename", cmd_json_text(file), "line",
                     (json_int_t)line);
}

/* A function of code; with a line its file is the source, and `object` the file of the code. */
static json_t *pack_line(const cmd_frame_t *frame, cmd_line_t *line) {
    char *place = cmd_format("%s+0x%" PRIx64, frame->path, frame->offset);
    bool known = line->file && line->line > 0;
    json_t *json = pack_frame(line->function ? line->function : cmd_base_name(place), known ? line->file : place,
                              known ? line->line : 0);
    if (known)
        json_object_set_new(json, "object", cmd_json_text(frame->path));
    free(place);
    free(line->function);
    free(line->file);
    return json;
}

void cmd_frame_append(json_t *list, const cmd_frame_t *frame) {
    cmd_line_t line[CMD_LINES] = {{0}};
    if (frame->text || !frame->path) {
        json_array_append_new(list, frame->text ? pack_frame(frame->text, frame->path ? frame->path : "",
                                                             (int64_t)frame->line)
                                                : pack_frame("code of no file", "", 0));
        return;
    }
    size_t count = cmd_symbols_at(frame->path, frame->id, frame->offset, line);
    for (size_t i = 0; i < count || !i; i++)
        json_array_append_new(list, pack_line(frame, &line[i]));
}

json_t *cmd_frames_json(const cmd_frame_t *frame, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        cmd_frame_append(list, &frame[i]);
    return list;
}

/* ------------------------------------------------------------------ frames of a document */

static const json_t *array_of(const json_t *document, const char *key) {
    return json_object_get(json_object_get(document, "recorded"), key);
}

static cmd_frame_t frame_of(const json_t *document, int64_t first, int64_t second) {
    cmd_frame_t frame = {.path = NULL};
    if (first < 0) {
        const json_t *text = json_array_get(array_of(document, "texts"), (size_t)-(first + 1));
        const char *name = json_string_value(json_array_get(text, 0));
        frame.text = name ? name : "?";
        frame.path = json_string_value(json_array_get(text, 1));
        frame.line = (uint64_t)second;
        return frame;
    }
    if (first > 0) {
        size_t file = (size_t)first - 1;
        frame.path = json_string_value(json_array_get(array_of(document, "files"), file));
        frame.id = json_string_value(json_array_get(array_of(document, "build_ids"), file));
    }
    frame.offset = (uint64_t)second;
    return frame;
}

bool cmd_recorded_frames(const json_t *document, int64_t stack, cmd_frame_t **frames,
                         size_t *count) {
    const json_t *list = json_object_get(
        stack > 0 ? json_array_get(array_of(document, "stack"), (size_t)stack - 1) : NULL,
        "frames");
    *count = json_array_size(list) / 2;
    *frames = NULL;
    if (!*count)
        return false;
    *frames = cmd_alloc(*count * sizeof **frames);
    for (size_t i = 0; i < *count; i++)
        (*frames)[i] = frame_of(document, json_integer_value(json_array_get(list, 2 * i)),
                                json_integer_value(json_array_get(list, 2 * i + 1)));
    return true;
}

/* One copy of each text. */
static const char *kept(char *text) {
    static json_t *texts;
    texts = texts ? texts : json_object();
    if (!json_object_get(texts, text))
        json_object_set_new(texts, text, cmd_json_text(text));
    const char *copy = json_string_value(json_object_get(texts, text));
    free(text);
    return copy;
}

const char *cmd_recorded_site(const json_t *document, int64_t stack) {
    cmd_frame_t *frame;
    size_t count;
    if (!cmd_recorded_frames(document, stack, &frame, &count))
        return "not recorded";
    json_t *frames = cmd_frames_json(frame, count);
    const char *name = kept(cmd_naming_site(frames));
    json_decref(frames);
    free(frame);
    return name;
}

cmd_frame_t cmd_recorded_frame(const json_t *json) {
    const char *first = json_string_value(json_array_get(json, 0));
    if (json_array_size(json) == 3)
        return (cmd_frame_t){.text = first ? first : "?",
                             .path = json_string_value(json_array_get(json, 1)),
                             .line = (uint64_t)json_integer_value(json_array_get(json, 2))};
    return (cmd_frame_t){.path = first,
                         .id = json_string_value(json_array_get(json, 3)),
                         .offset = (uint64_t)json_integer_value(json_array_get(json, 1))};
}
