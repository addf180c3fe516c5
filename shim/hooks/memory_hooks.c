/* Hooks of cuMemAlloc and cuMemFree, and of their variants. */
#include "hooks/body.h"
#include "hooks/direct_hooks.h"
#include "hooks/fill.h"
#include "hooks/guard.h"
#include "track/modules.h"
#include "track/observers.h"
#include "track/pinned.h"
#include "tell/tracing.h"
#include "tell/wrong_free.h"

#include "allocator/cache/thread_cache.h"
#include "device/driver.h"
#include "hooks/serve.h"

ac_context_t *ac_context_serving(ac_thread_t *thread) {
    if (!thread || !ac_is_enabled())
        return NULL;
    ac_context_t *context = ac_context_current(thread);
    return context && !ac_fence_broken(context->timeline) ? context : NULL;
}

/* Serves a request in the thread's current context. */
static ac_served_t serve(ac_thread_t *thread, const void *caller, uint64_t bytes,
                         CUdeviceptr *pointer) {
    ac_context_t *context = ac_context_serving(thread);
    uint64_t address;
    if (!context)
        return AC_SERVED_BY_DRIVER;
    unsigned module = ac_module_asking(thread, caller);
    ac_served_t served = ac_serve(thread, context, module, caller, NULL, bytes, &address);
    if (served == AC_SERVED && !ac_fill_served(context, address, bytes))
        served = ac_serve(thread, context, module, caller, NULL, bytes, &address);
    if (served == AC_SERVED)
        *pointer = address;
    return served;
}

/* Allocates from the driver, with a claim and a record. */
static CUresult driver_alloc(ac_thread_t *thread, CUdeviceptr *pointer, size_t bytes) {
    ac_claim_t claim = ac_claim_here(thread, pointer ? bytes : 0);
    uint64_t begin = ac_passed_begin(thread);
    CUresult result = AC_CLAIMED(&claim, AC_REAL(cuMemAlloc_v2)(pointer, bytes));
    ac_count(thread, AC_COUNT_passed_allocs);
    ac_passed_end(thread, begin);
    ac_context_note_current(thread, result);
    if (result == CUDA_SUCCESS)
        ac_direct_plain(thread, *pointer, bytes);
    ac_claim_end(&claim);
    return result;
}

static CUresult answer(ac_thread_t *thread, const void *caller, cuMemAlloc_v2_fn *real,
                       CUdeviceptr *pointer, size_t bytes) {
    CUresult result;
    if (!thread)
        return real(pointer, bytes);
    ac_served_t served =
        pointer && bytes ? serve(thread, caller, bytes, pointer) : AC_SERVED_BY_NOTHING;
    if (served == AC_SERVED)
        return CUDA_SUCCESS;
    if (served == AC_SERVED_LIMIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    AC_ASK_DRIVER(served, result, bytes, driver_alloc(thread, pointer, bytes));
    return result;
}

static CUresult answer_traced(ac_thread_t *thread, const void *caller, cuMemAlloc_v2_fn *real,
                              CUdeviceptr *pointer, size_t bytes) {
    return ac_trace_allocated(AC_TRACE_ALLOC, answer(thread, caller, real, pointer, bytes),
                              pointer, bytes, NULL, caller);
}

static __attribute__((noinline)) CUresult alloc_missed(ac_thread_t *thread, CUdeviceptr *pointer,
                                                       size_t bytes, const void *caller) {
    ac_guard_missed(thread);
    return answer_traced(thread, caller, AC_REAL(cuMemAlloc_v2), pointer, bytes);
}

static __attribute__((noinline)) CUresult alloc_due(const ac_thread_t *thread) {
    ac_cache_raise(thread->fast[AC_FAST_DRIVER].cache);
    return CUDA_SUCCESS;
}

/* True if the thread knows that its cache serves its current context (AC_FAST_DRIVER), or requests
 * of `code` in it (AC_FAST_DRIVER_MALLOC). */
#define IS_FAST(thread, use, code, symbol)                                                       \
    (__builtin_expect(ac_thread_is_fast(thread, use, code), 1) &&                                \
     !AC_ROW_FAILPOINT(symbol, unseen))

static inline __attribute__((always_inline)) CUresult
alloc_fast(ac_thread_t *thread, CUdeviceptr *pointer, size_t bytes, const void *caller) {
    const ac_fast_t *fast = &thread->fast[AC_FAST_DRIVER_MALLOC];
    uint64_t address;
    ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + AC_HOOK_cuMemAlloc_v2]);
    ac_take_t taken = __builtin_expect(!pointer, 0)
                          ? AC_TAKE_NONE
                          : ac_cache_take(fast->cache, bytes, &address, ac_fence_handout_alone);
    if (__builtin_expect(!taken, 0))
        return alloc_missed(thread, pointer, bytes, caller);
    thread->last_alloc = thread->known;
    *pointer = address;
    return __builtin_expect(taken == AC_TAKE_DUE, 0) ? alloc_due(thread) : CUDA_SUCCESS;
}

