/* Segments, blocks and the history, in the layout of PyTorch's memory snapshots. */
#include "api/api_int.h"

#include <stdlib.h>
#include <time.h>

#include "observe/holding.h"

static const char *state_of(ac_block_state_t state) {
    return state == AC_BLOCK_ALLOCATED ? "active_allocated"
           : state == AC_BLOCK_RETIRED ? "active_pending_free"
                                       : "inactive";
}

/* --- a segment in the making --- */

typedef struct {
    json_t *list, *segment, *blocks;
    json_t *known; /* frames (ac_frames_json) */
    int64_t allocated, active, requested;
    uint64_t size; /* of its blocks */
    ac_pool_copy_t pools;
    bool failed;
} writer_t;

static void put_address(json_t *object, const char *key, uint64_t address, bool *failed) {
    ac_json_put_integer(object, key, (int64_t)address, failed);
}

static void put_pool(json_t *object, const char *key, accel_pool_id_t pool, bool *failed) {
    json_t *pair = json_array();
    ac_json_append(pair, json_integer((json_int_t)pool.first), failed);
    ac_json_append(pair, json_integer((json_int_t)pool.second), failed);
    ac_json_put(object, key, pair, failed);
}

static void end_segment(writer_t *to) {
    if (!to->segment)
        return;
    put_address(to->segment, "total_size", to->size, &to->failed);
    ac_json_put_integer(to->segment, "allocated_size", to->allocated, &to->failed);
    ac_json_put_integer(to->segment, "active_size", to->active, &to->failed);
    ac_json_put_integer(to->segment, "requested_size", to->requested, &to->failed);
    ac_json_put(to->segment, "blocks", to->blocks, &to->failed);
    ac_json_append(to->list, to->segment, &to->failed);
    to->segment = NULL;
}

typedef struct {
    int device;
    uint64_t address;
    const void *stream;
    bool small, expandable;
    accel_pool_id_t pool;
} segment_t;

static void begin_segment(writer_t *to, const segment_t *of) {
    end_segment(to);
    to->segment = json_object();
    to->blocks = json_array();
    to->allocated = to->active = to->requested = 0;
    to->size = 0;
    ac_json_put_integer(to->segment, "device", of->device, &to->failed);
    put_address(to->segment, "address", of->address, &to->failed);
    put_address(to->segment, "stream", (uint64_t)(uintptr_t)of->stream, &to->failed);
    ac_json_put_text(to->segment, "segment_type", of->small ? "small" : "large", &to->failed);
    put_pool(to->segment, "segment_pool_id", of->pool, &to->failed);
    ac_json_put(to->segment, "is_expandable", of->expandable ? json_true() : json_false(),
                &to->failed);
    ac_json_put(to->segment, "frames", json_array(), &to->failed);
}

static void put_block(writer_t *to, uint64_t address, uint64_t size, uint64_t requested,
                      const char *state, uint32_t stack) {
    json_t *block = json_object();
    bool used = state[0] == 'a', allocated = used && state[7] == 'a';
    put_address(block, "address", address, &to->failed);
    put_address(block, "size", size, &to->failed);
    put_address(block, "requested_size", used ? requested : 0, &to->failed);
    ac_json_put_text(block, "state", state, &to->failed);
    ac_json_put(block, "frames", ac_frames_json(to->known, used ? stack : 0, &to->failed),
                &to->failed);
    ac_json_append(to->blocks, block, &to->failed);
    to->size += size;
    to->active += used ? (int64_t)size : 0;
    to->requested += used ? (int64_t)requested : 0;
    to->allocated += allocated ? (int64_t)size : 0;
}

/* --- segments and blocks --- */

static void write_pools(writer_t *to) {
    for (size_t i = 0; i < to->pools.parts; i++) {
        const ac_pool_part_t *part = &to->pools.part[i];
        begin_segment(to, &(segment_t){.device = part->device,
                                       .address = part->address,
                                       .stream = part->stream,
                                       .small = part->small,
                                       .pool = part->pool});
        for (size_t j = part->first; j < part->first + part->count; j++) {
            const ac_pool_place_t *place = &to->pools.place[j];
            put_block(to, place->address, place->size, place->bytes, state_of(place->state),
                      place->stack);
        }
    }
    end_segment(to);
}

