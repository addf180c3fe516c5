/* See segments.h. */
#include "read/segments.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((json_int_t)1 << 47) /* as many addresses as there are */

static bool get_number(const json_t *object, const char *key, uint64_t *value) {
    const json_t *number = json_object_get(object, key);
    *value = (uint64_t)json_integer_value(number);
    return json_is_integer(number) && json_integer_value(number) >= 0;
}

/* Writers that have signed numbers alone write negative addresses. */
static bool get_address(const json_t *object, const char *key, uint64_t *value) {
    return get_number(object, key, value) || json_is_integer(json_object_get(object, key));
}

/* Returns true also if the number is missing; it is then 0. */
static bool get_bytes(const json_t *object, const char *key, uint64_t *value) {
    return (get_number(object, key, value) && *value <= MOST_BYTES) || !json_object_get(object, key);
}

/* Room is doubled, since segments come one by one. */
static cmd_segment_t *add_segment(cmd_segments_t *list, size_t blocks) {
    if (list->segments == list->segment_room) {
        list->segment_room = 2 * list->segment_room + 64;
        list->segment = cmd_resize(list->segment, list->segment_room * sizeof *list->segment);
    }
    if (list->blocks + blocks > list->block_room) {
        list->block_room = 2 * list->block_room + blocks + 64;
        list->block = cmd_resize(list->block, list->block_room * sizeof *list->block);
    }
    return &list->segment[list->segments++];
}

/* ------------------------------------------------------------------ dumps */

static bool read_state(const json_t *object, uint8_t *state) {
    const char *word = json_string_value(json_object_get(object, "state"));
    for (*state = 0; word && *state < AC_LAID_STATES; ++*state)
        if (!strcmp(word, ac_laid_words[*state]))
            return true;
    return false;
}

static uint8_t read_module(const json_t *object, const char *key) {
    uint64_t module;
    return get_number(object, key, &module) && module < UINT8_MAX ? (uint8_t)module : 0;
}

/* Returns ns, at least 1; 0: not known. */
static uint64_t read_ago(const json_t *object, const char *key) {
    uint64_t ms;
    return get_number(object, key, &ms) && ms < UINT64_MAX / 1000000 ? ms * 1000000 + 1 : 0;
}

static bool read_block(const json_t *from, cmd_block_t *block) {
    uint64_t since, stack;
    *block = (cmd_block_t){0};
    if (!get_number(from, "address", &block->address) || !get_number(from, "size", &block->bytes) ||
        !block->bytes || !read_state(from, &block->state))
        return false;
    get_number(from, "requested", &block->requested);
    get_number(from, "stream", &block->stream);
    get_number(from, "since_ns", &since);
    get_number(from, "stack", &stack);
    block->since_ns = (int64_t)since;
    block->stack = stack <= UINT32_MAX ? (uint32_t)stack : 0;
    block->module = read_module(from, "module");
    block->freed_by = read_module(from, "freed_by");
    block->asked_ns = read_ago(from, "asked_ago_ms");
    block->freed_ns = read_ago(from, "freed_ago_ms");
    block->async = json_is_true(json_object_get(from, "async"));
    return true;
}

static bool read_segment(cmd_segments_t *list, json_t *from) {
    json_t *blocks = json_object_get(from, "blocks"), *block;
    const char *pool = json_string_value(json_object_get(from, "pool"));
    cmd_segment_t *segment = add_segment(list, json_array_size(blocks));
    uint64_t device;
    size_t index;
    *segment = (cmd_segment_t){.first = list->blocks,
                               .blocks = json_array_size(blocks),
                               .small = pool && !strcmp(pool, "small"),
                               .expandable = json_is_true(json_object_get(from, "expandable")),
                               .exported = json_is_true(json_object_get(from, "exported")),
                               .guarded = json_is_true(json_object_get(from, "guarded"))};
    if (!pool || !get_number(from, "device", &device) || device >= CMD_DEVICES ||
        !get_number(from, "address", &segment->address) || !get_number(from, "size", &segment->bytes))
        return false;
    segment->device = (int)device;
    list->unlisted += json_is_null(blocks);
    json_array_foreach(blocks, index, block) {
        if (!read_block(block, &list->block[list->blocks++]))
            return false;
    }
    return true;
}

