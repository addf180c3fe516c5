/* What the library is and has: names, the largest block, limits, snapshots. */
#include "api/api_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* --- cache_info --- */

/* `end`: of the memory before the item that no one holds, and `bytes` of it. */
typedef struct {
    uint64_t end, bytes, largest;
} look_t;

/* What waits for work, too: a request gets it in the order of its stream, or waits for it. */
static void note_largest(const ac_item_t *item, void *arg) {
    look_t *look = arg;
    bool held = item->state == AC_BLOCK_ALLOCATED || item->captured;
    if (item->segment || held || item->address != look->end)
        look->bytes = 0;
    if (item->segment || held)
        return;
    look->bytes += item->size;
    look->end = item->address + item->size;
    if (look->bytes > look->largest)
        look->largest = look->bytes;
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
    look_t look = {0, 0, 0};
    uint64_t room = ac_allocator_room(allocator);
    ac_allocator_recall(allocator);
    ac_allocator_walk(allocator, note_largest, &look);
    if (available > room)
        available = room;
    *largest = available > look.largest ? available : look.largest;
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
