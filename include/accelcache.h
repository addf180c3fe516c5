/* accelcache: the C API of libaccelcache.so.
 *
 * A program that wants statistics and control includes this header and links the library, or runs
 * under it and finds the functions by dlsym.  A program that only wants its allocations cached needs
 * none of this.  Example:
 *
 *     accel_device_stats_t stats = ACCEL_DEVICE_STATS_INIT;
 *     if (accel_get_device_stats(0, &stats) == ACCEL_OK)
 *         printf("%lld bytes\n", (long long)stats.allocated_bytes.all.current);
 *
 * All functions are thread-safe and may be called from any thread, but not from a signal
 * handler or a CUDA host function.  They return ACCEL_OK or an error below, and set outputs only on
 * success; exceptions stand at the function.  Device arguments are CUDA driver ordinals,
 * 0 <= device < count; sizes are bytes.  A call that needs CUDA loads libcuda.so.1 and
 * initialises it when the program has not done so.
 *
 * A process that uses more than 256 contexts at a time is not cached any more: the calls for memory
 * go to the driver then, as the program's own do, and all others answer as before.
 *
 * Calls that PyTorch's accelerator interface (DeviceAccelerator) has too behave as there.
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

/* Returns a sentence with the cause of a status and its remedy; static storage, never NULL. */
const char *accel_status_string(accel_status_t status);

/* Returns ACCEL_VERSION of the library; compare it with that of the header.  Later versions only add
 * functions, and members at the end of structures.  Callers may pass older structures with a member
 * `size`. */
int accel_version(void);

/* Returns "accelcache". */
const char *accel_name(void);

/* Returns the kind of the devices, "cuda"; NULL if there is no driver or no device.  Initialises
 * CUDA. */
const char *accel_get_accelerator(void);

/* Returns 1 if the cache is active in this process, else 0.  Starts nothing. */
int accel_initialized(void);

/* Returns the number of devices; 0 without a driver. */
int accel_device_count(void);

/* Returns the device of the calling thread's current context, 0 if it has none, -1 without a driver or
 * device.  Makes no context. */
int accel_current_device(void);

/* Makes the device's primary context current in the calling thread.  The library retains the context once
 * and keeps it until the process ends or resets the device.  A negative `device` changes nothing. */
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

/* One statistic: `current` value, `peak` since the last peak reset, and sums of all increases
 * (`allocated`) and decreases (`freed`) since the last accumulated reset. */
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
    /* driver allocations that the library tried again after it returned memory */
    int64_t num_alloc_retries;
    /* requests that failed for lack of memory */
    int64_t num_ooms;
    /* blocks of this many bytes or more are never split; -1: no limit */
    int64_t max_split_size;
    /* waits for all pending work */
    int64_t num_sync_all_streams;
    /* segments obtained from the driver */
    int64_t num_device_alloc;
    /* segments returned to the driver */
    int64_t num_device_free;
    /* bytes: in blocks that the program holds, after rounding */
    accel_pool_stat_t allocated_bytes;
    /* bytes: in segments obtained from the driver */
    accel_pool_stat_t reserved_bytes;
    /* bytes: allocated, or freed with work still pending */
    accel_pool_stat_t active_bytes;
    /* bytes: active bytes before rounding, as the program requested them */
    accel_pool_stat_t requested_bytes;
    /* blocks: that the program holds */
    accel_pool_stat_t allocation;
    /* segments: obtained from the driver */
    accel_pool_stat_t segment;
    /* blocks: allocated, or freed with work still pending */
    accel_pool_stat_t active;
    /* blocks: free blocks next to others in their segment, except a few kept for exact reuse */
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
 * small_limit (64 KiB by default; 1 MiB in PyTorch).  Freed memory is not active once its work is known
 * to be over. */
accel_status_t accel_get_device_stats(int device, accel_device_stats_t *stats);

/* Sets `allocated`, `freed` and the counts of events to 0; `current` and `peak` stay. */
accel_status_t accel_reset_accumulated_stats(int device);

/* Sets every `peak` to its `current`. */
accel_status_t accel_reset_peak_stats(int device);

/* Waits for pending frees and returns every idle segment of every device to the driver.  Counts once
 * per device in num_sync_all_streams.  May block and synchronise. */
accel_status_t accel_empty_cache(void);

