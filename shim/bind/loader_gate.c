/* See loader_gate.h. */
#include "bind/loader_gate.h"

#include <stdatomic.h>

#include "observe/raw.h"

/* FREE: inside without a place, because the call is nested or all places were taken; no fork waits for
 * it. */
enum { PLACES = 64, PLACE_BITS = 6, FREE = PLACES, CLOSED = -1 };
enum { TURNS = 100, NAP_NS = 100000, NAPS = 10000 };

static _Atomic bool started;
static _Atomic int forks;
static _Atomic uintptr_t forker; /* the newest thread that forks */

/* Threads inside; 0: none.  Each has a cache line of its own, since threads write their places often. */
static struct { _Alignas(64) _Atomic uintptr_t thread; } inside[PLACES];

AC_EARLY static unsigned first_place(uintptr_t self) {
    return (unsigned)((uint64_t)(self >> 6) * 0x9e3779b97f4a7c15u >> (64 - PLACE_BITS));
}

/* Returns true if the thread is inside in a place other than `place`. */
AC_EARLY static bool is_inside(uintptr_t self, int place) {
    for (int i = 0; i < PLACES; i++)
        if (i != place && atomic_load_explicit(&inside[i].thread, memory_order_relaxed) == self)
            return true;
    return false;
}

/* Takes a place first and then reads whether the gate is closed.  A fork closes the gate first and then
 * reads the places, so one of the two sees the other. */
AC_EARLY int ac_loader_try(void) {
    uintptr_t self = AC_THREAD_POINTER;
    unsigned first = first_place(self);
    int place = FREE;
    if (!atomic_load_explicit(&started, memory_order_relaxed))
        return FREE;
    for (unsigned i = 0; i < PLACES && place == FREE; i++) {
        uintptr_t found = 0;
        int at = (int)((first + i) % PLACES);
        if (atomic_compare_exchange_strong(&inside[at].thread, &found, self))
            place = at;
        else if (found == self)
            return FREE;
    }
    if (!atomic_load(&forks) || atomic_load(&forker) == self || is_inside(self, place))
        return place;
    ac_loader_leave(place);
    return CLOSED;
}

AC_EARLY static void nap(void) {
    struct timespec time = {.tv_nsec = NAP_NS};
    ac_raw_call(SYS_ppoll, 0, 0, AC_RAW_POINTER(&time), 0);
}

AC_EARLY int ac_loader_enter(void) {
    int place = ac_loader_try();
    for (int naps = 0; place == CLOSED && naps < NAPS; naps++) {
        nap();
        place = ac_loader_try();
    }
    return place == CLOSED ? FREE : place;
}

AC_EARLY void ac_loader_leave(int place) {
    if (place != FREE)
        atomic_store_explicit(&inside[place].thread, 0, memory_order_release);
}

void ac_loader_start(void) {
    atomic_store(&started, true);
}

/* Does not wait for the forking thread itself: it may be inside if it forks in a signal handler. */
void ac_loader_fork_prepare(void) {
    uintptr_t self = AC_THREAD_POINTER;
    int waits = 0;
    atomic_store(&forker, self);
    atomic_fetch_add(&forks, 1);
    for (int i = 0; i < PLACES; i++)
        for (uintptr_t found; waits < TURNS + NAPS &&
                              (found = atomic_load(&inside[i].thread)) && found != self; waits++)
            if (waits < TURNS)
                ac_raw_call(SYS_sched_yield, 0, 0, 0, 0);
            else
                nap();
}

/* Keeps `forker` if another thread has forked since. */
void ac_loader_fork_parent(void) {
    uintptr_t self = AC_THREAD_POINTER;
    atomic_compare_exchange_strong(&forker, &self, 0);
    atomic_fetch_sub(&forks, 1);
}

void ac_loader_fork_child(void) {
    uintptr_t self = AC_THREAD_POINTER;
    for (int i = 0; i < PLACES; i++)
        if (atomic_load(&inside[i].thread) != self)
            atomic_store(&inside[i].thread, 0);
    atomic_store(&forker, 0);
    atomic_store(&forks, 0);
}
