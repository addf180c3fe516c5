/* accel_check, for tests that have other threads. */
#ifndef SUPPORT_AGREES_H
#define SUPPORT_AGREES_H

#include <stddef.h>
#include <time.h>

#include <accelcache.h>

enum { AGREES_TRIES = 100, AGREES_PAUSE_NS = 10000000 };

/* What `check` (accel_check) answers, with what is wrong in `message`.  Where it could not look, because a thread
 * is kept from running inside its cache, it is asked again, AGREES_TRIES times at most: it waits for such a
 * thread itself, for half a second. */
static inline accel_status_t records_agree(accel_status_t (*check)(char *, size_t), char *message, size_t size) {
    accel_status_t status = check(message, size);
    for (int i = 1; status == ACCEL_ERROR_BUSY && i < AGREES_TRIES; i++) {
        struct timespec pause = {0, AGREES_PAUSE_NS};
        nanosleep(&pause, NULL);
        status = check(message, size);
    }
    return status;
}

#endif
