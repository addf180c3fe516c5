/* The common beginning and end of hook bodies. */
#ifndef AC_BODY_H
#define AC_BODY_H

#include "allocator/order/capture.h"
#include "track/context.h"
#include "track/decay.h"
#include "bind/hooks.h"
#include "track/running.h"
#include "failpoint.h"

/* The first line of a driver hook.  Declares `real`, the driver's function, and `thread`, the
 * record of the calling thread.  `thread` is NULL while the shim is not active, if host memory is
 * short, and for a guest: a thread inside a host function (ac_thread_is_guest).  Counts the call.
 * Returns CUDA_ERROR_NOT_FOUND from the hook if the driver lacks the function. */
#define AC_ENTER_OR_RETURN(symbol)                                                               \
    symbol##_fn *real = AC_REAL(symbol);                                                         \
    ac_thread_t *thread =                                                                        \
        ac_is_active() && !AC_ROW_FAILPOINT(symbol, unseen) ? ac_thread_get() : NULL;            \
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_##symbol);                                         \
    do {                                                                                         \
        if (!real)                                                                               \
            return CUDA_ERROR_NOT_FOUND;                                                         \
    } while (0)

/* Bytes of device memory that a call of the driver takes.  If the driver is out of another resource,
 * no wait for the device brings that back, and the call is not worth a wait.  Host memory needs the
 * tables that map it: 8 bytes for a page of 4 KiB. */
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
/* Flag: the bytes are a lower bound; a bound of 0 tells nothing. */
#define AC_NEED_LEAST       ((uint64_t)1 << 63)
#define AC_NEED_PLANE(b)                                                                         \
    ((b) ? AC_NEED_LEAST |                                                                       \
               ac_array_bytes((b)->Width, (b)->Height, 0, (b)->Format, (b)->NumChannels, 0)      \
         : AC_NEED_UNKNOWN)
#define AC_NEED_SPACE(b)                                                                         \
    ((b) ? AC_NEED_LEAST | ac_array_bytes((b)->Width, (b)->Height, (b)->Depth, (b)->Format,      \
                                          (b)->NumChannels, (b)->Flags)                          \
         : AC_NEED_UNKNOWN)

/* Returns the bytes of an array as the history records them, less than AC_NEED_LEAST.  Levels and
 * padding are not counted.  Returns 0 for compressed formats, for formats with several planes, and
 * for arrays that get their memory by a later mapping. */
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

/* Makes the real call, and up to two more attempts while it is out of memory.  Before the second
 * attempt the library gives back idle memory without a wait.  Before the third it also waits for
 * pending work, as a failing request does (allocator/oom.h).  A round that gives nothing back makes
 * no attempt.  `need`: bytes that the call takes. */
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

/* Returns true if any thread has given memory back to the driver since this thread last asked, or
 * began. */
static inline bool ac_thread_given_back(ac_thread_t *thread) {
    uint64_t before = thread->given_back;
    thread->given_back = atomic_load(&ac_given_back);
    return thread->given_back != before;
}

/* Gives idle memory back because a driver call was out of memory.  `wait`: waits for pending work
 * first, if that may make room for `need` bytes on the device.  Returns false if no thread gave
 * memory back, so that the call would fail again. */
bool ac_trim_for_driver(ac_thread_t *thread, bool wait, uint64_t need);
void ac_mempools_given(void); /* mempools.h */

/* Trims memory pools to their release thresholds after the program synchronised a stream, an event
 * or a context. */
static inline void ac_pools_synced(CUresult result) {
    if (result != CUDA_SUCCESS ||
        !atomic_load_explicit(&ac_streams_tracked, memory_order_relaxed))
        return;
    ac_mempool_synced();
    ac_mempools_given();
}

/* Returns due memory to the driver after a synchronisation of the program succeeded: the device may be
 * idle then.  `whole`: the program synchronised a whole context. */
static inline void ac_synced(ac_thread_t *thread, bool whole) {
    if (thread && atomic_load_explicit(&ac_trim_pending, memory_order_relaxed))
        ac_decay_synced(whole);
}

/* Updates the live page after a synchronisation: other processes see there which memory is no
 * longer active.  NULL: does nothing. */
static inline void ac_figures_synced(const ac_context_t *context) {
    if (context && context->arena)
        ac_allocator_settle(ac_arena_allocator(context->arena));
}

