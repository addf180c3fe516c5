/* Patterns in device memory, for the key `fill`. */
#ifndef AC_CUDA_FILL_H
#define AC_CUDA_FILL_H

#include "device/cuda_device.h"

/* Write `word` over [address, address + bytes), rounded up to whole words, and wait until it is
 * there; for nothing else, so no work may use the memory.  Nothing is written while a stream
 * captures, after exit began, and where the driver refuses. */
void ac_cuda_fill(ac_cuda_context_t *context, uint64_t address, uint64_t bytes, uint32_t word);

#endif
