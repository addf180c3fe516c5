/* See recorded.h. */
#include "recorded.h"
#include "command.h"
#include "symbols.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ------------------------------------------------------------------ names */

/* Names that were given, by what they were given for. */
typedef struct name {
    cmd_frame_t frame;
    char *text;
    struct name *next;
} name_t;

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static char *make_name(const cmd_frame_t *frame) {
    if (frame->text)
        return cmd_format("%s (%s:%" PRIu64 ")", frame->text,
                          frame->path ? base_name(frame->path) : "?", frame->line);
    if (!frame->path)
        return cmd_format("code of no file");
    char *symbol = cmd_symbol_at(frame->path, frame->id, frame->offset);
    char *name = symbol ? cmd_format("%s (%s+0x%" PRIx64 ")", symbol, base_name(frame->path),
                                     frame->offset)
                        : cmd_format("%s+0x%" PRIx64, base_name(frame->path), frame->offset);
    free(symbol);
    return name;
}

const char *cmd_frame_name(const cmd_frame_t *frame) {
    enum { LISTS = 4096 };
    static name_t *list[LISTS];
    uint64_t hash = (frame->offset + frame->line) * 0x9e3779b97f4a7c15u;
    name_t **at = &list[hash >> 52];
    for (name_t *name = *at; name; name = name->next)
        if (name->frame.offset == frame->offset && name->frame.line == frame->line &&
            same_text(name->frame.path, frame->path) && same_text(name->frame.id, frame->id) &&
            same_text(name->frame.text, frame->text))
            return name->text;
    name_t *name = cmd_alloc(sizeof *name);
    *name = (name_t){*frame, make_name(frame), *at};
    name->frame.path = frame->path ? cmd_format("%s", frame->path) : NULL;
    name->frame.id = frame->id ? cmd_format("%s", frame->id) : NULL;
    name->frame.text = frame->text ? cmd_format("%s", frame->text) : NULL;
    *at = name;
    return name->text;
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

const char *cmd_recorded_site(const json_t *document, int64_t stack) {
    cmd_frame_t *frames;
    size_t count;
    if (!cmd_recorded_frames(document, stack, &frames, &count))
        return "not recorded";
    const char *name = cmd_frame_name(&frames[0]);
    free(frames);
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
        int64_t ordinal = json_integer_value(json_object_get(from, "device"));
        if (device < 0 || device == ordinal)
            site[all++] =
                (cmd_site_t){.name = cmd_recorded_site(
                                 document, json_integer_value(json_object_get(from, "stack"))),
                             .device = ordinal,
                             .blocks = json_integer_value(json_object_get(from, "blocks")),
                             .bytes = json_integer_value(json_object_get(from, "bytes"))};
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
