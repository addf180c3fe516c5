/* A peer of work.h: accel_malloc and accel_free of the C API. */
#ifndef BENCH_PEER_API_H
#define BENCH_PEER_API_H

#include "accelcache.h"

static inline void peer_thread(void) {
    accel_status_t status = accel_set_device(0);
    if (status != ACCEL_OK)
        work_fail(accel_status_string(status), (int)status);
}

static inline void peer_open(void) {
    peer_thread();
}

static inline void *peer_take(size_t bytes, void *stream) {
    (void)stream;
    void *pointer;
    accel_status_t status = accel_malloc(&pointer, bytes);
    if (status != ACCEL_OK)
        work_fail(accel_status_string(status), (int)status);
    return pointer;
}

static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    (void)bytes;
    (void)stream;
    accel_status_t status = accel_free(pointer);
    if (status != ACCEL_OK)
        work_fail(accel_status_string(status), (int)status);
}

#endif
