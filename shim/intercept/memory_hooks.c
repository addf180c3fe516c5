/* Allocation, free, and what is free: the hooks that the cache is for. */
#include "intercept/body.h"
#include "intercept/tracing.h"

#include "allocator/cache/thread_cache.h"
#include "device/driver.h"

/* The context that serves a request of this thread, NULL: leave the call to the driver. */
static ac_context_t *serving_context(ac_thread_t *thread) {
    if (!thread || !ac_is_enabled())
        return NULL;
    ac_context_t *context = ac_context_current(thread);
    return context && !ac_fence_broken(context->line) ? context : NULL;
}

/* Of the thread's current context. */
static ac_served_t serve(ac_thread_t *thread, uint64_t bytes, CUdeviceptr *pointer) {
    ac_context_t *context = serving_context(thread);
    uint64_t address;
    if (!context)
        return AC_SERVED_BY_DRIVER;
    ac_served_t served = ac_serve(thread, context, NULL, bytes, &address);
    if (served == AC_SERVED)
        *pointer = address;
    return served;
}

/* An allocation that is left to the driver: timed, so that the gain can be told. */
static CUresult driver_alloc(ac_thread_t *thread, CUdeviceptr *pointer, size_t bytes) {
    uint64_t begin = ac_cuda_ops.now_ns();
    CUresult result = AC_REAL(cuMemAlloc_v2)(pointer, bytes);
    ac_count(thread, AC_COUNT_passed_allocs);
    ac_count_add(thread, AC_COUNT_passed_ns, ac_cuda_ops.now_ns() - begin);
    ac_context_note_current(thread, result);
    return result;
}

