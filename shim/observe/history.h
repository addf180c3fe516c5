/* The history of a device's memory: a ring of the last events, in host memory, which dumps show.
 *
 * A writer claims the next number by one addition and owns the slot that it falls on by one
 * compare-and-swap, and waits for no other thread.  Where a slower writer is still at that slot, one round of the
 * ring behind, or a faster one was there before it, the event is dropped and counted.  A reader takes a
 * slot whose number was the same before and after.  No lock, no allocation but the mapping of the ring
 * at a device's first event; any thread, also under a lock of the allocator. */
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
    int64_t time_ns; /* CLOCK_REALTIME; 0 of one to be written: now */
    uint64_t address, bytes;
    uint64_t stream; /* key of the stream that the call named; 0: none */
    uint32_t stack;  /* sites.h; 0: not known */
    uint32_t thread; /* its kernel id; 0: not of a call */
    uint8_t kind;    /* ac_event_kind_t */
} ac_event_t;

typedef struct ac_history ac_history_t; /* of one device */

enum { AC_HISTORY_USUAL = 1 << 16, AC_HISTORY_MOST = 1 << 24 };

/* How many events of a device are kept.  Once, before it is switched on; then it may be switched at
 * any time, and what was recorded stays. */
void ac_history_size(size_t events);
size_t ac_history_room(void);
extern _Atomic bool ac_history_on;
static inline bool ac_history_is_on(void) {
    return __builtin_expect(atomic_load_explicit(&ac_history_on, memory_order_relaxed), 0);
}

/* That of the device with this entry (live.h). */
ac_history_t *ac_history_of(unsigned device);

/* Nothing where `history` is NULL or it is switched off. */
void ac_history_write(ac_history_t *history, const ac_event_t *event);
static inline void ac_history_add(ac_history_t *history, const ac_event_t *event) {
    if (ac_history_is_on())
        ac_history_write(history, event);
}

/* A number for each event so far, those that the ring has no more included; and how many were
 * dropped. */
uint64_t ac_history_count(const ac_history_t *history, uint64_t *dropped);

/* The event of that number.  False: it is not there any more, or just being written. */
bool ac_history_get(const ac_history_t *history, uint64_t number, ac_event_t *event);

#endif
