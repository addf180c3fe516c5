/* accelcache: the C API of libaccelcache.so.
 *
 * A program that wants statistics and control in its own hands includes this header and links
 * with the library; it may as well be preloaded or opened with dlopen.  A program that only
 * wants its allocations cached needs none of this.
 *
 * All functions are thread-safe and may be called from any thread, but not from a signal
 * handler or a CUDA host function.  Unless a comment says otherwise they return ACCEL_OK or an
 * error below, and set outputs only on success.  Device arguments are CUDA driver ordinals,
 * 0 <= device < count; sizes are bytes.  A call that needs CUDA loads libcuda.so.1 and
 * initialises it when the program has not done so.
 *
 * A process that uses more than 256 contexts at a time is not cached any more: the calls for memory
 * go to the driver then, as the program's own do, and all others answer as before.
 *
 * Semantics follow PyTorch's accelerator interface (DeviceAccelerator) where it has the call. */
#ifndef ACCELCACHE_H
#define ACCELCACHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1

typedef enum {
    ACCEL_OK = 0,
    ACCEL_ERROR_INVALID = 1,       /* an argument is out of range or NULL */
    ACCEL_ERROR_NO_DRIVER = 2,     /* no CUDA driver, no device, or the cache cannot run here */
    ACCEL_ERROR_NOT_OURS = 3,      /* the pointer was not handed out by the cache */
    ACCEL_ERROR_CUDA = 4,          /* a CUDA call failed */
    ACCEL_ERROR_SETTINGS = 5,      /* a malformed or unchangeable setting */
    ACCEL_ERROR_OUT_OF_MEMORY = 6, /* host memory is short */
    ACCEL_ERROR_IO = 7,            /* a file could not be written; errno tells why */
    ACCEL_ERROR_INTERNAL = 8,      /* the cache's own records contradict each other */
    ACCEL_ERROR_DEVICE_MEMORY = 9  /* device memory is short, or a limit forbids more */
} accel_status_t;

/* A sentence for a status; static storage, never NULL. */
const char *accel_status_string(accel_status_t status);

/* Whether the cache is active in this process: 1 or 0.  Starts nothing. */
int accel_initialized(void);

/* Number of devices; 0 without a driver. */
int accel_device_count(void);

/* Device of the calling thread's current context; -1 when it has none. */
int accel_current_device(void);

/* Make the device's primary context current in the calling thread (it is retained once per
 * process and kept until the process ends). */
accel_status_t accel_set_device(int device);

/* The same, and return the device that was current before (-1: none); -2 on an error. */
int accel_exchange_device(int device);

/* Like accel_exchange_device; a negative `device` changes nothing and returns -1. */
int accel_maybe_exchange_device(int device);

/* Wait for all work of the device's primary context.  Blocks. */
accel_status_t accel_synchronize_device(int device);

/* One statistic: `current` now, `peak` since the last peak reset, `allocated` and `freed` the
 * sums of all increases and decreases since the last accumulated reset. */
typedef struct {
    int64_t current, peak, allocated, freed;
} accel_stat_t;

/* {all pools, blocks of up to 64 KiB, larger ones} */
typedef struct {
    accel_stat_t all, small_pool, large_pool;
} accel_pool_stat_t;

/* Names and meanings are PyTorch's. `size` is sizeof(accel_device_stats_t) of the caller's
 * header: set it before the call; later versions only append. */
typedef struct {
    size_t size;
    /* begin:stats: generated from shim/observe/stats.def */
    /* driver allocations tried again after memory was given back */
    int64_t num_alloc_retries;
    /* requests that failed for lack of memory */
    int64_t num_ooms;
    /* bytes from which blocks are never split; -1: no limit */
    int64_t max_split_size;
    /* times that all pending work was waited for */
    int64_t num_sync_all_streams;
    /* segments obtained from the driver */
    int64_t num_device_alloc;
    /* segments given back to the driver */
    int64_t num_device_free;
    /* bytes: in blocks that the program holds, after rounding; peak: see thread_caches */
    accel_pool_stat_t allocated_bytes;
    /* bytes: in segments obtained from the driver */
    accel_pool_stat_t reserved_bytes;
    /* bytes: allocated, or freed with work still pending */
    accel_pool_stat_t active_bytes;
    /* bytes: active, as the program asked for it, before rounding */
    accel_pool_stat_t requested_bytes;
    /* blocks: that the program holds */
    accel_pool_stat_t allocation;
    /* segments: obtained from the driver */
    accel_pool_stat_t segment;
    /* blocks: allocated, or freed with work still pending */
    accel_pool_stat_t active;
    /* blocks: free ones beside others in their segment, but for a few kept for exact reuse */
    accel_pool_stat_t inactive_split;
    /* bytes: bytes of inactive_split */
    accel_pool_stat_t inactive_split_bytes;
    /* blocks: of at least max_split_size */
    accel_stat_t oversize_allocations;
    /* segments: of at least max_split_size */
    accel_stat_t oversize_segments;
    /* end:stats */
} accel_device_stats_t;

