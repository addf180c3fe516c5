/* Segments, blocks and the history, in the layout of PyTorch's memory snapshots. */
#include "api/pools_int.h"

#include <stdlib.h>

/* --- a segment in the making --- */

typedef struct {
    json_t *list, *segment, *blocks;
    json_t *known; /* frames (ac_frames_json) */
    int64_t allocated, active, requested;
    uint64_t address, size; /* of the segment so far */
    ac_layout_t pools; /* segments of private pools */
    accel_pool_id_t wanted; /* only of this pool; {0, 0}: all memory */
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

/* Begins a segment at the address, of the device and with the properties of `of`. */
static void begin_segment(writer_t *to, int device, uint64_t address,
                          const ac_laid_segment_t *of) {
    end_segment(to);
    to->segment = json_object();
    to->blocks = json_array();
    to->allocated = to->active = to->requested = 0;
    to->address = address;
    to->size = 0;
    ac_json_put_integer(to->segment, "device", device, &to->failed);
    put_address(to->segment, "address", address, &to->failed);
    put_address(to->segment, "stream", of->stream, &to->failed);
    ac_json_put_text(to->segment, "segment_type", of->small ? "small" : "large", &to->failed);
    put_pool(to->segment, "segment_pool_id", (accel_pool_id_t){of->pool[0], of->pool[1]},
             &to->failed);
    ac_json_put(to->segment, "is_expandable", of->paged ? json_true() : json_false(),
                &to->failed);
    ac_json_put(to->segment, "frames", json_array(), &to->failed);
}

/* Adds the part [from, end) of the block.  Only a whole block has a requested size. */
static void put_block(writer_t *to, const ac_laid_block_t *of, uint64_t from, uint64_t end,
                      uint32_t stack) {
    json_t *block = json_object();
    bool allocated = of->state == AC_LAID_ALLOCATED;
    bool active = allocated || of->state == AC_LAID_PENDING || of->state == AC_LAID_HELD;
    bool whole = active && from == of->address && end == of->address + of->size;
    uint64_t size = end - from, requested = whole ? of->requested : 0;
    put_address(block, "address", from, &to->failed);
    put_address(block, "size", size, &to->failed);
    put_address(block, "requested_size", requested, &to->failed);
    ac_json_put_text(block, "state",
                     allocated ? "active_allocated"
                     : active  ? "active_pending_free"
                               : "inactive",
                     &to->failed);
    ac_json_put(block, "frames", ac_frames_json(to->known, whole ? stack : 0, &to->failed),
                &to->failed);
    ac_json_append(to->blocks, block, &to->failed);
    to->size += size;
    to->active += active ? (int64_t)size : 0;
    to->requested += (int64_t)requested;
    to->allocated += allocated ? (int64_t)size : 0;
}

/* --- segments and blocks --- */

static void write_pools(writer_t *to) {
    const accel_pool_id_t none = {0, 0};
    for (size_t i = 0; i < to->pools.segments; i++) {
        const ac_laid_segment_t *segment = &to->pools.segment[i];
        const ac_laid_block_t *block = &to->pools.block[segment->first];
        if (!ac_pool_is(to->wanted, none) &&
            !ac_pool_is(to->wanted, (accel_pool_id_t){segment->pool[0], segment->pool[1]}))
            continue;
        begin_segment(to, segment->device, segment->address, segment);
        for (size_t j = 0; j < segment->count; j++)
            put_block(to, &block[j], block[j].address, block[j].address + block[j].size,
                      block[j].stack);
    }
    end_segment(to);
}

/* Returns the place of the first segment of a pool that ends behind the address. */
static size_t part_behind(const writer_t *to, uint64_t address) {
    size_t low = 0, high = to->pools.segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (to->pools.segment[middle].address + to->pools.segment[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Lists the part [from, end) of the cache's block.  Behind a gap a new segment begins. */
static void put_cached(writer_t *to, int device, const ac_laid_segment_t *segment,
                       const ac_laid_block_t *block, uint64_t from, uint64_t end) {
    if (from >= end)
        return;
    if (!to->segment || from != to->address + to->size)
        begin_segment(to, device, from, segment);
    uint32_t stack = block->state == AC_LAID_ALLOCATED ? ac_raw_stack(block->address) : 0;
    put_block(to, block, from, end, stack ? stack : block->stack);
}

/* Lists the block without the segments of pools that lie in it, which are listed already: each byte is listed
 * once. */
static void write_block(writer_t *to, int device, const ac_laid_segment_t *segment,
                        const ac_laid_block_t *block) {
    uint64_t at = block->address, end = at + block->size;
    for (size_t i = part_behind(to, at);
         i < to->pools.segments && to->pools.segment[i].address < end; i++) {
        put_cached(to, device, segment, block, at, to->pools.segment[i].address);
        at = to->pools.segment[i].address + to->pools.segment[i].size;
    }
    put_cached(to, device, segment, block, at, end);
}

static void write_cache(CUdevice device, ac_allocator_t *allocator, void *arg) {
    writer_t *to = arg;
    ac_layout_t layout;
    if (!ac_api_lay_out(&layout, allocator)) {
        to->failed = true;
        return;
    }
    for (size_t i = 0; i < layout.segments && !to->failed; i++) {
        const ac_laid_segment_t *segment = &layout.segment[i];
        for (size_t j = segment->first; j < segment->first + segment->count; j++)
            if (layout.block[j].state != AC_LAID_UNMAPPED)
                write_block(to, device, segment, &layout.block[j]);
        end_segment(to);
    }
    ac_layout_drop(&layout);
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
    writer_t to = {.list = json_array(), .known = json_object(), .wanted = pool};
    ac_lock(&ac_pools_lock);
    to.failed = !ac_pool_lay_out(&to.pools, NULL, -1);
    ac_unlock(&ac_pools_lock);
    write_pools(&to);
    if (ac_pool_is(pool, none))
        ac_device_each(write_cache, &to);
    ac_layout_drop(&to.pools);
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
