/* See stacks.h. */
#include "stacks.h"
#include "command.h"
#include "document.h"
#include "terminal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    cmd_stacks_t *stacks;
    size_t room;
} adding_t;

static void add(adding_t *adding, char *frames, const cmd_stack_t *figures) {
    cmd_stacks_t *stacks = adding->stacks;
    if (stacks->count == adding->room) {
        adding->room = adding->room ? adding->room * 2 : 64;
        stacks->stack = cmd_resize(stacks->stack, adding->room * sizeof *stacks->stack);
    }
    stacks->stack[stacks->count] = *figures;
    stacks->stack[stacks->count++].frames = frames;
}

static int by_frames(const void *a, const void *b) {
    return strcmp(((const cmd_stack_t *)a)->frames, ((const cmd_stack_t *)b)->frames);
}

static void merge(cmd_stacks_t *stacks) {
    size_t kept = 0;
    if (stacks->count)
        qsort(stacks->stack, stacks->count, sizeof *stacks->stack, by_frames);
    for (size_t i = 0; i < stacks->count; i++) {
        cmd_stack_t *from = &stacks->stack[i], *to = kept ? &stacks->stack[kept - 1] : NULL;
        if (!to || strcmp(to->frames, from->frames) != 0) {
            stacks->stack[kept++] = *from;
            continue;
        }
        to->blocks += from->blocks;
        to->bytes += from->bytes;
        to->all_blocks += from->all_blocks;
        to->all_bytes += from->all_bytes;
        free(from->frames);
    }
    stacks->count = kept;
}

/* Line breaks divide frames, semicolons those of folded stacks. */
static char *frame_text(const char *text) {
    char *safe = cmd_safe(text);
    for (char *at = safe; *at; at++)
        if (*at == ';')
            *at = ':';
    return safe;
}

/* ------------------------------------------------------------------ of a dump */

static int64_t integer_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static void take_module(adding_t *adding, int64_t ordinal, const json_t *module) {
    const char *name = json_string_value(json_object_get(module, "name"));
    char *safe = frame_text(name ? name : "unknown module");
    add(adding, cmd_format("device %lld\n%s", (long long)ordinal, safe),
        &(cmd_stack_t){.blocks = integer_of(module, "allocations"),
                       .bytes = integer_of(module, "allocated_bytes"),
                       .all_blocks = integer_of(module, "num_allocs"),
                       .all_bytes = integer_of(module, "num_alloc_bytes")});
    free(safe);
}

static void take_pool(adding_t *adding, const json_t *device, const char *pool) {
    add(adding, cmd_format("device %lld\n%s", (long long)integer_of(device, "ordinal"), pool),
        &(cmd_stack_t){.blocks = cmd_document_stat(device, "allocation", pool, "current"),
                       .bytes = cmd_document_stat(device, "allocated_bytes", pool, "current"),
                       .all_blocks = cmd_document_stat(device, "allocation", pool, "allocated"),
                       .all_bytes =
                           cmd_document_stat(device, "allocated_bytes", pool, "allocated")});
}

static void take_dump(adding_t *adding, const json_t *document) {
    size_t index, number;
    const json_t *device, *module;
    json_array_foreach(json_object_get(document, "devices"), index, device) {
        const json_t *modules = json_object_get(device, "modules");
        json_array_foreach((json_t *)(uintptr_t)modules, number, module)
            take_module(adding, integer_of(device, "ordinal"), module);
        if (json_array_size(modules) == 0) {
            take_pool(adding, device, "small_pool");
            take_pool(adding, device, "large_pool");
        }
    }
}

/* ------------------------------------------------------------------ of events */

/* The power of two from which on sizes are taken together. */
static unsigned class_of(uint64_t bytes) {
    unsigned class = 9; /* up to 1 KiB */
    while (class < 63 && bytes >> (class + 1))
        class ++;
    return class;
}

static char *class_text(unsigned class) {
    char from[CMD_FIGURE], to[CMD_FIGURE];
    if (class == 9)
        return cmd_format("below 1 KiB");
    return cmd_format("%s to %s", cmd_text_bytes(from, (int64_t)1 << class),
                      class < 62 ? cmd_text_bytes(to, (int64_t)1 << (class + 1)) : "");
}

