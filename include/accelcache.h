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
 * Semantics follow PyTorch's accelerator interface (DeviceAccelerator) where it has the call.
 *
 * accelcache_pools.h has private pools, checkpoints and trace trackers, accelcache_torch.h the functions
 * for PyTorch's pluggable allocator. */
#ifndef ACCELCACHE_H
#define ACCELCACHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
namespace accel {
template <class T> T sized() {
    T made = T();
    made.size = sizeof(T);
    return made;
}
} /* namespace accel */
#define ACCEL_SIZED(type) accel::sized<type>()
extern "C" {
#else
#define ACCEL_SIZED(type)                                                                        \
    { .size = sizeof(type) }
#endif

/* Structures with a member `size` grow with versions of the library.  ACCEL_..._INIT sets `size`, and the
 * rest to zero:  accel_device_stats_t stats = ACCEL_DEVICE_STATS_INIT; */

#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1
#define ACCEL_VERSION       (ACCEL_VERSION_MAJOR * 1000 + ACCEL_VERSION_MINOR)

typedef enum {
    ACCEL_OK = 0,
    ACCEL_ERROR_INVALID = 1,       /* an argument is out of range or NULL */
    ACCEL_ERROR_NO_DRIVER = 2,     /* no CUDA driver, no device, or the cache cannot run here */
    ACCEL_ERROR_NOT_OURS = 3,      /* the pointer is of no memory that was handed out */
    ACCEL_ERROR_CUDA = 4,          /* a CUDA call failed */
    ACCEL_ERROR_SETTINGS = 5,      /* a malformed or unchangeable setting */
    ACCEL_ERROR_OUT_OF_MEMORY = 6, /* host memory is short */
    ACCEL_ERROR_IO = 7,            /* a file could not be written; errno tells why */
    ACCEL_ERROR_INTERNAL = 8,      /* the cache's own records contradict each other */
    ACCEL_ERROR_DEVICE_MEMORY = 9, /* device memory is short, or a limit forbids more */
    ACCEL_ERROR_BUSY = 10,         /* it is in use, and cannot be changed or ended now */
    ACCEL_ERROR_UNSUPPORTED = 11,  /* the device, driver or allocator in use cannot do it */
    ACCEL_ERROR_DOUBLE_FREE = 12,  /* the memory at the pointer was freed before */
    ACCEL_ERROR_INTERIOR = 13      /* the pointer lies inside a block, not at its beginning */
} accel_status_t;

/* A sentence for a status, its cause and what to do; static storage, never NULL. */
const char *accel_status_string(accel_status_t status);

/* ACCEL_VERSION of the library, to be compared with that of the header: functions are only added,
 * structures only grow at their end, and those with a member `size` may be the caller's. */
int accel_version(void);

/* "accelcache". */
const char *accel_name(void);

/* The kind of device that memory is served for, "cuda"; NULL where there is no driver or no
 * device.  Initialises CUDA. */
const char *accel_get_accelerator(void);

/* Whether the cache is active in this process: 1 or 0.  Starts nothing. */
int accel_initialized(void);

/* Number of devices; 0 without a driver. */
int accel_device_count(void);

/* Device of the calling thread: of its current context, or device 0 if it has none.  -1: there is no
 * driver or no device.  Makes no context. */
int accel_current_device(void);

/* Make the device's primary context current in the calling thread (it is retained once, and kept
 * until the process ends or resets the device, after which the next call retains it anew).  A negative `device` changes nothing. */
accel_status_t accel_set_device(int device);

/* Makes the device's primary context current, as accel_set_device does, and returns the device that was
 * current before.  -2 on an error, which a negative `device` is. */
int accel_exchange_device(int device);

/* Like accel_exchange_device, but makes no context.  If the device has no primary context, the thread keeps
 * its context; the device is then the thread's current one for accel_current_device, for streams and for raw
 * memory, until the thread changes its device or its context.  A negative `device` changes nothing and
 * returns -1; -2 on an error. */
int accel_maybe_exchange_device(int device);

/* Waits for all work of the device's primary context.  Returns at once, and makes no context, if that is
 * not in use, or if the process has not used CUDA. */
accel_status_t accel_synchronize_device(int device);

/* One statistic: `current` now, `peak` since the last peak reset, `allocated` and `freed` the
 * sums of all increases and decreases since the last accumulated reset. */
typedef struct {
    int64_t current, peak, allocated, freed;
} accel_stat_t;

/* {all pools, blocks of up to small_limit (64 KiB by default; 1 MiB in PyTorch), larger ones} */
typedef struct {
    accel_stat_t all, small_pool, large_pool;
} accel_pool_stat_t;

/* Statistics of a device; names and meanings are PyTorch's.  Initialise it with
 * ACCEL_DEVICE_STATS_INIT; later versions only append members. */
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
#define ACCEL_DEVICE_STATS_INIT ACCEL_SIZED(accel_device_stats_t)

/* Reads the statistics of a device: all zero if it was not used yet.  `small_pool` counts blocks of up to
 * small_limit, 64 KiB by default, where PyTorch's counts up to 1 MiB.  Memory whose work is known to be over is
 * not active. */
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
 * ACCEL_ERROR_DEVICE_MEMORY.  Of a free that is refused, and changed nothing: ACCEL_ERROR_DOUBLE_FREE,
 * as long as the memory is the cache's, ACCEL_ERROR_NOT_OURS from then on and for foreign pointers;
 * ACCEL_ERROR_INTERIOR; ACCEL_ERROR_INVALID where the stream is at fault. */
accel_status_t accel_malloc(void **pointer, size_t bytes);
accel_status_t accel_free(void *pointer);

/* The same in the order of `stream` (a CUstream or cudaStream_t of the current context; NULL: the
 * legacy default stream), as cudaMallocAsync and cudaFreeAsync.  What was freed on a stream serves
 * later requests of that stream at once. ACCEL_ERROR_CUDA where the driver has no such calls. */
accel_status_t accel_malloc_async(void **pointer, size_t bytes, void *stream);
accel_status_t accel_free_async(void *pointer, void *stream);

/* Tell that work on `stream` (a CUstream or cudaStream_t) uses the block at `pointer`, for work
 * that the library cannot see.  A later free waits for it.  NULL may be recorded.
 * ACCEL_ERROR_NOT_OURS for foreign pointers; ACCEL_ERROR_INVALID: CUDA knows no such stream;
 * ACCEL_ERROR_NO_DRIVER where the stream's context is beyond the 256 at a time that the library keeps account
 * of: then synchronise before the free. */
accel_status_t accel_record_stream(void *pointer, void *stream);

/* Bytes that requests could obtain on the device, and in total.  Free: what the driver has free, and all idle
 * memory in the cache, also next to blocks in use.  A limit of the process bounds both, unless the key `view`
 * says device. */
accel_status_t accel_get_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

/* The driver's own pair for the device: idle memory in the cache is not free, and no limit counts. */
accel_status_t accel_get_device_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

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
 * `message_size` bytes).  ACCEL_ERROR_BUSY: nothing was compared, because a thread is kept from running
 * inside its cache; ask again.  ACCEL_ERROR_NO_DRIVER before CUDA was used.  Stops allocations while
 * it runs, for a time that grows with the number of blocks. */
