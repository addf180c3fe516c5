/* Patterns in device memory, for the keys `fill` and `guard`. */
#ifndef AC_CUDA_FILL_H
#define AC_CUDA_FILL_H

#include "device/cuda_device.h"

/* Byte `at` of memory that is filled with the word: where it ends within one, single bytes are
 * written, because what lies behind may have a guard's pattern. */
static inline uint8_t ac_fill_byte(uint32_t word, uint64_t at) {
    return (uint8_t)(word >> 8 * (at % 4));
}

/* Write `word` over [address, address + bytes), and nothing else, and wait until it is there, for nothing
 * else, so no work may use the memory, and a second at the most.  AC_OK; AC_UNSUPPORTED: nothing was given
 * to the device, because a stream captures, exit began, the driver refused, or a pattern of before is
 * late; AC_BUSY: it may be written later, and counts as work of the context from now on, for fences by
 * streams as well: the caller tells the context's line (ac_fence_submitted). */
ac_status_t ac_cuda_fill(ac_cuda_context_t *context, uint64_t address, uint64_t bytes,
                         uint32_t word);

/* As device.h says of fills_over, memory_fill and memory_differs. */
bool ac_cuda_fills_over(void *context);
ac_status_t ac_cuda_memory_fill(void *context, uint64_t address, uint64_t bytes, uint8_t byte);
ac_status_t ac_cuda_memory_differs(void *context, uint64_t address, uint64_t bytes, uint8_t byte,
                                   uint64_t *first);

#endif
