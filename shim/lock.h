/* The locks of the library, and the order in which a thread may take them.
 *
 * Every lock has a rank. A thread takes a lock only if all locks that it holds have lower ranks, so no
 * two threads can wait for each other. Builds with AC_CHECKED (Debug, the sanitizers, and the library
 * with failpoints) verify this at each lock. They end the process if the order is broken.
 *
 * Only AC_RANK_GATE is held while the driver is called. A thread that waits for a condition with a
 * lock held uses ac_wait (device/wait.h), which cannot be cancelled. It holds no other lock except the
 * gate (checked). A thread that records an event holds the gate while it waits, for a limited time,
 * for submissions of other threads. */
#ifndef AC_LOCK_H
#define AC_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Ranks, in the order in which locks are taken. A lock of AC_RANK_LEAF guards a table of its own file:
 * its holder takes no other lock. */
typedef enum {
    AC_RANK_CONFIG,    /* running.c: settings of the running process */
    AC_RANK_DUMP,      /* process_dump.c: one dump at a time */
    AC_RANK_CONTEXTS,  /* context.c: the list of context records */
    AC_RANK_GATE,      /* cuda_context.c: captures begin alone, events are recorded shared */
    AC_RANK_GRAPHS,    /* graphs.c: which graphs hold which capture session */
    AC_RANK_POOLS,     /* pools.c: private pools, and their blocks */
    AC_RANK_RECALL,    /* allocator: one recall of the thread caches at a time */
    AC_RANK_ALLOCATOR, /* allocator: blocks, segments, pending frees; of one device at a time */
    AC_RANK_TIMELINES, /* fence.c: the table of timelines */
    AC_RANK_TIMELINE,  /* fence.h: one context's fences and its sole stream */
    AC_RANK_DEVICE,    /* cuda_device.h: one context's events, streams and marks */
    AC_RANK_IPC,       /* ipc_table.c, ipc_views.c: tables of exports and of imports */
    AC_RANK_HOST,      /* host.h: blocks of pinned memory */
    AC_RANK_LEAF
} ac_rank_t;

/* Values of `word`: 0 is free, 1 is held, 2 is held and maybe another thread waits. Without
 * contention, taking and releasing the lock are one atomic operation each, without a call. Requests
 * and frees that miss the thread's cache do that once or twice. */
typedef struct {
    _Atomic uint32_t word;
    ac_rank_t rank;
} ac_mutex_t;

/* A condition that threads wait for with a lock held (device/wait.h). All zero: no thread waits. */
typedef struct {
    _Atomic uint32_t changes, waiting;
} ac_cond_t;

typedef struct {
    pthread_rwlock_t lock;
    ac_rank_t rank;
} ac_rwlock_t;

