/* See layout.h. */
#include "read/layout.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

static bool read_figure(const json_t *object, const char *key, uint64_t *value) {
    const json_t *figure = json_object_get(object, key);
    *value = (uint64_t)json_integer_value(figure);
    return json_is_integer(figure) && json_integer_value(figure) >= 0;
}

static bool read_state(const json_t *object, uint8_t *state) {
    const char *word = json_string_value(json_object_get(object, "state"));
    for (*state = 0; word && *state < AC_LAID_STATES; ++*state)
        if (!strcmp(word, ac_laid_words[*state]))
            return true;
    return false;
}

static uint8_t read_module(const json_t *object, const char *key) {
    uint64_t module;
    return read_figure(object, key, &module) && module < UINT8_MAX ? (uint8_t)module : 0;
}

/* ns, not 0; 0: not known. */
static uint64_t read_ago(const json_t *object, const char *key) {
    uint64_t ms;
    return read_figure(object, key, &ms) && ms < UINT64_MAX / 1000000 ? ms * 1000000 + 1 : 0;
}

static bool read_block(const json_t *object, ac_laid_block_t *block) {
    uint64_t since, stack;
    *block = (ac_laid_block_t){0};
    if (!read_figure(object, "address", &block->address) ||
        !read_figure(object, "size", &block->size) || !block->size ||
        !read_state(object, &block->state))
        return false;
    read_figure(object, "requested", &block->requested);
    read_figure(object, "stream", &block->stream);
    read_figure(object, "since_ns", &since);
    read_figure(object, "stack", &stack);
    block->since_ns = (int64_t)since;
    block->stack = stack <= UINT32_MAX ? (uint32_t)stack : 0;
    block->module = read_module(object, "module");
    block->freed_by = read_module(object, "freed_by");
    block->asked_ns = read_ago(object, "asked_ago_ms");
    block->freed_ns = read_ago(object, "freed_ago_ms");
    block->async = json_is_true(json_object_get(object, "async"));
    return true;
}

static ac_layout_t *layout_of(cmd_layouts_t *layouts, int ordinal) {
    for (unsigned i = 0; i < layouts->count; i++)
        if (layouts->layout[i].ordinal == ordinal)
            return &layouts->layout[i];
    if (layouts->count == CMD_LAYOUTS)
        return NULL;
    layouts->layout[layouts->count] = (ac_layout_t){.ordinal = ordinal};
    return &layouts->layout[layouts->count++];
}

/* Room for so many more; doubled, since segments come one by one. */
static void make_room(ac_layout_t *layout, size_t blocks) {
    if (layout->segments == layout->segment_room) {
        layout->segment_room = 2 * layout->segment_room + 64;
        layout->segment =
            cmd_resize(layout->segment, layout->segment_room * sizeof *layout->segment);
    }
    if (layout->blocks + blocks > layout->block_room) {
        layout->block_room = 2 * layout->block_room + blocks + 64;
        layout->block = cmd_resize(layout->block, layout->block_room * sizeof *layout->block);
    }
}

static bool read_segment(cmd_layouts_t *layouts, const json_t *object) {
    const json_t *blocks = json_object_get(object, "blocks");
    const char *pool = json_string_value(json_object_get(object, "pool"));
    uint64_t device, address, size;
    ac_layout_t *layout;
    if (!read_figure(object, "device", &device) || device >= CMD_LAYOUTS || !pool ||
        !read_figure(object, "address", &address) || !read_figure(object, "size", &size) ||
        !(layout = layout_of(layouts, (int)device)))
        return false;
    make_room(layout, json_array_size(blocks));
    layout->segment[layout->segments++] =
        (ac_laid_segment_t){.address = address,
                            .size = size,
                            .first = layout->blocks,
                            .count = json_array_size(blocks),
                            .small = !strcmp(pool, "small"),
                            .paged = json_is_true(json_object_get(object, "expandable")),
                            .exported = json_is_true(json_object_get(object, "exported")),
                            .guarded = json_is_true(json_object_get(object, "guarded"))};
    layouts->unlisted += json_is_null(blocks);
    size_t index;
    const json_t *block;
    json_array_foreach(
        (json_t *)(uintptr_t)blocks, index,
        block) if (!read_block(block, &layout->block[layout->blocks++])) return false;
    return true;
}

bool cmd_layouts_read(cmd_layouts_t *layouts, const json_t *segments, char **error) {
    *layouts = (cmd_layouts_t){0};
    if (!json_is_array(segments)) {
        *error =
            cmd_format("it lists no blocks: accelcache ctl PID snapshot FILE writes them, and "
                       "the key oom_dump when a request fails");
        return false;
    }
    size_t index;
    const json_t *segment;
    json_array_foreach((json_t *)(uintptr_t)segments, index,
                       segment) if (!read_segment(layouts, segment)) {
        *error = cmd_format("layout[%zu] has another form than accelcache writes", index);
        cmd_layouts_free(layouts);
        return false;
    }
    return true;
}

void cmd_layouts_free(cmd_layouts_t *layouts) {
    for (unsigned i = 0; i < layouts->count; i++) {
        free(layouts->layout[i].segment);
        free(layouts->layout[i].block);
    }
    *layouts = (cmd_layouts_t){0};
}

const ac_layout_t *cmd_layouts_of(const cmd_layouts_t *layouts, int ordinal) {
    for (unsigned i = 0; i < layouts->count; i++)
        if (layouts->layout[i].ordinal == ordinal)
            return &layouts->layout[i];
    return NULL;
}

const char *cmd_layout_module(const json_t *document, unsigned module) {
    const char *name =
        json_string_value(json_array_get(json_object_get(document, "module_names"), module));
    return name ? name : "code of no file";
}
