/* Parts of tracing.h that run only while something is recorded. */
#include "tell/tracing.h"

#include "device/driver.h"
#include "track/running.h"

/* Returns the context of the stream, or the current context for NULL. After exit began it
 * returns NULL, because the driver must not be called then. */
static ac_context_t *context_of(CUstream stream) {
    ac_thread_t *thread = ac_thread_tls;
    if (atomic_load_explicit(&ac_state, memory_order_acquire) != AC_STATE_ACTIVE)
        return NULL;
    return ac_context_of_stream(thread, stream);
}

/* Returns true if the stream captures. Its allocation is memory of the graph, and exists only
 * when the graph runs. */
static bool is_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return stream && ac_cuda_is_capturing(NULL) && ac_driver.cuStreamIsCapturing &&
           ac_driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Records the allocation. The trace gets its stack first, then the caller writes the
 * allocation. */
static void record_alloc(ac_thread_t *thread, CUstream stream, uint64_t address, uint64_t bytes,
                         const void *caller) {
    if (!atomic_load_explicit(&ac_recording, memory_order_relaxed))
        return;
    uint32_t stack = ac_record_alloc(thread, address, bytes, ac_trace_key(stream), caller);
    if (stack && thread->trace)
        ac_trace_write_site(thread->trace, stack);
}

CUresult ac_trace_answer(unsigned kind, CUresult result, const CUdeviceptr *pointer,
                         uint64_t bytes, CUstream stream, const void *caller) {
    ac_trace_lane_t *lane = ac_trace_own_lane();
    if (result == CUDA_SUCCESS && pointer && is_captured(stream))
        return result;
    if (result == CUDA_SUCCESS && pointer)
        record_alloc(ac_thread_tls, stream, *pointer, bytes, caller);
    if (!lane)
        return result;
    ac_trace_place_t place = ac_trace_place(context_of(stream), ac_trace_key(stream));
    if (result != CUDA_SUCCESS)
        ac_trace_write_alloc(lane, AC_TRACE_FAILED, (uint64_t)result, bytes, place);
    else if (pointer)
        ac_trace_write_alloc(lane, kind, *pointer, bytes, place);
    return result;
}

void ac_trace_this_hit(ac_thread_t *thread, const ac_context_t *context, CUstream stream,
                       uint64_t address, uint64_t bytes, const void *caller) {
    record_alloc(thread, stream, address, bytes, caller);
    if (thread->trace)
        ac_trace_write_alloc(thread->trace, AC_TRACE_ALLOC, address, bytes,
                             ac_trace_place(context, ac_trace_key(stream)));
}

/* Hooks call this only if the thread has a record. */
static void record_free(uint64_t address, uint64_t stream, const void *caller) {
    if (atomic_load_explicit(&ac_recording, memory_order_relaxed))
        ac_record_free(ac_thread_tls, address, stream, caller);
}

void ac_trace_this_free(uint64_t address, const void *caller) {
    if (!address)
        return;
    record_free(address, 0, caller);
    if (ac_trace_own_lane())
        ac_trace_write_free(ac_trace_own_lane(), address);
}

void ac_trace_this_unfree(uint64_t address) {
    if (!address)
        return;
    if (atomic_load_explicit(&ac_recording, memory_order_relaxed))
        ac_record_refused(ac_thread_tls, address);
    if (ac_trace_own_lane())
        ac_trace_write_unfree(ac_trace_own_lane());
}

void ac_trace_this_free_on(uint64_t address, CUstream stream, const void *caller) {
    if (!address)
        return;
    record_free(address, ac_trace_key(stream), caller);
    if (ac_trace_own_lane())
        ac_trace_write_free_on(ac_trace_own_lane(), address,
                               ac_trace_place(context_of(stream), ac_trace_key(stream)));
}