/* Allocates and frees device memory of the thread's current context, like cudaMalloc and cudaFree; a
 * thread without a context uses device 0.  *pointer is a multiple of 512, NULL for 0 bytes.  Every CUDA
 * call takes it, cudaFree included; accel_free takes memory of cudaMalloc.  The library does not hand
 * memory out again before the work that may use it is done.  Neither call waits for that work unless
 * memory is short.  NULL may be freed.  ACCEL_ERROR_DEVICE_MEMORY.  A free that is refused changes
 * nothing: ACCEL_ERROR_DOUBLE_FREE while the memory is the cache's, later ACCEL_ERROR_NOT_OURS, as for
 * foreign pointers; ACCEL_ERROR_INTERIOR; ACCEL_ERROR_INVALID if the stream is wrong. */
accel_status_t accel_malloc(void **pointer, size_t bytes);
accel_status_t accel_free(void *pointer);

/* Allocate and free in the order of `stream`, like cudaMallocAsync and cudaFreeAsync.  `stream` is a
 * CUstream or cudaStream_t of the current context, or NULL for the legacy default stream.  Memory freed
 * on a stream serves later requests of that stream at once.  Errors as of accel_malloc and accel_free;
 * ACCEL_ERROR_CUDA if the driver lacks stream-ordered memory. */
accel_status_t accel_malloc_async(void **pointer, size_t bytes, void *stream);
accel_status_t accel_free_async(void *pointer, void *stream);

/* Records that work on `stream` (a CUstream or cudaStream_t) uses the block at `pointer`, for work
 * that the library cannot see.  A later free waits for it.  NULL may be recorded.
 * ACCEL_ERROR_NOT_OURS for foreign pointers; ACCEL_ERROR_INVALID if CUDA does not know the stream;
 * ACCEL_ERROR_NO_DRIVER if the library does not follow the stream's context, one of more than 256: then
 * synchronise before the free. */
accel_status_t accel_record_stream(void *pointer, void *stream);

/* Reads the bytes that requests could obtain on the device, and its total.  Free memory is that of the driver
 * plus all idle memory in the cache, also next to blocks in use.  A limit of the process bounds both, unless the key `view`
 * says device. */
accel_status_t accel_get_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

/* Reads the driver's own pair for the device: idle memory in the cache is not free, and no limit counts. */
accel_status_t accel_get_device_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

/* Replaces the settings by `conf`, in the syntax of ACCEL_ALLOC_CONF; absent keys return to their
 * defaults.  Some keys cannot change once the cache is active (`accelcache config` lists them): they
 * keep their values, and another value is an error.  On an error nothing changes, and `message` (may be
 * NULL, `message_size` bytes) gets the reason. */
accel_status_t accel_set_allocator_settings(const char *conf, char *message, size_t message_size);

/* Writes the statistics document (see the JSON schema) as text; the caller frees *json with free().
 * ACCEL_ERROR_NO_DRIVER before CUDA was used. */
accel_status_t accel_stats_json(char **json);

/* Writes the document to `path`, with the placeholders of the setting `dump`; NULL: to the configured
 * place.  A relative path starts at the current folder, a configured one at the folder in which the
 * program was started. */
accel_status_t accel_dump(const char *path);

/* Checks, for tests and debugging, that the cache's records agree with each other and with every `current`
 * statistic.  ACCEL_ERROR_INTERNAL: `message` (may be NULL, `message_size` bytes) has the first
 * contradiction.  ACCEL_ERROR_BUSY: a thread does not run inside its cache, and nothing was compared; try
 * again.  ACCEL_ERROR_NO_DRIVER before CUDA was used.  Stops allocations for a time that grows with the
 * number of blocks. */
accel_status_t accel_check(char *message, size_t message_size);

/* --- streams of threads ---
 *
 * Each thread has a current stream on every device, at first the legacy default stream (NULL).
 * accel_raw_alloc takes memory for it; CUDA itself does not know it. */
typedef struct {
    void *stream; /* a CUstream or cudaStream_t of the device's primary context */
    int device;
} accel_stream_t;

/* Reads the calling thread's current stream on the device; on its current device if `device` is negative. */
accel_status_t accel_get_stream(int device, accel_stream_t *stream);

/* Makes the stream the calling thread's current one on its device, and that device current.  A
 * negative device changes nothing.  ACCEL_ERROR_INVALID if the handle is not a stream of the device's
 * primary context. */
accel_status_t accel_set_stream(accel_stream_t stream);

/* Device, stream and context of a thread before it changed them; accel_guard_leave restores them.  A
 * negative device changes nothing.  If _enter returned ACCEL_OK, the same thread leaves the guard once, in
 * reverse order.  To leave it again, or without entering it, does nothing. */
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

