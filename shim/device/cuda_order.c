/* What we put into streams of the program: waits between two of them, and records (device.h). */
#include "device/cuda_int.h"
#include "device/driver.h"

/* Record an event of ours on `from`; unless they are the same, `to` waits for it. */
static ac_status_t record(ac_cuda_context_t *context, CUstream from, CUstream to) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    CUevent event = ac_cuda_event_take(context);
    bool busy = false;
    if (event) {
        pthread_rwlock_rdlock(&ac_cuda_gate);
        busy = ac_cuda_is_capturing();
        if (!busy)
            result = ac_driver.cuEventRecord(event, from);
        if (result == CUDA_SUCCESS && from != to)
            result = ac_driver.cuStreamWaitEvent(to, event, 0);
        pthread_rwlock_unlock(&ac_cuda_gate);
        ac_cuda_event_return(context, event); /* the wait took its state */
    }
    if (busy)
        return AC_BUSY;
    return result == CUDA_SUCCESS ? AC_OK : AC_FAILED;
}

ac_status_t ac_cuda_stream_order(void *arg, uint64_t from, uint64_t to) {
    ac_cuda_context_t *context = arg;
    ac_cuda_scope_t scope;
    CUstream source = ac_cuda_stream_of_key(from), sink = ac_cuda_stream_of_key(to);
    if (!source || !sink || atomic_load(&context->mode) == AC_RECORD_NONE)
        return AC_UNSUPPORTED;
    if (ac_cuda_is_capturing())
        return AC_BUSY;
    if (!ac_cuda_enter(context, &scope))
        return AC_FAILED;
    ac_status_t status = record(context, source, sink);
    ac_cuda_leave(&scope);
    return status;
}

ac_status_t ac_cuda_stream_item(void *arg, uint64_t key, bool *independent) {
    ac_cuda_context_t *context = arg;
    CUstream stream = ac_cuda_stream_of_key(key);
    ac_cuda_scope_t scope;
    unsigned flags = 0;
    if (!stream)
        return AC_UNSUPPORTED;
    if (ac_cuda_is_capturing())
        return AC_BUSY;
    if (!ac_cuda_enter(context, &scope))
        return AC_FAILED;
    *independent = stream > CU_STREAM_PER_THREAD && ac_driver.cuStreamGetFlags &&
                   ac_driver.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
                   flags & CU_STREAM_NON_BLOCKING;
    ac_status_t status = AC_OK;
    if (!*independent)
        status = atomic_load(&context->mode) == AC_RECORD_NONE ? AC_UNSUPPORTED
                                                               : record(context, stream, stream);
    ac_cuda_leave(&scope);
    return status;
}
