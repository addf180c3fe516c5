/* Waiting, for another thread with a lock held or for the device.  The program may cancel its
 * thread in there, as in every wait; the thread would end with the lock held, and the next thread
 * that needs it would hang. */
#ifndef AC_WAIT_H
#define AC_WAIT_H

#include "lock.h"

#include <pthread.h>
#include <stddef.h>
#include <time.h>

/* As ac_cond_sleep, but no thread is cancelled.  The time of day may be set meanwhile: no limit is
 * measured by it. */
static inline int ac_wait_until(ac_cond_t *cond, ac_mutex_t *lock, const struct timespec *limit) {
    int state;
    ac_rank_check_alone(lock->rank);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int result = ac_cond_sleep(cond, lock, limit);
    pthread_setcancelstate(state, NULL);
    return result;
}

/* As nanosleep for less than a second, but no thread is cancelled: it has a fence in use. */
static inline void ac_nap(long ns) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    pthread_setcancelstate(state, NULL);
}

static inline void ac_wait(ac_cond_t *cond, ac_mutex_t *lock) {
    ac_wait_until(cond, lock, NULL);
}

#endif