accel_status_t accel_check(char *message, size_t message_size);

/* --- streams of threads ---
 *
 * Each thread has a current stream on every device, at first the legacy default stream (NULL). It
 * is what accel_raw_alloc takes memory for; CUDA itself knows nothing of it. */
typedef struct {
    void *stream; /* a CUstream or cudaStream_t of the device's primary context */
    int device;
} accel_stream_t;

/* The calling thread's current stream on the device; a negative `device`: on its current one. */
accel_status_t accel_get_stream(int device, accel_stream_t *stream);

/* Makes the stream the calling thread's current one on its device, and that device current.  A
 * negative device changes nothing.  ACCEL_ERROR_INVALID: the handle is of no stream of the device's primary
 * context. */
accel_status_t accel_set_stream(accel_stream_t stream);

/* What a thread had before it changed device or stream: accel_guard_leave brings it back, the very
 * context that was current included.  A negative device changes nothing.  Every guard whose _enter
 * returned ACCEL_OK is left once, in the reverse order and by the same thread; leaving another time,
 * or a guard that was not entered, does nothing. */
typedef struct {
    accel_stream_t before;
    void *context;
    int entered;
    int chosen; /* device that accel_maybe_exchange_device had chosen; -1: none */
} accel_guard_t;
#define ACCEL_GUARD_INIT                                                                         \
    { {NULL, -1}, NULL, 0, -1 }
accel_status_t accel_guard_enter(accel_guard_t *guard, int device);
accel_status_t accel_guard_enter_stream(accel_guard_t *guard, accel_stream_t stream);
void accel_guard_leave(accel_guard_t *guard);

/* In C with GCC or Clang: until the end of the block the device is current.
 *     ACCEL_GUARD(guard, 1); */
