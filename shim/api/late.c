/* Frees that have to wait: memory of the driver that work may still use, while a synchronisation would spoil a
 * capture; memory of the stream that captures; segments of pools, for work that no order covers.  A program that frees by accel_raw_deleter or accel_torch_free learns of no failure and frees
 * once; a pool that gives a segment back has no one to tell. */
#include "api/api_int.h"

#include "allocator/supply/pages.h"
#include "device/driver.h"
#include "failpoint.h"
#include "track/context.h"
#include "track/observers.h"
#include "observe/log.h"

bool ac_late_may(accel_status_t status) {
    return status != ACCEL_OK && status != ACCEL_ERROR_DOUBLE_FREE &&
           status != ACCEL_ERROR_NOT_OURS && status != ACCEL_ERROR_INTERIOR;
}

/* Ends the look, and frees the block: from then on its address may be another block's. */
static accel_status_t give_now(ac_raw_t *raw, bool waits) {
    if (raw->look && !ac_raw_take_looked(raw))
        return ACCEL_ERROR_DOUBLE_FREE;
    raw->look = 0;
    return ac_raw_give(raw, waits);
}

/* Frees the block.  If all work has to be over first, it waits for at most `limit_ns` for the work of the first
 * look outside of a capture.  ACCEL_ERROR_BUSY: that work goes on, or a stream captures. */
static accel_status_t give(ac_raw_t *raw, uint64_t limit_ns) {
    ac_context_t *context = ac_raw_waits(raw) ? ac_context_of(raw->context) : NULL;
    AC_WINDOW(late_looked_at);
    if (!context)
        return give_now(raw, true);
    if (ac_cuda_is_capturing(NULL))
        return ACCEL_ERROR_BUSY;
    if (!raw->moment.clock) {
        ac_fence_submitted(context->timeline); /* by ways that no hook sees, maybe */
        raw->moment = ac_fence_moment(context->timeline);
    }
    if (!ac_fence_await(context->timeline, raw->moment, limit_ns))
        return ACCEL_ERROR_BUSY;
    return give_now(raw, false);
}

/* 0: it has no record. */
static unsigned long long id_of(CUcontext handle) {
    const ac_context_t *context = handle ? ac_context_of(handle) : NULL;
    return context ? context->cuda.id : 0;
}

static bool free_late(bool program, uint64_t limit_ns);

/* From within calls of CUDA and the library's own thread: free_fn may take a lock that the caller, or a thread
 * which waits for it, holds; and a request waits by its own rules alone. */
static bool trim(void) {
    return free_late(false, 0);
}

bool ac_late_add(const ac_raw_t *raw) {
    ac_raw_t late = *raw;
    late.late = true;
    late.context_id = id_of(raw->context);
    if (!late.context_id && ac_context_of(raw->context))
        return false; /* contexts have no numbers before CUDA 12: another one may have the address later */
    if (!ac_raw_add(&late))
        return false;
    atomic_store(&ac_late_observer, trim);
    ac_count(ac_thread_tls, AC_COUNT_late_frees);
    return true;
}

void ac_late_give(ac_raw_t *raw) {
    if (ac_late_may(give(raw, 0)))
        ac_late_add(raw);
}

/* A block that this thread looks at.  False: it waits, and the look is over.  What fails, other than for work or
 * a capture, will not do better: mostly its context has gone, and the memory with it. */
static bool free_one(ac_raw_t *raw, bool program, uint64_t limit_ns, bool *any) {
    const accel_pool_id_t none = {0, 0};
    if (id_of(raw->context) != raw->context_id) {
        ac_raw_take_looked(raw);
        return true; /* the address may be another one's by now */
    }
    bool ours = ac_owned(raw->address);
    accel_status_t status = raw->allocator && !program ? ACCEL_ERROR_BUSY : give(raw, limit_ns);
    if (status == ACCEL_ERROR_BUSY || (ac_late_may(status) && ac_cuda_is_capturing(NULL))) {
        if (raw->look)
            ac_raw_end_look(raw);
        else
            ac_raw_add(raw);
        return false;
    }
    if (status != ACCEL_OK) {
        ac_log_once(AC_LOG_WARNING,
                    "%zu bytes of device %d that were to be freed after other work could not be (%s)", raw->bytes,
                    raw->device, accel_status_string(status));
        return true;
    }
    *any = true;
    if (!ours)
        atomic_fetch_add(&ac_given_back, raw->bytes);
    ac_history(ACCEL_TRACE_FREE_COMPLETED, raw->device, raw->address, raw->bytes, raw->stream, none, 0);
    return true;
}

bool ac_late_free(uint64_t limit_ns) {
    return free_late(true, limit_ns);
}

void ac_late_free_few(void) {
    enum { LOOKS = 4, SLOTS = 1024 };
    static _Atomic size_t next;
    ac_raw_t raw;
    bool any = false;
    size_t at = atomic_load_explicit(&next, memory_order_relaxed), begin = at;
    for (int i = 0; i < LOOKS && ac_raw_look_late(&raw, &at, SLOTS); i++)
        at += !free_one(&raw, true, 0, &any);
    if (at != begin)
        atomic_store_explicit(&next, at, memory_order_relaxed);
}

/* `program`: also memory of the program's allocator. */
static bool free_late(bool program, uint64_t limit_ns) {
    ac_raw_t raw;
    bool any = false;
    for (size_t at = 0; ac_raw_look_late(&raw, &at, SIZE_MAX);)
        if (!free_one(&raw, program, limit_ns, &any)) {
            limit_ns = 0; /* one wait is enough: fences complete in order */
            at++;
        }
    return any;
}