static __attribute__((noinline)) CUresult alloc_slow(CUdeviceptr *pointer, size_t bytes,
                                                     const void *caller) {
    if (IS_FAST(ac_thread_tls, AC_FAST_DRIVER, NULL, cuMemAlloc_v2) &&
        (ac_thread_is_apart(ac_thread_tls, AC_FAST_DRIVER_MALLOC, caller) ||
         ac_thread_name_caller(ac_thread_tls, caller)) &&
        ac_guard_passes(ac_thread_tls))
        return alloc_fast(ac_thread_tls, pointer, bytes, caller);
    AC_ENTER_OR_RETURN(cuMemAlloc_v2);
    return answer_traced(thread, caller, real, pointer, bytes);
}

CUresult ac_mem_alloc(CUdeviceptr *pointer, size_t bytes, const void *caller) {
    ac_thread_t *thread = ac_thread_tls;
    if (!IS_FAST(thread, AC_FAST_DRIVER_MALLOC, caller, cuMemAlloc_v2))
        return alloc_slow(pointer, bytes, caller);
    return alloc_fast(thread, pointer, bytes, caller);
}

CUresult ac_mem_alloc_apart(CUdeviceptr *pointer, size_t bytes, const void *caller) {
    AC_ENTER_OR_RETURN(cuMemAlloc_v2);
    if (thread)
        thread->apart = true;
    CUresult result = answer_traced(thread, caller, real, pointer, bytes);
    if (thread)
        thread->apart = false;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    return ac_mem_alloc(pointer, bytes, __builtin_return_address(0));
}

static CUresult driver_alloc_pitch(ac_thread_t *thread, CUdeviceptr *pointer, size_t *pitch,
                                   size_t width, size_t height, unsigned element_size) {
    ac_claim_t claim = ac_claim_here(thread, pointer && pitch ? (uint64_t)width * height : 0);
    uint64_t begin = ac_passed_begin(thread);
    CUresult result = AC_CLAIMED(
        &claim, AC_REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element_size));
    ac_passed_end(thread, begin);
    if (result == CUDA_SUCCESS)
        ac_direct_plain(thread, *pointer, *pitch * height);
    ac_claim_end(&claim);
    return result;
}

/* Rows are padded to 512 bytes, as NVIDIA's devices do. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned element_size) {
    AC_ENTER_OR_RETURN(cuMemAllocPitch_v2);
    const void *caller = __builtin_return_address(0);
    CUresult result;
    ac_served_t served = AC_SERVED_BY_DRIVER;
    bool plain = pointer && pitch && width && height &&
                 (element_size == 4 || element_size == 8 || element_size == 16) &&
                 width <= SIZE_MAX - AC_GRANULE;
    size_t row_bytes = (width + AC_GRANULE - 1) / AC_GRANULE * AC_GRANULE;
    if (thread && plain && height <= SIZE_MAX / row_bytes) {
        served = serve(thread, caller, row_bytes * height, pointer);
        if (served == AC_SERVED)
            *pitch = row_bytes;
        result = served == AC_SERVED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (served == AC_SERVED || served == AC_SERVED_LIMIT)
            return ac_trace_allocated(AC_TRACE_ALLOC, result, pointer, row_bytes * height, NULL,
                                      caller);
    }
    AC_ASK_DRIVER(served, result, row_bytes * height,
                  driver_alloc_pitch(thread, pointer, pitch, width, height, element_size));
    if (thread)
        ac_count(thread, AC_COUNT_passed_allocs);
    ac_context_note_current(thread, result);
    return ac_trace_allocated(AC_TRACE_ALLOC, result, pointer,
                              (pitch && result == CUDA_SUCCESS ? *pitch : row_bytes) * height,
                              NULL, caller);
}

/* The driver serves managed memory, because it moves the memory between host and device. */
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    AC_ENTER_OR_RETURN(cuMemAllocManaged);
    CUresult result;
    AC_RETRY(result, AC_NEED(bytes), real(pointer, bytes, flags));
    if (result == CUDA_SUCCESS && thread)
        ac_shown_memory(*pointer);
    return ac_trace_allocated(AC_TRACE_MANAGED, result, pointer, bytes, NULL,
                              __builtin_return_address(0));
}

