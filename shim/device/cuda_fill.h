/* Patterns in device memory, for the keys `fill` and `guard`. */
#ifndef AC_CUDA_FILL_H
#define AC_CUDA_FILL_H

#include "device/cuda_device.h"

/* Returns byte `at` of memory filled with the word. If the memory ends within a word, single bytes are
 * written, because a guard's pattern may follow. */
static inline uint8_t ac_fill_byte(uint32_t word, uint64_t at) {
    return (uint8_t)(word >> 8 * (at % 4));
}

/* Writes `word` over [address, address + bytes) and waits for this write alone, a second at most. Pre:
 * no work uses the memory. AC_OK; AC_UNSUPPORTED: nothing was submitted, because a stream captures,
 * exit began, the driver refused, or an earlier pattern is late. AC_BUSY: the write may come later and
 * counts as work of the context, also for fences by streams: the caller notes it by
 * ac_fence_submitted. */
ac_status_t ac_cuda_fill(ac_cuda_context_t *context, uint64_t address, uint64_t bytes,
                         uint32_t word);

/* The operations fills_over, memory_fill and memory_differs of device.h. */
bool ac_cuda_fills_over(void *context);
ac_status_t ac_cuda_memory_fill(void *context, uint64_t address, uint64_t bytes, uint8_t byte);
ac_status_t ac_cuda_memory_differs(void *context, uint64_t address, uint64_t bytes, uint8_t byte,
                                   uint64_t *first);

#endif
