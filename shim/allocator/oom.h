/* Out of memory: the device, or the limit, has no more.
 *
 * Before the request fails, idle memory may go back, although the driver's own free waits for the device:
 * once all work is over that was submitted before the request came.  The request waits for that,
 * `oom_wait` at most.  If the program may hold the work until it goes on, and all that waits was freed in
 * the order of a stream, the wait ends half a second after the request began.
 *
 * The wait does not cover work that other threads submit meanwhile, or it would have no end on a device
 * that is never idle.  The driver's free may wait for that work nevertheless.
 *
 * While a stream captures, no fence can be recorded.  Memory then goes back if a fence from before the
 * capture tells that the device is done with it. */
#ifndef AC_OOM_H
#define AC_OOM_H

#include "allocator/allocator_int.h"

typedef struct {
    ac_arena_t *arena;
    uint64_t target;    /* the clock that is reached when that work is over */
    uint64_t end, soon; /* ns: when waiting ends; `soon`: if the program may hold the work */
} ac_oom_t;

/* Begins a wait of the request until `soon` (ns); 0: half a second from now.  Takes the lock. */
void ac_oom_begin(ac_oom_t *oom, ac_arena_t *arena, uint64_t soon);

/* Returns true if the work is over. */
static inline bool ac_oom_is_over(const ac_oom_t *oom) {
    return ac_fence_is_over(NULL, (ac_moment_t){oom->target, true});
}

/* Returns when waiting ends (ns), as far as is known now.  Takes the lock. */
uint64_t ac_oom_ends(const ac_oom_t *oom);

/* Gives back all idle memory that the device is done with, if the work is over or the device idle, or
 * beside a capture.  Returns bytes, also those of other threads.  Takes the lock. */
uint64_t ac_oom_give_back(const ac_oom_t *oom);

/* Waits for one step of the work.  Returns false if it is over, or if waiting is of no use any more.
 * Called without the lock. */
bool ac_oom_wait(const ac_oom_t *oom);

/* Returns true if memory that comes back once all work is over could serve a request of `size` bytes, for
 * which the device is asked for `need`; 0: if any memory comes back.  Takes the lock. */
bool ac_oom_helps(const ac_oom_t *oom, uint64_t size, uint64_t need);

#endif