#if defined(__GNUC__) && !defined(__cplusplus)
#define ACCEL_GUARD(name, device)                                                                \
    __attribute__((cleanup(accel_guard_leave))) accel_guard_t name = ACCEL_GUARD_INIT;           \
    (void)accel_guard_enter(&name, device)
#endif

/* --- raw memory: the current allocator ---
 *
 * Memory that the library knows size, device and stream of, so that a pointer alone is enough to
 * free it.  It comes from a private pool where one takes the stream's requests, else from the
 * allocator that was set by accel_set_allocator, else from the cache, in the order of the stream:
 * what is freed serves later requests of its stream at once, and those of others when the work
 * before the free is done.  A default stream is that of the thread and context that asked: when others
 * free such memory, it serves again once all work that the device has by then is done. */

/* A private pool; {0, 0} is what is served without one. */
typedef struct {
    uint64_t first, second;
} accel_pool_id_t;

/* For the current device (device 0 where there is none) and the thread's current stream there, or
 * for `stream` of that device.  Sets *pointer to NULL for 0 bytes.  ACCEL_ERROR_DEVICE_MEMORY.
 * ACCEL_ERROR_BUSY: init_fn of the allocator that was set goes on in another thread for ten seconds. */
accel_status_t accel_raw_alloc(void **pointer, size_t bytes);
accel_status_t accel_raw_alloc_with_stream(void **pointer, size_t bytes, void *stream);

/* Free such memory in the order of its stream, in whichever device is current; work on streams that
 * accel_record_stream named is waited for before the memory serves again, and so is all work where
 * the stream was destroyed.  Memory of accel_malloc and accel_malloc_async may be given as well.  What
 * is refused is answered as by accel_free.  NULL may be freed.  ACCEL_ERROR_BUSY: a stream captures, and
 * memory that the driver served has such work to wait for; it stays the program's. */
accel_status_t accel_raw_delete(void *pointer);

/* A function that frees such memory and returns nothing, for code that keeps a deleter beside a
 * pointer.  What cannot be freed while a stream captures is freed after that, with one of the next calls
 * about raw memory, accel_empty_cache, or where memory is short; by free_fn of the program's allocator not
 * from within a call of CUDA. */
typedef void (*accel_deleter_t)(void *pointer);
accel_deleter_t accel_raw_deleter(void);

/* Memory with all that its owner needs.  `deleter` frees `pointer`; it may be called with NULL. */
typedef struct {
    void *pointer;
    accel_deleter_t deleter;
    int device;
} accel_data_t;

/* Allocates raw memory as accel_raw_alloc does.  `pointer` is NULL for 0 bytes. */
accel_status_t accel_allocate(size_t bytes, accel_data_t *data);

/* What the library knows of a block.  Initialise it with ACCEL_POINTER_INFO_INIT. */
typedef struct {
    size_t size;
    void *base;       /* where the block begins */
    size_t bytes;     /* that were asked for */
    size_t allocated; /* that the block takes; `bytes` where that is not known */
    int device;
    int ordered;          /* whether it was allocated in the order of `stream` */
    void *stream;         /* of raw memory; NULL: the default stream, or not raw memory */
    accel_pool_id_t pool; /* {0, 0}: none */
} accel_pointer_info_t;
#define ACCEL_POINTER_INFO_INIT ACCEL_SIZED(accel_pointer_info_t)

/* Describes the block that `pointer` lies in.  ACCEL_ERROR_NOT_OURS for foreign pointers and freed blocks. */
accel_status_t accel_pointer_info(const void *pointer, accel_pointer_info_t *info);

/* The block that the pointer lies in, as an allocation of its own.  `bytes` may be NULL. */
accel_status_t accel_get_base_allocation(void *pointer, void **base, size_t *bytes);

/* Returns nonzero for a stream whose requests a private pool takes. */
typedef int (*accel_stream_filter_t)(void *stream, void *arg);

/* An allocator of the program, which raw memory comes from instead of the cache.  Initialise it with
 * ACCEL_ALLOCATOR_INIT.  alloc_fn and free_fn are needed, the others may be NULL.  The library calls
 * them from any thread, without holding a lock. */
