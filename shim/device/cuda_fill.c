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

/* By the filler: `what` puts something into it, which is waited for. */
typedef CUresult piece_fn(void *arg, CUstream filler);
static ac_status_t by_filler(ac_cuda_context_t *context, piece_fn *what, void *arg) {
    ac_cuda_scope_t scope;
    ac_status_t status = AC_FAILED;
    if (atomic_load(&ac_cuda_quiet) || !ac_cuda_sync_begin())
        return AC_BUSY;
    if (ac_cuda_enter(context, &scope)) {
        CUstream filler = filler_of(context);
        CUresult result = filler ? what(arg, filler) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            result = ac_driver.cuStreamSynchronize(filler);
        status = ac_cuda_status_of(result);
        ac_cuda_leave(&scope);
    }
    ac_cuda_sync_end();
    return status;
}

typedef struct {
    uint64_t address, bytes;
    uint8_t byte, *host;
    uint32_t word;
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
    return ac_driver.cuMemsetD8Async ? by_filler(context, put, &piece) : AC_FAILED;
}

ac_status_t ac_cuda_memory_differs(void *context, uint64_t address, uint64_t bytes, uint8_t byte,
                                   uint64_t *first) {
    uint8_t copy[4096];
    piece_t piece = {.address = address, .bytes = bytes, .host = copy};
    ac_status_t status = ac_driver.cuMemcpyDtoHAsync_v2 && bytes <= sizeof copy
                             ? by_filler(context, get, &piece)
                             : AC_FAILED;
    for (*first = 0; status == AC_OK && *first < bytes && copy[*first] == byte;)
        ++*first;
    return status;
}

static CUresult put_words(void *arg, CUstream filler) {
    const piece_t *piece = arg;
    uint64_t words = piece->bytes / 4;
    CUresult result = CUDA_SUCCESS;
    if (words)
        result = ac_driver.cuMemsetD32Async(piece->address, piece->word, words, filler);
    for (uint64_t at = 4 * words; at < piece->bytes && result == CUDA_SUCCESS; at++)
        result = ac_driver.cuMemsetD8Async(piece->address + at, ac_fill_byte(piece->word, at), 1,
                                           filler);
    return result;
}

void ac_cuda_fill(ac_cuda_context_t *context, uint64_t address, uint64_t bytes, uint32_t word) {
    piece_t piece = {.address = address, .bytes = bytes, .word = word};
    if (ac_driver.cuMemsetD32Async && ac_driver.cuMemsetD8Async)
        by_filler(context, put_words, &piece); /* an error of the context shows again */
}
