/* Observers of the program, and the history of raw memory: rings of entries, one for each device. */
#include "api/api_int.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "track/observers.h"
#include "tell/recording.h"
#include "observe/sites.h"
#include "lock.h"

_Atomic bool ac_history_wanted;
_Atomic int ac_history_when;

enum { MOST = 16 << 20 };

/* `next` counts all entries that were ever written; the ring has the last `size` of them. */
typedef struct {
    accel_trace_entry_t *entry;
    uint64_t next;
} ring_t;

static ac_mutex_t lock = AC_MUTEX(LEAF);
static ring_t rings[AC_LIVE_DEVICES];
static size_t size; /* of each ring; 0: nothing is kept */

static void tell_memory(ac_event_kind_t kind, CUdevice device, uint64_t address, uint64_t bytes);

/* The caller holds the lock. */
static void want(void) {
    bool wanted = size || ac_observed(AC_OBSERVE_TRACE);
    atomic_store(&ac_history_wanted, wanted);
    atomic_store(&ac_cuda_memory_observer, wanted ? tell_memory : NULL);
}

static void call_tracker(ac_observer_fn *function, void *arg, void *of) {
    ((accel_trace_tracker_t)function)(of, arg);
}

/* --- stacks --- */

static void call_recorder(ac_observer_fn *function, void *arg, void *of) {
    *(char **)of = ((accel_context_recorder_t)function)(arg);
}

uint32_t ac_history_look(const void *caller) {
    ac_thread_t *thread = ac_is_active() ? ac_thread_get() : NULL;
    char *text = NULL;
    if (!thread)
        return 0;
    if (ac_observed(AC_OBSERVE_CONTEXT))
        ac_observers_call(AC_OBSERVE_CONTEXT, call_recorder, &text);
    uint32_t stack = ac_record_context(thread, caller, text);
    free(text);
    return stack;
}

/* --- entries --- */

static void keep(const accel_trace_entry_t *entry) {
    ring_t *ring = &rings[entry->device];
    ac_lock(&lock);
    if (size && !ring->entry)
        ring->entry = malloc(size * sizeof *ring->entry);
    if (size && ring->entry)
        ring->entry[ring->next++ % size] = *entry;
    ac_unlock(&lock);
}

/* `said`: the text of the program; NULL: the recorder's. */
static void tell(accel_trace_entry_t entry, const char *said) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    entry.time_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    if (atomic_load(&ac_history_when) < ACCEL_CONTEXT_ALLOC)
        entry.stack = 0;
    entry.text = said ? ac_site_text_of(ac_site_text(said)) : ac_record_text(entry.stack);
    if (entry.device >= 0 && entry.device < AC_LIVE_DEVICES)
        keep(&entry);
    if (said)
        entry.text = said;
    if (ac_observed(AC_OBSERVE_TRACE))
        ac_observers_call(AC_OBSERVE_TRACE, call_tracker, &entry);
}

void ac_history_tell(accel_trace_action_t action, int device, uint64_t address, size_t bytes,
                     void *stream, accel_pool_id_t pool, uint32_t stack) {
    tell((accel_trace_entry_t){.action = action,
                               .device = device,
                               .address = address,
                               .bytes = bytes,
                               .stream = stream,
                               .pool = pool,
                               .stack = stack},
         NULL);
}

/* Memory that the cache has from the driver (ac_cuda_memory_observer). */
static void tell_memory(ac_event_kind_t kind, CUdevice device, uint64_t address, uint64_t bytes) {
    accel_trace_action_t action = kind == AC_EVENT_SEGMENT_ALLOC  ? ACCEL_TRACE_SEGMENT_ALLOC
                                  : kind == AC_EVENT_SEGMENT_FREE ? ACCEL_TRACE_SEGMENT_FREE
                                  : kind == AC_EVENT_SEGMENT_MAP  ? ACCEL_TRACE_SEGMENT_MAP
                                                                  : ACCEL_TRACE_SEGMENT_UNMAP;
    ac_history_tell(action, device, address, bytes, NULL, (accel_pool_id_t){0, 0},
                    ac_history_stack(ACCEL_CONTEXT_ALLOC, NULL));
}

accel_status_t accel_annotate(const char *text) {
    if (!text)
        return ACCEL_ERROR_INVALID;
    if (!atomic_load(&ac_history_wanted))
        return ACCEL_OK;
    int device = accel_current_device();
    if (device < 0)
        return ACCEL_ERROR_NO_DRIVER;
    tell((accel_trace_entry_t){
             .action = ACCEL_TRACE_USER_DEFINED,
             .device = device,
             .stack = ac_history_stack(ACCEL_CONTEXT_ALLOC, __builtin_return_address(0))},
         text);
    return ACCEL_OK;
}

/* --- what is kept --- */

/* The caller holds the lock. */
static size_t count_of(const ring_t *ring) {
    return ring->next < size ? (size_t)ring->next : size;
}

static void copy_newest(const ring_t *ring, accel_trace_entry_t *entries, size_t count) {
    for (size_t i = 0; i < count; i++)
        entries[i] = ring->entry[(ring->next - count + i) % size];
}

size_t ac_history_read(int device, accel_trace_entry_t *entries, size_t most) {
    const ring_t *ring = &rings[device];
    ac_lock(&lock);
    size_t count = count_of(ring);
    if (most && most < count)
        count = most;
    copy_newest(ring, entries, most ? count : 0);
    ac_unlock(&lock);
    return count;
}

/* Makes room for `most` entries under the lock; the newest `kept` entries stay.  If host memory is short, the ring is
 * empty. */
static void resize(ring_t *ring, size_t most, size_t kept) {
    size_t count = count_of(ring) < kept ? count_of(ring) : kept;
    ring_t made = {count ? malloc(most * sizeof *made.entry) : NULL, count};
    if (made.entry)
        copy_newest(ring, made.entry, count);
    else
        made.next = 0;
    free(ring->entry);
    *ring = made;
}

accel_status_t accel_record_history(const accel_history_t *history) {
    accel_history_t how = {.size = 0};
    if (!history || history->size < sizeof history->size)
        return ACCEL_ERROR_INVALID;
    memcpy(&how, history, history->size < sizeof how ? history->size : sizeof how);
    if (how.most > MOST || (unsigned)how.when > ACCEL_CONTEXT_ALL)
        return ACCEL_ERROR_INVALID;
    size_t most = !how.enabled ? 0 : how.most ? how.most : 1;
    atomic_store(&ac_history_when, ACCEL_CONTEXT_NEVER);
    ac_observer_set(AC_OBSERVE_CONTEXT, how.enabled ? (ac_observer_fn *)how.recorder : NULL,
                    how.arg);
    ac_lock(&lock);
    for (int device = 0; device < AC_LIVE_DEVICES && (most != size || how.clear); device++)
        resize(&rings[device], most, how.clear ? 0 : most);
    size = most;
    want();
    atomic_store(&ac_history_when, how.enabled ? (int)how.when : ACCEL_CONTEXT_NEVER);
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
