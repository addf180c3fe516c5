/* Patterns in device memory (cuda_fill.h). */
#include "device/cuda_fill.h"

#include "device/cuda_int.h"
#include "device/driver.h"

/* A stream of ours that waits for no other, made at first need; the context is current. */
static CUstream filler_of(ac_cuda_context_t *context) {
    CUstream filler;
    ac_lock(&context->lock);
    filler = context->filler;
    ac_unlock(&context->lock);
    if (filler || ac_driver.cuStreamCreate(&filler, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return filler;
    ac_lock(&context->lock);
    if (!context->filler)
        context->filler = filler;
    else
        filler = context->filler; /* another thread was faster: one idle stream is left over */
    ac_unlock(&context->lock);
    return filler;
}

void ac_cuda_fill(ac_cuda_context_t *context, uint64_t address, uint64_t bytes, uint32_t word) {
    ac_cuda_scope_t scope;
    if (!ac_driver.cuMemsetD32Async || atomic_load(&ac_cuda_quiet) || !ac_cuda_sync_begin())
        return;
    if (ac_cuda_enter(context, &scope)) {
        CUstream filler = filler_of(context);
        if (filler &&
            ac_driver.cuMemsetD32Async(address, word, (bytes + 3) / 4, filler) == CUDA_SUCCESS)
            ac_driver.cuStreamSynchronize(filler); /* an error of the context shows again */
        ac_cuda_leave(&scope);
    }
    ac_cuda_sync_end();
}
