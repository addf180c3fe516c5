/* What we put into streams of the program: waits between two of them, and records (device.h). */
#include "device/cuda_int.h"
#include "device/driver.h"
#include "failpoint.h"

/* Record an event of ours on `from`; unless they are the same, `to` waits for it. */
static ac_status_t record(ac_cuda_context_t *context, CUstream from, CUstream to) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    CUevent event = ac_cuda_event_take(context);
    bool busy = false;
    if (AC_FAILPOINT(event_on_wrong_stream))
        from = to;
    if (event) {
        ac_lock_shared(&ac_cuda_gate);
        busy = ac_cuda_is_capturing(context);
        if (!busy)
            result = ac_driver.cuEventRecord(event, from);
        if (result == CUDA_SUCCESS && from != to)
            result = ac_driver.cuStreamWaitEvent(to, event, 0);
        ac_release(&ac_cuda_gate);
        ac_cuda_event_return(context, event); /* the wait took its state */
    }
    if (busy)
        return AC_BUSY;
    return result == CUDA_SUCCESS ? AC_OK : AC_FAILED;
}

static ac_status_t order(ac_cuda_context_t *context, CUstream from, CUstream to) {
    ac_cuda_scope_t scope;
    if (!from || !to || atomic_load(&context->mode) == AC_RECORD_NONE)
        return AC_UNSUPPORTED;
    if (ac_cuda_is_capturing(context))
        return AC_BUSY;
    if (!ac_cuda_enter(context, &scope))
        return AC_FAILED;
    ac_status_t status = record(context, from, to);
    ac_cuda_leave(&scope);
    return status;
}

ac_status_t ac_cuda_stream_order(void *context, uint64_t from, uint64_t to) {
    return order(context, ac_cuda_stream_of_key(from), ac_cuda_stream_of_key(to));
}

ac_status_t ac_cuda_stream_touch(void *context, uint64_t stream) {
    CUstream handle = ac_cuda_stream_of_key(stream);
    return order(context, handle, handle);
}

CUresult ac_cuda_probe_legacy(ac_cuda_context_t *context) {
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    ac_cuda_scope_t scope;
    if (!ac_cuda_enter(context, &scope))
        return result;
    CUevent event = ac_cuda_event_take(context);
    if (event)
        result = ac_driver.cuEventRecord(event, CU_STREAM_LEGACY);
    ac_cuda_event_return(context, event);
    ac_cuda_leave(&scope);
    return result;
}