/* Makes the device current until the end of the block, in C with GCC or Clang:
 *     ACCEL_GUARD(guard, 1); */
#if defined(__GNUC__) && !defined(__cplusplus)
#define ACCEL_GUARD(name, device)                                                                \
    __attribute__((cleanup(accel_guard_leave))) accel_guard_t name = ACCEL_GUARD_INIT;           \
    (void)accel_guard_enter(&name, device)
#endif

/* --- raw memory: the current allocator ---
 *
 * The library knows size, device and stream of raw memory, so that a pointer is enough to free it.  It
 * comes from a private pool that takes the stream's requests, else from the allocator of
 * accel_set_allocator, else from the cache.  Freed memory serves later requests of its stream at once, and
 * other requests when the work before the free is done.  A default stream means the one of the thread
 * and context that made the request; if another thread frees the memory, it serves again after all work that the
 * device then has. */

/* A private pool; {0, 0}: none. */
typedef struct {
    uint64_t first, second;
} accel_pool_id_t;

/* Allocates raw memory on the current device (0 if there is none), for the thread's current stream or for
 * `stream`.  Sets *pointer to NULL for 0 bytes.  ACCEL_ERROR_DEVICE_MEMORY.  ACCEL_ERROR_BUSY: init_fn
 * of the program's allocator ran in another thread for ten seconds. */
accel_status_t accel_raw_alloc(void **pointer, size_t bytes);
accel_status_t accel_raw_alloc_with_stream(void **pointer, size_t bytes, void *stream);

/* Frees raw memory in the order of its stream, whichever device is current.  Before the memory serves again, the
 * library waits for work on streams that accel_record_stream named, and for all work if the stream was
 * destroyed.  It also frees memory of accel_malloc and accel_malloc_async.  Errors as of accel_free.  NULL may be freed.
 * ACCEL_ERROR_BUSY: a stream captures, and memory that the driver served must wait for work; the memory
 * stays the program's. */
accel_status_t accel_raw_delete(void *pointer);

/* Frees raw memory and returns nothing, for code that keeps a deleter with a pointer.  If a capture forbids the free,
 * the library frees the memory later: in one of the next calls for raw memory, in accel_empty_cache, or if
 * memory is short.  It calls free_fn of the program's allocator only outside of CUDA calls. */
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

/* Description of a block.  Initialise it with ACCEL_POINTER_INFO_INIT. */
typedef struct {
    size_t size;
    void *base;       /* beginning of the block */
    size_t bytes;     /* requested */
    size_t allocated; /* with rounding; `bytes` if that is not known */
    int device;
    int ordered;          /* nonzero: allocated in the order of `stream` */
    void *stream;         /* of raw memory; NULL: the default stream, or not raw memory */
    accel_pool_id_t pool; /* {0, 0}: none */
} accel_pointer_info_t;
#define ACCEL_POINTER_INFO_INIT ACCEL_SIZED(accel_pointer_info_t)

/* Describes the block that contains `pointer`.  ACCEL_ERROR_NOT_OURS for foreign pointers and freed blocks. */
accel_status_t accel_pointer_info(const void *pointer, accel_pointer_info_t *info);

/* Reads beginning and size of the block that contains the pointer.  `bytes` may be NULL. */
accel_status_t accel_get_base_allocation(void *pointer, void **base, size_t *bytes);

/* Returns nonzero if a private pool takes the requests of the stream. */
typedef int (*accel_stream_filter_t)(void *stream, void *arg);

/* An allocator of the program, which serves raw memory instead of the cache.  Initialise it with
 * ACCEL_ALLOCATOR_INIT.  alloc_fn and free_fn are required, the others may be NULL.  The library calls
 * them from any thread, without holding a lock. */
