/* Patterns in device memory (cuda_fill.h). */
#include "device/cuda_fill.h"

#include "device/cuda_int.h"
#include "device/driver.h"
#include "observe/scratch.h"

/* Returns our stream that waits for no other, made at first need. Pre: the context is current. */
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

/* --- the wait with a limit: an event, because the driver's own wait knows none --- */

enum { LIMIT_NS = 1000000000, MOMENT_NS = 1000000 };

static CUresult record_filler(ac_cuda_context_t *context, CUevent event, uint64_t stream) {
    (void)context;
    return ac_driver.cuEventRecord(event, (CUstream)(uintptr_t)stream);
}

/* Waits for all earlier work of the filler. AC_OK; AC_BUSY: not in time, or there is no event;
 * AC_FAILED. */
static ac_status_t await_filler(ac_cuda_context_t *context, CUstream filler, uint64_t limit_ns) {
    void *fence;
    ac_status_t status =
        ac_cuda_record(context, record_filler, (uint64_t)(uintptr_t)filler, &fence);
    if (status != AC_OK)
        return status == AC_FAILED ? AC_FAILED : AC_BUSY;
    status = ac_cuda_fence_poll(fence, limit_ns);
    ac_cuda_fence_give(fence);
    return status;
}

/* A late fill prevents later ones: each would wait as long. */
bool ac_cuda_fills_over(void *arg) {
    ac_cuda_context_t *context = arg;
    unsigned late = atomic_load(&context->filler_late);
    if (!late || atomic_load(&context->dead))
        return true;
    ac_lock(&context->lock);
    CUstream filler = context->filler;
    ac_unlock(&context->lock);
    if (filler && await_filler(context, filler, MOMENT_NS) != AC_OK)
        return false;
    /* Another thread's may have become late meanwhile. */
    return atomic_compare_exchange_strong(&context->filler_late, &late, 0);
}

/* Runs `what`, which gives work to the filler, and waits for that work; 0: without limit. */
typedef CUresult piece_fn(void *arg, CUstream filler);
static ac_status_t by_filler(ac_cuda_context_t *context, piece_fn *what, void *arg,
                             uint64_t limit_ns) {
    ac_cuda_scope_t scope;
    ac_status_t status = AC_FAILED;
    CUstream filler = NULL;
    if (atomic_load(&ac_cuda_quiet) || !ac_cuda_sync_begin(context))
        return AC_BUSY;
    if (ac_cuda_enter(context, &scope)) {
        filler = filler_of(context);
        CUresult result = filler ? what(arg, filler) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS && !limit_ns)
            result = ac_driver.cuStreamSynchronize(filler);
        status = ac_cuda_status_of(result);
        ac_cuda_leave(&scope);
    }
    if (limit_ns && status == AC_OK) {
        status = await_filler(context, filler, limit_ns);
        if (status == AC_BUSY)
            atomic_fetch_add(&context->filler_late, 1);
    }
    ac_cuda_sync_end();
    return status;
}

typedef struct {
    uint64_t address, bytes;
    uint8_t byte, *host;
    uint32_t word;
    CUstream begun; /* the filler, once it took a part */
    bool parted;    /* and refused a later one */
} piece_t;

static CUresult put(void *arg, CUstream filler) {
    const piece_t *piece = arg;
    return ac_driver.cuMemsetD8Async(piece->address, piece->byte, piece->bytes, filler);
}

static CUresult get(void *arg, CUstream filler) {
    const piece_t *piece = arg;
    return ac_driver.cuMemcpyDtoHAsync_v2(piece->host, piece->address, piece->bytes, filler);
}

ac_status_t ac_cuda_memory_fill(void *context, uint64_t address, uint64_t bytes, uint8_t byte) {
    piece_t piece = {.address = address, .bytes = bytes, .byte = byte};
    if (!ac_driver.cuMemsetD8Async)
        return AC_FAILED;
    return ac_cuda_fills_over(context) ? by_filler(context, put, &piece, LIMIT_NS) : AC_BUSY;
}

/* The copy ends within the driver's call, because the host's memory is not pinned: it waits for copies
 * that the device was given before. */
ac_status_t ac_cuda_memory_differs(void *context, uint64_t address, uint64_t bytes, uint8_t byte,
                                   uint64_t *first) {
    uint8_t *copy = ac_scratch_take();
    piece_t piece = {.address = address, .bytes = bytes, .host = copy};
    ac_status_t status = AC_FAILED;
    if (!ac_cuda_fills_over(context))
        status = AC_BUSY;
    else if (copy && ac_driver.cuMemcpyDtoHAsync_v2 && bytes <= AC_SCRATCH)
        status = by_filler(context, get, &piece, 0);
    for (*first = 0; status == AC_OK && *first < bytes && copy[*first] == byte;)
        ++*first;
    ac_scratch_give(copy);
    return status;
}

static CUresult put_words(void *arg, CUstream filler) {
    piece_t *piece = arg;
    uint64_t words = piece->bytes / 4;
    CUresult result = CUDA_SUCCESS;
    if (words)
        result = ac_driver.cuMemsetD32Async(piece->address, piece->word, words, filler);
    if (words && result == CUDA_SUCCESS)
        piece->begun = filler;
    for (uint64_t at = 4 * words; at < piece->bytes && result == CUDA_SUCCESS; at++) {
        result = ac_driver.cuMemsetD8Async(piece->address + at, ac_fill_byte(piece->word, at), 1,
                                           filler);
        if (result == CUDA_SUCCESS)
            piece->begun = filler;
    }
    piece->parted = piece->begun && result != CUDA_SUCCESS;
    return result;
}

ac_status_t ac_cuda_fill(ac_cuda_context_t *context, uint64_t address, uint64_t bytes,
                         uint32_t word) {
    piece_t piece = {.address = address, .bytes = bytes, .word = word};
    if (!ac_driver.cuMemsetD32Async || !ac_driver.cuMemsetD8Async || !ac_cuda_fills_over(context))
        return AC_UNSUPPORTED;
    ac_status_t status = by_filler(context, put_words, &piece, LIMIT_NS);
    if (status == AC_OK)
        return AC_OK;
    if (!piece.begun || (status != AC_BUSY && !piece.parted))
        return AC_UNSUPPORTED; /* a failed fill is not written later */
    ac_cuda_stream_used(context, piece.begun);
    return AC_BUSY;
}
