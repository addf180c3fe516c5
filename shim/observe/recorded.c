/* Recorded stacks and events in documents (recorded.h). */
#include "observe/recorded.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/history.h"
#include "observe/holding.h"
#include "observe/live.h"
#include "observe/module_name.h"
#include "observe/raw.h"
#include "observe/sites.h"
#include "observe/text.h"

static struct {
    ac_held_each_fn *each; /* NULL: nothing is recorded */
    ac_stacks_t stacks;
} mode;

void ac_recorded_start(ac_stacks_t stacks, ac_held_each_fn *each) {
    mode.stacks = stacks;
    mode.each = each;
    atomic_store(&ac_sites_followed, stacks != AC_STACKS_NONE);
}

static bool has_history(void) {
    uint64_t dropped;
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++)
        if (ac_history_count(ac_history_of(i), &dropped))
            return true;
    return ac_history_is_on();
}

/* ------------------------------------------------------------------ held blocks by stack */

/* The blocks that a stack holds on a device; during the gathering, a single block. */
typedef struct {
    uint64_t address; /* of the single block */
    uint64_t blocks, bytes, requested, estimate;
    unsigned device;
    uint32_t stack;
} held_t;

typedef struct {
    held_t *held;
    size_t count, room; /* of this device */
    unsigned device;
} gather_t;

static void count_block(const ac_held_t *block, void *arg) {
    (void)block;
    ((gather_t *)arg)->room++;
}

static void gather_block(const ac_held_t *block, void *arg) {
    gather_t *gather = arg;
    if (gather->count < gather->room) /* else: taken since they were counted */
        gather->held[gather->count++] = (held_t){.address = block->address,
                                                 .blocks = 1,
                                                 .bytes = block->size,
                                                 .requested = block->requested,
                                                 .device = gather->device};
}

/* Looks up the stacks of blocks; called without the device's lock. */
static void name_blocks(held_t *held, size_t count, const struct timespec *deadline) {
    for (size_t i = 0; i < count; i++) {
        ac_holding_t holding;
        if (!ac_holding_get(held[i].address, deadline, &holding))
            continue;
        held[i].stack = holding.stack;
        held[i].estimate = holding.estimate;
    }
}

static held_t *gather_all(size_t *count) {
    struct timespec deadline = ac_raw_time(CLOCK_REALTIME);
    held_t *all = NULL;
    *count = 0;
    deadline.tv_sec++;
    for (unsigned device = 0; device < AC_LIVE_DEVICES; device++) {
        gather_t gather = {.device = device};
        if (!ac_live_device(ac_live, device) ||
            !mode.each(device, &deadline, count_block, &gather) || !gather.room)
            continue;
        gather.room += gather.room / 8 + 16;
        held_t *grown = realloc(all, (*count + gather.room) * sizeof *all);
        if (!grown)
            break;
        all = grown;
        gather.held = all + *count;
        if (mode.each(device, &deadline, gather_block, &gather)) {
            name_blocks(gather.held, gather.count, &deadline);
            *count += gather.count;
        }
    }
    return all;
}

