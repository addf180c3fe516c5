/* What every hook body begins and ends with. */
#ifndef AC_BODY_H
#define AC_BODY_H

#include "allocator/order/capture.h"
#include "track/context.h"
#include "track/decay.h"
#include "bind/hooks.h"
#include "track/running.h"
#include "failpoint.h"

/* The first line of a driver hook.  Declares `real`, the driver's function, and `thread`, the
 * record of the calling thread: NULL while the shim is not active, where host memory is short,
 * and for a guest.  Counts the call.  Returns CUDA_ERROR_NOT_FOUND from the hook where the driver
 * lacks the function. */
#define AC_ENTER_OR_RETURN(symbol)                                                               \
    symbol##_fn *real = AC_REAL(symbol);                                                         \
    ac_thread_t *thread =                                                                        \
        ac_is_active() && !AC_ROW_FAILPOINT(symbol, unseen) ? ac_thread_get() : NULL;            \
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_##symbol);                                         \
    do {                                                                                         \
        if (!real)                                                                               \
            return CUDA_ERROR_NOT_FOUND;                                                         \
    } while (0)

/* Bytes of the device that a driver's call takes.  The driver may be out of something else, which no
 * wait for the device brings back: then the call is not worth a wait.  For memory of the host it is
 * the tables that map it, 8 bytes for a page of 4 KiB. */
#define AC_NEED_UNKNOWN     ((uint64_t)0)
#define AC_NEED_LITTLE      ((uint64_t)2 << 20)
#define AC_NEED_ADDRESSES                       UINT64_MAX /* no memory, but addresses */
#define AC_NEED(bytes)      ((bytes) > 0 ? (uint64_t)(bytes) : AC_NEED_LITTLE)
#define AC_NEED_HOST(bytes) (AC_NEED_LITTLE + (uint64_t)(bytes) / 512)
#define AC_NEED_REGISTERED(address, bytes, flags) AC_NEED_HOST(bytes)
#define AC_NEED_MEMORY(bytes, what)             AC_NEED(bytes)
#define AC_NEED_MAPPING(address, bytes, memory) AC_NEED_UNKNOWN
#define AC_NEED_ACCESS(address, bytes)          AC_NEED_UNKNOWN
#define AC_NEED_FOUND(address)                  AC_NEED_UNKNOWN
#define AC_NEED_IMPORTED(memory)                AC_NEED_UNKNOWN
/* At least so many bytes; 0 tells nothing. */
#define AC_NEED_LEAST       ((uint64_t)1 << 63)
#define AC_NEED_PLANE(b)                                                                         \
    ((b) ? AC_NEED_LEAST |                                                                       \
               ac_array_bytes((b)->Width, (b)->Height, 0, (b)->Format, (b)->NumChannels, 0)      \
         : AC_NEED_UNKNOWN)
#define AC_NEED_SPACE(b)                                                                         \
    ((b) ? AC_NEED_LEAST | ac_array_bytes((b)->Width, (b)->Height, (b)->Depth, (b)->Format,      \
                                          (b)->NumChannels, (b)->Flags)                          \
         : AC_NEED_UNKNOWN)

/* What the history says of an array, at most AC_NEED_LEAST - 1.  Without levels and padding; 0 for
 * formats of several planes or compressed, and for arrays that memory is mapped into later. */
static inline uint64_t ac_array_bytes(size_t width, size_t height, size_t depth,
                                      CUarray_format format, unsigned channels, unsigned flags) {
    if (flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) || channels > 4 ||
        channels == 3)
        return 0;
    unsigned element = format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8
                           ? 1
                       : format == CU_AD_FORMAT_UNSIGNED_INT16 ||
                               format == CU_AD_FORMAT_SIGNED_INT16 || format == CU_AD_FORMAT_HALF
                           ? 2
                       : format == CU_AD_FORMAT_UNSIGNED_INT32 ||
                               format == CU_AD_FORMAT_SIGNED_INT32 || format == CU_AD_FORMAT_FLOAT
                           ? 4
                           : 0;
    uint64_t bytes = (uint64_t)channels * element;
    return __builtin_mul_overflow(bytes, width, &bytes) ||
                   __builtin_mul_overflow(bytes, height ? height : 1, &bytes) ||
                   __builtin_mul_overflow(bytes, depth ? depth : 1, &bytes) || bytes >= AC_NEED_LEAST
               ? 0
               : bytes;
}

/* The real call; when it was out of memory, tried again after what is idle was given back, where
 * that waits for nothing, and once more after pending work was waited for, as a request for
 * memory does that would fail (allocator/oom.h), where that may make room for `need`
 * bytes. */
#define AC_RETRY(result, need, call)                                                             \
    do {                                                                                         \
        if (thread)                                                                              \
            ac_thread_given_back(thread);                                                        \
        (result) = (call);                                                                       \
        AC_RETRY_AFTER(result, need, call);                                                      \
    } while (0)
#define AC_RETRY_AFTER(result, need, call)                                                       \
    do {                                                                                         \
        for (int wait = 0; wait < 2 && (result) == CUDA_ERROR_OUT_OF_MEMORY && thread; wait++)   \
            if (ac_trim_for_driver(thread, wait, need))                                          \
                (result) = (call);                                                               \
    } while (0)

/* Give idle memory back because a driver call was out of memory, with `wait` after waiting for
 * pending work, on devices where that may help.  False: no thread has given any back since this one
 * last asked ac_thread_given_back, or began; the call would fail again. */
