/* See stacks.h. */
#include "read/stacks.h"
#include "command.h"
#include "read/document.h"
#include "read/naming.h"
#include "read/recorded.h"
#include "read/shares.h"
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    cmd_stacks_t *stacks;
    size_t room;
} adding_t;

/* Takes over `frames` and `site`. */
static void add(adding_t *adding, char *frames, char *site, const cmd_stack_t *figures) {
    cmd_stacks_t *stacks = adding->stacks;
    if (stacks->count == adding->room) {
        adding->room = adding->room ? adding->room * 2 : 64;
        stacks->stack = cmd_resize(stacks->stack, adding->room * sizeof *stacks->stack);
    }
    stacks->stack[stacks->count] = *figures;
    stacks->stack[stacks->count].site = site;
    stacks->stack[stacks->count++].frames = frames;
}

static int by_frames(const void *a, const void *b) {
    return strcmp(((const cmd_stack_t *)a)->frames, ((const cmd_stack_t *)b)->frames);
}

static int by_site(const void *a, const void *b) {
    return strcmp(((const cmd_stack_t *)a)->site, ((const cmd_stack_t *)b)->site);
}

static void merge(cmd_stacks_t *stacks, int (*order)(const void *a, const void *b)) {
    size_t kept = 0;
    if (stacks->count)
        qsort(stacks->stack, stacks->count, sizeof *stacks->stack, order);
    for (size_t i = 0; i < stacks->count; i++) {
        cmd_stack_t *from = &stacks->stack[i], *to = kept ? &stacks->stack[kept - 1] : NULL;
        if (!to || order(to, from) != 0) {
            stacks->stack[kept++] = *from;
            continue;
        }
        to->blocks = cmd_sum(to->blocks, from->blocks, 1);
        to->bytes = cmd_sum(to->bytes, from->bytes, 1);
        to->all_blocks = cmd_sum(to->all_blocks, from->all_blocks, 1);
        to->all_bytes = cmd_sum(to->all_bytes, from->all_bytes, 1);
        free(from->frames);
        free(from->site);
    }
    stacks->count = kept;
}

/* Line breaks divide frames; in folded stacks semicolons do. */
static char *frame_text(const char *text) {
    char *safe = cmd_safe(text);
    for (char *at = safe; *at; at++)
        if (*at == ';')
            *at = ':';
    return safe;
}

/* ------------------------------------------------------------------ of a dump */

static void take_module(adding_t *adding, int64_t ordinal, const json_t *module) {
    const char *name = json_string_value(json_object_get(module, "name"));
    char *safe = frame_text(name ? name : "unknown module");
    add(adding, cmd_format("device %lld\n%s", (long long)ordinal, safe), safe,
        &(cmd_stack_t){.bytes = cmd_integer(json_object_get(module, "allocated_bytes"), "current"),
                       .all_blocks = cmd_integer(module, "num_allocs"),
                       .all_bytes =
                           cmd_integer(json_object_get(module, "allocated_bytes"), "allocated")});
}

/* ------------------------------------------------------------------ frames */

/* The device and the frames, outermost first, without wrappers (naming.h). */
static char *stack_text(int64_t device, const json_t *frames) {
    char *stack = cmd_format("device %lld", (long long)device);
    json_t *telling = cmd_naming_stack(frames);
    for (size_t i = json_array_size(telling); i-- > 0;) {
        char *box = cmd_naming_box(json_array_get(telling, i)), *name = frame_text(box);
        free(box);
        char *longer = cmd_format("%s\n%s", stack, name);
        free(name);
        free(stack);
        stack = longer;
    }
    json_decref(telling);
    return stack;
}

/* ------------------------------------------------------------------ of recorded stacks */

static void add_recorded(adding_t *adding, const json_t *document, int64_t device, int64_t stack,
                         const cmd_stack_t *figures) {
    cmd_frame_t *frame;
    size_t count;
    if (!cmd_recorded_frames(document, stack, &frame, &count)) {
        add(adding, cmd_format("device %lld\nnot recorded", (long long)device),
            cmd_format("not recorded"), figures);
        return;
    }
    json_t *frames = cmd_frames_json(frame, count);
    add(adding, stack_text(device, frames), cmd_naming_site(frames), figures);
    json_decref(frames);
    free(frame);
}

