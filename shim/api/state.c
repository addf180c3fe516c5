/* What the library is and has: names, the largest block, limits, snapshots. */
#include "api/api_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/driver.h"

int accel_version(void) {
    return ACCEL_VERSION;
}

const char *accel_name(void) {
    return "accelcache";
}

const char *accel_get_accelerator(void) {
    return accel_device_count() > 0 ? "cuda" : NULL;
}

/* --- what the cache has --- */

bool ac_api_lay_out(ac_layout_t *layout, ac_allocator_t *allocator) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 10;
    *layout = (ac_layout_t){.segment = NULL};
    return ac_layout_take(layout, allocator, &deadline);
}

/* Returns the bytes of the largest run of blocks which neither the program nor a graph holds.  Memory that waits for
 * work counts, too: a request of its stream gets it, and another one waits for it. */
static uint64_t largest_of(const ac_layout_t *layout) {
    uint64_t largest = 0;
    for (size_t i = 0; i < layout->segments; i++) {
        const ac_laid_segment_t *segment = &layout->segment[i];
        const ac_laid_block_t *block = &layout->block[segment->first];
        uint64_t bytes = 0, end = 0;
        for (size_t j = 0; j < segment->count; j++, block++) {
            bool held = block->state == AC_LAID_ALLOCATED || block->state == AC_LAID_HELD ||
                        block->state == AC_LAID_UNMAPPED;
            bytes = (block->address == end ? bytes : 0) + block->size;
            bytes = held ? 0 : bytes;
            end = block->address + block->size;
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

accel_status_t accel_cache_info(int device, size_t *largest) {
    accel_status_t status = ac_api_need(device);
    size_t total;
    ac_api_scope_t scope;
    if (status != ACCEL_OK || !largest)
        return status == ACCEL_OK ? ACCEL_ERROR_INVALID : status;
    ac_allocator_t *allocator = ac_device_allocator(device);
    if (!allocator)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    size_t available;
    if (!ac_api_enter(&scope, device))
        return ACCEL_ERROR_CUDA;
    CUresult result = ac_driver.cuMemGetInfo_v2(&available, &total);
    ac_api_leave(&scope);
    if (result != CUDA_SUCCESS)
        return ACCEL_ERROR_CUDA;
    ac_layout_t layout;
    uint64_t room = ac_allocator_room(allocator);
    ac_allocator_recall(allocator);
    if (!ac_api_lay_out(&layout, allocator))
        return ACCEL_ERROR_OUT_OF_MEMORY;
    uint64_t in_cache = largest_of(&layout);
    ac_layout_drop(&layout);
    if (available > room)
        available = room;
    *largest = available > in_cache ? available : in_cache;
    return ACCEL_OK;
}

/* Adds `bytes` to the entry of the stream in the list, which has room for one entry more. */
static size_t add_size(accel_segment_size_t *size, size_t count, void *stream, bool small,
                       uint64_t bytes) {
    size_t at = 0;
    while (at < count && (size[at].stream != stream || size[at].small != small))
        at++;
    if (at == count)
        size[count++] = (accel_segment_size_t){stream, small, 0};
    size[at].bytes += bytes;
    return count;
}

/* Returns the stream of the request for the block; NULL: it is not known. */
static void *stream_of(const ac_laid_block_t *block) {
    uint64_t segment;
    void *stream;
    ac_raw_t raw;
    if (block->state != AC_LAID_ALLOCATED)
        return NULL;
    if (ac_pool_segment_of(block->address, &segment, &stream))
        return stream;
    return ac_raw_find(block->address, &raw) && !raw.allocator ? raw.stream : NULL;
}

accel_status_t accel_get_expandable_segment_sizes(int device, accel_segment_size_t **out,
                                                  size_t *count) {
    ac_layout_t layout;
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK || !out || !count)
        return status == ACCEL_OK ? ACCEL_ERROR_INVALID : status;
    ac_allocator_t *allocator = ac_device_allocator(device);
    if (!allocator || !ac_api_lay_out(&layout, allocator))
        return ACCEL_ERROR_OUT_OF_MEMORY;
    size_t found = 0;
    accel_segment_size_t *size = calloc(layout.blocks + 1, sizeof *size);
    for (size_t i = 0; size && i < layout.segments; i++) {
        const ac_laid_segment_t *segment = &layout.segment[i];
        for (size_t j = segment->first; j < segment->first + segment->count; j++)
            if (segment->paged && layout.block[j].state != AC_LAID_UNMAPPED)
                found = add_size(size, found, stream_of(&layout.block[j]), segment->small,
                                 layout.block[j].size);
    }
    ac_layout_drop(&layout);
    if (!size)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    if (!found)
        free(size);
    *out = found ? size : NULL;
    *count = found;
    return ACCEL_OK;
}

/* --- limits --- */

static _Atomic uint64_t fractions[AC_LIVE_DEVICES]; /* the bits of a double, of 1 - fraction */

accel_status_t accel_set_memory_fraction(double fraction, int device) {
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK)
        return status;
    if (!(fraction >= 0 && fraction <= 1) || device >= AC_LIVE_DEVICES)
        return ACCEL_ERROR_INVALID;
    if (!ac_device_allocator(device))
        return ACCEL_ERROR_OUT_OF_MEMORY;
    const accel_allocator_t *set = ac_raw_allocator();
    double missing = 1 - fraction;
    uint64_t bits, total = ac_live->total_memory[device];
    memcpy(&bits, &missing, sizeof bits);
    if (missing > 0 && !total)
        return ACCEL_ERROR_UNSUPPORTED;
    uint64_t cap = (uint64_t)((double)total * fraction);
    ac_device_set_cap(device, missing > 0 ? cap ? cap : 1 : 0);
    atomic_store(&fractions[device], bits);
    if (set && set->memory_fraction_fn)
        set->memory_fraction_fn(fraction, device);
    return ACCEL_OK;
}

accel_status_t accel_get_memory_fraction(double *fraction, int device) {
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK)
        return status;
    if (!fraction || device >= AC_LIVE_DEVICES)
        return ACCEL_ERROR_INVALID;
    uint64_t bits = atomic_load(&fractions[device]);
    double missing;
    memcpy(&missing, &bits, sizeof missing);
    *fraction = 1 - missing;
    return ACCEL_OK;
}

/* --- on and off --- */

accel_status_t accel_enable(int enabled) {
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    return ac_process_enable(enabled != 0) ? ACCEL_OK : ACCEL_ERROR_OUT_OF_MEMORY;
}

int accel_is_enabled(void) {
    return ac_api_ready() && ac_is_enabled();
}