static inline bool ac_thread_given_back(ac_thread_t *thread) {
    uint64_t before = thread->given_back;
    thread->given_back = atomic_load(&ac_given_back);
    return thread->given_back != before;
}
bool ac_trim_for_driver(ac_thread_t *thread, bool wait, uint64_t need);
void ac_mempools_given(void); /* mempools.h */

/* The program synchronised a stream, an event or a context: memory pools come down to their
 * release thresholds. */
static inline void ac_pools_synced(CUresult result) {
    if (result != CUDA_SUCCESS ||
        !atomic_load_explicit(&ac_streams_tracked, memory_order_relaxed))
        return;
    ac_mempool_synced();
    ac_mempools_given();
}

/* The program's synchronisation, with all of a context if `whole`, succeeded: the device may have
 * nothing to do, and what is owed goes back. */
static inline void ac_synced(ac_thread_t *thread, bool whole) {
    if (thread && atomic_load_explicit(&ac_trim_pending, memory_order_relaxed))
        ac_decay_synced(whole);
}

/* After it: other processes see in the live page what is not active any longer.  NULL: nothing to do. */
static inline void ac_figures_synced(const ac_context_t *context) {
    if (context && context->arena)
        ac_allocator_settle(ac_arena_allocator(context->arena));
}

/* No allocation has this address: in place of one of ours that is free, that may not be shared or
 * freed now, or that another owner decides about, it makes the driver answer in its own words and
 * order. */
enum { AC_UNOWNED = 1 };

/* Returns true if a free of `cudaFree`'s kind may have to wait. */
static inline bool ac_frees_may_wait(void) {
    return ac_frees_synchronize() ||
           (__builtin_expect(ac_fence_is_unseen(), 0) &&
            atomic_load_explicit(&ac_shows, memory_order_relaxed));
}

/* Whether a hit has nothing to look at but the thread's cache.  When that ends the generation
 * grows. */
static inline bool ac_hits_are_simple(void) {
    return !ac_frees_synchronize() && ac_is_enabled() && ac_fence_simple() &&
           !ac_order_capturing();
}

/* The context that serves a request of this thread, NULL: leave the call to the driver.
 * memory_hooks.c */
ac_context_t *ac_context_serving(ac_thread_t *thread);

/* Wait for all work of the current context, for free_sync:true. */
CUresult ac_context_await(ac_context_t *context);

/* Whether the driver has to answer, whatever the hook does without a record: nothing of ours may wait in a
 * host function, and in a fork child locks are held by threads of its parent. */
static inline bool ac_is_guest(const ac_thread_t *thread) {
    return !thread && (ac_thread_is_guest() || atomic_load(&ac_state) == AC_STATE_INERT);
}

/* The stream that a call names, by handle and key; `per_thread`: what handle 0 means. */
static inline CUstream ac_stream_resolved(CUstream stream, bool per_thread) {
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}
static inline ac_stream_t ac_stream_named(CUstream stream, bool per_thread) {
    return ac_cuda_stream_key(ac_stream_resolved(stream, per_thread));
}

/* The driver is about to destroy the stream, or has destroyed it.  event_hooks.c. */
void ac_event_stream_gone(ac_context_t *context, CUstream stream);

/* Before a node of a graph is made or changed: it may record an event. */
void ac_event_node(ac_thread_t *thread, const CUgraphNodeParams *params);

/* The same where it is a copy.  graph_hooks.c */
void ac_memcpy_node(const CUDA_MEMCPY3D *copy);

/* Around a driver call that the program's allocation or free was left to: its time is counted
 * (passed_ns), with enabled:false as well, so that the gain can be told. */
static inline uint64_t ac_passed_begin(const ac_thread_t *thread) {
    return thread ? ac_cuda_ops.now_ns() : 0;
}
static inline void ac_passed_end(ac_thread_t *thread, uint64_t begin) {
    if (thread)
        ac_count_add(thread, AC_COUNT_passed_ns, ac_cuda_ops.now_ns() - begin);
}

/* cuMemAlloc_v2 for the code at `caller`.  memory_hooks.c, for the C API.  _apart: past the
 * thread's cache. */
CUresult ac_mem_alloc(CUdeviceptr *pointer, size_t bytes, const void *caller);
CUresult ac_mem_alloc_apart(CUdeviceptr *pointer, size_t bytes, const void *caller);

/* Whether the block answers as memory of its pool: it serves a stream-ordered request, and not of
 * the device's own pool with async_ipc.  identity_hooks.c */
bool ac_block_is_pooled(const ac_block_info_t *info);

/* The device that the block lies on. */
static inline CUdevice ac_block_device(const ac_block_info_t *info) {
    const ac_cuda_context_t *context = ac_arena_context(info->arena);
    return context->device;
}

/* For the runtime's names: a stream-ordered request, in a context that is current, where no call of
 * the driver is needed; and a free of our memory on a stream of `context`, while nothing captures.
 * False: the caller has to go through the driver's hook.  async_hooks.c */
bool ac_async_hit(ac_thread_t *thread, ac_context_t *context, unsigned module, size_t bytes,
                  CUstream stream, bool per_thread, uint64_t *address);
bool ac_async_free(ac_thread_t *thread, ac_context_t *context, uint64_t address, CUstream stream,
                   bool per_thread);

#endif