/* Statistics of a device; all zero for one that was not used yet. */
accel_status_t accel_get_device_stats(int device, accel_device_stats_t *stats);

/* allocated = freed = 0 everywhere, and the event counts = 0; `current` and `peak` stay. */
accel_status_t accel_reset_accumulated_stats(int device);

/* peak = current everywhere. */
accel_status_t accel_reset_peak_stats(int device);

/* Wait for pending frees and give every idle segment of every device back to the driver.  Counted
 * once per device as num_sync_all_streams.  May block and synchronise. */
accel_status_t accel_empty_cache(void);

/* Device memory of the thread's current context, as cudaMalloc and cudaFree give and take it; a
 * thread without one uses device 0.  *pointer is a multiple of 512, NULL for 0 bytes; it belongs
 * to the caller, and may be given to any CUDA call, cudaFree included, as memory from there may be
 * given to accel_free.  Memory that work may still use is not handed out again before that work is
 * done: neither call waits for it unless memory is short.  NULL may be freed.
 * ACCEL_ERROR_DEVICE_MEMORY; ACCEL_ERROR_INVALID: no such block, or freed before. */
accel_status_t accel_malloc(void **pointer, size_t bytes);
accel_status_t accel_free(void *pointer);

/* The same in the order of `stream` (a CUstream or cudaStream_t of the current context; NULL: the
 * legacy default stream), as cudaMallocAsync and cudaFreeAsync.  What was freed on a stream serves
 * later requests of that stream at once. ACCEL_ERROR_CUDA where the driver has no such calls. */
accel_status_t accel_malloc_async(void **pointer, size_t bytes, void *stream);
accel_status_t accel_free_async(void *pointer, void *stream);

/* Tell that work on `stream` (a CUstream or cudaStream_t) uses the block at `pointer`, for work
 * that the library cannot see.  A later free waits for it.  ACCEL_ERROR_NOT_OURS for foreign
 * pointers; ACCEL_ERROR_NO_DRIVER where the stream's context is beyond the 256 at a time that the
 * library keeps account of: then synchronise before the free. */
accel_status_t accel_record_stream(void *pointer, void *stream);

/* Bytes that a request could obtain on the device (free plus idle in the cache), and in total.
 * Source: cuMemGetInfo of the device's primary context. */
accel_status_t accel_get_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

/* Replace the settings by those of `conf` (the syntax of ACCEL_ALLOC_CONF; keys that are absent
 * return to their defaults).  Some keys cannot change once the cache is active (`accelcache
 * config` says which): they keep their values then, and naming another is an error.  On an error
 * nothing changes, and `message` (may be NULL, `message_size` bytes) gets the reason. */
accel_status_t accel_set_allocator_settings(const char *conf, char *message, size_t message_size);

/* The statistics document (see the JSON schema) as text: the caller frees *json with free().
 * ACCEL_ERROR_NO_DRIVER before CUDA was used. */
accel_status_t accel_stats_json(char **json);

/* Write the document to `path` (the placeholders of the `dump` setting apply; NULL: the
 * configured place).  A relative path is one of the present folder, the configured one of the folder
 * that the program was started in. */
accel_status_t accel_dump(const char *path);

/* For tests and debugging: walk all that the cache holds, check that its records agree with
 * each other and compare every `current` statistic with what the walk adds up to.  ACCEL_OK, or
 * ACCEL_ERROR_INTERNAL with the first thing that is wrong in `message` (may be NULL,
 * `message_size` bytes).  ACCEL_ERROR_NO_DRIVER before CUDA was used.  Stops allocations while
 * it runs, for a time that grows with the number of blocks. */
accel_status_t accel_check(char *message, size_t message_size);

#ifdef __cplusplus
}
#endif

#endif
