/* A driver stub that knows the order of the work, behind the CUDA device (cuda_device.c). */
#ifndef CUDA_FRAME_H
#define CUDA_FRAME_H

#include <check.h>
#include <string.h>

#include "device/cuda_int.h"
#include "device/driver.h"

/* Streams of the program, this library's, the legacy one, and per-thread ones by thread. */
enum { STREAMS = 700, OURS = 1, LEGACY = 0, OWN = 350, FIRST = 0x1000, EVENTS = 700 };

typedef struct {
    unsigned at[STREAMS]; /* progress of each stream */
} clocks_t;

static struct {
    unsigned submitted[STREAMS];
    clocks_t before[STREAMS]; /* work that each stream waits for */
    clocks_t event[EVENTS];
    _Atomic bool gone[STREAMS];
    unsigned events, recorded, on_legacy, whole;
} d;

static uint64_t thread = 1; /* the thread that makes the calls */

static inline uint64_t thread_now(void) {
    return thread;
}

static ac_cuda_context_t context;
static const CUcontext handle = (CUcontext)0x100;

/* Step of another thread during the next record of an event on stream `meanwhile_at` of the
 * program; 0: any stream. */
static void (*meanwhile)(void);
static unsigned meanwhile_at;

static inline CUstream stream_at(unsigned i) {
    return (CUstream)(uintptr_t)(FIRST + 16 * i);
}

static inline unsigned own_of(uint64_t of) {
    return OWN + (unsigned)of;
}

static inline unsigned index_of(CUstream stream) {
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return stream == CU_STREAM_LEGACY ? LEGACY : own_of(thread);
    unsigned i = (unsigned)((uintptr_t)stream - FIRST) / 16;
    ck_assert_uint_lt(i, STREAMS);
    return i;
}

/* Step of another thread when this library next enters the context. */
static void (*_Atomic at_entry)(void);

static inline CUresult get_current(CUcontext *out) {
    void (*others)(void) = atomic_exchange(&at_entry, NULL);
    if (others)
        others();
    *out = handle;
    return CUDA_SUCCESS;
}

static inline CUresult get_device(CUdevice *out) {
    *out = 0;
    return CUDA_SUCCESS;
}

static inline CUresult event_create(CUevent *out, unsigned flags) {
    (void)flags;
    ck_assert_uint_lt(d.events, EVENTS);
    *out = (CUevent)(uintptr_t)++d.events;
    return CUDA_SUCCESS;
}

static inline clocks_t *clocks_of(CUevent event) {
    return &d.event[(uintptr_t)event - 1];
}

static inline CUresult event_record(CUevent event, CUstream stream) {
    unsigned i = index_of(stream);
    bool now = meanwhile_at ? i == meanwhile_at : i != OURS;
    void (*others)(void) = now ? meanwhile : NULL;
    if (others) {
        meanwhile = NULL;
        uint32_t held = ac_ranks_swap(0); /* as other threads */
        others();
        ac_ranks_swap(held);
    }
    ck_assert_msg(!atomic_load(&d.gone[i]), "the driver is given a stream that is gone");
    d.recorded++;
    *clocks_of(event) = d.before[i];
    clocks_of(event)->at[i] = d.submitted[i];
    if (stream == CU_STREAM_LEGACY) { /* comes after all blocking streams */
        d.on_legacy++;
        memcpy(clocks_of(event)->at, d.submitted, sizeof d.submitted);
    }
    return CUDA_SUCCESS;
}

static inline CUresult context_record(CUcontext of, CUevent event) {
    ck_assert_ptr_eq(of, handle);
    d.whole++;
    memcpy(clocks_of(event)->at, d.submitted, sizeof d.submitted);
    return CUDA_SUCCESS;
}

static inline CUresult no_record(CUcontext of, CUevent event) {
    (void)of, (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static inline CUresult wait_event(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    clocks_t *before = &d.before[index_of(stream)];
    for (int i = 0; i < STREAMS; i++)
        if (before->at[i] < clocks_of(event)->at[i])
            before->at[i] = clocks_of(event)->at[i];
    return CUDA_SUCCESS;
}

static inline CUresult stream_create(CUstream *out, unsigned flags) {
    (void)flags;
    *out = stream_at(OURS);
    return CUDA_SUCCESS;
}

static inline void begin(void) {
    memset(&d, 0, sizeof d);
    ac_driver.cuCtxGetCurrent = get_current;
    ac_driver.cuCtxGetDevice = get_device;
    ac_driver.cuEventCreate = event_create;
    ac_driver.cuEventRecord = event_record;
    ac_driver.cuStreamWaitEvent = wait_event;
    ac_driver.cuStreamCreate = stream_create;
    ac_driver.cuCtxRecordEvent = NULL;
    ac_cuda_thread = thread_now;
    thread = 1;
    ac_cuda_context_init(&context, handle, 0, 0, AC_RECORD_STREAMS);
}

static inline void work_on(CUstream stream) {
    bool begun = ac_cuda_stream_begin(&context, stream);
    d.submitted[index_of(stream)]++;
    ac_cuda_stream_end(&context, stream, begun);
}

/* Returns true if a fence recorded now covers all work of `stream`. */
static inline bool covers(unsigned stream) {
    void *fence = NULL;
    ck_assert_int_eq(ac_cuda_ops.fence_record(&context, false, &fence), AC_OK);
    bool all = d.before[OURS].at[stream] == d.submitted[stream];
    ac_cuda_ops.fence_release(&context, fence);
    return all;
}

#endif
