/* The allocators of devices (devices.h). */
#include "track/devices.h"

#include <string.h>

#include "device/driver.h"
#include "track/running.h"
#include "observe/history.h"
#include "observe/live.h"
#include "observe/log.h"
#include "observe/start.h"
#include "lock.h"

AC_START_DATA static ac_mutex_t lock = AC_MUTEX(CONTEXTS);
static ac_allocator_t *_Atomic allocators[AC_LIVE_DEVICES];
AC_START_DATA static _Atomic bool any_allocator; /* set with the first, under the lock */

/* Bytes that the program lets the process reserve, in addition to the limits of the settings;
 * 0: no limit. */
static uint64_t caps[AC_LIVE_DEVICES];

static _Atomic bool any_cap;

static ac_settings_t settings_of(CUdevice device, uint64_t total) {
    ac_settings_t settings = ac_settings_from(ac_process_config(), total);
    if (caps[device] && caps[device] < settings.limit)
        settings.limit = caps[device];
    return settings;
}

static ac_allocator_t *make_allocator(CUdevice device) {
    bool private;
    ac_live_device_t *live = ac_live_device_take((unsigned)device, &private);
    if (!live)
        return NULL;
    if (private)
        ac_log_once(AC_LOG_WARNING,
                    "no room for the live statistics of a further device: free space where the "
                    "live pages are (/dev/shm, or ACCEL_LIVE_DIR). Until then `accelcache stat "
                    "PID` does not show it; exit writes the dump as usual, a signal or _exit "
                    "leaves no figures of it");
    char name[sizeof live->name] = "";
    CUuuid uuid = {{0}};
    size_t total = 0;
    ac_driver.cuDeviceGetName(name, sizeof name, device);
    if (ac_driver.cuDeviceGetUuid)
        ac_driver.cuDeviceGetUuid(&uuid, device);
    ac_driver.cuDeviceTotalMem_v2(&total, device);

    ac_lock(&lock);
    ac_allocator_t *allocator = atomic_load(&any_allocator) ? allocators[device] : NULL;
    if (!allocator) {
        ac_live->total_memory[device] = total;
        ac_settings_t settings = settings_of(device, total);
        memcpy(live->name, name, sizeof live->name);
        memcpy(live->uuid, uuid.bytes, sizeof live->uuid);
        live->ordinal = device;
        allocator = ac_allocator_create(&settings, &live->stats, &live->counters);
        if (allocator) {
            ac_allocator_record(allocator, ac_history_of((unsigned)device));
            ac_live_device_publish((unsigned)device);
            atomic_store(&allocators[device], allocator);
            atomic_store(&any_allocator, true);
        }
    }
    ac_unlock(&lock);
    return allocator;
}

ac_allocator_t *ac_device_allocator(CUdevice device) {
    if (device < 0 || device >= AC_LIVE_DEVICES)
        return NULL;
    ac_allocator_t *allocator =
        atomic_load(&any_allocator) ? atomic_load(&allocators[device]) : NULL;
    return allocator ? allocator : make_allocator(device);
}

bool ac_device_limited(void) {
    const ac_config_t *config = ac_process_config();
    return ac_is_enabled() && (config->memory_limit || config->per_process_memory_fraction < 1 ||
                               atomic_load_explicit(&any_cap, memory_order_relaxed));
}

uint64_t ac_device_limit(CUdevice device, uint64_t total) {
    if (!ac_device_limited() || device < 0 || device >= AC_LIVE_DEVICES)
        return AC_UNLIMITED;
    ac_lock(&lock);
    uint64_t limit = settings_of(device, total).limit;
    ac_unlock(&lock);
    return limit;
}

void ac_device_each(void (*visit)(CUdevice, ac_allocator_t *, void *), void *arg) {
    for (CUdevice device = 0; device < AC_LIVE_DEVICES; device++) {
        ac_allocator_t *allocator = atomic_load(&allocators[device]);
        if (allocator)
            visit(device, allocator, arg);
    }
}

bool ac_device_figures(unsigned device, const struct timespec *deadline, ac_device_stats_t *stats,
                       ac_device_counters_t *counters) {
    ac_allocator_t *allocator = atomic_load(&allocators[device]);
    return allocator && ac_allocator_figures(allocator, deadline, stats, counters);
}

bool ac_device_held(unsigned device, const struct timespec *deadline, ac_held_visit_fn *visit,
                    void *arg) {
    ac_allocator_t *allocator = atomic_load(&allocators[device]);
    return allocator && ac_allocator_held(allocator, deadline, visit, arg);
}

static void look_for_memory(CUdevice device, ac_allocator_t *allocator, void *arg) {
    ac_device_stats_t stats;
    (void)device;
    ac_allocator_stats(allocator, &stats);
    *(bool *)arg |= stats.reserved_bytes[AC_POOL_ALL].current > 0;
}

bool ac_device_any_memory(void) {
    bool any = ac_is_enabled();
    if (!any)
        ac_device_each(look_for_memory, &any);
    return any;
}

static void configure(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)arg;
    ac_settings_t settings = settings_of(device, ac_live->total_memory[device]);
    ac_allocator_configure(allocator, &settings);
}

void ac_device_set_cap(CUdevice device, uint64_t bytes) {
    ac_lock(&lock);
    caps[device] = bytes;
    if (bytes)
        atomic_store(&any_cap, true);
    if (allocators[device])
        configure(device, allocators[device], NULL);
    ac_unlock(&lock);
}

void ac_device_configure(void) {
    /* The library's fill pattern would come before the work that is still pending in that
     * stream. */
    atomic_store(&ac_sole_wanted,
                 ac_process_config()->single_stream && !ac_process_config()->fill);
    ac_lock(&lock); /* an allocator that is being made may have seen older settings */
    if (atomic_load(&any_allocator))
        ac_device_each(configure, NULL);
    ac_unlock(&lock);
}
