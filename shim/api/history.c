/* Observers of the program, and the history of raw memory: rings of entries, one for each device. */
#include "api/api_int.h"

#include <stdlib.h>
#include <time.h>

#include "intercept/observers.h"
#include "lock.h"

_Atomic bool ac_history_wanted;

enum { MOST = 16 << 20 };

/* `next` counts all entries that were ever written; the ring has the last `size` of them. */
typedef struct {
    accel_trace_entry_t *entry;
    uint64_t next;
} ring_t;

static ac_mutex_t lock = AC_MUTEX(LEAF);
static ring_t rings[AC_LIVE_DEVICES];
static size_t size; /* of each ring; 0: nothing is kept */

/* Under the lock. */
static void want(void) {
    atomic_store(&ac_history_wanted, size || ac_observed(AC_OBSERVE_TRACE));
}

static void call_tracker(ac_observer_fn *function, void *arg, void *of) {
    ((accel_trace_tracker_t)function)(of, arg);
}

static void keep(const accel_trace_entry_t *entry) {
    ring_t *ring = &rings[entry->device];
    ac_lock(&lock);
    if (size && !ring->entry)
        ring->entry = malloc(size * sizeof *ring->entry);
    if (size && ring->entry)
        ring->entry[ring->next++ % size] = *entry;
    ac_unlock(&lock);
}

void ac_history_tell(accel_trace_action_t action, int device, uint64_t address, size_t bytes,
                     void *stream, accel_pool_id_t pool) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    accel_trace_entry_t entry = {.action = action,
                                 .device = device,
                                 .address = address,
                                 .bytes = bytes,
                                 .stream = stream,
                                 .pool = pool,
                                 .time_us = (uint64_t)now.tv_sec * 1000000 +
                                            (uint64_t)now.tv_nsec / 1000};
    if (device >= 0 && device < AC_LIVE_DEVICES)
        keep(&entry);
    if (ac_observed(AC_OBSERVE_TRACE))
        ac_observers_call(AC_OBSERVE_TRACE, call_tracker, &entry);
}

size_t ac_history_read(int device, accel_trace_entry_t *entries, size_t most) {
    const ring_t *ring = &rings[device];
    ac_lock(&lock);
    size_t count = ring->next < size ? (size_t)ring->next : size;
    if (most && most < count)
        count = most;
    for (size_t i = 0; most && i < count; i++)
        entries[i] = ring->entry[(ring->next - count + i) % size];
    ac_unlock(&lock);
    return count;
}

accel_status_t accel_record_history(size_t most) {
    if (most > MOST)
        return ACCEL_ERROR_INVALID;
    ac_lock(&lock);
    for (int device = 0; device < AC_LIVE_DEVICES; device++) {
        free(rings[device].entry);
        rings[device] = (ring_t){NULL, 0};
    }
    size = most;
    want();
    ac_unlock(&lock);
    return ACCEL_OK;
}

int accel_is_history_enabled(void) {
    ac_lock(&lock);
    bool enabled = size;
    ac_unlock(&lock);
    return enabled;
}

/* --- observers --- */

static accel_status_t change(ac_observe_t kind, ac_observer_fn *function, void *arg,
                             bool (*how)(ac_observe_t, ac_observer_fn *, void *),
                             accel_status_t otherwise) {
    if (!function)
        return ACCEL_ERROR_INVALID;
    bool done = how(kind, function, arg);
    ac_lock(&lock);
    want();
    ac_unlock(&lock);
    return done ? ACCEL_OK : otherwise;
}

#define ATTACH(name, type, kind)                                                                 \
    accel_status_t name(type function, void *arg) {                                              \
        return change(kind, (ac_observer_fn *)function, arg, ac_observer_add, ACCEL_ERROR_BUSY); \
    }
#define DETACH(name, type, kind)                                                                 \
    accel_status_t name(type function, void *arg) {                                              \
        return change(kind, (ac_observer_fn *)function, arg, ac_observer_remove,                 \
                      ACCEL_ERROR_INVALID);                                                      \
    }
ATTACH(accel_attach_oom_observer, accel_oom_observer_t, AC_OBSERVE_OOM)
DETACH(accel_detach_oom_observer, accel_oom_observer_t, AC_OBSERVE_OOM)
ATTACH(accel_add_free_callback, accel_free_callback_t, AC_OBSERVE_FREE)
DETACH(accel_remove_free_callback, accel_free_callback_t, AC_OBSERVE_FREE)
ATTACH(accel_attach_trace_tracker, accel_trace_tracker_t, AC_OBSERVE_TRACE)
DETACH(accel_detach_trace_tracker, accel_trace_tracker_t, AC_OBSERVE_TRACE)
