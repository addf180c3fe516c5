/* accelcache: functions for PyTorch's pluggable allocator.
 *
 * PyTorch calls them by their names or addresses; programs do not. */
#ifndef ACCELCACHE_TORCH_H
#define ACCELCACHE_TORCH_H

#include "accelcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- PyTorch's pluggable allocator ---
 *
 * For torch.cuda.memory.CUDAPluggableAllocator(path, "accel_torch_malloc", "accel_torch_free"), and,
 * by address, for the setters of the object behind it; the Python package `accelcache` does both.
 * A stream is a cudaStream_t; accel_pool_id_t is passed as std::pair of two unsigned 64-bit
 * numbers is, on x86-64 and AArch64. */

/* Returns NULL if there is no memory.  torch.cuda.MemPool then returns its idle memory and tries again. */
void *accel_torch_malloc(size_t bytes, int device, void *stream);

/* Allocates like accel_torch_malloc, but throws std::bad_alloc if there is no memory.  PyTorch does not check
 * an allocator that was set for NULL. */
void *accel_torch_malloc_or_throw(size_t bytes, int device, void *stream);
void accel_torch_free(void *pointer, size_t bytes, int device, void *stream);

/* For set_init_fn, set_reset_fn, set_memory_fraction_fn, set_base_alloc_fn, set_record_stream_fn,
 * set_begin_allocate_to_pool, set_end_allocate_to_pool_fn and set_release_pool.  `filter` is a
 * std::function<bool(cudaStream_t)> of libstdc++. */
void accel_torch_init(int device_count);
void accel_torch_reset(void);
void accel_torch_memory_fraction(double fraction, int device);
void *accel_torch_base_alloc(void *pointer, size_t *bytes);
void accel_torch_record_stream(void *pointer, void *stream);
void accel_torch_begin_allocate_to_pool(int device, accel_pool_id_t pool, void *filter);
void accel_torch_end_allocate_to_pool(int device, accel_pool_id_t pool);
void accel_torch_release_pool(int device, accel_pool_id_t pool);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