/* The rows {device, stack, blocks, bytes, requested} of a dump. */
static void take_sites(adding_t *adding, const json_t *document, const json_t *sites) {
    size_t count;
    cmd_share_t *share = cmd_shares(document, sites, &count);
    for (size_t i = 0; i < count; i++)
        if (share[i].bytes > 0)
            add_recorded(adding, document, share[i].device, share[i].stack,
                         &(cmd_stack_t){.blocks = share[i].blocks, .bytes = share[i].bytes});
    free(share);
}

/* Adds the bytes that stacks hold.  False: none are recorded. */
static bool take_recorded(adding_t *adding, const json_t *document) {
    const json_t *recorded = json_object_get(document, "recorded"), *from;
    const json_t *sites = json_object_get(recorded, "sites");
    const json_t *stacks = json_object_get(recorded, "stack");
    const json_t *devices = json_object_get(document, "devices");
    int64_t device = cmd_integer(json_array_get(devices, 0), "ordinal");
    size_t index;
    if (!json_array_size(sites) && !json_array_size(stacks))
        return false;
    adding->stacks->has_all =
        !cmd_integer(recorded, "sample_bytes") && json_array_size(devices) == 1;
    take_sites(adding, document, sites);
    json_array_foreach((json_t *)(uintptr_t)stacks, index, from) {
        cmd_stack_t figures = {.all_blocks = cmd_integer(from, "requests"),
                               .all_bytes = cmd_integer(from, "bytes")};
        if (adding->stacks->has_all && figures.all_blocks > 0)
            add_recorded(adding, document, device, (int64_t)index + 1, &figures);
    }
    return true;
}

static void take_pool(adding_t *adding, const json_t *device, const char *pool) {
    add(adding, cmd_format("device %lld\n%s", (long long)cmd_integer(device, "ordinal"), pool),
        cmd_format("%s", pool),
        &(cmd_stack_t){.blocks = cmd_document_stat(device, "allocation", pool, "current"),
                       .bytes = cmd_document_stat(device, "allocated_bytes", pool, "current"),
                       .all_blocks = cmd_document_stat(device, "allocation", pool, "allocated"),
                       .all_bytes =
                           cmd_document_stat(device, "allocated_bytes", pool, "allocated")});
}

