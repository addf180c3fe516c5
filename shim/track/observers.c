#include "track/observers.h"

#include <string.h>

#include "track/context.h"
#include "track/thread.h"
#include "lock.h"

void (*_Atomic ac_stream_gone_observer)(CUstream);
void (*_Atomic ac_thread_gone_observer)(uint64_t);
void (*_Atomic ac_primary_gone_observer)(CUdevice);
bool (*_Atomic ac_private_observer)(uint64_t);
bool (*_Atomic ac_late_observer)(void);
_Atomic unsigned ac_observers[AC_OBSERVE_KINDS];

void ac_observe_stream_gone(CUstream stream) {
    void (*observer)(CUstream) = atomic_load(&ac_stream_gone_observer);
    if (observer)
        observer(stream);
}

void ac_observe_thread_gone(uint64_t number) {
    void (*observer)(uint64_t) = atomic_load(&ac_thread_gone_observer);
    if (observer)
        observer(number);
}

void ac_observe_context_gone(const ac_context_t *context) {
    void (*observer)(CUdevice) = atomic_load(&ac_primary_gone_observer);
    if (observer && !context->created)
        observer(context->cuda.device);
}

typedef struct {
    ac_observer_fn *function;
    void *arg;
} place_t;

static ac_mutex_t lock = AC_MUTEX(LEAF);
static place_t places[AC_OBSERVE_KINDS][AC_OBSERVERS]; /* the first ac_observers[kind] */

bool ac_observer_add(ac_observe_t kind, ac_observer_fn *function, void *arg) {
    ac_lock(&lock);
    unsigned count = atomic_load(&ac_observers[kind]);
    bool room = count < AC_OBSERVERS;
    if (room) {
        places[kind][count] = (place_t){function, arg};
        atomic_store(&ac_observers[kind], count + 1);
    }
    ac_unlock(&lock);
    return room;
}

bool ac_observer_remove(ac_observe_t kind, ac_observer_fn *function, void *arg) {
    ac_lock(&lock);
    unsigned count = atomic_load(&ac_observers[kind]), at = 0;
    while (at < count && (places[kind][at].function != function || places[kind][at].arg != arg))
        at++;
    if (at < count) {
        memmove(&places[kind][at], &places[kind][at + 1], (count - at - 1) * sizeof(place_t));
        atomic_store(&ac_observers[kind], count - 1);
    }
    ac_unlock(&lock);
    return at < count;
}

void ac_observer_set(ac_observe_t kind, ac_observer_fn *function, void *arg) {
    ac_lock(&lock);
    places[kind][0] = (place_t){function, arg};
    atomic_store(&ac_observers[kind], function != NULL);
    ac_unlock(&lock);
}

void ac_observers_call(ac_observe_t kind,
                       void (*call)(ac_observer_fn *function, void *arg, void *of), void *of) {
    place_t now[AC_OBSERVERS];
    ac_thread_t *thread = ac_thread_get();
    if (!thread || thread->observing)
        return;
    ac_lock(&lock);
    unsigned count = atomic_load(&ac_observers[kind]);
    memcpy(now, places[kind], sizeof now);
    ac_unlock(&lock);
    /* An observer may run in the middle of a request: the state of that request is kept and
     * restored. */
    bool quiet = thread->quiet, apart = thread->apart;
    ac_rescue_t *rescue = thread->rescue;
    bool missed = thread->recorder.missed;
    struct ac_context *last_alloc = thread->last_alloc, *last_free = thread->last_free;
    const void *asks_from = thread->asks_from, *frees_for = thread->frees_for;
    uint64_t given_back = thread->given_back;
    thread->asks_from = thread->frees_for = NULL;
    thread->recorder.missed = false;
    thread->quiet = thread->apart = false; /* not what the program asks for now */
    thread->rescue = NULL;
    thread->observing = true;
    for (unsigned i = 0; i < count; i++)
        call(now[i].function, now[i].arg, of);
    thread->observing = false;
    thread->quiet = quiet;
    thread->apart = apart;
    thread->rescue = rescue;
    thread->recorder.missed = missed;
    thread->last_alloc = last_alloc;
    thread->last_free = last_free;
    thread->asks_from = asks_from;
    thread->frees_for = frees_for;
    thread->given_back = given_back;
}

/* --- out of memory --- */

bool ac_rescue_ask(ac_rescue_t *rescue) {
    if (!rescue->asked)
        rescue->served = rescue->serve(rescue);
    rescue->asked = true;
    return rescue->served;
}

static bool rescue_request(void) {
    ac_thread_t *thread = ac_thread_tls;
    return thread && thread->rescue && ac_rescue_ask(thread->rescue);
}

void ac_rescue_begin(void) {
    atomic_store(&ac_serve_elsewhere, rescue_request);
}

typedef struct {
    int device;
    size_t bytes, limit, available;
    bool freed;
} event_t;

static void call_oom(ac_observer_fn *function, void *arg, void *of) {
    const event_t *event = of;
    ((ac_oom_observer_fn *)function)(event->device, event->bytes, event->limit, event->available,
                                     arg);
}

void ac_observe_oom(int device, ac_allocator_t *allocator, uint64_t bytes) {
    event_t event = {.device = device, .bytes = bytes};
    ac_device_stats_t stats;
    uint64_t room = ac_allocator_room(allocator), available = 0;
    ac_allocator_available(allocator, &available);
    ac_allocator_stats(allocator, &stats);
    event.limit = room == AC_UNLIMITED
                      ? ac_live->total_memory[device]
                      : room + (uint64_t)stats.reserved_bytes[AC_POOL_ALL].current;
    event.available = available;
    ac_observers_call(AC_OBSERVE_OOM, call_oom, &event);
}

/* --- free callbacks --- */

static void call_free(ac_observer_fn *function, void *arg, void *of) {
    event_t *event = of;
    if (((ac_free_observer_fn *)function)(event->device, arg))
        event->freed = true;
}

bool ac_observe_shortage(int device) {
    event_t event = {.device = device};
    ac_observers_call(AC_OBSERVE_FREE, call_free, &event);
    return event.freed;
}
