/* A barrier between a busy side and a rare side.
 *
 * Two threads that each store to one place and then look at the other's must not both miss the other's
 * store.  That takes a full barrier between the store and the look on either side.  If Linux has
 * `membarrier`, the busy side pays nothing: `light` only keeps the compiler from moving the look before
 * the store.  The rare side pays: `heavy` makes the kernel run a full barrier on every processor that
 * runs a thread of this process, some 10 us if another one runs.  A thread on the busy side was at that
 * moment either past its `light`, and the rare side sees its store; or not, and its look is still to come
 * and finds the rare side's store.
 *
 * Without membarrier (old kernels, a filter of system calls) both are full fences.  ac_barrier_setup asks
 * the kernel once, before the first `light` that relies on it.  Until then, and for a thread that has not
 * seen the answer, `light` is a fence.  A `heavy` that finds the answer unknown was itself a fence before
 * that look; so a `light` that learns the answer later also looks later.
 *
 * A process has to register with the kernel before it uses `heavy`.  That costs nothing while it has one
 * thread, and some 10 ms later.  Setup registers in the first case, else the first `heavy` does.  A fork
 * child finds all of this out again.
 *
 * ThreadSanitizer knows neither fences nor the system call.  Under it both are an atomic addition to the
 * same word, which gives the same order. */
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

/* Asks the kernel what it offers.  Any thread, any time, more than once.  The first call makes two system
 * calls; it is cheapest before the process has several threads. */
void ac_barrier_setup(void);

/* Returns true if `light` costs nothing. */
static inline bool ac_barrier_is_light(void) {
    return !AC_BARRIER_TSAN && atomic_load_explicit(&ac_barrier_kernel, memory_order_acquire);
}

/* Returns true if `light` is known to cost nothing.  Acquire: later looks come after this one. */
static inline bool ac_barrier_is_free(void) {
    return AC_BARRIER_TSAN || atomic_load_explicit(&ac_barrier_kernel, memory_order_acquire);
}

/* The barrier of the busy side, between its store and its look, after ac_barrier_is_free was true once. */
static inline void ac_barrier_light_free(void) {
#if AC_BARRIER_TSAN
    atomic_fetch_add(&ac_barrier_word, 1);
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* The barrier of the busy side at any time, between its store and its look. */
static inline void ac_barrier_light(void) {
#if !AC_BARRIER_TSAN
    if (__builtin_expect(!ac_barrier_is_free(), 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
#endif
        ac_barrier_light_free();
}

/* The barrier of the rare side, between its store and its look.  Returns false if the kernel breaks its
 * promise: then a look proves nothing.  Takes no lock; keeps errno. */
bool ac_barrier_heavy(void);

#endif
