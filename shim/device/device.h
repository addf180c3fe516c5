/* The contract between the allocator and a device.
 *
 * Addresses, contexts and fences are opaque to the allocator, and it never dereferences device memory.
 * Several threads may call every function, without the allocator's lock: a call may block for
 * milliseconds and synchronise the device.  No function is a cancellation point, since the thread may
 * have taken something out of a list.  `context` is the context of the arena.
 *
 * "Capture" in an answer: AC_BUSY while the context captures, unless the call runs in `beside`. */
#ifndef AC_DEVICE_H
#define AC_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* For variables that every call reads: found without the global offset table. */
#define AC_HIDDEN __attribute__((visibility("hidden")))

/* Segments start and end at multiples of this: 2 MiB, the device's large page. */
enum { AC_PAGE_BITS = 21 };
#define AC_SEGMENT_ALIGN ((uint64_t)1 << AC_PAGE_BITS)

typedef enum {
    AC_OK = 0,
    AC_OOM,         /* the device has not enough memory: giving some back may help */
    AC_BUSY,        /* not now: work is pending, or a stream of the context captures */
    AC_UNSUPPORTED, /* this device cannot do that */
    AC_FAILED,      /* the context is broken, or host memory is short: leave it to the driver */
    AC_NOT_OURS,    /* an address outside our segments */
    AC_BAD_ADDRESS  /* an address inside our segments, in no allocated block */
} ac_status_t;

/* Support of a device for pages. */
typedef struct {
    uint64_t granularity; /* bytes: pages are multiples of it */
    uint64_t memory;      /* bytes of the device */
} ac_range_support_t;