bool cmd_segments_of_dump(cmd_segments_t *list, const json_t *layout, char **error) {
    *list = (cmd_segments_t){0};
    if (!json_is_array(layout))
        *error = cmd_format("it lists no blocks: accelcache ctl PID snapshot FILE writes them, and "
                            "the key oom_dump when a request fails");
    for (size_t i = 0; !*error && i < json_array_size(layout); i++)
        if (!read_segment(list, json_array_get(layout, i)))
            *error = cmd_format("layout[%zu] has another form than accelcache writes", i);
    if (*error)
        cmd_segments_free(list);
    return !*error;
}

/* ------------------------------------------------------------------ snapshots */

static bool take_block(const json_t *from, cmd_block_t *block, uint64_t at) {
    const char *state = json_string_value(json_object_get(from, "state"));
    *block = (cmd_block_t){.frames = json_object_get(from, "frames")};
    if (!state || !get_bytes(from, "size", &block->bytes) ||
        !get_bytes(from, "requested_size", &block->requested))
        return false;
    if (!get_address(from, "address", &block->address))
        block->address = at; /* older versions leave it out */
    block->state = !strcmp(state, "active_allocated") ? AC_LAID_ALLOCATED
                   : !strncmp(state, "active", 6)     ? AC_LAID_PENDING
                                                      : AC_LAID_FREE;
    if (block->state == AC_LAID_FREE)
        block->requested = 0;
    else if (!block->requested || block->requested > block->bytes)
        block->requested = block->bytes;
    return block->address == at;
}

static bool take_segment(cmd_segments_t *list, json_t *from) {
    json_t *blocks = json_object_get(from, "blocks"), *block;
    json_int_t device = cmd_integer(from, "device");
    const char *type = json_string_value(json_object_get(from, "segment_type"));
    cmd_segment_t *segment = add_segment(list, json_array_size(blocks));
    size_t index;
    *segment = (cmd_segment_t){.first = list->blocks,
                               .blocks = json_array_size(blocks),
                               .device = (int)device,
                               .small = type && !strcmp(type, "small"),
                               .expandable = json_is_true(json_object_get(from, "is_expandable"))};
    get_address(from, "stream", &segment->stream);
    if (device < 0 || device >= CMD_DEVICES || !get_address(from, "address", &segment->address) ||
        !get_bytes(from, "total_size", &segment->bytes) || !segment->bytes)
        return false;
    uint64_t used = 0;
    json_array_foreach(blocks, index, block) {
        cmd_block_t *to = &list->block[list->blocks++];
        if (!take_block(block, to, segment->address + used) || to->bytes > segment->bytes - used)
            return false;
        used += to->bytes;
    }
    return used == segment->bytes;
}

bool cmd_segments_of_snapshot(cmd_segments_t *list, const json_t *segments, char **error) {
    *list = (cmd_segments_t){0};
    for (size_t i = 0; !*error && i < json_array_size(segments); i++)
        if (!take_segment(list, json_array_get(segments, i)))
            *error = cmd_format("segments[%zu]: device, address, total_size or blocks are missing "
                                "or do not match",
                                i);
    if (*error)
        cmd_segments_free(list);
    return !*error;
}

/* ------------------------------------------------------------------ all */

void cmd_segments_free(cmd_segments_t *list) {
    free(list->segment);
    free(list->block);
    *list = (cmd_segments_t){0};
}

void cmd_segments_keep(cmd_segments_t *list, int device) {
    size_t kept = 0;
    for (size_t i = 0; i < list->segments; i++)
        if (list->segment[i].device == device)
            list->segment[kept++] = list->segment[i];
    list->segments = kept;
}

const char *cmd_module_name(const json_t *document, unsigned module) {
    const char *name =
        json_string_value(json_array_get(json_object_get(document, "module_names"), module));
    return name ? name : "code of no file";
}
