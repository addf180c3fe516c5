/* accel_check, for tests that have other threads. */
#ifndef SUPPORT_AGREES_H
#define SUPPORT_AGREES_H

#include <stddef.h>
#include <time.h>

#include <accelcache.h>

enum { AGREES_TRIES = 100, AGREES_PAUSE_NS = 10000000 };

/* Returns the answer of `check` (accel_check), with the fault in `message`. If the check is busy because a thread
 * does not run inside its cache, it is called again, at most AGREES_TRIES times. Each call waits half a second
 * for the thread. */
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
