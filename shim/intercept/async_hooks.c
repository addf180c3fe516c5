/* The stream-ordered API: served from the arena of the stream's context, where that is a primary
 * one and current, and its device's pool is untouched (pool_hooks.c).  Everything else is the
 * driver's, odd input included, and counted.  Mixed use works: a pool's pointer given to
 * cuMemFree is the driver's, ours given to cuMemFreeAsync is ours. */
#include "intercept/body.h"

#include "device/driver.h"
#include "intercept/tracing.h"

/* The context that may serve a request on `stream`; NULL: it is the driver's. */
static ac_context_t *serving(ac_thread_t *thread, CUstream stream, bool per_thread) {
    if (!thread || !ac_is_enabled())
        return NULL;
    ac_context_t *context = ac_context_of_stream(thread, stream);
    if (!context || context->created || context != ac_context_current(thread) ||
        ac_fence_broken(context->timeline) || atomic_load(&context->cuda.green) ||
        !ac_pool_serves(context->cuda.device))
        return NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (ac_cuda_is_capturing() &&
        (!ac_driver.cuStreamIsCapturing ||
         ac_driver.cuStreamIsCapturing(ac_stream_resolved(stream, per_thread), &status) ||
         status != CU_STREAM_CAPTURE_STATUS_NONE))
        return NULL;
    return context;
}

bool ac_async_hit(ac_thread_t *thread, ac_context_t *context, size_t bytes, CUstream stream,
                  bool per_thread, uint64_t *address) {
    ac_stream_t named = ac_stream_named(stream, per_thread);
    return serving(thread, stream, per_thread) == context &&
           ac_arena_alloc_on(context->arena, named, bytes, true, address) == AC_OK;
}

static ac_served_t serve(ac_thread_t *thread, CUdeviceptr *pointer, size_t bytes, CUstream stream,
                         bool per_thread) {
    uint64_t address;
    if (!thread || !pointer || !bytes)
        return AC_SERVED_BY_DRIVER;
    ac_stream_t named = ac_stream_named(stream, per_thread);
    ac_context_t *context = serving(thread, stream, per_thread);
    if (!context)
        return AC_SERVED_BY_DRIVER;
    ac_served_t served = ac_serve(thread, context, &named, bytes, &address);
    if (served == AC_SERVED)
        *pointer = address;
    return served;
}

/* What the driver did in the stream counts for what comes after it there. */
static void passed(ac_thread_t *thread, CUstream stream, bool per_thread, CUresult result) {
    if (!thread)
        return;
    ac_context_t *context = ac_context_of_stream(thread, stream);
    if (!context && result == CUDA_SUCCESS)
        ac_context_unseen();
    if (context && atomic_load_explicit(&ac_streams_tracked, memory_order_acquire))
        ac_arena_submitted(context->arena,
                           ac_stream_named(stream, per_thread) == AC_STREAM_LEGACY);
    ac_context_note(context, result);
}

static CUresult driver_alloc(ac_thread_t *thread, cuMemAllocAsync_fn *real, CUdeviceptr *pointer,
                             size_t bytes, CUstream stream) {
    uint64_t begin = ac_passed_begin(thread);
    CUresult result = real(pointer, bytes, stream);
    ac_passed_end(thread, begin);
    return result;
}

static CUresult driver_alloc_from(ac_thread_t *thread, cuMemAllocFromPoolAsync_fn *real,
                                  CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                  CUstream stream) {
    uint64_t begin = ac_passed_begin(thread);
    CUresult result = real(pointer, bytes, pool, stream);
    ac_passed_end(thread, begin);
    return result;
}

static CUresult driver_free(ac_thread_t *thread, cuMemFreeAsync_fn *real, CUdeviceptr pointer,
                            CUstream stream) {
    uint64_t begin = ac_passed_begin(thread);
    CUresult result = real(pointer, stream);
    if (thread)
        ac_count(thread, AC_COUNT_passed_async_frees);
    ac_passed_end(thread, begin);
    return result;
}

#define ALLOC_ASYNC(symbol, per_thread)                                                          \
    CUresult symbol(CUdeviceptr *pointer, size_t bytes, CUstream stream) {                       \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        ac_served_t served = serve(thread, pointer, bytes, stream, per_thread);                  \
        result = served == AC_SERVED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;                  \
        if (served == AC_SERVED || served == AC_SERVED_LIMIT)                                    \
            return ac_trace_allocated(AC_TRACE_ALLOC, result, pointer, bytes,                    \
                                      ac_stream_resolved(stream, per_thread));                   \
        if (thread)                                                                              \
            thread->last_alloc = NULL;                                                           \
        ac_count(thread, AC_COUNT_passed_async);                                                 \
        AC_ASK_DRIVER(served, result, bytes,                                                     \
                      driver_alloc(thread, real, pointer, bytes, stream));                       \
        passed(thread, stream, per_thread, result);                                              \
        return ac_trace_allocated(AC_TRACE_ALLOC, result, pointer, bytes,                        \
                                  ac_stream_resolved(stream, per_thread));                       \
    }
ALLOC_ASYNC(cuMemAllocAsync, false)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, true)