typedef struct {
    size_t size;
    /* Returns NULL if there is no memory. */
    void *(*alloc_fn)(size_t bytes, int device, void *stream);
    /* Gets the arguments of alloc_fn. */
    void (*free_fn)(void *pointer, size_t bytes, int device, void *stream);
    /* Called before the first alloc_fn: once for accel_set_allocator, and once in each accel_pool_create. */
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

/* Sets the allocator of raw memory; NULL: the cache.  The library copies the functions.  ACCEL_ERROR_BUSY
 * after the first request for raw memory. */
accel_status_t accel_set_allocator(const accel_allocator_t *allocator);

/* Reads the allocator in use; all functions are NULL for the cache. */
accel_status_t accel_get_allocator(accel_allocator_t *allocator);

/* Copy between device memory, or device and pinned host memory (device -1).  _async copies in the order of
 * `stream` of the current device, _copy_data before it returns.  With `peer_enabled` one device
 * reads or writes the other's memory, else the driver finds a way. */
accel_status_t accel_memcpy_async(void *to, int to_device, const void *from, int from_device,
                                  size_t bytes, void *stream, int peer_enabled);
accel_status_t accel_copy_data(void *to, const void *from, size_t bytes);

/* Lets work of `device` use memory of `peer`.  ACCEL_OK also if it could before; ACCEL_ERROR_UNSUPPORTED if the
 * devices cannot. */
accel_status_t accel_enable_peer_access(int device, int peer);

/* --- state --- */

/* Reads the size of the largest block that a request could obtain on the device, from idle memory in the
 * cache or from free memory of the driver.  Freed memory that waits for work is idle. */
accel_status_t accel_cache_info(int device, size_t *largest);

/* Set and read the share of the device's memory that this process may hold, 0 to 1 (1: only the limits of
 * the settings).  It counts like memory_limit, and stays when settings change. */
accel_status_t accel_set_memory_fraction(double fraction, int device);
accel_status_t accel_get_memory_fraction(double *fraction, int device);

/* Switches the cache like the setting `enabled`: requests go to the cache, or to the driver.  Memory that the
 * program holds stays valid. */
accel_status_t accel_enable(int enabled);
int accel_is_enabled(void);

/* --- observers ---
 *
 * The thread that made the request calls them, without a lock of the library, and not inside another
 * observer.  Up to 8 of each kind; `arg` is passed on.  They stay until they are removed or the process
 * ends.  After the removal no call begins, but one may be under way in another thread.  An observer returns
 * normally, not by an exception or longjmp. */

/* Reports a request of `bytes` that failed for lack of memory: the process may hold `limit` bytes on the
 * device, and the driver has `available` bytes free. */
typedef void (*accel_oom_observer_t)(int device, size_t bytes, size_t limit, size_t available,
                                     void *arg);
accel_status_t accel_attach_oom_observer(accel_oom_observer_t observer, void *arg);
accel_status_t accel_detach_oom_observer(accel_oom_observer_t observer, void *arg);

/* Called if free memory in the cache does not serve a request on the device.  The program may free some of
 * its memory, and then returns nonzero. */
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

/* Returns a text that describes the thread's activity, in memory of malloc that the library frees; NULL: none.
 * It is called like observers, for raw memory, for segments and for accel_annotate; for segments also by
 * threads of the library. */
typedef char *(*accel_context_recorder_t)(void *arg);

/* Settings of accel_record_history.  Initialise it with ACCEL_HISTORY_INIT. */
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
 * the call stack if the setting stacks:all is on.  The library keeps the first 16,384 different texts, with
 * their first 2,047 bytes, until the process ends. */
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

/* Writes segments, blocks and the history as JSON text, in the layout of PyTorch's memory snapshots.  The
 * caller frees *json with free().  Blocks also have the frames that the setting `stacks` recorded.
 * {0, 0}: memory of the cache, of all pools and of all devices; else of that pool alone.  All memory is listed once: a pool's segment has that pool's `segment_pool_id`,
 * and the segment of the cache that it was taken from is listed in parts, before and behind it. */
accel_status_t accel_snapshot(accel_pool_id_t pool, char **json);

/* Bytes of pages in expandable segments of the device, by the stream of raw memory and of segments of private
 * pools.  All other memory, idle memory too, counts for stream NULL.  The sum is all mapped memory.  The
 * caller frees *sizes with free(); it is NULL with *count 0 if there is none. */
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

/* Makes a handle of `pointer`, which may lie inside a block, for other processes of the machine that run under the
 * library.  Work submitted before must be over.  ACCEL_ERROR_NOT_OURS; ACCEL_ERROR_UNSUPPORTED if the memory
 * cannot be shared. */
accel_status_t accel_share_ipc_handle(void *pointer, accel_ipc_handle_t *handle);

/* Opens the memory of a handle for the current device.  An open handle gives the same address again.  Close
 * it as often as it was opened. */
accel_status_t accel_get_ipc_ptr(const accel_ipc_handle_t *handle, void **pointer);
accel_status_t accel_close_ipc_ptr(void *pointer);

#ifdef __cplusplus
} /* extern "C" */

namespace accel {
/* Makes the device, or the stream and its device, current until the end of its scope. */
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
