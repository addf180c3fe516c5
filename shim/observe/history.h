/* The history of a device's memory: a ring of the last events, in host memory, which dumps show.
 *
 * A writer claims the next number by one atomic addition, and the slot for that number by one compare-and-swap.  It
 * waits for no other thread.  The event is dropped and counted in two cases: a slower writer of an earlier round
 * still uses the slot, or a faster writer of a later round took it first.  A reader accepts a slot if its number
 * was the same before and after the copy.
 *
 * The functions take no lock.  They allocate only the ring, at a device's first event.  Any thread may call them,
 * also under a lock of the allocator. */
#ifndef AC_HISTORY_RING_H
#define AC_HISTORY_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*   EVENT(name, word, doc)   `word`: in documents */
#define AC_HISTORY_EVENTS(EVENT)                                                                 \
    EVENT(ALLOC, "alloc", "a block was handed out; bytes as requested")                          \
    EVENT(FREE, "free", "the program frees it: before it takes effect")                          \
    EVENT(REFUSED, "refused", "the thread's free before this, of that address, was refused")     \
    EVENT(READY, "ready", "work that a freed block waited for is over")                          \
    EVENT(SEGMENT_ALLOC, "segment_alloc", "memory from the driver")                              \
    EVENT(SEGMENT_FREE, "segment_free", "it goes back, or its context has gone")                 \
    EVENT(SEGMENT_MAP, "segment_map", "pages of an expandable segment came")                     \
    EVENT(SEGMENT_UNMAP, "segment_unmap", "they went")                                           \
    EVENT(OOM, "oom", "a request failed; address: bytes that the device says are free")          \
    EVENT(SNAPSHOT, "snapshot", "all blocks were written down")                                  \
    EVENT(BEGIN, "begin", "recording went on: blocks may have changed hands unseen before")      \
    EVENT(PINNED_ALLOC, "pinned_alloc", "pinned host memory was handed out")                     \
    EVENT(PINNED_FREE, "pinned_free", "the program frees it")                                    \
    EVENT(PASSED_ALLOC, "passed_alloc", "memory that the driver's own pools, or managed memory, gave") \
    EVENT(PASSED_FREE, "passed_free", "the program frees it")                                    \
    EVENT(PHYSICAL, "physical", "cuMemCreate; address: the handle")                              \
    EVENT(PHYSICAL_FREE, "physical_free", "neither a handle nor a mapping holds it any more")     \
    EVENT(ARRAY, "array", "an array was made; address: the handle")                              \
    EVENT(ARRAY_FREE, "array_free", "it was destroyed, or its context has gone")

typedef enum {
#define EVENT(name, word, doc) AC_EVENT_##name,
    AC_HISTORY_EVENTS(EVENT)
#undef EVENT
        AC_EVENT_KINDS
} ac_event_kind_t;

extern const char *const ac_event_words[AC_EVENT_KINDS];

typedef struct {
    int64_t time_ns; /* CLOCK_REALTIME; a writer may pass 0 for the current time */
    uint64_t address, bytes;
    uint64_t stream; /* key of the stream that the call named; 0: none */
    uint32_t stack;  /* sites.h; 0: not known */
    uint32_t thread; /* kernel id of the calling thread; 0: the event is not of a call */
    uint8_t kind;    /* ac_event_kind_t */
} ac_event_t;

typedef struct ac_history ac_history_t; /* of one device */

enum { AC_HISTORY_USUAL = 1 << 16, AC_HISTORY_MOST = 1 << 24 };

/* Sets the number of events that each device keeps.  Called once, before ac_history_on is set.  Afterwards
 * ac_history_on may change at any time, and recorded events stay. */
void ac_history_size(size_t events);
size_t ac_history_room(void);
extern _Atomic bool ac_history_on;
static inline bool ac_history_is_on(void) {
    return __builtin_expect(atomic_load_explicit(&ac_history_on, memory_order_relaxed), 0);
}

/* Returns the history of a device entry (live.h). */
ac_history_t *ac_history_of(unsigned device);

/* Records an event.  _add does nothing if the history is switched off, and both do nothing if `history` is NULL. */
void ac_history_write(ac_history_t *history, const ac_event_t *event);
static inline void ac_history_add(ac_history_t *history, const ac_event_t *event) {
    if (ac_history_is_on())
        ac_history_write(history, event);
}

/* Returns the count of event numbers so far, including those of overwritten events.  *dropped: number of events that
 * were not recorded. */
uint64_t ac_history_count(const ac_history_t *history, uint64_t *dropped);

/* Copies the event with this number.  Returns false if it was overwritten, dropped, or is being written. */
bool ac_history_get(const ac_history_t *history, uint64_t number, ac_event_t *event);

#endif