typedef struct {
    size_t size;
    /* NULL: there is no memory. */
    void *(*alloc_fn)(size_t bytes, int device, void *stream);
    /* With what was given to alloc_fn. */
    void (*free_fn)(void *pointer, size_t bytes, int device, void *stream);
    /* Before the first alloc_fn: once for accel_set_allocator, and once in each accel_pool_create. */
    void (*init_fn)(int device_count);
    void (*reset_fn)(void); /* accel_empty_cache */
    void (*memory_fraction_fn)(double fraction, int device);
    void *(*base_alloc_fn)(void *pointer, size_t *bytes); /* NULL: a block begins at `pointer` */
    void (*record_stream_fn)(void *pointer, void *stream);
    void (*begin_allocate_to_pool_fn)(int device, accel_pool_id_t pool,
                                      accel_stream_filter_t filter, void *arg);
    void (*end_allocate_to_pool_fn)(int device, accel_pool_id_t pool);
    void (*release_pool_fn)(int device, accel_pool_id_t pool);
} accel_allocator_t;
#define ACCEL_ALLOCATOR_INIT ACCEL_SIZED(accel_allocator_t)

/* Raw memory comes from there from now on; NULL: from the cache.  The functions are copied.
 * ACCEL_ERROR_BUSY once raw memory was asked for. */
accel_status_t accel_set_allocator(const accel_allocator_t *allocator);

/* The allocator in use; all functions NULL: the cache. */
accel_status_t accel_get_allocator(accel_allocator_t *allocator);

/* Copy between device memory, or device and pinned host memory (that device is -1): in the order of
 * `stream` of the current device, or before the call returns.  With `peer_enabled` one device
 * reads or writes the other's memory, else the driver finds a way. */
accel_status_t accel_memcpy_async(void *to, int to_device, const void *from, int from_device,
                                  size_t bytes, void *stream, int peer_enabled);
accel_status_t accel_copy_data(void *to, const void *from, size_t bytes);

/* Work of `device` may use memory of `peer` from now on.  ACCEL_OK also where it could before;
 * ACCEL_ERROR_UNSUPPORTED: the devices cannot. */
accel_status_t accel_enable_peer_access(int device, int peer);

/* --- state --- */

/* Bytes of the largest block that a request could obtain on the device: of idle memory in the
 * cache, or of what the driver has free, whichever is more.  Freed memory that waits for work is idle. */
accel_status_t accel_cache_info(int device, size_t *largest);

/* The share of the device's memory that this process may hold there, 0 to 1 (1: no limit but
 * those of the settings).  It counts what memory_limit counts, and stays when settings change. */
accel_status_t accel_set_memory_fraction(double fraction, int device);
accel_status_t accel_get_memory_fraction(double *fraction, int device);

/* Serve from the cache, or leave all requests to the driver; what is held stays valid.  The same as
 * the setting `enabled`. */
accel_status_t accel_enable(int enabled);
int accel_is_enabled(void);

/* --- observers ---
 *
 * Called by the thread that made the request, without a lock of the library, and not while that
 * thread is in an observer already.  Up to 8 of each kind; `arg` is handed through.  They stay until
 * the process ends, but for those that can be removed: no call of one begins after that, but one may
 * still be under way in another thread.  They return as functions do, by no exception or longjmp. */

/* A request of so many bytes on the device failed for lack of memory: `limit` is what the process may
 * have there, `available` what the driver has free. */
typedef void (*accel_oom_observer_t)(int device, size_t bytes, size_t limit, size_t available,
                                     void *arg);
accel_status_t accel_attach_oom_observer(accel_oom_observer_t observer, void *arg);
accel_status_t accel_detach_oom_observer(accel_oom_observer_t observer, void *arg);

/* Free memory in the cache does not serve a request on the device: the program may free some of its
 * own.  Returns nonzero where it did. */
typedef int (*accel_free_callback_t)(int device, void *arg);
accel_status_t accel_add_free_callback(accel_free_callback_t callback, void *arg);
accel_status_t accel_remove_free_callback(accel_free_callback_t callback, void *arg);

/* Which blocks and entries of the history have frames, as in PyTorch.  Each level adds to the one before. */
typedef enum {
    ACCEL_CONTEXT_NEVER, /* none */
    ACCEL_CONTEXT_STATE, /* raw memory that the program holds */
    ACCEL_CONTEXT_ALLOC, /* entries of allocations, of segments and of accel_annotate */
    ACCEL_CONTEXT_ALL    /* entries of frees */
} accel_context_when_t;

/* Returns a text about what the thread is doing, in memory of malloc that the library frees; NULL: none.
 * It is called as observers are, for raw memory, for segments and for accel_annotate; for segments also by
 * threads of the library. */
typedef char *(*accel_context_recorder_t)(void *arg);