/* The first segment of a pool that ends behind the address. */
static size_t part_behind(const writer_t *to, uint64_t address) {
    size_t low = 0, high = to->pools.parts;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (to->pools.part[middle].address + to->pools.part[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the stack of the request, from the history for raw memory, else from the records of `stacks`. */
static uint32_t stack_of(const ac_item_t *item) {
    struct timespec deadline;
    ac_holding_t holding;
    if (item->state != AC_BLOCK_ALLOCATED)
        return 0;
    uint32_t stack = ac_raw_stack(item->address);
    if (stack)
        return stack;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec++;
    return ac_holding_get(item->address, &deadline, &holding) ? holding.stack : 0;
}

/* Memory of the cache from `address` to `end`, behind what is there already, or of a new segment. */
static void put_cached(writer_t *to, segment_t *segment, const ac_item_t *item, uint64_t address,
                       uint64_t end) {
    bool whole = address == item->address && end == address + item->size;
    if (address >= end)
        return;
    if (!to->segment || address != segment->address + to->size) {
        segment->address = address;
        begin_segment(to, segment);
    }
    put_block(to, address, end - address, whole ? item->requested : 0, state_of(item->state),
              whole ? stack_of(item) : 0);
}

/* Segments of pools lie in blocks of the cache, and are listed before: the rest of the block is listed here,
 * so that each byte is listed once. */
static void write_block(writer_t *to, segment_t *segment, const ac_item_t *item) {
    uint64_t at = item->address, end = at + item->size;
    for (size_t i = part_behind(to, at); i < to->pools.parts && to->pools.part[i].address < end; i++) {
        put_cached(to, segment, item, at, to->pools.part[i].address);
        at = to->pools.part[i].address + to->pools.part[i].size;
    }
    put_cached(to, segment, item, at, end);
}

static void write_cache(CUdevice device, ac_allocator_t *allocator, void *arg) {
    writer_t *to = arg;
    ac_items_t items = {.item = NULL};
    if (!ac_items_collect(&items, allocator))
        to->failed = true;
    segment_t segment = {.device = device};
    for (size_t i = 0; i < items.count && !to->failed; i++) {
        const ac_item_t *item = &items.item[i];
        if (item->segment) {
            end_segment(to);
            segment.small = item->small;
            segment.expandable = item->paged;
        } else {
            write_block(to, &segment, item);
        }
    }
    end_segment(to);
    free(items.item);
}

static const char *const action_names[] = {
    [ACCEL_TRACE_ALLOC] = "alloc",
    [ACCEL_TRACE_FREE_REQUESTED] = "free_requested",
    [ACCEL_TRACE_FREE_COMPLETED] = "free_completed",
    [ACCEL_TRACE_SEGMENT_ALLOC] = "segment_alloc",
    [ACCEL_TRACE_SEGMENT_FREE] = "segment_free",
    [ACCEL_TRACE_SNAPSHOT] = "snapshot",
    [ACCEL_TRACE_OOM] = "oom",
    [ACCEL_TRACE_SEGMENT_MAP] = "segment_map",
    [ACCEL_TRACE_SEGMENT_UNMAP] = "segment_unmap",
    [ACCEL_TRACE_USER_DEFINED] = "user_defined",
};

static json_t *history_of(int device, accel_pool_id_t pool, json_t *known, bool *failed) {
    const accel_pool_id_t none = {0, 0};
    json_t *list = json_array();
    size_t count = ac_history_read(device, NULL, 0);
    accel_trace_entry_t *entries = count ? malloc(count * sizeof *entries) : NULL;
    if (count && !entries)
        *failed = true;
    else
        count = count ? ac_history_read(device, entries, count) : 0;
    for (size_t i = 0; entries && i < count; i++) {
        const accel_trace_entry_t *entry = &entries[i];
        if (!ac_pool_is(pool, none) && !ac_pool_is(pool, entry->pool))
            continue;
        json_t *one = json_object();
        bool oom = entry->action == ACCEL_TRACE_OOM;
        ac_json_put_text(one, "action", action_names[entry->action], failed);
        put_address(one, oom ? "device_free" : "addr", entry->address, failed);
        put_address(one, "size", entry->bytes, failed);
        put_address(one, "stream", (uint64_t)(uintptr_t)entry->stream, failed);
        put_address(one, "time_us", entry->time_us, failed);
        put_pool(one, "pool_id", entry->pool, failed);
        ac_json_put(one, "frames", ac_frames_json(known, entry->stack, failed), failed);
        if (entry->action == ACCEL_TRACE_USER_DEFINED)
            ac_json_put_text(one, "user_metadata", entry->text ? entry->text : "", failed);
        ac_json_append(list, one, failed);
    }
    free(entries);
    return list;
}

accel_status_t accel_snapshot(accel_pool_id_t pool, char **json) {
    const accel_pool_id_t none = {0, 0};
    size_t length;
    if (!json)
        return ACCEL_ERROR_INVALID;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    if (!ac_json_ready())
        return ACCEL_ERROR_UNSUPPORTED;
    if (!ac_pool_is(pool, none) && !accel_pool_use_count(pool))
        return ACCEL_ERROR_INVALID;
    ac_history(ACCEL_TRACE_SNAPSHOT, accel_current_device(), 0, 0, NULL, pool, 0);
    writer_t to = {.list = json_array(), .known = json_object()};
    to.failed = !ac_pool_copy(&to.pools, pool, -1, false);
    write_pools(&to);
    if (ac_pool_is(pool, none))
        ac_device_each(write_cache, &to);
    ac_pool_copy_drop(&to.pools);
    json_t *root = json_object(), *traces = json_array();
    for (int device = 0; device < accel_device_count() && device < AC_LIVE_DEVICES; device++)
        ac_json_append(traces, history_of(device, pool, to.known, &to.failed), &to.failed);
    ac_json_put(root, "segments", to.list, &to.failed);
    ac_json_put(root, "device_traces", traces, &to.failed);
    char *text = to.failed ? NULL : ac_json_dump(root, &length);
    ac_json_free(root);
    ac_json_free(to.known);
    if (text)
        *json = text;
    return text ? ACCEL_OK : ACCEL_ERROR_OUT_OF_MEMORY;
}
