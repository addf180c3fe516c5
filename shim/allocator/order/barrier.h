/* A barrier for two sides of which one is at it all the time and the other nearly never.
 *
 * Two threads that each store to one place and then look at the other's must not both miss what
 * the other stored.  That takes a full barrier between the store and the look on either side.
 * Where Linux has `membarrier`, the busy side pays nothing (`light` keeps only the compiler from
 * moving the look before the store): the rare side makes the kernel run a full barrier on every
 * processor that runs a thread of this process (`heavy`, some 10 us where another one runs).
 * Then, whatever a thread on the busy side had reached at that moment: if it was past its
 * `light`, its store is visible to what the rare side looks at next; if not, its look is still to
 * come and finds what the rare side stored before.
 *
 * Without membarrier (old kernels, a filter of system calls) both are full fences.  Which of the
 * two it is, is known before the first `light` that relies on the kernel: ac_barrier_setup asks
 * once.  Until then, and for who has not seen the answer yet, `light` is a fence: a `heavy` that
 * finds the answer unknown was itself a fence before that look, so a `light` that comes to know
 * the answer does so after it, and looks later still.
 *
 * The kernel wants to be told first by a process that means to use `heavy`: that costs nothing
 * while it has one thread, and some 10 ms later.  Setup does it in the first case; else the
 * first `heavy` does.  A fork child inherits nothing of all this that it would not find out
 * again.
 *
 * ThreadSanitizer knows neither fences nor the system call: under it both are one atomic addition
 * to the same word, whose order says the same in a language that it understands. */
#ifndef AC_BARRIER_H
#define AC_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/device.h"

#if defined(__SANITIZE_THREAD__)
#define AC_BARRIER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AC_BARRIER_TSAN 1
#endif
#endif
#ifndef AC_BARRIER_TSAN
#define AC_BARRIER_TSAN 0
#endif

/* Set while `heavy` asks the kernel; never unset once it is. */
extern AC_HIDDEN _Atomic bool ac_barrier_kernel;

#if AC_BARRIER_TSAN
extern AC_HIDDEN _Atomic unsigned ac_barrier_word;
#endif

/* Find out what the kernel has.  Any thread, any time, more than once; two system calls the first
 * time, before a process has several threads at the best. */
void ac_barrier_setup(void);

/* Whether `light` costs nothing. */
static inline bool ac_barrier_is_light(void) {
    return !AC_BARRIER_TSAN && atomic_load_explicit(&ac_barrier_kernel, memory_order_acquire);
}

/* Whether `light` is found out to be for nothing.  Acquire: what follows comes after this look.
 */
static inline bool ac_barrier_is_free(void) {
    return AC_BARRIER_TSAN || atomic_load_explicit(&ac_barrier_kernel, memory_order_acquire);
}

/* The busy side, between its store and its look, after that was so once. */
static inline void ac_barrier_light_free(void) {
#if AC_BARRIER_TSAN
    atomic_fetch_add(&ac_barrier_word, 1);
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* The same at any time. */
static inline void ac_barrier_light(void) {
#if !AC_BARRIER_TSAN
    if (__builtin_expect(!ac_barrier_is_free(), 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
#endif
        ac_barrier_light_free();
}

/* The rare side, between its store and its look.  False: the kernel would not do what it had
 * promised, and nothing can be concluded from what is seen afterwards.  Takes no lock; keeps
 * errno. */
bool ac_barrier_heavy(void);

#endif
