/* The operations of device.h over the driver API (cuda_device.h). */
#include <sched.h>
#include <time.h>

#include "device/cuda_fill.h"
#include "device/cuda_int.h"
#include "device/driver.h"
#include "device/wait.h"
#include "observe/host_memory.h"
#include "observe/raw.h"
#include "failpoint.h"

_Atomic ac_cuda_memory_fn ac_cuda_memory_observer;

ac_status_t ac_cuda_status_of(CUresult result) {
    switch (result) {
    case CUDA_SUCCESS:
        return AC_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return AC_OOM;
    case CUDA_ERROR_NOT_READY:
        return AC_BUSY;
    default:
        if (ac_driver_sticky(result))
            ac_cuda_count_one(AC_CUDA_STICKY);
        return AC_FAILED;
    }
}

/* During a capture allocating is one of CUDA's "potentially unsafe" calls. The driver allows it to a
 * thread in relaxed mode, and to a thread that captures only in relaxed mode, while others capture
 * thread-locally. It refuses all other threads, and spoils the captures that object. A segment is
 * requested in the thread's own mode, so it succeeds or fails like the program's own request. */
static ac_status_t allocate(ac_cuda_context_t *context, uint64_t bytes, bool own_mode,
                            uint64_t *address) {
    ac_cuda_scope_t scope;
    CUdeviceptr pointer = 0;
    if (!ac_cuda_enter_as(context, &scope, own_mode))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemAlloc_v2(&pointer, bytes);
    /* Refused, and the captures spoilt that would have been without us: asked again for what the
     * program wanted, the driver says so in its own words. */
    bool refused = own_mode && result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ac_status_t status = refused ? AC_BUSY : ac_cuda_status_of(result);
    if (status == AC_OK && pointer % AC_SEGMENT_ALIGN) {
        /* Blocks are found by pages of this size; a driver that aligns less is left alone. */
        ac_driver.cuMemFree_v2(pointer);
        status = AC_FAILED;
    }
    ac_cuda_leave(&scope);
    if (status == AC_OK) {
        *address = pointer;
        ac_cuda_tell(context, AC_EVENT_SEGMENT_ALLOC, pointer, bytes);
    }
    return status;
}

static ac_status_t segment_alloc(void *arg, uint64_t bytes, uint64_t *address) {
    return allocate(arg, bytes, ac_cuda_is_capturing(NULL), address);
}

static ac_status_t segment_alloc_aside(void *arg, uint64_t bytes, uint64_t *address) {
    return allocate(arg, bytes, false, address);
}

static ac_status_t segment_free(void *arg, uint64_t address, uint64_t bytes) {
    ac_cuda_context_t *context = arg;
    ac_cuda_scope_t scope;
    if (atomic_load(&context->dead))
        return AC_OK;
    /* Try again: the allocator has forgotten the segment, and it would be lost. Not while its context
     * ends: other memory may get the address. */
    if (!ac_cuda_enter(context, &scope) && !ac_cuda_enter(context, &scope))
        return AC_FAILED;
    if (ac_cuda_is_barred(&scope)) {
        ac_cuda_leave(&scope);
        return AC_BUSY;
    }
    CUresult result = ac_driver.cuMemFree_v2(address);
    if (result != CUDA_SUCCESS && !ac_driver_sticky(result) && !atomic_load(&context->dying))
        result = ac_driver.cuMemFree_v2(address);
    ac_cuda_leave(&scope);
    if (result == CUDA_SUCCESS)
        ac_cuda_tell(context, AC_EVENT_SEGMENT_FREE, address, bytes);
    return ac_cuda_status_of(result);
}

ac_status_t ac_cuda_host_free(ac_cuda_context_t *context, uint64_t address) {
    ac_cuda_scope_t scope;
    if (atomic_load(&context->dead))
        return AC_OK;
    if (ac_cuda_is_capturing(NULL))
        return AC_BUSY;
    if (!ac_driver.cuMemFreeHost || !ac_cuda_enter(context, &scope))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemFreeHost((void *)(uintptr_t)address);
    ac_cuda_leave(&scope);
    return ac_cuda_status_of(result);
}

