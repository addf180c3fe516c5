/* The contract between the allocator and a device: all that the allocator may ask for.
 *
 * The allocator knows addresses, contexts and fences as opaque values and never
 * dereferences device memory.  Every function may be called by several threads at a time,
 * with no allocator lock held (they may block for milliseconds and synchronise the device).  None
 * is a point where a thread is cancelled: it may have taken something out of a list.
 * `context` is what the arena was created with. */
#ifndef AC_DEVICE_H
#define AC_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* For variables that every call looks at: found without the global offset table. */
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
    AC_BAD_ADDRESS  /* an address inside our segments where no block is allocated */
} ac_status_t;

/* What a device can do with pages. */
typedef struct {
    uint64_t granularity; /* bytes: pages are multiples of it */
    uint64_t memory;      /* bytes of the device */
} ac_range_support_t;

typedef struct {
    /* Get `bytes` (a multiple of AC_SEGMENT_ALIGN).  AC_OK sets *address, which is a multiple
     * of AC_SEGMENT_ALIGN.  AC_OOM, AC_BUSY (a capture forbids it) or AC_FAILED leave it unset.
     */
    ac_status_t (*segment_alloc)(void *context, uint64_t bytes, uint64_t *address);

    /* The same for a request that the driver would serve beside any capture: none is spoilt. */
    ac_status_t (*segment_alloc_aside)(void *context, uint64_t bytes, uint64_t *address);

    /* Give a segment of `bytes` back.  All work on it has completed; the call may block until all other work
     * of the device has, too.  AC_OK; AC_BUSY while the context captures, but in `beside`: it is still
     * there. */
    ac_status_t (*segment_free)(void *context, uint64_t address, uint64_t bytes);

    /* Bytes that the device could give now.  AC_OK sets *bytes; AC_UNSUPPORTED, AC_FAILED: it
     * does not say. */
    ac_status_t (*memory_free)(void *context, uint64_t *bytes);

    /* Begin a fence: done when everything submitted to the context before this call has
     * completed; with `unseen`, also what was submitted without a call to this library.  AC_OK
     * sets *fence.  AC_BUSY while the context captures; AC_UNSUPPORTED where only `synchronize` can
     * tell; AC_FAILED: the context is broken. */
    ac_status_t (*fence_record)(void *context, bool unseen, void **fence);

    /* AC_OK: completed.  AC_BUSY: not yet (or not to be asked: a capture, but in `beside`).
     * AC_FAILED: the context is broken.  The fence stays valid. */
    ac_status_t (*fence_query)(void *context, void *fence);

    /* Block until the fence has completed, for `limit_ns` at the most (0: for ever): AC_OK;
     * AC_BUSY when that has passed, or while the context captures, but in `beside`; AC_FAILED.  The
     * fence stays valid. */
    ac_status_t (*fence_wait)(void *context, void *fence, uint64_t limit_ns);

    /* Forget a fence that was recorded; done or not. */
    void (*fence_release)(void *context, void *fence);

    /* Streams are named by keys of at most 48 bits (ac_cuda_stream_key, ac_stream_is_own); 0 is
     * none. */

    /* Begin a fence that is done when all that `stream` was given has completed: AC_OK sets *fence,
     * which ends by fence_release; AC_BUSY while the context captures; AC_UNSUPPORTED, AC_FAILED. */
    ac_status_t (*join_record)(void *context, uint64_t stream, void **fence);

    /* Whether such fences can be recorded at all.  Cheap; no device call.  NULL: they can. */
    bool (*join_events)(void *context);

    /* No block in what the driver has allocated around `address` asks for SYNC_MEMOPS any more: set
     * it back.  NULL: the device does not know it. */
    void (*sync_memops_off)(void *context, uint64_t address);

    /* Make `stream` wait on the device for such a fence, the host where `stream` is 0; while a
     * capture goes on, too.  AC_OK; AC_BUSY: the stream captures; AC_FAILED. */
    ac_status_t (*join_wait)(void *context, void *fence, uint64_t stream);

    /* Returns true if the context captures: no fence can be recorded there; with `any`, if any context
     * does.  Cheap; no device call. */
    bool (*capturing)(void *context, bool any);

    /* Call `work`.  While it runs, captures do not keep its thread from giving memory back and from
     * asking about fences.  `until` 0: it runs in this thread.  Else it runs in a thread of its own,
     * because the device may block it; this call returns when it has ended, or at `until` (now_ns), but
     * not before a tenth of a second.
     * False: it did not run, or has not ended and may use `arg` later. */
    bool (*beside)(void *context, void (*work)(void *arg), void *arg, uint64_t until);

    /* Wait for all work of the context, for about `limit_ns` (0: for ever).  AC_OK; AC_BUSY when
     * that has passed, or while the context captures; AC_FAILED.  With a limit work that is
     * submitted meanwhile may be waited for as well; where events tell that the context is idle
     * the wait may last a tenth of a second, however short the limit. */
    ac_status_t (*synchronize)(void *context, uint64_t limit_ns);

    /* What is submitted to stream `to` from now on comes after all that stream `from` was given
     * before (keys).  AC_OK; AC_BUSY while the context captures; AC_UNSUPPORTED; AC_FAILED: no order
     * was made. */
    ac_status_t (*stream_order)(void *context, uint64_t from, uint64_t to);

    /* Put something into the stream that comes after all that the stream comes after now. Answers
     * as above. */
    ac_status_t (*stream_touch)(void *context, uint64_t stream);

    /* --- memory in pages: address ranges to which physical memory is mapped ---
     *
     * Ranges and pages belong to the device: they outlive the context, and what takes them down
     * (pages_unmap, page_release, range_release) also works when that has gone.  NULL, all of
     * them, where a device has none. */

    /* AC_OK sets *support; AC_UNSUPPORTED. */
    ac_status_t (*range_support)(void *context, ac_range_support_t *support);

    /* Reserve addresses, multiples of AC_SEGMENT_ALIGN.  AC_OK; AC_OOM: not that many. */
    ac_status_t (*range_reserve)(void *context, uint64_t bytes, uint64_t *address);

    /* Give a range back, which has no page any more. */
    ac_status_t (*range_release)(void *context, uint64_t address, uint64_t bytes);

    /* A page of physical memory, a multiple of the granularity.  AC_OK sets *page, which is not
     * 0; AC_OOM; AC_FAILED. */
    ac_status_t (*page_create)(void *context, uint64_t bytes, uint64_t *page);

    /* Its mappings, if any are left, keep the memory. */
    ac_status_t (*page_release)(void *context, uint64_t page);

    /* Lay the page over `bytes` at `address`, where nothing is mapped. It cannot be used before
     * pages_allow.  AC_OK, AC_OOM, AC_FAILED: it is not mapped. */
    ac_status_t (*page_map)(void *context, uint64_t address, uint64_t bytes, uint64_t page);

    /* Let the device, and all that may reach its memory, use whole pages side by side.  AC_OK;
     * AC_OOM, AC_FAILED: no device may. */
    ac_status_t (*pages_allow)(void *context, uint64_t address, uint64_t bytes);

    /* Take whole pages side by side away; all work on them has completed, and the call may block
     * as segment_free does.  The pages stay.  AC_OK; AC_BUSY while the context captures, but in `beside`,
     * AC_FAILED: all are still there. */
    ac_status_t (*pages_unmap)(void *context, uint64_t address, uint64_t bytes);

    /* --- contents, for guarded blocks (allocator/space/guard_place.h); NULL: the device does not know
     * these --- */

    /* Write `byte` over memory that no work uses, and wait until it is there, for nothing else, a second
     * at the most.  AC_OK; AC_BUSY while the context captures, or when that has passed: it may yet be
     * written, and the memory must stay until fills_over; AC_FAILED. */
    ac_status_t (*memory_fill)(void *context, uint64_t address, uint64_t bytes, uint8_t byte);

    /* Whether no fill is under way that was not waited for to the end.  Waits a moment at the most. */
    bool (*fills_over)(void *context);

    /* Where in at most 4 KiB of memory that no work uses the first other byte is: AC_OK sets *first to
     * its offset, `bytes`: there is none.  Answers as above. */
    ac_status_t (*memory_differs)(void *context, uint64_t address, uint64_t bytes, uint8_t byte,
                                  uint64_t *first);

    /* Monotonic time in nanoseconds, as CLOCK_MONOTONIC has it: waits end by it. */
    uint64_t (*now_ns)(void);
} ac_device_ops_t;

/* Whether the key is that of a thread's own default stream, which no other thread can name. */
static inline bool ac_stream_is_own(uint64_t key) {
    return (key & 3) == 2;
}

#endif