/* What accel_record_history keeps.  Initialise it with ACCEL_HISTORY_INIT. */
typedef struct {
    size_t size;
    int enabled; /* 0: nothing is kept any more, and all entries go */
    size_t most; /* entries of each device, the newest: 1 (which 0 stands for) to 16 Mi */
    accel_context_when_t when;
    int clear;                         /* nonzero: the entries so far go */
    accel_context_recorder_t recorder; /* may be NULL */
    void *arg;                         /* of `recorder` */
} accel_history_t;
#define ACCEL_HISTORY_INIT ACCEL_SIZED(accel_history_t)

/* Keeps entries about raw memory and about segments, for accel_snapshot.  Frames are the recorder's text, then
 * the call stack if the setting stacks:all is on.  Of different texts the library keeps the first 16,384, and
 * of each the first 2,047 bytes, until the process ends. */
accel_status_t accel_record_history(const accel_history_t *history);
int accel_is_history_enabled(void);

/* Adds an entry with the text to the history of the current device, and tells it to trace trackers. */
accel_status_t accel_annotate(const char *text);

/* Opens and closes a phase of the calling thread: "training", "forward".  What the settings `stacks` and `history`
 * record of a request names the phases that its thread has open, so reports, flame graphs and comparisons show call
 * sites by phase.  Phases nest.  16 of a thread are named, the outermost, with 63 bytes of each name.  Of names beyond
 * the first 256 numbers are left out.  Ranges of NVTX are phases as well (nvtxRangePush, nvtxDomainRangePushEx) if
 * NVTX_INJECTION64_PATH names this library.
 *
 * Any thread, also before CUDA is used; no call of the driver.  Returns ACCEL_OK; ACCEL_ERROR_INVALID: `name` is NULL
 * or empty, or the thread has no phase open; ACCEL_ERROR_OUT_OF_MEMORY. */
accel_status_t accel_phase_push(const char *name);
accel_status_t accel_phase_pop(void);

/* Segments, blocks and the history, in the layout of PyTorch's memory snapshots, as JSON text: the
 * caller frees *json with free().  Blocks also have the frames that the setting `stacks` recorded.
 * {0, 0}: memory of the cache, of all pools and of all devices; else of that pool alone.  All memory is listed once: a pool's segment has that pool's `segment_pool_id`,
 * and the segment of the cache that it was taken from is listed in parts, before and behind it. */
accel_status_t accel_snapshot(accel_pool_id_t pool, char **json);

/* Bytes of pages in expandable segments of the device, by the stream that memory there was asked for on:
 * of raw memory and of segments of private pools.  All other memory is of stream NULL, idle memory
 * too, which serves every stream.  The sum is what is mapped.  The caller frees *sizes with free(); NULL
 * with *count 0: there is none. */
typedef struct {
    void *stream;
    int small; /* of requests up to 64 KiB */
    size_t bytes;
} accel_segment_size_t;
accel_status_t accel_get_expandable_segment_sizes(int device, accel_segment_size_t **sizes,
                                                  size_t *count);

/* --- sharing with other processes --- */

typedef struct {
    unsigned char bytes[64]; /* of cuIpcGetMemHandle */
    uint64_t offset;         /* of the pointer in the block */
    uint64_t reserved[3];
} accel_ipc_handle_t;

/* A handle of `pointer`, which may lie inside a block, for other processes of the machine that run
 * under the library; what was submitted before must not be under way any more.
 * ACCEL_ERROR_NOT_OURS; ACCEL_ERROR_UNSUPPORTED where it cannot be shared. */
accel_status_t accel_share_ipc_handle(void *pointer, accel_ipc_handle_t *handle);

/* The memory in this process, for the current device, until it is closed as often as it was got.
 * Getting what is open already gives the same address. */
accel_status_t accel_get_ipc_ptr(const accel_ipc_handle_t *handle, void **pointer);
accel_status_t accel_close_ipc_ptr(void *pointer);

#ifdef __cplusplus
} /* extern "C" */

namespace accel {
/* Until the end of its scope the device, or the stream and its device, is current. */
class Guard {
  public:
    explicit Guard(int device) {
        guard_.entered = 0;
        status_ = accel_guard_enter(&guard_, device);
    }
    explicit Guard(accel_stream_t stream) {
        guard_.entered = 0;
        status_ = accel_guard_enter_stream(&guard_, stream);
    }
    ~Guard() {
        accel_guard_leave(&guard_);
    }
    accel_status_t status() const {
        return status_;
    }
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;

  private:
    accel_guard_t guard_;
    accel_status_t status_;
};
} /* namespace accel */
#endif

#endif