bool ac_cuda_integrated(CUdevice device) {
    enum { UNKNOWN, NO, YES, DEVICES = 64 };
    static _Atomic char known[DEVICES];
    int value = 0;
    if (device < 0 || device >= DEVICES || !ac_driver.cuDeviceGetAttribute)
        return false;
    if (atomic_load(&known[device]) == UNKNOWN &&
        ac_driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_INTEGRATED, device) ==
            CUDA_SUCCESS)
        atomic_store(&known[device], value ? YES : NO);
    return atomic_load(&known[device]) == YES;
}

uint64_t ac_cuda_host_left(CUdevice device) {
    uint64_t left = ac_cuda_integrated(device) ? ac_host_memory_left() : 0;
    return left ? left : UINT64_MAX;
}

static ac_status_t memory_free(void *arg, uint64_t *bytes) {
    ac_cuda_scope_t scope;
    size_t available, total;
    if (!ac_cuda_enter(arg, &scope))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemGetInfo_v2(&available, &total);
    ac_cuda_leave(&scope);
    *bytes = available;
    return ac_cuda_status_of(result);
}

ac_status_t ac_cuda_record(ac_cuda_context_t *context, ac_record_fn *how, uint64_t stream,
                           void **out) {
    ac_cuda_scope_t scope;
    if (!AC_FAILPOINT(record_during_capture) && ac_cuda_is_capturing(context))
        return AC_BUSY;
    ac_cuda_fence_t *fence = ac_cuda_fence_take(context);
    if (!fence)
        return AC_UNSUPPORTED;
    /* In its own mode: nothing captures behind the gate. */
    bool own_mode = !ac_cuda_is_capturing(NULL) && !AC_FAILPOINT(record_during_capture);
    if (!ac_cuda_enter_as(context, &scope, own_mode)) {
        ac_cuda_fence_give(fence);
        return AC_UNSUPPORTED;
    }
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    ac_lock_shared(&ac_cuda_gate);
    bool busy = !AC_FAILPOINT(record_during_capture) && ac_cuda_is_capturing(context);
    if (!busy && !fence->event)
        fence->event = ac_cuda_event_take(context);
    if (!busy && fence->event)
        result = how(context, fence->event, stream);
    ac_release(&ac_cuda_gate);
    if (AC_FAILPOINT(event_reused_early) && fence->event)
        ac_cuda_event_return(context, fence->event);
    if (result != CUDA_SUCCESS)
        ac_cuda_fence_give(fence);
    ac_cuda_leave(&scope);
    if (result != CUDA_SUCCESS) {
        if (busy)
            return AC_BUSY;
        return ac_driver_sticky(result) ? ac_cuda_status_of(result) : AC_UNSUPPORTED;
    }
    *out = fence;
    return AC_OK;
}

static CUresult record_whole(ac_cuda_context_t *context, CUevent event, uint64_t stream) {
    (void)stream;
    int mode = atomic_load(&context->mode);
    if (AC_FAILPOINT(legacy_stream_only))
        return ac_driver.cuEventRecord(event, CU_STREAM_LEGACY);
    return mode == AC_RECORD_CTX ? ac_driver.cuCtxRecordEvent(context->handle, event)
                                 : ac_cuda_streams_record(context, event, mode == AC_RECORD_BOTH);
}

