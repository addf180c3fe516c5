/* Phases of the program: named sections of a thread's work, from accel_phase_push or NVTX ranges.
 *
 * The stack of a request ends with the open phases of its thread, as texts "phase NAME" (sites.h).  Therefore every
 * document with stacks also shows phases.  Each thread stores its own open phases, without a lock.  A process
 * without phases stores nothing. */
#ifndef AC_PHASES_H
#define AC_PHASES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AC_PHASES = 16,    /* open phases of a thread that stacks name: the outermost */
    AC_PHASE_NAME = 64 /* bytes of a name that are kept, with its 0 byte */
};

/* Opens a phase of the calling thread.  `domain`: phases of different domains close independently.  Returns the number
 * of phases that the thread has open in all domains, without this one; -1: host memory is short. */
int ac_phase_push(const void *domain, const char *name);

/* Closes the thread's innermost phase of the domain.  Returns the number of phases that stay open; -1: the domain has
 * none. */
int ac_phase_pop(const void *domain);

/* Set at the first phase of any thread. */
extern _Atomic bool ac_phases_used;
static inline bool ac_has_phases(void) {
    return atomic_load_explicit(&ac_phases_used, memory_order_acquire);
}

/* Writes frames of the thread's phases, innermost first, at most `room`.  Returns how many. */
unsigned ac_phase_frames(uint64_t *frame, unsigned room);

/* Returns a copy of the name that stays, for push; NULL: host memory is short. */
const char *ac_phase_keep(const char *name);

#endif
