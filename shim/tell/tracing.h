/* Calls of the hooks to the recorders: the trace (observe/trace.h), and the history and the stacks of blocks
 * (recording.h). If nothing is recorded, each call is one or two comparisons. The calls use the record of the
 * calling thread. A thread keeps its record while the library is inert and while the process exits: frees of
 * exit handlers belong to the trace. */
#ifndef AC_TRACING_H
#define AC_TRACING_H

#include "track/context.h"
#include "tell/recording.h"
#include "observe/trace.h"

/* Marks a function that hot paths call only while something is recorded. */
#define AC_TRACING __attribute__((noinline))

static inline ac_trace_place_t ac_trace_place(const ac_context_t *context, uint64_t stream) {
    return context ? (ac_trace_place_t){(uint16_t)context->cuda.device, (uint16_t)context->slot,
                                        stream}
                   : (ac_trace_place_t){AC_TRACE_NOWHERE, AC_TRACE_NOWHERE, stream};
}

static inline uint64_t ac_trace_key(CUstream stream) {
    return stream ? ac_cuda_stream_key(stream) : 0;
}

static inline ac_trace_lane_t *ac_trace_own_lane(void) {
    ac_thread_t *thread = ac_thread_tls;
    return thread ? thread->trace : NULL;
}

/* Returns true if the calling thread's calls are recorded. */
static inline bool ac_is_recorded(void) {
    ac_thread_t *thread = ac_thread_tls;
    return thread && __builtin_expect(ac_thread_records(thread), 0);
}

/* Parameters of the functions below. `stream` comes from ac_stream_resolved; NULL: the call names none.
 * `caller` is the code that called the hook. */

/* Records a cache hit of a hook that knows thread and context. */
AC_TRACING void ac_trace_this_hit(ac_thread_t *thread, const ac_context_t *context,
                                  CUstream stream, uint64_t address, uint64_t bytes,
                                  const void *caller);
static inline void ac_trace_hit(ac_thread_t *thread, const ac_context_t *context, CUstream stream,
                                uint64_t address, uint64_t bytes, const void *caller) {
    if (__builtin_expect(ac_thread_records(thread), 0))
        ac_trace_this_hit(thread, context, stream, address, bytes, caller);
}

/* Records the answer `result` of a hook to a request for `bytes`. `kind` is AC_TRACE_ALLOC or _MANAGED;
 * *pointer is set on success. Returns `result`. */
AC_TRACING CUresult ac_trace_answer(unsigned kind, CUresult result, const CUdeviceptr *pointer,
                                    uint64_t bytes, CUstream stream, const void *caller);
static inline CUresult ac_trace_allocated(unsigned kind, CUresult result,
                                          const CUdeviceptr *pointer, uint64_t bytes,
                                          CUstream stream, const void *caller) {
    return ac_is_recorded() ? ac_trace_answer(kind, result, pointer, bytes, stream, caller)
                            : result;
}

/* Record a free before it is made, and take the record back if the free was refused. The thread makes no
 * other call in between. */
AC_TRACING void ac_trace_this_free(uint64_t address, const void *caller);
AC_TRACING void ac_trace_this_free_on(uint64_t address, CUstream stream, const void *caller);
AC_TRACING void ac_trace_this_unfree(uint64_t address);
static inline void ac_trace_freeing(uint64_t address, const void *caller) {
    if (ac_is_recorded())
        ac_trace_this_free(address, caller);
}
static inline void ac_trace_freeing_on(uint64_t address, CUstream stream, const void *caller) {
    if (ac_is_recorded())
        ac_trace_this_free_on(address, stream, caller);
}
static inline void ac_trace_freed(uint64_t address, bool refused) {
    if (__builtin_expect(refused, 0) && ac_is_recorded())
        ac_trace_this_unfree(address);
}

/* Records that the program waited for the context, or for a stream or an event in it. */
static inline void ac_trace_synced(const ac_context_t *context, CUresult result) {
    ac_trace_lane_t *lane = ac_trace_own_lane();
    if (__builtin_expect(lane && result == CUDA_SUCCESS, 0))
        ac_trace_write_at(lane, AC_TRACE_SYNC, ac_trace_place(context, 0));
}
static inline void ac_trace_stream_synced(const ac_context_t *context, CUstream stream,
                                          CUresult result) {
    ac_trace_lane_t *lane = ac_trace_own_lane();
    if (__builtin_expect(lane && result == CUDA_SUCCESS, 0))
        ac_trace_write_at(lane, AC_TRACE_SYNC_STREAM,
                          ac_trace_place(context, ac_trace_key(stream)));
}
static inline void ac_trace_event_synced(CUevent event, CUresult result) {
    ac_trace_lane_t *lane = ac_trace_own_lane();
    if (__builtin_expect(lane && result == CUDA_SUCCESS, 0))
        ac_trace_write_event_sync(lane, (uint64_t)(uintptr_t)event);
}

/* Records that a context and all its memory are gone. This comes before another context gets its number. */
static inline void ac_trace_context_gone(const ac_context_t *context) {
    ac_trace_lane_t *lane = ac_trace_own_lane();
    if (__builtin_expect(lane != NULL, 0))
        ac_trace_write_at(lane, AC_TRACE_GONE, ac_trace_place(context, 0));
}

#endif
