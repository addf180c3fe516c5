/* Fences: when is memory that the program freed out of reach of the device?
 *
 * A clock of submissions orders everything: `ac_fence_clock` grows by one each time a
 * submitting call has returned to the program.  A *line* (one per live context) knows
 *   last_submit  the clock of the newest submission to the context,
 *   done         every submission with a clock <= done has completed,
 * and the fences that are recorded and not yet known complete.  A fence carries the clock
 * read just before it was recorded: whatever had returned by then was in the driver, so the
 * event covers it.  A submission that is still inside its driver call has no clock yet, but its
 * work may run already, and tell another thread (through mapped memory) that a block can be
 * freed: while a line has submissions `inside`, nothing counts as untouched, and a free takes a
 * clock that no fence recorded so far can have.
 *
 * Invariants (ac_fence_check):
 *   ring entries are ordered by clock;
 *   done <= ac_fence_clock, last_submit <= ac_fence_clock.
 *
 * A line lies in its arena's record and serves one context only: whoever still holds it when the
 * context has gone finds `live` unset, and can do no harm to a later context.
 *
 * All functions are thread-safe.  `lock` guards the ring only and is never held over a device
 * call; whoever queries or waits takes the fence out of the ring first. */
#ifndef AC_FENCE_H
#define AC_FENCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/single.h"
#include "device/device.h"

enum { AC_FENCE_RING = 32, AC_FENCE_LINES = 256 };

typedef struct {
    uint64_t clock;
    void *fence;
} ac_fence_t;

struct ac_fence_line {
    _Atomic uint64_t last_submit;
    _Atomic uint64_t done;
    _Atomic uint64_t held;   /* work that the program may hold has a clock up to this one */
    _Atomic uint64_t inside; /* submitting calls that have not returned yet */
    _Atomic bool live;       /* the context exists; never set again once unset */
    _Atomic bool broken;   /* a sticky error was seen: its work is dead, and so is the context */
    _Atomic uint32_t open; /* frees wait that no fence covers: their weight */
    atomic_flag polled;    /* somebody queries: others go on without waiting */
    const ac_device_ops_t *ops;
    void *context;
    pthread_mutex_t lock; /* rank: after the allocator's lock */
    unsigned count;       /* fences in the ring, oldest first */
    ac_fence_t ring[AC_FENCE_RING];
    ac_single_t single; /* the single-stream rule; its lock ranks after the allocator's too */
};

extern AC_HIDDEN _Atomic uint64_t ac_fence_clock;

/* How many entries for lines were ever used; 0: no context was served yet. */
extern _Atomic unsigned ac_fence_line_high;

/* Several contexts may touch the same memory (peer access, copies across contexts): frees
 * from now on wait for all of them.  Never unset. */
extern AC_HIDDEN _Atomic bool ac_fence_crossed;

/* Work may be submitted that nobody counts: every free takes a fence of its own. Never unset. */
extern AC_HIDDEN _Atomic bool ac_fence_uncounted;

/* Set them, and end the single-stream rule everywhere: on return no free memory relies on the
 * order of a stream.  Blocks the first time; call before the work that they stand for. */
void ac_fence_cross(void);
void ac_fence_uncount(void);

/* A capture is about to begin: no line relies on a stream's order from now on, until _began. */
void ac_fence_capture_begin(void);
void ac_fence_capture_began(void);

/* Set up a line for a new context in zeroed memory that stays for ever.  False when
 * AC_FENCE_LINES are in use. */
bool ac_fence_line_open(ac_fence_line_t *line, const ac_device_ops_t *ops, void *context);

/* The context is gone, and with it all its work.  Its fences are released: the device keeps host
 * records of them. */
void ac_fence_line_close(ac_fence_line_t *line);

/* ac_single_pass, but for the look that mostly suffices. */
static inline void ac_single_enter(ac_fence_line_t *line, uint64_t stream, ac_joins_t *joins) {
    if (!ac_single_passes(&line->single, stream))
        ac_single_pass(line, stream, joins);
}

static inline uint64_t ac_fence_now(void) {
    return atomic_load_explicit(&ac_fence_clock, memory_order_acquire);
}

/* Whether a look at a context's own line tells all about its memory: then ac_fence_idle_since is
 * ac_fence_untouched.  What ends it makes ac_generation grow. */
static inline bool ac_fence_simple(void) {
    return !atomic_load_explicit(&ac_fence_crossed, memory_order_acquire) &&
           !atomic_load_explicit(&ac_fence_uncounted, memory_order_relaxed);
}

/* Nothing was submitted to the line's context since the clock. */
static inline bool ac_fence_idle_since(const ac_fence_line_t *line, uint64_t clock) {
    return atomic_load_explicit(&line->last_submit, memory_order_acquire) <= clock &&
           atomic_load(&line->inside) == 0;
}

static inline uint64_t ac_fence_handout(ac_fence_line_t *line) {
    (void)line;
    return ac_fence_now();
}

/* Around a submitting call to the context. */
void ac_fence_enter(ac_fence_line_t *line);
void ac_fence_leave(ac_fence_line_t *line);

/* Work was submitted to the context in a way that nobody saw. */
void ac_fence_submitted(ac_fence_line_t *line);

/* Work that the program may hold back until it does something else, maybe after its next request
 * for memory: before the submission, and with `submitted` after ac_fence_leave. */
void ac_fence_hold(ac_fence_line_t *line, bool submitted);

/* Whether such work may be pending in the context, or with `all` in any. */
bool ac_fence_holding(const ac_fence_line_t *line, bool all);

/* All work with a clock <= `clock` has completed (a synchronisation of the whole context
 * that was entered after that clock was read returned success). */
void ac_fence_synced(ac_fence_line_t *line, uint64_t clock);

/* Whether nothing was submitted since `clock`, in the line's context or, once crossed, in any. */
bool ac_fence_untouched(const ac_fence_line_t *line, uint64_t clock);

/* The clock that a free has to wait for; *all is set when every context counts. */
uint64_t ac_fence_target(ac_fence_line_t *line, bool *all);

/* Frees with a target <= the result are ready. */
uint64_t ac_fence_reached(const ac_fence_line_t *line, bool all);

/* See that a fence covers all that was submitted so far (record one where needed), for one
 * line or for all.  AC_OK, AC_BUSY (capture), AC_UNSUPPORTED, AC_FAILED. */
ac_status_t ac_fence_close(ac_fence_line_t *line, bool all);

/* Frees of this weight wait that no fence covers yet.  Where they add up to AC_FENCE_EPOCH, the
 * next submission to any of the lines closes: frees share a fence, and later work delays them
 * little. */
enum { AC_FENCE_EPOCH = 64 };
void ac_fence_want(ac_fence_line_t *line, bool all, uint32_t weight);

/* Before a submission: close what is full. */
static inline bool ac_fence_full(const ac_fence_line_t *line) {
    return atomic_load_explicit(&line->open, memory_order_relaxed) >= AC_FENCE_EPOCH;
}

/* Ask the device about the oldest fences; never blocks. True if `done` moved. */
bool ac_fence_poll(ac_fence_line_t *line, bool all);

/* Block until frees with target `clock` are ready, for about `limit_ns` a fence at the most (0:
 * for ever; where nothing can be recorded it is for ever, too).  AC_OK, AC_BUSY, AC_FAILED. */
ac_status_t ac_fence_wait(ac_fence_line_t *line, bool all, uint64_t clock, uint64_t limit_ns);

/* Nonzero if an invariant does not hold. */
int ac_fence_check(ac_fence_line_t *line);

#endif