static void take_dump(adding_t *adding, const json_t *document) {
    size_t index, number;
    const json_t *device, *module;
    if (take_recorded(adding, document))
        return;
    json_array_foreach(json_object_get(document, "devices"), index, device) {
        const json_t *modules = json_object_get(device, "modules");
        json_array_foreach((json_t *)(uintptr_t)modules, number, module)
            take_module(adding, cmd_integer(device, "ordinal"), module);
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

/* Requests of one stack, or without stacks of one stream and class of sizes. */
typedef struct {
    const json_t *frames;
    uint64_t stream;
    unsigned class;
    int device;
    cmd_stack_t figures;
} group_t;

typedef struct {
    group_t *group; /* [1 << bits] by their hash; a group without requests is none */
    unsigned bits;
    size_t used;
} groups_t;

static bool same_group(const group_t *a, const group_t *b) {
    return a->frames == b->frames && a->stream == b->stream && a->class == b->class &&
           a->device == b->device;
}

static group_t *place_of(const groups_t *groups, const group_t *of) {
    uint64_t hash = ((uint64_t)(uintptr_t)of->frames + of->stream * 31 + of->class * 1021 +
                     (uint64_t)of->device * 65537) *
                    0x9e3779b97f4a7c15u;
    size_t mask = ((size_t)1 << groups->bits) - 1, at = (size_t)(hash >> 20);
    while (groups->group[at & mask].figures.all_blocks &&
           !same_group(&groups->group[at & mask], of))
        at++;
    return &groups->group[at & mask];
}

static void grow_groups(groups_t *groups) {
    groups_t larger = {.bits = groups->group ? groups->bits + 1 : 8, .used = groups->used};
    size_t bytes = sizeof *larger.group << larger.bits;
    larger.group = cmd_alloc(bytes);
    memset(larger.group, 0, bytes);
    for (size_t i = 0; groups->group && i < (size_t)1 << groups->bits; i++)
        if (groups->group[i].figures.all_blocks)
            *place_of(&larger, &groups->group[i]) = groups->group[i];
    free(groups->group);
    *groups = larger;
}

static char *stream_text(uint64_t stream) {
    return stream ? cmd_format("stream %llu", (unsigned long long)stream) : cmd_format("no stream named");
}

static char *nameless_site(uint64_t bytes, uint64_t stream) {
    char *class = class_text(class_of(bytes)), *of = stream_text(stream);
    char *site = cmd_format("requests of %s, %s", class, of);
    free(of);
    free(class);
    return site;
}

char *cmd_stacks_site(const json_t *frames, uint64_t bytes, uint64_t stream) {
    return json_array_size(frames) ? cmd_naming_site(frames) : nameless_site(bytes, stream);
}

static void put_group(adding_t *adding, const group_t *group) {
    if (json_array_size(group->frames)) {
        add(adding, stack_text(group->device, group->frames), cmd_naming_site(group->frames),
            &group->figures);
        return;
    }
    char *class = class_text(group->class), *stream = stream_text(group->stream);
    add(adding, cmd_format("device %d\n%s\n%s", group->device, stream, class),
        nameless_site((uint64_t)1 << group->class, group->stream), &group->figures);
    free(stream);
    free(class);
}

/* Returns true if the program held the block of ALLOC event `i`.  `end`: the number of events before the moment. */
static bool lives(const cmd_history_t *history, size_t i, size_t end, cmd_moment_t moment) {
    uint32_t partner = history->event[i].partner;
    if (i >= end)
        return false;
    return partner == CMD_NO_PARTNER || partner >= end ||
           (moment == CMD_AT_LEAKED && history->event[partner].implied);
}

static void take_events(adding_t *adding, const cmd_history_t *history, size_t end,
                        cmd_moment_t moment) {
    groups_t groups = {NULL, 0, 0};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        group_t of = {.device = event->device};
        cmd_bar_step("events", i, history->events);
        if (event->kind != CMD_EVENT_ALLOC)
            continue;
        if (json_array_size(event->frames)) {
            of.frames = event->frames;
        } else {
            of.stream = event->stream;
            of.class = class_of(event->bytes);
        }
        if (!groups.group || groups.used >= (size_t)1 << groups.bits >> 1)
            grow_groups(&groups);
        group_t *group = place_of(&groups, &of);
        if (!group->figures.all_blocks) {
            *group = of;
            groups.used++;
        }
        bool held = lives(history, i, end, moment);
        group->figures.blocks += held;
        group->figures.bytes += held ? (int64_t)event->bytes : 0;
        group->figures.all_blocks++;
        group->figures.all_bytes += (int64_t)event->bytes;
    }
    for (size_t i = 0; groups.group && i < (size_t)1 << groups.bits; i++)
        if (groups.group[i].figures.all_blocks)
            put_group(adding, &groups.group[i]);
    free(groups.group);
}

/* ------------------------------------------------------------------ of a snapshot */

static void take_block(adding_t *adding, const cmd_segment_t *segment, const cmd_block_t *block) {
    char *stack = stack_text(segment->device, block->frames),
         *site = cmd_naming_site(block->frames);
    if (!site) {
        unsigned long long stream = segment->stream;
        char *class = class_text(class_of(block->requested));
        char *longer = cmd_format("%s\nstream %llu\n%s", stack, stream, class);
        site = cmd_format("requests of %s, stream %llu", class, stream);
        free(class);
        free(stack);
        stack = longer;
    }
    add(adding, stack, site, &(cmd_stack_t){.blocks = 1, .bytes = (int64_t)block->requested});
}

typedef bool wanted_fn(const void *arg, const cmd_segment_t *segment, const cmd_block_t *block);

static void take_now(adding_t *adding, const cmd_history_t *history, wanted_fn *wanted,
                     const void *arg) {
    const cmd_segments_t *now = &history->now;
    for (size_t i = 0; i < now->segments; i++) {
        const cmd_segment_t *segment = &now->segment[i];
        for (size_t k = 0; k < segment->blocks; k++) {
            const cmd_block_t *block = &now->block[segment->first + k];
            if (cmd_block_is_held(block) && (!wanted || wanted(arg, segment, block)))
                take_block(adding, segment, block);
        }
    }
}

/* ------------------------------------------------------------------ of what was there before the first event */

typedef struct {
    uint64_t address;
    int device;
} spot_t;

typedef struct {
    spot_t *spot; /* of the requests among the events that were not freed; sorted */
    size_t count;
} spots_t;

static int by_spot(const void *a, const void *b) {
    const spot_t *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->address > y->address) - (x->address < y->address);
}