#define AC_MUTEX(name)                                                                           \
    { 0, AC_RANK_##name }
#define AC_RWLOCK(name)                                                                          \
    { PTHREAD_RWLOCK_INITIALIZER, AC_RANK_##name }

#ifdef AC_CHECKED
/* Ranks of the locks that the calling thread holds, one bit each. */
extern _Thread_local uint32_t ac_ranks_held;
/* Check the order of locks. _check comes before a lock is taken, _held after it was taken or released.
 * _alone comes before a wait for a condition that releases the lock. An error is reported on stderr
 * and ends the process. */
void ac_rank_check(ac_rank_t rank);
void ac_rank_check_alone(ac_rank_t rank);
void ac_rank_held(ac_rank_t rank, bool held);

/* Makes `ranks` the ranks that the calling thread holds, and returns the former ones. Tests call it if
 * the calling thread plays the part of another thread. */
static inline uint32_t ac_ranks_swap(uint32_t ranks) {
    uint32_t held = ac_ranks_held;
    ac_ranks_held = ranks;
    return held;
}
#else
#define ac_rank_check(rank)       ((void)(rank))
#define ac_rank_check_alone(rank) ((void)(rank))
#define ac_rank_held(rank, held)  ((void)(rank))
static inline uint32_t ac_ranks_swap(uint32_t ranks) {
    return ranks;
}
#endif

/* Sleeps until the calling thread has the lock. Returns false if it does not get the lock by
 * `deadline` (CLOCK_REALTIME; NULL: no limit). Keeps errno. */
bool ac_lock_sleep(ac_mutex_t *mutex, const struct timespec *deadline);

/* Wakes one thread that sleeps in ac_lock_sleep. Keeps errno. */
void ac_lock_wake(ac_mutex_t *mutex);

/* Releases the lock, which the caller holds, and sleeps until `cond` changes or until `limit`
 * (CLOCK_MONOTONIC; NULL: none). Takes the lock again before it returns 0 or ETIMEDOUT. A result of 0
 * does not mean that anything changed. */
int ac_cond_sleep(ac_cond_t *cond, ac_mutex_t *mutex, const struct timespec *limit);

/* Sleeps, without a lock, until `cond` has more changes than `*seen`, then stores their current number
 * in `*seen`. A change after the return makes the next call return at once. The caller examines its
 * state after the call, so it misses no change. Returns true if `limit` has passed. */
bool ac_cond_await(ac_cond_t *cond, uint32_t *seen, const struct timespec *limit);

/* Wakes all threads that wait for `cond`, so that they test their condition again. Signal handlers may
 * call it. Keeps errno. */
void ac_cond_broadcast(ac_cond_t *cond);

static inline void ac_mutex_init(ac_mutex_t *mutex, ac_rank_t rank) {
    atomic_store_explicit(&mutex->word, 0, memory_order_relaxed);
    mutex->rank = rank;
}

/* Takes the lock if it is free, without a check of ranks. */
static inline bool ac_lock_at_once(ac_mutex_t *mutex) {
    uint32_t none = 0;
    return atomic_compare_exchange_strong_explicit(&mutex->word, &none, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void ac_lock_release(ac_mutex_t *mutex) {
    if (__builtin_expect(atomic_exchange_explicit(&mutex->word, 0, memory_order_release) == 2, 0))
        ac_lock_wake(mutex);
}

static inline void ac_lock(ac_mutex_t *mutex) {
    ac_rank_check(mutex->rank);
    if (__builtin_expect(!ac_lock_at_once(mutex), 0))
        ac_lock_sleep(mutex, NULL);
    ac_rank_held(mutex->rank, true);
}

/* Returns false if another thread holds the lock. */
static inline bool ac_try_lock(ac_mutex_t *mutex) {
    if (!ac_lock_at_once(mutex))
        return false;
    ac_rank_held(mutex->rank, true);
    return true;
}

/* Returns false if the thread does not get the lock by `deadline` (CLOCK_REALTIME). */
static inline bool ac_lock_until(ac_mutex_t *mutex, const struct timespec *deadline) {
    ac_rank_check(mutex->rank);
    if (!ac_lock_at_once(mutex) && !ac_lock_sleep(mutex, deadline))
        return false;
    ac_rank_held(mutex->rank, true);
    return true;
}

static inline void ac_unlock(ac_mutex_t *mutex) {
    ac_rank_held(mutex->rank, false);
    ac_lock_release(mutex);
}

static inline void ac_lock_shared(ac_rwlock_t *lock) {
    ac_rank_check(lock->rank);
    pthread_rwlock_rdlock(&lock->lock);
    ac_rank_held(lock->rank, true);
}

static inline void ac_lock_exclusive(ac_rwlock_t *lock) {
    ac_rank_check(lock->rank);
    pthread_rwlock_wrlock(&lock->lock);
    ac_rank_held(lock->rank, true);
}

static inline void ac_release(ac_rwlock_t *lock) {
    ac_rank_held(lock->rank, false);
    pthread_rwlock_unlock(&lock->lock);
}

#endif