typedef struct {
    uint64_t stream;
    unsigned class;
    int device;
    cmd_stack_t figures;
} group_t;

static void put_group(adding_t *adding, const group_t *group) {
    char *class = class_text(group->class);
    char *stream = group->stream ? cmd_format("stream %llu", (unsigned long long)group->stream)
                                 : cmd_format("no stream named");
    add(adding, cmd_format("device %d\n%s\n%s", group->device, stream, class), &group->figures);
    free(stream);
    free(class);
}

/* Few at a time: a program has some streams and sizes of some powers. */
static void take_events(adding_t *adding, const cmd_history_t *history) {
    group_t *group = NULL;
    size_t groups = 0, room = 0, last = 0;
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        cmd_bar_step("events", i, history->events);
        if (event->kind != CMD_EVENT_ALLOC)
            continue;
        unsigned class = class_of(event->bytes);
        for (size_t k = 0; k < groups; k++, last = (last + 1) % groups)
            if (group[last].class == class && group[last].stream == event->stream &&
                group[last].device == event->device)
                break;
        if (!groups || group[last].class != class || group[last].stream != event->stream ||
            group[last].device != event->device) {
            if (groups == room) {
                room = room ? room * 2 : 64;
                group = cmd_resize(group, room * sizeof *group);
            }
            last = groups++;
            group[last] =
                (group_t){.stream = event->stream, .class = class, .device = event->device};
        }
        cmd_stack_t *figures = &group[last].figures;
        bool lives = event->partner == CMD_NO_PARTNER;
        figures->blocks += lives;
        figures->bytes += lives ? (int64_t)event->bytes : 0;
        figures->all_blocks++;
        figures->all_bytes += (int64_t)event->bytes;
    }
    for (size_t i = 0; i < groups; i++)
        put_group(adding, &group[i]);
    free(group);
}

/* ------------------------------------------------------------------ of a snapshot */

/* "name (file:line)" of a frame. */
static char *frame_name(const json_t *frame) {
    const char *name = json_string_value(json_object_get(frame, "name"));
    const char *file = json_string_value(json_object_get(frame, "filename"));
    char *text = file && *file ? cmd_format("%s (%s:%lld)", name ? name : "?", file,
                                            (long long)integer_of(frame, "line"))
                               : cmd_format("%s", name ? name : "?");
    char *safe = frame_text(text);
    free(text);
    return safe;
}

static void take_block(adding_t *adding, const cmd_segment_t *segment, const cmd_block_t *block) {
    char *stack = cmd_format("device %d", segment->device);
    size_t frames = json_array_size(block->frames);
    for (size_t i = frames; i-- > 0;) {
        char *name = frame_name(json_array_get(block->frames, i));
        char *longer = cmd_format("%s\n%s", stack, name);
        free(name);
        free(stack);
        stack = longer;
    }
    if (!frames) {
        char *class = class_text(class_of(block->requested));
        char *longer =
            cmd_format("%s\nstream %llu\n%s", stack, (unsigned long long)segment->stream, class);
        free(class);
        free(stack);
        stack = longer;
    }
    add(adding, stack, &(cmd_stack_t){.blocks = 1, .bytes = (int64_t)block->requested});
}

cmd_stacks_t cmd_stacks(const cmd_history_t *history) {
    cmd_stacks_t stacks = {.has_all = history->source != CMD_SOURCE_SNAPSHOT};
    adding_t adding = {.stacks = &stacks};
    const cmd_segments_t *now = &history->now;
    if (history->source == CMD_SOURCE_DUMP)
        take_dump(&adding, history->document);
    else if (history->source == CMD_SOURCE_TRACE)
        take_events(&adding, history);
    for (size_t i = 0; i < now->segments; i++)
        for (size_t k = 0; k < now->segment[i].blocks; k++)
            if (now->block[now->segment[i].first + k].allocated)
                take_block(&adding, &now->segment[i], &now->block[now->segment[i].first + k]);
    merge(&stacks);
    return stacks;
}

void cmd_stacks_free(cmd_stacks_t *stacks) {
    for (size_t i = 0; i < stacks->count; i++)
        free(stacks->stack[i].frames);
    free(stacks->stack);
    *stacks = (cmd_stacks_t){0};
}
