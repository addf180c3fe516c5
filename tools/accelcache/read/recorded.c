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

/* ------------------------------------------------------------------ sites */

static int by_name(const void *a, const void *b) {
    const cmd_site_t *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_bytes(const void *a, const void *b) {
    const cmd_site_t *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return by_name(a, b);
}

cmd_site_t *cmd_recorded_sites(const json_t *document, int64_t device, size_t *count) {
    const json_t *sites = array_of(document, "sites"), *from;
    cmd_site_t *site = cmd_alloc((json_array_size(sites) + 1) * sizeof *site);
    size_t index, all = 0;
    *count = 0;
    json_array_foreach((json_t *)(uintptr_t)sites, index, from) {
        int64_t ordinal = cmd_integer(from, "device");
        if (device < 0 || device == ordinal)
            site[all++] =
                (cmd_site_t){.name = cmd_recorded_site(
                                 document, cmd_integer(from, "stack")),
                             .device = ordinal,
                             .blocks = cmd_integer(from, "blocks"),
                             .bytes = cmd_integer(from, "bytes")};
    }
    if (all)
        qsort(site, all, sizeof *site, by_name);
    for (size_t i = 0; i < all; i++) {
        cmd_site_t *last = *count ? &site[*count - 1] : NULL;
        if (last && by_name(last, &site[i]) == 0) {
            last->blocks += site[i].blocks;
            last->bytes += site[i].bytes;
        } else {
            site[(*count)++] = site[i];
        }
    }
    if (*count)
        qsort(site, *count, sizeof *site, by_bytes);
    return site;
}

void cmd_recorded_print(const json_t *document, int64_t device, const char *heading,
                        unsigned most) {
    size_t count;
    cmd_site_t *site = cmd_recorded_sites(document, device, &count);
    if (count) {
        printf("\n%s%s%s\n", cmd_bold(), heading, cmd_plain());
        cmd_table_t *table = cmd_table_new("rrl");
        for (size_t i = 0; i < count && i < most; i++) {
            char bytes[CMD_FIGURE], blocks[CMD_FIGURE];
            char *number = cmd_format("%s block%s", cmd_text_count(blocks, site[i].blocks),
                                      site[i].blocks == 1 ? "" : "s");
            cmd_table_row(table, cmd_text_bytes(bytes, site[i].bytes), number, site[i].name);
            free(number);
        }
        cmd_table_print(table, 2);
        if (count > most)
            printf("  and %zu more: the JSON has all\n", count - most);
    }
    free(site);
}

json_t *cmd_recorded_json(const json_t *document, int64_t device) {
    size_t count;
    cmd_site_t *site = cmd_recorded_sites(document, device, &count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:I, s:I}", "device", (json_int_t)site[i].device, "site",
                            cmd_json_text(site[i].name), "blocks", (json_int_t)site[i].blocks,
                            "bytes", (json_int_t)site[i].bytes));
    free(site);
    return list;
}