CUresult ac_context_await(ac_context_t *context) {
    ac_cuda_scope_t scope;
    if (!ac_cuda_sync_begin(&context->cuda))
        return CUDA_SUCCESS; /* a wait would spoil the capture; later the block gets a fence */
    uint64_t stamp = ac_fence_stamp(), lost = ac_cuda_lost(&context->cuda);
    CUresult result = CUDA_SUCCESS;
    bool entered = ac_cuda_enter(&context->cuda, &scope);
    if (entered) {
        result = ac_driver.cuCtxSynchronize();
        ac_cuda_leave(&scope);
    }
    ac_cuda_sync_end();
    if (!entered)
        return result;
    if (result == CUDA_SUCCESS && !atomic_load(&context->cuda.green)) {
        ac_cuda_synced(&context->cuda, lost);
        ac_fence_synced(context->timeline, stamp);
    }
    ac_context_note(context, result);
    return result;
}

static CUresult free_ours(ac_thread_t *thread, CUdeviceptr pointer, const void *caller) {
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
            /* The current context has no record: the block is freed without a wait. */
        } else if (ac_frees_wait() || ac_fence_broken(context->timeline)) {
            CUresult result = ac_fill_await(context, pointer);
            if (result != CUDA_SUCCESS && ac_driver_sticky(result))
                return result;
        }
    }
    if (ac_is_private(pointer))
        return ac_wrong_free_private(thread, pointer);
    ac_cache_t *cache = context ? ac_thread_cache(thread, context) : NULL;
    if ((cache ? ac_cache_free(cache, pointer) : ac_block_free(pointer)) == AC_OK) {
        if (thread)
            thread->last_free = context;
        return CUDA_SUCCESS;
    }
    ac_wrong_free(thread, pointer, caller);
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_any(ac_thread_t *thread, cuMemFree_v2_fn *real, CUdeviceptr pointer,
                         const void *caller) {
    if (ac_owned(pointer) && ac_is_guest(thread))
        return real(AC_UNOWNED);
    ac_trace_freeing(pointer, caller);
    if (ac_owned(pointer)) {
        if (ac_frees_may_wait())
            ac_free_await(thread, pointer);
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        ac_guard_freed_by(thread, pointer, caller);
        CUresult result = free_ours(thread, pointer, caller);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        ac_trace_freed(pointer, result != CUDA_SUCCESS);
        return result;
    }
    uint64_t begin = ac_passed_begin(thread), serial = ac_direct_serial(thread, pointer);
    CUresult result = ac_is_private(pointer) ? ac_wrong_free_private(thread, pointer)
                                             : ac_pinned_plain_free(real, pointer);
    ac_direct_freed(pointer, serial, result);
    ac_passed_end(thread, begin);
    if (result == CUDA_SUCCESS && thread)
        ac_shown_memory_gone(pointer);
    ac_trace_freed(pointer, result != CUDA_SUCCESS);
    if (!thread)
        return result;
    ac_count(thread, AC_COUNT_passed_frees);
    ac_context_note_current(thread, result);
    if (result == CUDA_SUCCESS)
        ac_mempools_given(); /* the memory may have belonged to a pool */
    return result;
}

static __attribute__((noinline)) CUresult free_slow(CUdeviceptr pointer, const void *caller) {
    AC_ENTER_OR_RETURN(cuMemFree_v2);
    return free_any(thread, real, pointer, caller);
}

static __attribute__((noinline)) CUresult free_missed(ac_thread_t *thread, CUdeviceptr pointer,
                                                      const void *caller) {
    return free_any(thread, AC_REAL(cuMemFree_v2), pointer, caller);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    ac_thread_t *thread = ac_thread_tls;
    if (!IS_FAST(thread, AC_FAST_DRIVER, NULL, cuMemFree_v2))
        return free_slow(pointer, __builtin_return_address(0));
    ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + AC_HOOK_cuMemFree_v2]);
    return ac_cache_give_handed(thread->fast[AC_FAST_DRIVER].cache, pointer)
               ? CUDA_SUCCESS
               : free_missed(thread, pointer, __builtin_return_address(0));
}

/* The 32-bit ABI.  A pointer of 32 bits in our segments does not come from this ABI. */
CUresult cuMemFree(CUdeviceptr_v1 pointer) {
    AC_ENTER_OR_RETURN(cuMemFree);
    if (ac_owned(pointer))
        return ac_is_guest(thread) ? real(AC_UNOWNED) : CUDA_ERROR_INVALID_VALUE;
    return real(pointer);
}
