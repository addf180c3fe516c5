/* Slow paths of locks, conditions, and the checks of the order of locks (lock.h). */
#include "lock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sleeps while *word is `seen`, until `limit` by `clock` (0: CLOCK_MONOTONIC). Returns true if
 * the limit has passed, or is no valid time. */
static bool sleep_while(_Atomic uint32_t *word, uint32_t seen, const struct timespec *limit,
                        int clock) {
    int kept = errno;
    bool late = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE | clock, seen, limit, NULL,
                        FUTEX_BITSET_MATCH_ANY) != 0 &&
                (errno == ETIMEDOUT || errno == EINVAL);
    errno = kept;
    return late;
}

static void wake(_Atomic uint32_t *word, int most) {
    int kept = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
    errno = kept;
}

/* A thread that had to sleep leaves 2 in `word`, because other threads may sleep too. */
bool ac_lock_sleep(ac_mutex_t *mutex, const struct timespec *deadline) {
    bool late = false;
    while (atomic_exchange_explicit(&mutex->word, 2, memory_order_acquire) != 0) {
        if (late)
            return false;
        late = sleep_while(&mutex->word, 2, deadline, FUTEX_CLOCK_REALTIME);
    }
    return true;
}

void ac_lock_wake(ac_mutex_t *mutex) {
    wake(&mutex->word, 1);
}

/* `waiting` grows before the lock is released, so a thread that changes the state under the lock
 * sees it. Its broadcast then changes `changes` before this thread sleeps, or wakes this thread.
 * No wake-up is lost. */
int ac_cond_sleep(ac_cond_t *cond, ac_mutex_t *mutex, const struct timespec *limit) {
    atomic_fetch_add(&cond->waiting, 1);
    uint32_t seen = atomic_load(&cond->changes);
    ac_lock_release(mutex);
    bool late = sleep_while(&cond->changes, seen, limit, 0);
    if (!ac_lock_at_once(mutex))
        ac_lock_sleep(mutex, NULL);
    atomic_fetch_sub(&cond->waiting, 1);
    return late ? ETIMEDOUT : 0;
}

bool ac_cond_await(ac_cond_t *cond, uint32_t *seen, const struct timespec *limit) {
    atomic_fetch_add(&cond->waiting, 1);
    bool late = sleep_while(&cond->changes, *seen, limit, 0);
    atomic_fetch_sub(&cond->waiting, 1);
    *seen = atomic_load(&cond->changes);
    return late;
}

void ac_cond_broadcast(ac_cond_t *cond) {
    atomic_fetch_add(&cond->changes, 1);
    if (atomic_load(&cond->waiting))
        wake(&cond->changes, INT_MAX);
}

#ifdef AC_CHECKED

#include <stdio.h>

_Thread_local uint32_t ac_ranks_held;

static void broken(const char *what, ac_rank_t rank) {
    char text[128];
    int length = snprintf(text, sizeof text, "accelcache: lock order: %s rank %d, held are %#x\n",
                          what, (int)rank, (unsigned)ac_ranks_held);
    if (write(STDERR_FILENO, text, (size_t)length) >= 0)
        __builtin_trap();
    __builtin_trap();
}

void ac_rank_check(ac_rank_t rank) {
    if (ac_ranks_held >> rank)
        broken("takes a lock of", rank);
}

void ac_rank_check_alone(ac_rank_t rank) {
    if ((ac_ranks_held & ~(UINT32_C(1) << AC_RANK_GATE)) != UINT32_C(1) << rank)
        broken("waits with a lock of", rank);
}

/* A hook of one test, which counts locks (tests/process/fork_locks.c); else NULL. */
extern void ac_test_locked(void) __attribute__((weak));

void ac_rank_held(ac_rank_t rank, bool held) {
    if (held && ac_test_locked)
        ac_test_locked();
    uint32_t bit = UINT32_C(1) << rank;
    if (held == ((ac_ranks_held & bit) != 0))
        broken(held ? "has twice a lock of" : "releases without holding it a lock of", rank);
    ac_ranks_held ^= bit;
}

#endif