static ac_status_t fence_record(void *arg, bool unseen, void **out) {
    ac_cuda_context_t *context = arg;
    int mode = atomic_load(&context->mode);
    if (mode == AC_RECORD_NONE || atomic_load(&context->lost) > atomic_load(&context->recovered))
        return AC_UNSUPPORTED;
    if (unseen && mode == AC_RECORD_STREAMS)
        return AC_UNSUPPORTED; /* streams without a mark would not be joined */
    ac_status_t status = ac_cuda_record(context, record_whole, 0, out);
    if (status == AC_OK && atomic_load(&context->lost) > atomic_load(&context->recovered)) {
        /* Meanwhile: a stream may have gone before it was named. */
        ac_cuda_fence_give(*out);
        return AC_UNSUPPORTED;
    }
    if (status == AC_OK)
        ac_cuda_count_one(mode == AC_RECORD_CTX ? AC_CUDA_FENCE_CTX : AC_CUDA_FENCE_STREAMS);
    return status;
}

/* Only the thread itself can name its per-thread stream: from other threads it is covered by a
 * fence on the whole context, or by the legacy stream, which orders after it. */
static CUresult record_stream(ac_cuda_context_t *context, CUevent event, uint64_t stream) {
    CUstream handle = ac_cuda_stream_of_key(stream);
    if (!handle && ac_driver.cuCtxRecordEvent && atomic_load(&context->mode) != AC_RECORD_STREAMS)
        return ac_driver.cuCtxRecordEvent(context->handle, event);
    return ac_driver.cuEventRecord(event, handle ? handle : CU_STREAM_LEGACY);
}

static bool join_events(void *arg) {
    ac_cuda_context_t *context = arg;
    return atomic_load(&context->mode) != AC_RECORD_NONE;
}

static ac_status_t join_record(void *arg, uint64_t stream, void **out) {
    ac_cuda_context_t *context = arg;
    if (!join_events(context))
        return AC_UNSUPPORTED;
    ac_status_t status = ac_cuda_record(context, record_stream, stream, out);
    if (status == AC_OK)
        ac_cuda_count_one(AC_CUDA_JOIN);
    return status;
}

/* AC_UNSUPPORTED: the driver would not tell, without the context being broken.  *barred: it was not
 * asked, because of a capture. */
