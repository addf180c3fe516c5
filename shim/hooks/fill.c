/* The key `fill` (fill.h). */
#include "hooks/fill.h"

#include "device/cuda_fill.h"
#include "bind/hooks.h"
#include "observe/log.h"

/* Sets *word to the pattern.  Returns false if the key is not set or a stream captures. */
static bool word_of(uint32_t *word) {
    uint64_t fill = ac_process_config()->fill;
    *word = (uint32_t)fill;
    return fill & AC_FILL_SET && !ac_cuda_is_capturing(NULL);
}

/* Fills the memory.  False: the device was late, and the pattern is pending work of the
 * context. */
static bool fill(ac_context_t *context, uint64_t address, uint64_t bytes) {
    uint32_t word;
    ac_status_t status =
        word_of(&word) ? ac_cuda_fill(&context->cuda, address, bytes, word) : AC_OK;
    if (status != AC_OK)
        ac_count(ac_thread_get(), AC_COUNT_unfilled);
    if (status != AC_BUSY)
        return true;
    ac_fence_submitted(context->timeline);
    ac_log_once(AC_LOG_WARNING,
                "fill: the device did not write the pattern within a second; until it has, "
                "memory is handed out and freed without one");
    return false;
}

bool ac_fill_this(ac_context_t *context, uint64_t address, uint64_t bytes) {
    if (fill(context, address, bytes))
        return true;
    ac_block_free(address); /* the block waits for a fence behind the pattern */
    return false;
}

/* Calls the hook of the driver's function, so that the pattern counts as work of the stream. */
void ac_fill_this_on(uint64_t address, uint64_t bytes, CUstream stream, bool per_thread) {
    uint32_t word;
    if (!word_of(&word))
        return;
    uint64_t words = bytes / 4;
    if (words && per_thread)
        cuMemsetD32Async_ptsz(address, word, words, stream);
    else if (words)
        cuMemsetD32Async(address, word, words, stream);
    for (uint64_t at = 4 * words; at < bytes; at++)
        if (per_thread)
            cuMemsetD8Async_ptsz(address + at, ac_fill_byte(word, at), 1, stream);
        else
            cuMemsetD8Async(address + at, ac_fill_byte(word, at), 1, stream);
}

/* Returns the bytes of the block that the program frees; 0: there is none, or another context
 * owns it. */
static uint64_t bytes_of(const ac_context_t *context, uint64_t address) {
    ac_block_info_t block;
    return ac_block_find(address, &block) == AC_OK && block.allocated &&
                   block.address == address && block.arena == context->arena
               ? block.requested
               : 0;
}

CUresult ac_fill_this_free(ac_context_t *context, uint64_t address) {
    uint64_t bytes = bytes_of(context, address);
    const ac_moment_t moment = ac_fence_moment(context->timeline);
    CUresult result = ac_context_await(context);
    if (bytes && result == CUDA_SUCCESS && ac_fence_is_over(context->timeline, moment))
        fill(context, address, bytes);
    return result;
}

void ac_fill_this_free_on(const ac_context_t *context, uint64_t address, CUstream stream,
                          bool per_thread) {
    uint64_t bytes = bytes_of(context, address);
    if (bytes)
        ac_fill_this_on(address, bytes, stream, per_thread);
}