static int compare(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_stack(const void *a, const void *b) {
    const held_t *x = a, *y = b;
    return x->device == y->device ? compare(x->stack, y->stack) : compare(x->device, y->device);
}

static int by_bytes(const void *a, const void *b) {
    const held_t *x = a, *y = b;
    return x->bytes == y->bytes ? by_stack(a, b) : compare(y->bytes, x->bytes);
}

/* Blocks of one device and stack become one entry, the most bytes first. */
static size_t join(held_t *held, size_t count) {
    size_t kept = 0;
    if (count)
        qsort(held, count, sizeof *held, by_stack);
    for (size_t i = 0; i < count; i++) {
        held_t *last = kept ? &held[kept - 1] : NULL;
        if (last && by_stack(last, &held[i]) == 0) {
            last->blocks++;
            last->bytes += held[i].bytes;
            last->requested += held[i].requested;
            last->estimate += held[i].estimate;
        } else {
            held[kept++] = held[i];
        }
    }
    if (kept)
        qsort(held, kept, sizeof *held, by_bytes);
    return kept;
}

/* Compares by the innermost frame, which `address` contains here. */
static int by_frame(const void *a, const void *b) {
    const held_t *x = a, *y = b;
    return compare(x->address, y->address);
}

bool ac_recorded_largest(ac_recorded_site_t *site) {
    size_t count = 0;
    held_t *held = mode.each ? gather_all(&count) : NULL;
    *site = (ac_recorded_site_t){0, 0, 0};
    for (size_t i = 0; i < count; i++) {
        ac_site_t of;
        held[i].address = ac_site_get(held[i].stack, &of) ? of.frame[0] : 0;
    }
    if (count)
        qsort(held, count, sizeof *held, by_frame);
    ac_recorded_site_t one = *site;
    for (size_t i = 0; i < count; i++) {
        if (!i || held[i].address != held[i - 1].address)
            one = (ac_recorded_site_t){0, 0, held[i].stack};
        one.blocks++;
        one.bytes += held[i].bytes;
        if (one.stack && one.bytes > site->bytes)
            *site = one;
    }
    free(held);
    return site->stack;
}

static void put_sites(json_t *json, bool *failed) {
    json_t *sites = json_array();
    size_t blocks;
    held_t *held = gather_all(&blocks);
    size_t count = join(held, blocks);
    ac_json_put(json, "sites", sites, failed);
    for (size_t i = 0; i < count && !*failed; i++) {
        json_t *site = json_object();
        ac_json_append(sites, site, failed);
        if (*failed)
            break;
        ac_json_put_integer(site, "device", ac_live_device(ac_live, held[i].device)->ordinal,
                            failed);
        ac_json_put_integer(site, "stack", held[i].stack, failed);
        ac_json_put_integer(site, "blocks", (int64_t)held[i].blocks, failed);
        ac_json_put_integer(site, "bytes", (int64_t)held[i].bytes, failed);
        ac_json_put_integer(site, "requested", (int64_t)held[i].requested, failed);
        if (mode.stacks == AC_STACKS_SAMPLED)
            ac_json_put_integer(site, "estimated", (int64_t)held[i].estimate, failed);
    }
    free(held);
}

static void put_peak_site(json_t *sites, uint32_t stack, const ac_site_held_t *held, bool *failed) {
    json_t *site = json_object();
    ac_json_append(sites, site, failed);
    if (*failed)
        return;
    const ac_live_device_t *device = ac_live_device(ac_live, held->device);
    ac_json_put_integer(site, "device", device ? device->ordinal : 0, failed);
    ac_json_put_integer(site, "stack", stack, failed);
    ac_json_put_integer(site, "blocks", held->blocks > 0 ? held->blocks : 0, failed);
    ac_json_put_integer(site, "requested", held->bytes, failed);
    if (mode.stacks == AC_STACKS_SAMPLED)
        ac_json_put_integer(site, "estimated", held->estimate > 0 ? held->estimate : 0, failed);
}

/* Adds the holdings of each stack at the high-water mark. */
static void put_peak(json_t *json, bool *failed) {
    ac_site_held_t held;
    ac_site_t known;
    if (!ac_sites_peak())
        return;
    json_t *peak = ac_json_put_object(json, "peak", failed), *sites = json_array();
    ac_json_put_integer(peak, "requested", ac_sites_peak(), failed);
    ac_json_put(peak, "sites", sites, failed);
    for (uint32_t stack = 0; !*failed && (!stack || ac_site_get(stack, &known)); stack++)
        for (unsigned i = 0; !*failed && ac_site_peak(stack, i, &held); i++)
            if (held.bytes > 0)
                put_peak_site(sites, stack, &held, failed);
}

/* ------------------------------------------------------------------ stacks */

char *ac_site_label(char text[AC_SITE_LABEL], uint32_t stack) {
    ac_site_t site;
    char exe[AC_LIVE_EXE];
    *text = '\0';
    if (!ac_site_get(stack, &site))
        return text;
    const char *path = ac_site_file_path(ac_frame_file(site.frame[0] & ~AC_FRAME_TEXT));
    if (site.frame[0] & AC_FRAME_TEXT)
        path = NULL; /* an interpreter's function that called the driver itself */
    ac_live_exe(ac_live, exe);
    snprintf(text, AC_SITE_LABEL, "%.128s+0x%" PRIx64,
             path ? ac_module_file(*path ? path : exe) : "code of no file",
             ac_frame_offset(site.frame[0]));
    return text;
}

/* Makes an array of the function and the file of "function\nfile". */
static json_t *text_json(const char *text, bool *failed) {
    json_t *pair = json_array();
    const char *end = strchr(text, '\n');
    size_t length = end ? (size_t)(end - text) : strlen(text);
    ac_json_append(pair, ac_json_text(text, length), failed);
    ac_json_append(pair, end ? ac_json_text(end + 1, strlen(end + 1)) : json_null(), failed);
    return pair;
}

static json_t *frames_json(const ac_site_t *site, bool *failed) {
    json_t *frames = json_array();
    for (unsigned i = 0; i < site->count && !*failed; i++) {
        uint64_t frame = site->frame[i];
        bool text = frame & AC_FRAME_TEXT;
        int64_t first = text ? -(int64_t)((frame & ~AC_FRAME_TEXT) >> 32) : ac_frame_file(frame);
        uint64_t second = text ? frame & UINT32_MAX : ac_frame_offset(frame);
        ac_json_append(frames, json_integer(first), failed);
        ac_json_append(frames, json_integer((json_int_t)second), failed);
    }
    return frames;
}

static void put_stacks(json_t *json, bool *failed) {
    char exe[AC_LIVE_EXE];
    const char *text;
    ac_site_t site;
    json_t *files = json_array(), *texts = json_array(), *stacks = json_array();
    json_t *ids = json_array();
    ac_json_put(json, "files", files, failed);
    ac_json_put(json, "build_ids", ids, failed);
    ac_json_put(json, "texts", texts, failed);
    ac_json_put(json, "stack", stacks, failed);
    ac_live_exe(ac_live, exe);
    for (unsigned i = 1; !*failed && (text = ac_site_file_path(i)); i++) {
        text = *text ? text : exe;
        ac_json_append(files, ac_json_text(text, strlen(text)), failed);
        text = ac_site_file_id(i);
        ac_json_append(ids, *text ? ac_json_text(text, strlen(text)) : json_null(), failed);
    }
    for (uint32_t i = 1; !*failed && (text = ac_site_text_of(i)); i++)
        ac_json_append(texts, text_json(text, failed), failed);
    for (uint32_t i = 1; !*failed && ac_site_get(i, &site); i++) {
        json_t *stack = json_object();
        ac_json_append(stacks, stack, failed);
        if (*failed)
            return;
        ac_json_put(stack, "frames", frames_json(&site, failed), failed);
        ac_json_put_integer(stack, "requests", (int64_t)site.allocs, failed);
        ac_json_put_integer(stack, "bytes", (int64_t)site.bytes, failed);
    }
}

void ac_recorded_put(json_t *root, bool *failed) {
    static const char *const words[] = {"none", "sampled", "all"};
    if (!mode.each || (mode.stacks == AC_STACKS_NONE && !has_history()))
        return;
    json_t *json = ac_json_put_object(root, "recorded", failed);
    ac_json_put_text(json, "stacks", words[mode.stacks], failed);
    ac_json_put_integer(json, "sample_bytes",
                        mode.stacks == AC_STACKS_SAMPLED ? (int64_t)AC_SAMPLE_BYTES : 0, failed);
    ac_json_put_integer(json, "history", ac_history_is_on() ? (int64_t)ac_history_room() : 0,
                        failed);
    ac_json_put_integer(json, "time_ns", ac_raw_ns(CLOCK_REALTIME), failed);
    ac_json_put_integer(json, "lost_blocks", (int64_t)ac_holdings_lost(), failed);
    ac_json_put_integer(json, "lost_stacks", (int64_t)ac_sites_lost(), failed);
    put_sites(json, failed);
    put_peak(json, failed);
    put_stacks(json, failed); /* last, so that it has all stacks that the sites name */
}

/* ------------------------------------------------------------------ events */

static void add_event(ac_text_t *text, const ac_event_t *event) {
    ac_text_add(text,
                "[\"%s\", %" PRId64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu32
                ", %" PRIu32 "]",
                ac_event_words[event->kind < AC_EVENT_KINDS ? event->kind : 0], event->time_ns,
                event->address, event->bytes, event->stream, event->stack, event->thread);
}

static void add_device(ac_text_t *text, const ac_live_device_t *device,
                       const ac_history_t *history) {
    uint64_t dropped, count = ac_history_count(history, &dropped), room = ac_history_room();
    uint64_t from = count > room ? count - room : 0;
    bool any = false;
    ac_text_add(
        text, "{\"device\": %d, \"events\": %" PRIu64 ", \"dropped\": %" PRIu64 ", \"event\": [",
        (int)device->ordinal, count, dropped);
    for (uint64_t i = from; i < count; i++) {
        ac_event_t event;
        if (!ac_history_get(history, i, &event))
            continue;
        ac_text_add(text, any ? ",\n    " : "\n    ");
        add_event(text, &event);
        any = true;
    }
    ac_text_add(text, "]}");
}

char *ac_recorded_history(size_t *length) {
    ac_text_t text = {NULL, 0, 0, false};
    bool any = false;
    if (!mode.each || !has_history())
        return NULL;
    ac_text_add(&text, "[");
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++) {
        const ac_live_device_t *device = ac_live_device(ac_live, i);
        if (!device)
            continue;
        ac_text_add(&text, any ? ",\n  " : "");
        add_device(&text, device, ac_history_of(i));
        any = true;
    }
    ac_text_add(&text, "]");
    return ac_text_take(&text, length);
}
