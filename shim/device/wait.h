/* Waits for another thread with a lock held, or for the device, without being cancelled. A thread
 * cancelled in such a wait would end with the lock held, and the next thread would hang. */
#ifndef AC_WAIT_H
#define AC_WAIT_H

#include "lock.h"

#include <pthread.h>
#include <stddef.h>
#include <time.h>

/* Sleeps like ac_cond_sleep, without being cancelled. Limits do not use the time of day, which may be
 * set meanwhile. */
static inline int ac_wait_until(ac_cond_t *cond, ac_mutex_t *lock, const struct timespec *limit) {
    int state;
    ac_rank_check_alone(lock->rank);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int result = ac_cond_sleep(cond, lock, limit);
    pthread_setcancelstate(state, NULL);
    return result;
}

/* Sleeps for less than a second like nanosleep, without being cancelled: the thread has a fence in
 * use. */
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