#define ALLOC_FROM_POOL(symbol, per_thread)                                                      \
    CUresult symbol(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {    \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        if (thread)                                                                              \
            ac_pool_touch(pool);                                                                 \
        ac_count(thread, AC_COUNT_passed_async);                                                 \
        AC_RETRY(result, AC_NEED(bytes),                                                         \
                 driver_alloc_from(thread, real, pointer, bytes, pool, stream));                 \
        passed(thread, stream, per_thread, result);                                              \
        return ac_trace_allocated(AC_TRACE_ALLOC, result, pointer, bytes,                        \
                                  ac_stream_resolved(stream, per_thread));                       \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, false)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true)

/* --- frees --- */

/* Whether the stream waits for no other by itself, as the default ones and most others do. */
static bool is_independent(ac_context_t *context, CUstream stream) {
    unsigned flags = 0;
    ac_cuda_scope_t scope;
    if (stream <= CU_STREAM_PER_THREAD || !ac_driver.cuStreamGetFlags ||
        !ac_cuda_enter(&context->cuda, &scope))
        return false;
    CUresult result = ac_driver.cuStreamGetFlags(stream, &flags);
    ac_cuda_leave(&scope);
    return result == CUDA_SUCCESS && flags & CU_STREAM_NON_BLOCKING;
}

static ac_status_t free_in_order(ac_context_t *context, CUdeviceptr pointer, CUstream stream,
                                 bool per_thread) {
    ac_stream_t named = ac_stream_named(stream, per_thread);
    ac_cuda_stream_used(&context->cuda, ac_stream_resolved(stream, per_thread));
    if (ac_block_arena(pointer) != context->arena)
        ac_context_cross();
    ac_status_t status = ac_block_free_on(context->arena, named, pointer);
    if (!ac_arena_stream_asked(context->arena, named))
        ac_arena_stream_is(context->arena, named, is_independent(context, stream));
    return status;
}

static CUresult bad_free(ac_thread_t *thread) {
    ac_count(thread, AC_COUNT_bad_frees);
    return CUDA_ERROR_INVALID_VALUE;
}

/* Whether the driver knows the handle, and captures nothing on it. */
static bool is_stream(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned flags;
    return (uintptr_t)stream > 2 && ac_driver.cuStreamGetFlags &&
           ac_driver.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
           (!ac_cuda_is_capturing() || !ac_driver.cuStreamIsCapturing ||
            (ac_driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
             status == CU_STREAM_CAPTURE_STATUS_NONE));
}

/* A block of ours, freed in the order of `stream`.  A capturing stream takes only what a graph
 * allocated, and the legacy one nothing while a stream captures that synchronises with it. */
static CUresult free_on_stream(ac_thread_t *thread, cuMemFreeAsync_fn *real, CUdeviceptr pointer,
                               CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    ac_status_t freed;
    if (thread) {
        ac_context_t *context = ac_context_of_stream(thread, stream);
        if (context && ac_fence_broken(context->timeline)) {
            /* The error of the context comes before that of the pointer. */
            CUresult result =
                ac_driver.cuStreamSynchronize(ac_stream_resolved(stream, per_thread));
            if (ac_driver_sticky(result))
                return result;
        }
        if (!context && is_stream(stream)) { /* of a context that is not known */
            ac_context_unseen();
            freed = ac_block_free(pointer);
            return freed == AC_OK ? CUDA_SUCCESS : bad_free(thread);
        }
        if (!context)
            return real(AC_UNOWNED, stream);
        if (ac_cuda_is_capturing() && ac_driver.cuStreamIsCapturing) {
            CUresult result =
                ac_driver.cuStreamIsCapturing(ac_stream_resolved(stream, per_thread), &status);
            if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
                return real(AC_UNOWNED, stream); /* says so, or that the capture is spoilt */
            if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
                result = ac_cuda_probe_legacy(&context->cuda);
            if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
                return result;
        }
        freed = free_in_order(context, pointer, stream, per_thread);
    } else {
        freed = ac_block_mark_used(pointer);
        if (freed == AC_OK)
            freed = ac_block_free(pointer);
    }
    return freed == AC_OK ? CUDA_SUCCESS : bad_free(thread);
}

bool ac_async_free(ac_thread_t *thread, ac_context_t *context, uint64_t address, CUstream stream,
                   bool per_thread) {
    return ac_owned(address) && ac_context_of_stream(thread, stream) == context &&
           !ac_cuda_is_capturing() &&
           free_in_order(context, address, stream, per_thread) == AC_OK;
}

#define FREE_ASYNC(symbol, per_thread)                                                           \
    CUresult symbol(CUdeviceptr pointer, CUstream stream) {                                      \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        if (ac_owned(pointer) && ac_is_guest(thread))                                            \
            return real(AC_UNOWNED, stream);                                                     \
        ac_trace_freeing_on(pointer, ac_stream_resolved(stream, per_thread));                    \
        if (ac_owned(pointer)) {                                                                 \
            uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);                        \
            result = free_on_stream(thread, real, pointer, stream, per_thread);                  \
            ac_sample_end(thread, begin, ac_cuda_ops.now_ns);                                    \
        } else {                                                                                 \
            result = driver_free(thread, real, pointer, stream);                                 \
            passed(thread, stream, per_thread, result);                                          \
        }                                                                                        \
        ac_trace_freed(pointer, result != CUDA_SUCCESS);                                         \
        return result;                                                                           \
    }
FREE_ASYNC(cuMemFreeAsync, false)
FREE_ASYNC(cuMemFreeAsync_ptsz, true)
