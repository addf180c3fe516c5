/* Out of memory: the device, or the limit, has no more.  Before the request fails, what is wholly
 * idle may go back, although the driver's own free waits for the device: once all work is over
 * that had been submitted when the request came.  That is waited for, `oom_wait` at the most.  If the
 * program may hold the work until it goes on, and everything that waits was freed in the order of a
 * stream, the wait ends half a second after the request began.
 *
 * Work that other threads submit meanwhile is not waited for here, or the wait would have no end
 * on a device that is never idle; the driver's free may wait for it nevertheless.
 *
 * While a stream captures, no fence can be recorded.  Memory then goes back if a fence from before
 * the capture tells that the device is done with it. */
#ifndef AC_OOM_H
#define AC_OOM_H

#include "allocator/allocator_int.h"

typedef struct {
    ac_arena_t *arena;
    uint64_t target;    /* what all work that is waited for reaches */
    uint64_t end, soon; /* ns: when waiting ends; where the program may hold the work */
} ac_oom_t;

/* `soon`: as above; 0: half a second from now.  Takes the lock. */
void ac_oom_begin(ac_oom_t *oom, ac_arena_t *arena, uint64_t soon);

/* Whether the work is over. */
static inline bool ac_oom_is_over(const ac_oom_t *oom) {
    return ac_fence_is_over(NULL, (ac_moment_t){oom->target, true});
}

/* ns: when waiting ends, as far as is known now.  Takes the lock. */
uint64_t ac_oom_ends(const ac_oom_t *oom);

/* Give back all that is idle and quiet, if the work is over or the device idle, or beside a capture.
 * Returns bytes, those of other threads included.  Takes the lock. */
uint64_t ac_oom_give_back(const ac_oom_t *oom);

/* Wait for the work, a step of it.  False: it is over, or there is no use in waiting any more.
 * Without the lock. */
bool ac_oom_wait(const ac_oom_t *oom);

/* Whether what comes back once all work is over could serve a request of `size` bytes, for which
 * the device is asked for `need`; 0: whether anything comes back.  Takes the lock. */
bool ac_oom_helps(const ac_oom_t *oom, uint64_t size, uint64_t need);

#endif
