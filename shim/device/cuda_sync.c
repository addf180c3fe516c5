/* Calls that may wait for the device without a limit: `synchronize` and `beside` of device.h.
 *
 * The driver's synchronisation has no limit, and no event proves that it will be short. It is needed
 * if events cannot be recorded or do not cover all work, and other threads submit more meanwhile.  A
 * request that has a limit therefore leaves the call to a thread that is
 * made for it, and waits for that thread as long as it may.  The thread ends with the call.  A
 * context has one at a time: behind a kernel that never ends it stays in the driver, and requests
 * that come later wait for it, each with its limit, instead of making more.  This thread also returns
 * memory during a capture. */
#include <signal.h>
#include <time.h>

#include "device/cuda_int.h"
#include "device/driver.h"
#include "device/wait.h"
#include "observe/filter.h"
#include "observe/raw.h"

/* Least time for the thread to ask an idle driver: a busy machine may not run it at once. */
enum { THREAD_NS = 100000000 };

/* The work that an event covers. */
static CUresult record_most(ac_cuda_context_t *context, CUevent event, uint64_t stream) {
    (void)stream;
    if (ac_driver.cuCtxRecordEvent &&
        ac_driver.cuCtxRecordEvent(context->handle, event) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return ac_cuda_stream_marks(context) ? ac_cuda_streams_record(context, event, false)
                                         : ac_driver.cuEventRecord(event, CU_STREAM_LEGACY);
}

/* Asks events first, which saves most threads. AC_BUSY: work is pending. AC_OK: the work that they
 * cover is over. Other answers: there are no events to ask. */
static ac_status_t ask_events(ac_cuda_context_t *context, uint64_t limit_ns) {
    void *fence;
    ac_status_t status = ac_cuda_record(context, record_most, 0, &fence);
    if (status != AC_OK)
        return status;
    status = ac_cuda_fence_poll(fence, limit_ns);
    ac_cuda_fence_give(fence);
    return status;
}

static ac_status_t wait_for_all(ac_cuda_context_t *context) {
    ac_cuda_scope_t scope;
    if (atomic_load(&context->dead))
        return AC_OK;
    if (!ac_cuda_sync_begin(context))
        return AC_BUSY;
    if (!ac_cuda_enter(context, &scope)) {
        ac_cuda_sync_end();
        return AC_FAILED;
    }
    ac_cuda_count_one(AC_CUDA_FENCE_SYNC);
    uint64_t lost = ac_cuda_lost(context);
    CUresult result = ac_driver.cuCtxSynchronize();
    if (result == CUDA_SUCCESS && atomic_load(&context->green))
        result = ac_cuda_streams_wait(context);
    if (result == CUDA_SUCCESS)
        ac_cuda_synced(context, lost);
    ac_cuda_leave(&scope);
    ac_cuda_sync_end();
    return ac_cuda_status_of(result);
}

/* Under the lock. */
static void end_sync(ac_cuda_context_t *context, ac_status_t status) {
    context->syncing = false;
    context->syncs++;
    if (!context->work)
        context->sync_status = status;
    ac_cond_broadcast(&context->sync_over);
}

/* In relaxed mode.  AC_FAILED: the context has gone. */
static ac_status_t work_in(ac_cuda_context_t *context, void (*work)(void *arg), void *arg) {
    ac_cuda_scope_t scope;
    if (!ac_cuda_enter(context, &scope))
        return AC_FAILED;
    work(arg);
    ac_cuda_leave(&scope);
    return AC_OK;
}

static void *synchronizer(void *arg) {
    ac_cuda_context_t *context = arg;
    ac_status_t status = context->work ? work_in(context, context->work, context->work_arg)
                                       : wait_for_all(context);
    ac_lock(&context->lock);
    end_sync(context, status);
    ac_unlock(&context->lock);
    return NULL;
}

/* False: no thread can be had, or must not be made: a filter of the program's own might kill the
 * process for it. */
static bool start_synchronizer(ac_cuda_context_t *context) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (ac_filter_now())
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not ours to take */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 20); /* the driver runs on it */
    int error = pthread_create(&thread, &attributes, synchronizer, context);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

static struct timespec time_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

/* Lets a thread synchronise, or do `work`, until `end` on the monotonic clock. */
static ac_status_t wait_until(ac_cuda_context_t *context, void (*work)(void *arg), void *arg,
                              uint64_t end) {
    struct timespec until = time_of(end);
    int late = 0;
    ac_status_t status = AC_BUSY;
    ac_lock(&context->lock);
    while (context->syncing && !late) /* it may have begun before work that is to be covered */
        late = ac_wait_until(&context->sync_over, &context->lock, &until);
    if (!context->syncing) {
        uint64_t syncs = context->syncs;
        context->syncing = true;
        context->work = work;
        context->work_arg = arg;
        ac_unlock(&context->lock);
        bool started = start_synchronizer(context);
        ac_lock(&context->lock);
        if (!started)
            end_sync(context, AC_BUSY);
        while (context->syncs == syncs && !late)
            late = ac_wait_until(&context->sync_over, &context->lock, &until);
        if (started && context->syncs != syncs) /* this one, or one that began after it */
            status = work ? AC_OK : context->sync_status;
    }
    ac_unlock(&context->lock);
    return status;
}

bool ac_cuda_beside(void *arg, void (*work)(void *arg), void *work_arg, uint64_t until) {
    uint64_t least = (uint64_t)ac_raw_ns(CLOCK_MONOTONIC) + THREAD_NS;
    if (!until)
        return work_in(arg, work, work_arg) == AC_OK;
    return wait_until(arg, work, work_arg, until < least ? least : until) == AC_OK;
}

ac_status_t ac_cuda_synchronize(void *arg, uint64_t limit_ns) {
    ac_cuda_context_t *context = arg;
    if (atomic_load(&context->dead))
        return AC_OK;
    if (!limit_ns)
        return wait_for_all(context);
    uint64_t end = (uint64_t)ac_raw_ns(CLOCK_MONOTONIC) + limit_ns;
    ac_status_t status = ask_events(context, limit_ns);
    if (status == AC_BUSY)
        return AC_BUSY;
    uint64_t least = (uint64_t)ac_raw_ns(CLOCK_MONOTONIC) + THREAD_NS;
    return wait_until(context, NULL, NULL, status == AC_OK && end < least ? least : end);
}