static bool is_older(const void *arg, const cmd_segment_t *segment, const cmd_block_t *block) {
    const spots_t *spots = arg;
    spot_t wanted = {block->address, segment->device};
    return !bsearch(&wanted, spots->spot, spots->count, sizeof wanted, by_spot);
}

/* A snapshot keeps the newest events only.  Blocks that no event asked for were there all the time until
 * their free, or until the moment of the snapshot. */
static void take_older(adding_t *adding, const cmd_history_t *history, size_t end) {
    spots_t spots = {.spot = cmd_alloc((history->events + 1) * sizeof *spots.spot)};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        if (event->partner != CMD_NO_PARTNER)
            continue;
        if (event->kind == CMD_EVENT_ALLOC) {
            spots.spot[spots.count++] = (spot_t){event->address, event->device};
        } else if (event->kind == CMD_EVENT_FREE && i >= end) {
            cmd_segment_t segment = {.device = event->device, .stream = event->stream};
            take_block(adding, &segment, &(cmd_block_t){.requested = event->bytes});
        }
    }
    if (spots.count)
        qsort(spots.spot, spots.count, sizeof *spots.spot, by_spot);
    take_now(adding, history, is_older, &spots);
    free(spots.spot);
}

/* ------------------------------------------------------------------ all */

bool cmd_moment_find(const char *name, cmd_moment_t *moment) {
    static const char *const names[] = {
        [CMD_AT_END] = "end", [CMD_AT_PEAK] = "peak", [CMD_AT_LEAKED] = "leaked"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        *moment = (cmd_moment_t)i;
        if (!strcmp(name, names[i]))
            return true;
    }
    return false;
}

const char *cmd_moment_text(cmd_moment_t moment) {
    static const char *const texts[] = {[CMD_AT_END] = "at the end",
                                        [CMD_AT_PEAK] = "at the peak",
                                        [CMD_AT_LEAKED] = "never freed"};
    return texts[moment];
}

/* The peak that the library noted; NULL: the history has none. */
static const json_t *noted_peak(const cmd_history_t *history) {
    return json_object_get(json_object_get(history->figures, "recorded"), "peak");
}

static bool gather(const cmd_history_t *history, cmd_moment_t moment, cmd_stacks_t *stacks,
                   char **error) {
    adding_t adding = {.stacks = stacks};
    bool snapshot = history->source == CMD_SOURCE_SNAPSHOT, peak = moment == CMD_AT_PEAK;
    *stacks = (cmd_stacks_t){.has_all = !snapshot};
    if (peak && noted_peak(history)) {
        take_sites(&adding, history->figures, json_object_get(noted_peak(history), "sites"));
        stacks->has_all = false;
        return true;
    }
    if (peak && !history->events) {
        *error = cmd_format(
            "it has no events, which tell of the peak: run the program with accelcache record, "
            "or with history:N in ACCEL_ALLOC_CONF");
        return false;
    }
    size_t end = peak ? cmd_history_peak(history) : history->events;
    if (history->figures && !history->events)
        take_dump(&adding, history->figures);
    else if (!snapshot || peak)
        take_events(&adding, history, end, moment);
    if (snapshot && peak)
        take_older(&adding, history, end);
    else if (snapshot && !(history->figures && !history->events))
        take_now(&adding, history, NULL, NULL);
    return true;
}

bool cmd_stacks(const cmd_history_t *history, cmd_moment_t moment, cmd_stacks_t *stacks,
                char **error) {
    bool known = gather(history, moment, stacks, error);
    if (known)
        merge(stacks, by_frames);
    return known;
}

bool cmd_stacks_sites(const cmd_history_t *history, cmd_moment_t moment, cmd_stacks_t *stacks,
                      char **error) {
    bool known = gather(history, moment, stacks, error);
    if (known)
        merge(stacks, by_site);
    return known;
}

void cmd_stacks_before(const cmd_history_t *history, size_t end, cmd_stacks_t *stacks) {
    adding_t adding = {.stacks = stacks};
    *stacks = (cmd_stacks_t){0};
    take_events(&adding, history, end, CMD_AT_PEAK);
    if (history->source == CMD_SOURCE_SNAPSHOT)
        take_older(&adding, history, end);
    merge(stacks, by_site);
}

void cmd_stacks_free(cmd_stacks_t *stacks) {
    for (size_t i = 0; i < stacks->count; i++) {
        free(stacks->stack[i].frames);
        free(stacks->stack[i].site);
    }
    free(stacks->stack);
    *stacks = (cmd_stacks_t){0};
}
