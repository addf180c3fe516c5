/* Rings of events (history.h). */
#include "observe/history.h"

#include <errno.h>
#include <sys/mman.h>

#include "failpoint.h"
#include "observe/live.h"
#include "observe/raw.h"

/* `state`: 0 at first; 2 * number + 1 while event `number` - 1 is being written, 2 * number after. */
typedef struct {
    _Alignas(64) _Atomic uint64_t state;
    _Atomic uint64_t time_ns, address, bytes, stream;
    _Atomic uint64_t stack_thread;
    _Atomic uint64_t kind;
} slot_t;
_Static_assert(sizeof(slot_t) == 64, "an event is a line of the processor's cache");

struct ac_history {
    _Alignas(64) _Atomic uint64_t next; /* number of the next event */
    _Atomic(slot_t *) slot;
    _Atomic uint64_t dropped;
};

const char *const ac_event_words[AC_EVENT_KINDS] = {
#define EVENT(name, word, doc) [AC_EVENT_##name] = (word),
    AC_HISTORY_EVENTS(EVENT)
#undef EVENT
};

_Atomic bool ac_history_on;
static _Atomic size_t room;
static ac_history_t histories[AC_LIVE_DEVICES];

void ac_history_size(size_t events) {
    atomic_store(&room, events);
}

size_t ac_history_room(void) {
    return atomic_load(&room);
}

ac_history_t *ac_history_of(unsigned device) {
    return &histories[device < AC_LIVE_DEVICES ? device : AC_LIVE_DEVICES - 1];
}

/* Untouched pages of the mapping take no memory. */
static slot_t *make(ac_history_t *history) {
    int saved = errno;
    size_t bytes = atomic_load(&room) * sizeof(slot_t);
    void *memory = bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                         : MAP_FAILED;
    slot_t *none = NULL;
    errno = saved;
    if (memory == MAP_FAILED)
        return NULL;
    if (atomic_compare_exchange_strong(&history->slot, &none, memory))
        return memory;
    munmap(memory, bytes);
    return none;
}

static void put(_Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

void ac_history_write(ac_history_t *history, const ac_event_t *event) {
    slot_t *slots = history ? atomic_load_explicit(&history->slot, memory_order_acquire) : NULL;
    if (!history)
        return;
    if (!slots && !(slots = make(history))) {
        if (!AC_FAILPOINT(history_without_memory))
            atomic_fetch_add_explicit(&history->dropped, 1, memory_order_relaxed);
        return;
    }
    uint64_t number = atomic_fetch_add_explicit(&history->next, 1, memory_order_relaxed);
    slot_t *slot = &slots[number % atomic_load_explicit(&room, memory_order_relaxed)];
    uint64_t was = atomic_load_explicit(&slot->state, memory_order_relaxed);
    if ((was & 1 && !AC_FAILPOINT(event_written_by_two)) || was / 2 > number ||
        !atomic_compare_exchange_strong_explicit(&slot->state, &was, 2 * (number + 1) + 1,
                                                 memory_order_acquire, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&history->dropped, 1, memory_order_relaxed);
        return;
    }
    atomic_thread_fence(memory_order_release); /* orders the stores below after the odd number */
    put(&slot->time_ns, (uint64_t)(event->time_ns ? event->time_ns : ac_raw_ns(CLOCK_REALTIME)));
    put(&slot->address, event->address);
    AC_WINDOW(event_half_written);
    put(&slot->bytes, event->bytes);
    put(&slot->stream, event->stream);
    put(&slot->stack_thread, (uint64_t)event->stack << 32 | event->thread);
    put(&slot->kind, event->kind);
    atomic_store_explicit(&slot->state, 2 * (number + 1), memory_order_release);
}

uint64_t ac_history_count(const ac_history_t *history, uint64_t *dropped) {
    *dropped = atomic_load(&history->dropped);
    return atomic_load_explicit(&history->next, memory_order_acquire);
}

static uint64_t get(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

bool ac_history_get(const ac_history_t *history, uint64_t number, ac_event_t *event) {
    const slot_t *slots = atomic_load_explicit(&history->slot, memory_order_acquire);
    if (!slots)
        return false;
    const slot_t *slot = &slots[number % atomic_load(&room)];
    uint64_t before = atomic_load_explicit(&slot->state, memory_order_acquire);
    if (before != 2 * (number + 1))
        return false;
    uint64_t both = get(&slot->stack_thread);
    *event = (ac_event_t){.time_ns = (int64_t)get(&slot->time_ns),
                          .address = get(&slot->address),
                          .bytes = get(&slot->bytes),
                          .stream = get(&slot->stream),
                          .stack = (uint32_t)(both >> 32),
                          .thread = (uint32_t)both,
                          .kind = (uint8_t)get(&slot->kind)};
    AC_WINDOW(event_read);
    atomic_thread_fence(memory_order_acquire);
    return get(&slot->state) == before || AC_FAILPOINT(event_read_once);
}