static CUresult answer(ac_thread_t *thread, cuMemAlloc_v2_fn *real, CUdeviceptr *a, size_t b) {
    CUresult result;
    if (!thread)
        return real(a, b);
    ac_served_t served = a && b ? serve(thread, b, a) : AC_SERVED_BY_NOTHING;
    if (served == AC_SERVED)
        return CUDA_SUCCESS;
    if (served == AC_SERVED_LIMIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    AC_ASK_DRIVER(served, result, b, driver_alloc(thread, a, b));
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *a, size_t b) {
    AC_BODY(cuMemAlloc_v2);
    return ac_trace_allocated(AC_TRACE_ALLOC, answer(thread, real, a, b), a, b, NULL);
}

/* Rows are padded to 512 bytes, as NVIDIA's devices do. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *a, size_t *b, size_t c, size_t d, unsigned e) {
    AC_BODY(cuMemAllocPitch_v2);
    CUresult result;
    ac_served_t served = AC_SERVED_BY_DRIVER;
    bool plain = a && b && c && d && (e == 4 || e == 8 || e == 16) && c <= SIZE_MAX - AC_GRANULE;
    size_t pitch = (c + AC_GRANULE - 1) / AC_GRANULE * AC_GRANULE;
    if (thread && plain && d <= SIZE_MAX / pitch) {
        served = serve(thread, pitch * d, a);
        if (served == AC_SERVED)
            *b = pitch;
        result = served == AC_SERVED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (served == AC_SERVED || served == AC_SERVED_LIMIT)
            return ac_trace_allocated(AC_TRACE_ALLOC, result, a, pitch * d, NULL);
    }
    AC_ASK_DRIVER(served, result, pitch * d, real(a, b, c, d, e));
    if (thread)
        ac_count(thread, AC_COUNT_passed_allocs);
    ac_context_note_current(thread, result);
    return ac_trace_allocated(AC_TRACE_ALLOC, result, a,
                              (b && result == CUDA_SUCCESS ? *b : pitch) * d, NULL);
}

/* Left to the driver: it moves between host and device. */
CUresult cuMemAllocManaged(CUdeviceptr *a, size_t b, unsigned c) {
    AC_BODY(cuMemAllocManaged);
    CUresult result;
    AC_RETRY(result, AC_NEED(b), real(a, b, c));
    return ac_trace_allocated(AC_TRACE_MANAGED, result, a, b, NULL);
}

/* All work of the current context, for free_sync:true. */
static CUresult wait_for_context(ac_context_t *context) {
    if (!ac_cuda_sync_begin())
        return CUDA_SUCCESS; /* it would spoil the capture; the block gets its fence after it */
    uint64_t stamp = ac_fence_stamp(), lost = ac_cuda_lost(&context->cuda);
    CUresult result = ac_driver.cuCtxSynchronize();
    ac_cuda_sync_end();
    if (result == CUDA_SUCCESS && !atomic_load(&context->cuda.green)) {
        ac_cuda_synced(&context->cuda, lost);
        ac_fence_synced(context->line, stamp);
    }
    ac_context_note(context, result);
    return result;
}

static CUresult free_ours(ac_thread_t *thread, CUdeviceptr pointer) {
    ac_context_t *context = NULL;
    CUcontext current = NULL;
    if (atomic_load(&ac_state) == AC_STATE_ACTIVE && thread) {
        context = ac_context_current(thread);
        CUresult known = context ? CUDA_SUCCESS : ac_driver_current(&current);
        if (known == CUDA_ERROR_CONTEXT_IS_DESTROYED)
            return known;
        if (!context && known == CUDA_SUCCESS && !current)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!context) {
            /* One that we failed to learn about: the block is free all the same. */
        } else if (ac_frees_synchronize() || ac_fence_broken(context->line)) {
            CUresult result = wait_for_context(context);
            if (result != CUDA_SUCCESS && ac_driver_sticky(result))
                return result;
        }
    }
    ac_cache_t *cache = context ? ac_thread_cache(thread, context) : NULL;
    if ((cache ? ac_cache_free(cache, pointer) : ac_block_free(pointer)) == AC_OK)
        return CUDA_SUCCESS;
    ac_count(thread, AC_COUNT_bad_frees);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr a) {
    AC_BODY(cuMemFree_v2);
    if (ac_owned(a) && ac_is_guest(thread))
        return real(AC_NOBODYS);
    ac_trace_freeing(a);
    if (ac_owned(a)) {
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        CUresult result = free_ours(thread, a);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        ac_trace_freed(a, result != CUDA_SUCCESS);
        return result;
    }
    uint64_t begin = thread ? ac_cuda_ops.now_ns() : 0;
    CUresult result = real(a);
    ac_trace_freed(a, result != CUDA_SUCCESS);
    if (!thread)
        return result;
    ac_count(thread, AC_COUNT_passed_frees);
    ac_count_add(thread, AC_COUNT_passed_ns, ac_cuda_ops.now_ns() - begin);
    ac_context_note_current(thread, result);
    return result;
}

/* The 32-bit ABI: a pointer that fits and lies in our segments is none of its own. */
CUresult cuMemFree(CUdeviceptr_v1 a) {
    AC_BODY(cuMemFree);
    if (ac_owned(a))
        return ac_is_guest(thread) ? real(AC_NOBODYS) : CUDA_ERROR_INVALID_VALUE;
    return real(a);
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* To what is free comes what a trim could give back: a request could really obtain it. */
CUresult cuMemGetInfo_v2(size_t *a, size_t *b) {
    AC_BODY(cuMemGetInfo_v2);
    size_t available, total;
    CUresult result = real(a ? a : &available, b ? b : &total);
    if (result != CUDA_SUCCESS || !thread || !a)
        return result;
    ac_context_t *context = serving_context(thread);
    if (context) {
        ac_allocator_t *allocator = ac_arena_allocator(context->arena);
        uint64_t idle = ac_allocator_idle_bytes(allocator);
        uint64_t room = ac_allocator_room(allocator);
        *a = smaller(*a + idle, *(b ? b : &total));
        if (room != AC_UNLIMITED)
            *a = smaller(*a, room + idle);
    }
    return result;
}
