/* See tracing.h: what only happens while a trace is recorded. */
#include "intercept/tracing.h"

#include "device/driver.h"
#include "intercept/process.h"

/* Of a stream, or of what is current where it names none.  No driver is asked after exit
 * began. */
static ac_context_t *context_of(CUstream stream) {
    ac_thread_t *thread = ac_thread_tls;
    if (atomic_load_explicit(&ac_state, memory_order_acquire) != AC_STATE_ACTIVE)
        return NULL;
    return ac_context_of_stream(thread, stream);
}

/* What a capturing stream is given is memory of the graph, and there when that runs. */
static bool is_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return stream && ac_cuda_is_capturing() && ac_driver.cuStreamIsCapturing &&
           ac_driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult ac_trace_answer(unsigned kind, CUresult result, const CUdeviceptr *pointer,
                         uint64_t bytes, CUstream stream) {
    if (result == CUDA_SUCCESS && pointer && is_captured(stream))
        return result;
    ac_trace_place_t place = ac_trace_place(context_of(stream), ac_trace_key(stream));
    if (result != CUDA_SUCCESS)
        ac_trace_write_alloc(ac_trace_lane(), AC_TRACE_FAILED, (uint64_t)result, bytes, place);
    else if (pointer)
        ac_trace_write_alloc(ac_trace_lane(), kind, *pointer, bytes, place);
    return result;
}

void ac_trace_freeing_there(uint64_t address, CUstream stream) {
    ac_trace_write_free_on(ac_trace_lane(), address,
                           ac_trace_place(context_of(stream), ac_trace_key(stream)));
}