static ac_status_t fence_ask(ac_cuda_fence_t *fence, cuEventQuery_fn *ask, bool *barred) {
    ac_cuda_context_t *context = fence->context;
    ac_cuda_scope_t scope;
    *barred = false;
    if (atomic_load(&context->dead))
        return AC_OK; /* its work went with it */
    if (!ac_cuda_enter(context, &scope))
        return atomic_load(&context->dead) ? AC_OK : AC_UNSUPPORTED;
    *barred = ac_cuda_is_barred(&scope);
    CUresult result = *barred ? CUDA_ERROR_NOT_READY : ask(fence->event);
    ac_cuda_leave(&scope);
    if (result == CUDA_ERROR_CAPTURED_EVENT || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        return AC_BUSY;
    ac_status_t status = ac_cuda_status_of(result);
    return status == AC_FAILED && !ac_driver_sticky(result) ? AC_UNSUPPORTED : status;
}

static uint64_t now_ns(void) {
    /* The kernel's clock, not the C library's: a program's own clock (libfaketime) may stand still,
     * and waits that
     * have a limit would have none. */
    return (uint64_t)ac_raw_ns(CLOCK_MONOTONIC);
}

static ac_status_t fence_query(void *arg, void *fence) {
    bool barred;
    (void)arg;
    ac_cuda_count_one(AC_CUDA_FENCE_QUERY);
    ac_status_t status = fence_ask(fence, ac_driver.cuEventQuery, &barred);
    return status == AC_UNSUPPORTED ? AC_BUSY : status; /* the next query may succeed */
}

/* The driver's own wait knows no limit. */
ac_status_t ac_cuda_fence_poll(ac_cuda_fence_t *fence, uint64_t limit_ns) {
    enum { EAGER = 1000, NAP_NS = 50000 };
    uint64_t begin = now_ns();
    bool barred;
    for (unsigned round = 0;; round++) {
        ac_status_t status = fence_ask(fence, ac_driver.cuEventQuery, &barred);
        if (status == AC_UNSUPPORTED)
            status = AC_BUSY; /* the next query may succeed */
        if (status != AC_BUSY || barred || now_ns() - begin > limit_ns)
            return status;
        if (round < EAGER)
            sched_yield();
        else
            ac_nap(NAP_NS);
    }
}

static ac_status_t fence_wait(void *arg, void *fence, uint64_t limit_ns) {
    ac_cuda_fence_t *asked = fence;
    bool barred;
    (void)arg;
    ac_status_t status = limit_ns ? ac_cuda_fence_poll(asked, limit_ns)
                                  : fence_ask(asked, ac_driver.cuEventSynchronize, &barred);
    return status == AC_UNSUPPORTED ? ac_cuda_synchronize(asked->context, 0)
                                    : status; /* no limit either */
}

/* A wait is no record: it is made during captures, too, but not on a stream that captures. */
static ac_status_t join_wait(void *arg, void *fence, uint64_t stream) {
    ac_cuda_context_t *context = arg;
    ac_cuda_fence_t *asked = fence;
    CUstream handle = ac_cuda_stream_of_key(stream);
    CUstreamCaptureStatus captures = CU_STREAM_CAPTURE_STATUS_NONE;
    ac_cuda_scope_t scope;
    if (atomic_load(&context->dead))
        return AC_OK;
    if (!ac_cuda_enter(context, &scope))
        return AC_FAILED;
    if (!stream) {
        CUresult result = ac_driver.cuEventSynchronize(asked->event);
        ac_cuda_leave(&scope);
        return ac_cuda_status_of(result);
    }
    ac_lock_shared(&ac_cuda_gate);
    CUresult result = CUDA_SUCCESS;
    if (ac_cuda_is_capturing(NULL) && ac_driver.cuStreamIsCapturing)
        result = ac_driver.cuStreamIsCapturing(handle, &captures);
    /* The legacy stream takes no work while a blocking stream captures. */
    bool busy =
        result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || captures != CU_STREAM_CAPTURE_STATUS_NONE;
    if (!busy && result == CUDA_SUCCESS)
        result = ac_driver.cuStreamWaitEvent(handle, asked->event, 0);
    ac_release(&ac_cuda_gate);
    ac_cuda_leave(&scope);
    return busy ? AC_BUSY : ac_cuda_status_of(result);
}

static bool capturing(void *arg, bool any) {
    return ac_cuda_is_capturing(any ? NULL : arg);
}

static void fence_release(void *arg, void *fence) {
    (void)arg;
    ac_cuda_fence_give(fence);
}

static void sync_memops_off(void *arg, uint64_t address) {
    static const unsigned off = 0;
    ac_cuda_scope_t scope;
    if (!ac_driver.cuPointerSetAttribute || !ac_cuda_enter(arg, &scope))
        return;
    ac_driver.cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
    ac_cuda_leave(&scope);
}

const ac_device_ops_t ac_cuda_ops = {
    .segment_alloc = segment_alloc,
    .segment_alloc_aside = segment_alloc_aside,
    .segment_free = segment_free,
    .memory_free = memory_free,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .fence_release = fence_release,
    .join_record = join_record,
    .join_events = join_events,
    .sync_memops_off = sync_memops_off,
    .join_wait = join_wait,
    .capturing = capturing,
    .beside = ac_cuda_beside,
    .synchronize = ac_cuda_synchronize,
    .stream_order = ac_cuda_stream_order,
    .stream_touch = ac_cuda_stream_touch,
    .range_support = ac_cuda_range_support,
    .range_reserve = ac_cuda_range_reserve,
    .range_release = ac_cuda_range_release,
    .page_create = ac_cuda_page_create,
    .page_release = ac_cuda_page_release,
    .page_map = ac_cuda_page_map,
    .pages_allow = ac_cuda_pages_allow,
    .pages_unmap = ac_cuda_pages_unmap,
    .memory_fill = ac_cuda_memory_fill,
    .fills_over = ac_cuda_fills_over,
    .memory_differs = ac_cuda_memory_differs,
    .now_ns = now_ns,
};