typedef struct {
    /* Gets `bytes`, a multiple of AC_SEGMENT_ALIGN.  AC_OK sets *address, a multiple of AC_SEGMENT_ALIGN.
     * AC_OOM, AC_BUSY (a capture forbids it) and AC_FAILED leave it unset. */
    ac_status_t (*segment_alloc)(void *context, uint64_t bytes, uint64_t *address);

    /* Gets a segment like segment_alloc, for a request that the driver would serve during any capture.  No
     * capture is spoilt. */
    ac_status_t (*segment_alloc_aside)(void *context, uint64_t bytes, uint64_t *address);

    /* Returns a segment of `bytes`.  Pre: all work on it is over.  May block until all work of the device is
     * over.  AC_OK; capture: the segment is still there. */
    ac_status_t (*segment_free)(void *context, uint64_t address, uint64_t bytes);

    /* Reads the bytes that the device could give.  AC_OK sets *bytes; AC_UNSUPPORTED, AC_FAILED: not known. */
    ac_status_t (*memory_free)(void *context, uint64_t *bytes);

    /* Begins a fence: it is done when all work submitted to the context before this call is over; with
     * `unseen`, also work submitted without a call to this library.  AC_OK sets *fence.  AC_BUSY while the
     * context captures; AC_UNSUPPORTED if only `synchronize` can tell; AC_FAILED: the context is broken. */
    ac_status_t (*fence_record)(void *context, bool unseen, void **fence);

    /* Asks whether a fence is done: AC_OK if it is, AC_BUSY if not; capture; AC_FAILED: the context is broken.
     * The fence stays valid. */
    ac_status_t (*fence_query)(void *context, void *fence);

    /* Waits for the fence, `limit_ns` at most (0: without limit).  AC_OK; AC_BUSY after that time; capture;
     * AC_FAILED.  The fence stays valid. */
    ac_status_t (*fence_wait)(void *context, void *fence, uint64_t limit_ns);

    /* Forgets a recorded fence, done or not. */
    void (*fence_release)(void *context, void *fence);

    /* Streams are named by keys of at most 48 bits (ac_cuda_stream_key, ac_stream_is_own); 0 is
     * none. */

    /* Begins a fence behind all work of `stream`, for fence_release.  AC_OK sets *fence; AC_BUSY while the
     * context captures; AC_UNSUPPORTED; AC_FAILED. */
    ac_status_t (*join_record)(void *context, uint64_t stream, void **fence);

    /* Returns true if join_record can work.  Cheap; no device call.  NULL: it can. */
    bool (*join_events)(void *context);

    /* Clears SYNC_MEMOPS of the driver's allocation around `address`, when its last block with it is freed.
     * NULL: the device does not know it. */
    void (*sync_memops_off)(void *context, uint64_t address);

    /* Makes `stream` wait on the device for a fence of join_record; the host waits if `stream` is 0.  Works
     * during captures.  AC_OK; AC_BUSY: the stream captures; AC_FAILED. */
    ac_status_t (*join_wait)(void *context, void *fence, uint64_t stream);

    /* Returns true if the context captures: no fence can be recorded there; with `any`, if any context
     * does.  Cheap; no device call. */
    bool (*capturing)(void *context, bool any);

    /* Calls `work`, which may return memory and query fences during captures.  `until` 0: it runs in this
     * thread.  A later `until` gives it a thread of its own, since the device may block it: the call
     * returns at its end, or at `until` (now_ns), but not within a tenth of a second.  Returns false if
     * `work` did not run, or has not ended and may use `arg` later. */
    bool (*beside)(void *context, void (*work)(void *arg), void *arg, uint64_t until);

    /* Waits for all work of the context, for about `limit_ns` (0: without limit).  AC_OK; AC_BUSY after that
     * time, or while the context captures; AC_FAILED.  With a limit it may also wait for work submitted
     * meanwhile.  If events say that the context is idle, it may take a tenth of a second, even with a
     * shorter limit. */
    ac_status_t (*synchronize)(void *context, uint64_t limit_ns);

    /* Orders later work of stream `to` behind all earlier work of stream `from` (keys).  AC_OK; AC_BUSY while
     * the context captures; AC_UNSUPPORTED; AC_FAILED: no order was made. */
    ac_status_t (*stream_order)(void *context, uint64_t from, uint64_t to);

    /* Puts an operation into the stream, behind all work that the stream waits for.  Answers as of
     * stream_order. */
    ac_status_t (*stream_touch)(void *context, uint64_t stream);

    /* --- memory in pages: address ranges to which physical memory is mapped ---
     *
     * Ranges and pages belong to the device and outlive the context: pages_unmap, page_release and
     * range_release work without it.  All are NULL if a device has no pages. */

    /* Reads the support for pages.  AC_OK sets *support; AC_UNSUPPORTED. */
    ac_status_t (*range_support)(void *context, ac_range_support_t *support);

    /* Reserves addresses, multiples of AC_SEGMENT_ALIGN.  AC_OK; AC_OOM: there are not enough. */
    ac_status_t (*range_reserve)(void *context, uint64_t bytes, uint64_t *address);

    /* Returns a range without pages. */
    ac_status_t (*range_release)(void *context, uint64_t address, uint64_t bytes);

    /* Makes a page of physical memory, a multiple of the granularity.  AC_OK sets *page, which is not
     * 0; AC_OOM; AC_FAILED. */
    ac_status_t (*page_create)(void *context, uint64_t bytes, uint64_t *page);

    /* Releases a page.  Remaining mappings keep its memory. */
    ac_status_t (*page_release)(void *context, uint64_t page);

    /* Maps the page over `bytes` at `address`, which must be unmapped.  No device may use it before
     * pages_allow.  AC_OK; AC_OOM, AC_FAILED: it is not mapped. */
    ac_status_t (*page_map)(void *context, uint64_t address, uint64_t bytes, uint64_t page);

    /* Lets the device and its peers use adjacent whole pages.  AC_OK; AC_OOM, AC_FAILED: no device may. */
    ac_status_t (*pages_allow)(void *context, uint64_t address, uint64_t bytes);

    /* Unmaps adjacent whole pages.  Pre: all work on them is over.  May block like segment_free.  The pages
     * stay.  AC_OK; capture, AC_FAILED: all are still mapped. */
    ac_status_t (*pages_unmap)(void *context, uint64_t address, uint64_t bytes);

    /* --- contents, for guarded blocks (allocator/space/guard_place.h); NULL: the device does not know
     * these --- */

    /* Writes `byte` over memory that no work uses, and waits for this write alone, a second at most.  AC_OK;
     * AC_BUSY while the context captures, or after that second: the write may come later, and the memory must
     * stay until fills_over; AC_FAILED. */
    ac_status_t (*memory_fill)(void *context, uint64_t address, uint64_t bytes, uint8_t byte);

    /* Returns true if all fills are over.  Waits a moment at most. */
    bool (*fills_over)(void *context);

    /* Finds the first byte other than `byte` in at most 4 KiB of memory that no work uses.  AC_OK sets *first
     * to its offset, or to `bytes` if there is none.  Errors as of memory_fill. */
    ac_status_t (*memory_differs)(void *context, uint64_t address, uint64_t bytes, uint8_t byte,
                                  uint64_t *first);

    /* Returns the time of CLOCK_MONOTONIC in nanoseconds, for limits of waits. */
    uint64_t (*now_ns)(void);
} ac_device_ops_t;

/* Returns true if the key is a thread's own default stream, which no other thread can name. */
static inline bool ac_stream_is_own(uint64_t key) {
    return (key & 3) == 2;
}

#endif
