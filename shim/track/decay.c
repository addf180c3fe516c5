/* See decay.h. */
#include "track/decay.h"

#include "allocator/supply/supply.h"
#include "device/driver.h"
#include "track/context.h"
#include "track/pinned.h"
#include "track/running.h"
#include "observe/host_memory.h"
#include "observe/raw.h"

/* Steps in idle_trim_ms: memory goes back after idle_trim_ms and at most a quarter more. */
enum { STEPS = 4, LOOK_NS = 250000000 };
#define PINNED_LOOK_NS   ((int64_t)2000000000)
#define PRESSURE_LOOK_NS ((int64_t)1000000000)

/* True if a device uses the host's memory. */
static _Atomic bool any_integrated;

void ac_decay_start(void) {
    int count = 0;
    if (!ac_is_enabled() || ac_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return;
    for (int i = 0; i < count; i++)
        if (ac_cuda_integrated(i))
            atomic_store(&any_integrated, true);
}

int64_t ac_decay_interval(const ac_config_t *config) {
    int64_t idle = (int64_t)config->idle_trim_ms * (1000000 / STEPS);
    if (config->keep_free && (!idle || idle > LOOK_NS))
        return LOOK_NS;
    int64_t look = !config->background_trim       ? 0
                   : atomic_load(&any_integrated) ? PRESSURE_LOOK_NS
                   : config->pinned_cache         ? PINNED_LOOK_NS
                                                  : 0;
    return look && (!idle || idle > look) ? look : idle;
}

/* Returns the number of whole intervals for which memory has to be idle. */
static uint32_t epochs_of(const ac_config_t *config) {
    int64_t interval = ac_decay_interval(config), idle = (int64_t)config->idle_trim_ms * 1000000;
    return interval ? (uint32_t)((idle + interval - 1) / interval) : 1;
}

static bool is_short(CUdevice device, ac_allocator_t *allocator, uint64_t least) {
    uint64_t available;
    if (!least || !ac_allocator_idle_bytes(allocator))
        return false;
    return ac_cuda_host_left(device) < least ||
           (ac_allocator_available(allocator, &available) && available < least);
}

typedef struct {
    const ac_config_t *config;
    bool pressed; /* the host's memory got short */
} ac_step_t;

static void step_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    const ac_step_t *step = arg;
    const ac_config_t *config = step->config;
    if (config->idle_trim_ms) /* also memory of a cache that was switched off */
        ac_allocator_decay(allocator, epochs_of(config));
    if (is_short(device, allocator, config->keep_free) || (step->pressed && ac_cuda_integrated(device)))
        ac_allocator_trim(allocator, false);
}

static void settle_device(CUdevice device, ac_allocator_t *allocator, void *settled) {
    (void)device;
    if (!ac_allocator_settle_debt(allocator))
        *(bool *)settled = false;
}

bool ac_decay_settle(void) {
    bool settled = !ac_cuda_is_capturing(NULL);
    if (!settled)
        return false;
    atomic_store(&ac_trim_pending, false); /* cleared first: a trim postponed now sets it again */
    ac_device_each(settle_device, &settled);
    if (!settled)
        ac_supply_watch(); /* the writer may have checked meanwhile, and stopped its timer */
    return settled;
}

void ac_decay_synced(bool whole) {
    enum { FIRST_NS = 1000000, LAST_NS = 100000000 };
    static _Atomic int64_t next, pause;
    int64_t now = ac_raw_ns(CLOCK_MONOTONIC);
    if (!whole && ac_process_config()->background_trim && now < atomic_load(&next))
        return;
    int64_t wait = atomic_load(&pause) * 2;
    if (ac_decay_settle())
        wait = 0;
    else
        wait = wait < FIRST_NS ? FIRST_NS : wait > LAST_NS ? LAST_NS : wait;
    atomic_store(&pause, wait);
    atomic_store(&next, now + wait);
}

void ac_decay_step(void) {
    ac_config_t config = *ac_process_config();
    if (ac_cuda_is_capturing(NULL))
        return;
    ac_step_t step = {&config, atomic_load(&any_integrated) && config.background_trim &&
                                   ac_host_memory_pressed()};
    ac_device_each(step_device, &step);
    ac_pinned_decay(&config);
}