/* An address that no allocation has.  Hooks give it to the driver in place of an address of ours
 * that is free, that may not be shared or freed now, or that another owner decides about.  The
 * driver then reports its own errors, in its own order. */
enum { AC_UNOWNED = 1 };

/* Returns true if a free may have to wait for the device, as cudaFree does. */
static inline bool ac_frees_may_wait(void) {
    return ac_frees_synchronize() ||
           (__builtin_expect(ac_fence_is_unseen(), 0) &&
            atomic_load_explicit(&ac_shows, memory_order_relaxed));
}

/* Returns true if a hit needs to check only the thread's cache.  The generation grows when this
 * becomes false. */
static inline bool ac_hits_are_simple(void) {
    return !ac_frees_synchronize() && ac_is_enabled() && ac_fence_simple() &&
           !ac_order_capturing();
}

/* Returns the context that serves a request of this thread; NULL: the driver has to serve it.
 * memory_hooks.c */
ac_context_t *ac_context_serving(ac_thread_t *thread);

/* Waits for all work of the context, for free_sync:true.  Returns the driver's result.  Succeeds
 * without a wait if the wait would spoil a capture. */
CUresult ac_context_await(ac_context_t *context);

/* Returns true if the driver has to answer, whatever the hook does without a thread record.  In a
 * host function no code of the library may wait.  In a fork child, threads of the parent may hold
 * the locks for ever. */
static inline bool ac_is_guest(const ac_thread_t *thread) {
    return !thread && (ac_thread_is_guest() || atomic_load(&ac_state) == AC_STATE_INERT);
}

/* Returns the handle (_resolved) or the key (_named) of the stream that a call names.  Handle 0 means
 * the per-thread default stream if `per_thread` is set, else the legacy one. */
static inline CUstream ac_stream_resolved(CUstream stream, bool per_thread) {
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}
static inline ac_stream_t ac_stream_named(CUstream stream, bool per_thread) {
    return ac_cuda_stream_key(ac_stream_resolved(stream, per_thread));
}

/* Forgets the order of a stream after the driver's call that destroys it.  event_hooks.c */
void ac_event_stream_gone(ac_context_t *context, CUstream stream);

/* Called before a node of a graph is made or changed: the node may record an event or be a copy. */
void ac_event_node(ac_thread_t *thread, const CUgraphNodeParams *params);

/* Called before a node that copies is made or changed: its graph may become visible work
 * (track/free_sync.h).  graph_hooks.c */
void ac_memcpy_node(const CUDA_MEMCPY3D *copy);

/* Measure the time of a driver call that serves an allocation or a free of the program (passed_ns).
 * They measure with enabled:false, too, so that users can compare both settings. */
static inline uint64_t ac_passed_begin(const ac_thread_t *thread) {
    return thread ? ac_cuda_ops.now_ns() : 0;
}
static inline void ac_passed_end(ac_thread_t *thread, uint64_t begin) {
    if (thread)
        ac_count_add(thread, AC_COUNT_passed_ns, ac_cuda_ops.now_ns() - begin);
}

/* Serve the C API like cuMemAlloc_v2, for the code at `caller`.  ac_mem_alloc_apart does not use the
 * thread's cache.  memory_hooks.c */
CUresult ac_mem_alloc(CUdeviceptr *pointer, size_t bytes, const void *caller);
CUresult ac_mem_alloc_apart(CUdeviceptr *pointer, size_t bytes, const void *caller);

/* Returns true if attributes describe the block as memory of its pool: it serves a stream-ordered
 * request.  With async_ipc, blocks of the device's default pool count as plain memory.
 * identity_hooks.c */
bool ac_block_is_pooled(const ac_block_info_t *info);

/* Returns the device that holds the block. */
static inline CUdevice ac_block_device(const ac_block_info_t *info) {
    const ac_cuda_context_t *context = ac_arena_context(info->arena);
    return context->device;
}

/* Serve the runtime's names.  _hit serves a stream-ordered request in a current context, without a
 * call that allocates from the driver.  _free frees memory of ours on a stream of `context`, while
 * nothing captures.  False: the caller has to use the driver's hook.  async_hooks.c */
bool ac_async_hit(ac_thread_t *thread, ac_context_t *context, unsigned module, size_t bytes,
                  CUstream stream, bool per_thread, uint64_t *address);
bool ac_async_free(ac_thread_t *thread, ac_context_t *context, uint64_t address, CUstream stream,
                   bool per_thread);

#endif
