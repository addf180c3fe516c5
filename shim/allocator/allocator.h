/* The allocator: one per device, with an arena per context.
 *
 * Pure C11: device, time and statistics are parameters; no CUDA, no environment, no I/O.  Small requests
 * (<= the small limit) are served from segments of AC_SMALL_SEGMENT bytes, all others from large segments
 * that grow with the reserved bytes.  Blocks are split and coalesced at once, at AC_GRANULE.
 *
 * A freed block is handed out again when no work from before its free can touch it any more, or when that
 * work comes first in every stream that may use the block: see ticket.h and sole.h.
 *
 * Locks: one mutex per allocator guards all its arenas, segments, blocks, statistics and the page-map
 * slots of its segments.  It is never held over a device call, nor together with another allocator's; a
 * timeline's lock may be taken inside it.  All functions are thread-safe unless they say otherwise, and
 * take the lock themselves. */
#ifndef AC_ALLOCATOR_H
#define AC_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/order/fence.h"
#include "allocator/order/order.h"
#include "allocator/settings.h"
#include "allocator/space/block.h"
#include "allocator/space/lifetime.h"
#include "allocator/space/mempool.h"
#include "allocator/supply/pages.h"
#include "config/config.h"
#include "device/device.h"
#include "observe/held.h"
#include "observe/layout.h"
#include "observe/stats.h"

struct timespec;

/* The settings that a configuration gives a device with `total_memory` bytes. */
ac_settings_t ac_settings_from(const ac_config_t *config, uint64_t total_memory);

/* Creates an allocator that counts into *stats and *counters (borrowed, zero at first).  NULL if host
 * memory is short. */
ac_allocator_t *ac_allocator_create(const ac_settings_t *settings, ac_device_stats_t *stats,
                                    ac_device_counters_t *counters);

/* Notes events of the allocator's memory in the history from now on (observe/history.h). */
struct ac_history;
void ac_allocator_record(ac_allocator_t *allocator, struct ac_history *history);

void ac_allocator_configure(ac_allocator_t *allocator, const ac_settings_t *settings);

/* Takes back all that threads keep.  All figures then show what threads took without the lock before. */
void ac_allocator_recall(ac_allocator_t *allocator);

/* Creates an arena for a new context; NULL if host memory or timelines are short. */
ac_arena_t *ac_arena_create(ac_allocator_t *allocator, const ac_device_ops_t *ops, void *context);

/* Forgets all segments without freeing them, after the context and its memory have gone.  The arena must
 * not be used afterwards; its record stays readable. */
void ac_arena_drop(ac_arena_t *arena);

/* Returns true if nothing is left of an arena that was dropped and no call of the device for it is under
 * way.  It may then serve another context, at the same pointer, from _again on, which fails as _create
 * does. */
bool ac_arena_is_over(ac_arena_t *arena);
bool ac_arena_again(ac_arena_t *arena);

/* Called before a context is destroyed.  Waits for other contexts' pending work on memory of this context
 * that the program freed, for at most `limit_ns`, and at most one second for work that the program may
 * hold back. */
void ac_arena_quiesce(ac_arena_t *arena, uint64_t limit_ns);

/* Waits like ac_arena_quiesce until all contexts reach `target`. */
void ac_arena_await(ac_arena_t *arena, uint64_t target, uint64_t limit_ns);

ac_timeline_t *ac_arena_timeline(ac_arena_t *arena);
ac_allocator_t *ac_arena_allocator(ac_arena_t *arena);
void *ac_arena_context(ac_arena_t *arena); /* the `context` that it was created with */

/* How hard to try.  ALL: the whole ladder.  CACHED: free memory only, no device call; AC_BUSY if nothing
 * fits.  QUIETLY: the whole ladder, but a failure does not count as an out-of-memory event. */
typedef enum { AC_ASK_ALL, AC_ASK_CACHED, AC_ASK_QUIETLY } ac_ask_t;

/* Serves a request of the calling thread from elsewhere; NULL: nothing does.  Called without a lock before a
 * request waits for work.  True: it did, and the request ends with AC_OOM, which does not count. */
extern AC_HIDDEN bool (*_Atomic ac_serve_elsewhere)(void);

/* Allocates `bytes` (> 0).  AC_OK sets *address (a multiple of AC_GRANULE).  AC_OOM: out of memory even
 * after giving back and waiting.  AC_BUSY: the context captures and nothing fits.  AC_FAILED: the device
 * failed. */
ac_status_t ac_arena_alloc(ac_arena_t *arena, uint64_t bytes, ac_ask_t how,
                           uint64_t *address);

/* Allocates `bytes` and charges the block to `module`, an index into the table of stats.h.
 * ac_arena_alloc: to the module that is not known. */
ac_status_t ac_arena_alloc_for(ac_arena_t *arena, unsigned module, uint64_t bytes,
                               ac_ask_t how, uint64_t *address);

/* Allocates for a stream from the memory pool with that number (space/mempool.h).  The caller has made
 * sure that the stream is one of the arena's context, and has claimed the bytes if the pool has a limit.
 * _alloc_on: from the first pool, for a module that is not known. */
ac_status_t ac_arena_alloc_from(ac_arena_t *arena, unsigned module, unsigned mempool,
                                ac_stream_t stream, uint64_t bytes, ac_ask_t how,
                                uint64_t *address);
ac_status_t ac_arena_alloc_on(ac_arena_t *arena, ac_stream_t stream, uint64_t bytes,
                              ac_ask_t how, uint64_t *address);

/* Allocates on pages of their own (space/guard_place.h), for a stream, or with NULL for a plain request.
 * Any answer but AC_GUARD_SERVED leaves *address unset, and another request may serve.  Calls the device. */
ac_guard_answer_t ac_arena_alloc_guarded(ac_arena_t *arena, unsigned module, unsigned mempool,
                                         const ac_stream_t *stream, uint64_t bytes,
                                         uint64_t *address);

/* Notes that `module` is about to free the block at `address`; guarded blocks remember it. */
void ac_guard_freeing(uint64_t address, unsigned module);

/* Called when the program has synchronised the context: unmaps pages of freed guarded blocks if the
 * device is idle.  If another thread is unmapping them, waits half a second at most. */
void ac_guard_settle(ac_arena_t *arena);

/* Allocates for the cache's owner, hit or not (cache/thread_cache.h), for the module of ac_cache_ask_for. */
ac_status_t ac_cache_alloc(ac_cache_t *cache, uint64_t bytes, ac_ask_t how,
                           uint64_t *address);

/* Allocates from free memory alone, after ac_cache_take failed.  Returns the address; 0 if there is none.
 * _ready: after _fetch found none, also from memory that the device is done with; asks the device and
 * does not wait. */
uint64_t ac_cache_fetch(ac_cache_t *cache, uint64_t bytes);
uint64_t ac_cache_fetch_ready(ac_cache_t *cache, uint64_t bytes);

/* Frees the block at `address`, of any allocator.  AC_OK; AC_NOT_OURS; AC_BAD_ADDRESS (inside our
 * segments, but no allocated block starts there); AC_FAILED: host memory is short, and its work does not
 * end. */
ac_status_t ac_block_free(uint64_t address);

/* Frees the block in the order of `stream`, a stream of the context of `arena`.  The block may be another
 * context's.  Earlier work of the stream counts as submitted to that context. */
ac_status_t ac_block_free_on(ac_arena_t *arena, ac_stream_t stream, uint64_t address);

/* Frees the block for the cache's owner, hit or not; _missed: ac_cache_give did not keep it. */
ac_status_t ac_cache_free(ac_cache_t *cache, uint64_t address);
ac_status_t ac_cache_free_missed(ac_cache_t *cache, uint64_t address);

/* A block as others see it. */
typedef struct {
    ac_arena_t *arena;
    uint64_t address, size, requested; /* bytes */
    uint64_t segment_address, segment_size;
    bool allocated;                  /* false: freed or never handed out */
    bool async;                      /* by a request that named a stream ... */
    uint8_t module;                  /* module that asked for it; of a free block the last one, if known */
    uint8_t mempool;                 /* ... of this memory pool (space/mempool.h); 0 */
    bool paged;                      /* on pages of an expandable segment */
    uint64_t pages_begin, pages_end; /* allocated, and on pages: addresses */
    /* lifetime.h; allocated: serial 0: others know nothing of it */
    uint64_t serial, exported;
    bool sync;
} ac_block_info_t;

/* Describes the block around an address inside one of our segments in *info, and returns AC_OK; else
 * AC_NOT_OURS. */
ac_status_t ac_block_find(uint64_t address, ac_block_info_t *info);

/* Tells if the program may copy from or to these bytes (> 0): they lie in a block that it holds, up to
 * the end of its last granule, or in one that it freed in the order of a stream while the context's work
 * is not known to be over.  AC_OK sets *found to the block's record, for ac_block_has; NULL if it has
 * none that lasts.  Else AC_BAD_ADDRESS or AC_NOT_OURS. */
ac_status_t ac_block_reaches(uint64_t address, uint64_t bytes, const ac_block_t **found);

/* Answers ac_block_reaches without a lock, for the common case: true if the bytes lie in a block that
 * begins at `address`. */
bool ac_block_starts(uint64_t address, uint64_t bytes, const ac_block_t **found);

/* Returns the arena that owns the page of `address`, or NULL; cheaper than ac_block_find. */
ac_arena_t *ac_block_arena(uint64_t address);

/* Notes that the block at `address` is known outside by its segment: the segment serves no other request
 * from now on and goes back to the driver when its last block is freed.  Returns AC_OK (also when it was
 * so before), AC_NOT_OURS or AC_BAD_ADDRESS.  *fresh: it was not so before. */
ac_status_t ac_block_taint(uint64_t address, bool *fresh);

/* Takes the segment around `address` out of service, as ac_block_taint does, whatever lies there: the
 * driver was told about a block that another thread may have freed meanwhile.  AC_BAD_ADDRESS: the
 * address is on pages. */
ac_status_t ac_address_taint(uint64_t address, bool *fresh);

/* Takes back one AC_OK of _taint: its reason has gone, and others do not know the segment by it.  After
 * the last one the segment serves again, if the block fills it and was not freed meanwhile. */
void ac_block_untaint(uint64_t address);

/* Makes the free of the block at `address` take the allocator's lock: no cache takes the block.  Called
 * by its only holder, before others learn of the block. */
void ac_block_keep_apart(uint64_t address);

/* Called before others learn of the block at `address`.  *serial names its lifetime (space/lifetime.h),
 * the same at each call and no other block's.  Its pages, if any, never move from now on.  Returns AC_OK,
 * AC_NOT_OURS or AC_BAD_ADDRESS; AC_OOM if host memory is short, or if a thread that may be freeing the
 * block did not go on for half a second. */
ac_status_t ac_block_identify(uint64_t address, uint64_t *serial);

/* Other processes get to know it: ac_block_info_t shows `exported` (not 0) from now on, and
 * ac_lifetime_notify is called with it, now and at the block's free.  AC_OK; AC_BAD_ADDRESS: its
 * lifetime is not `serial`, and nothing was called; AC_NOT_OURS.  Called for a block that is
 * exported already it changes nothing: AC_BUSY. */
ac_status_t ac_block_export(uint64_t address, uint64_t serial, uint64_t exported);

/* Pages of a block that a thread shows to an importer: they stay mapped until they are returned. */
enum { AC_SHOWN_PAGES = 128 };
typedef struct {
    ac_arena_t *arena;
    void *range;
    uint64_t from;  /* address of the first block that an importer is being shown */
    unsigned count; /* number of pages, one behind the other */
    struct {
        uint64_t page, bytes;
    } at[AC_SHOWN_PAGES];
} ac_shown_pages_t;

/* Keeps pages of the block at `address` for an importer, from `from` bytes behind the first page's begin
 * on, as many as *shown has room for.  Returns AC_OK; AC_BAD_ADDRESS or AC_NOT_OURS if its lifetime is not
 * `serial` or not exported, if it is not on pages, or if no page begins there.  One thread at a time;
 * _return gives back what _show filled in. */
ac_status_t ac_pages_show(uint64_t address, uint64_t serial, uint64_t from, ac_shown_pages_t *shown);
void ac_pages_return(const ac_shown_pages_t *shown);

/* Changes SYNC_MEMOPS of the block at `address` for the program.  `set` tells the driver, without a lock:
 * once for each allocation of the driver that the block lies in, with the value that one of its addresses
 * has to have from now on.  The value is `on` if another block of the allocation asked for it.  Changes
 * take turns; a wait for a turn ends after a second.  The setting ends with the block's free.  Returns
 * AC_OK; AC_FAILED if `set` returned false, and then nothing has changed; AC_NOT_OURS, AC_BAD_ADDRESS,
 * AC_OOM if it was not called. */
typedef bool ac_sync_set_fn(void *arg, uint64_t address, bool on);
ac_status_t ac_block_sync(uint64_t address, bool on, ac_sync_set_fn *set, void *arg);

/* Keeps others' knowledge of the block's memory true: its pages, if any, never move.  Answers like
 * ac_block_taint. */
ac_status_t ac_block_pin(uint64_t address);

/* Notes that others learn memory on pages by its address, as ac_block_identify and _pin do for a block.
 * With expandable_segments:auto native segments serve from now on. */
void ac_allocator_is_shared(ac_allocator_t *allocator);

/* Charges the block at `address` to the module.  AC_OK; AC_NOT_OURS, AC_BAD_ADDRESS; AC_OOM: host memory
 * is short, and nothing has changed. */
ac_status_t ac_block_attribute(uint64_t address, unsigned module);

/* Makes every later free of the block wait for a fence, as if work on it had been seen. */
ac_status_t ac_block_mark_used(uint64_t address);

/* Begins a new memory pool with that number (mempools.c): marks and settings start again; blocks that are
 * still held go on counting. */
void ac_mempool_open(ac_allocator_t *allocator, unsigned number, uint64_t threshold,
                     uint64_t limit);

void ac_mempool_figures(ac_allocator_t *allocator, unsigned number, ac_mempool_t *figures);
uint64_t ac_mempool_reset(ac_allocator_t *allocator, unsigned number, ac_mark_t mark);
void ac_mempool_keep(ac_allocator_t *allocator, unsigned number, uint64_t threshold);

/* Trims the pool to `least` bytes for the program: the pool keeps no reserve beyond them, and idle memory
 * that no pool has reserved goes back to the device.  Does not wait. */
void ac_mempool_trim(ac_allocator_t *allocator, unsigned number, uint64_t least);

/* Claims `bytes` in a pool with a limit for a request under way, until it is served or _unclaim.  Returns
 * false if the pool, with `other` bytes that the driver holds for it, would exceed the limit. */
bool ac_mempool_claim(ac_allocator_t *allocator, unsigned number, uint64_t bytes, uint64_t other);
void ac_mempool_unclaim(ac_allocator_t *allocator, unsigned number, uint64_t bytes);

/* Gives back idle segments of all arenas, if all work of the process is over.  With `wait`, waits for
 * that first, for oom_wait at most (counted as num_sync_all_streams), and at the end for memory that
 * other threads are giving back, for half a second at most.  If work is not over, a trim stays pending.
 * Returns the bytes that the caller gave back. */
uint64_t ac_allocator_trim(ac_allocator_t *allocator, bool wait);

/* Trims, with a wait, for a call of the driver that answered "out of memory" and takes `need` bytes of
 * the device (0: not known).  Does nothing if these bytes are not what it lacks, or if idle memory would
 * not make room for them.  The call may also lack them if the host has no more than `host_left` for the
 * device (ac_cuda_host_left); AC_UNLIMITED: no bound.  First waits for memory that other threads are
 * giving back. */
uint64_t ac_allocator_trim_for(ac_allocator_t *allocator, uint64_t need, uint64_t host_left);

/* Gives back the addresses of ranges that hold no memory.  Returns bytes. */
uint64_t ac_allocator_trim_addresses(ac_allocator_t *allocator);

/* Called once in each interval of the caller's: gives back the segments that were idle for `epochs` whole
 * intervals, and the whole pages of free memory without a free for as long.  (These epochs are not those
 * of fence.h.)  Waits for nothing.  Returns bytes given back. */
uint64_t ac_allocator_decay(ac_allocator_t *allocator, uint32_t epochs);

/* Does a pending trim (ac_trim_pending, supply/pages.h), if that waits for nothing.  Returns false if a trim
 * stays pending, or may be by the next call: the budget of pages is larger than usual. */
bool ac_allocator_settle_debt(ac_allocator_t *allocator);

/* Returns the bytes that a trim could give back: segments and whole pages without a block of the program
 * or of a captured graph.  Threads keep their caches. */
uint64_t ac_allocator_idle_bytes(ac_allocator_t *allocator);

/* Returns the bytes of all segments and pages that neither the program nor a graph holds, also of free
 * memory next to blocks. */
uint64_t ac_allocator_unused_bytes(ac_allocator_t *allocator);

/* Free memory after a request has failed.  `kept`: bytes that would have gone back, but for work that
 * may use them.  `movable`: bytes next to blocks that the program holds which pages of `page` bytes could
 * bring to the request, wherever the pages began; 0 if the device has no pages. */
typedef struct {
    uint64_t kept, movable;
} ac_free_bytes_t;
ac_free_bytes_t ac_allocator_free_bytes(ac_allocator_t *allocator, uint64_t page);

/* Counts a request that failed without being made: it asks for more than the device has. */
void ac_allocator_count_oom(ac_allocator_t *allocator);

/* Called before the driver is asked for `bytes` of the device past the allocator.  Returns false if the
 * limit forbids them.  Waits a tenth of a second at most for other calls of this kind.  _claimed: the
 * call has ended, and its result is recorded. */
bool ac_allocator_claim(ac_allocator_t *allocator, uint64_t bytes);
void ac_allocator_claimed(ac_allocator_t *allocator, uint64_t bytes);

/* Adds `change` to memory that the program holds past the allocator.  `figure`: the offset of its counter
 * in ac_device_counters_t; the limit counts the figures that ac_supply_limit names. */
void ac_allocator_hold(ac_allocator_t *allocator, size_t figure, int64_t change);

/* A part of that figure which the library learns by asking the driver: `bytes` as the question with
 * number `look` found them.  An answer to a question that began before the last recorded one changes
 * nothing. */
typedef struct {
    uint64_t bytes, look; /* under the allocator's lock */
} ac_allocator_sum_t;
void ac_allocator_hold_now(ac_allocator_t *allocator, size_t figure, ac_allocator_sum_t *part,
                           uint64_t look, uint64_t bytes);

/* Returns the bytes that may still be reserved below the limit; AC_UNLIMITED without one. */
uint64_t ac_allocator_room(ac_allocator_t *allocator);

/* Returns the bytes that may be reserved; AC_UNLIMITED. */
uint64_t ac_allocator_limit(ac_allocator_t *allocator);

/* Sets *bytes to the free memory of the device, by a device call.  Returns false if the device does not
 * tell. */
bool ac_allocator_available(ac_allocator_t *allocator, uint64_t *bytes);

/* Calls `visit` for each block that the program holds.  Does not wait for threads that take and free
 * without the lock.  Returns false if it could not take the lock before `deadline` (CLOCK_REALTIME). */
bool ac_allocator_held(ac_allocator_t *allocator, const struct timespec *deadline,
                       ac_held_visit_fn *visit, void *arg);

/* Takes memory out of the active figures if its work is known to be over; called after the program
 * synchronised, because other processes read these figures directly.  Functions that read the statistics
 * call it themselves.  No device call. */
void ac_allocator_settle(ac_allocator_t *allocator);

void ac_allocator_reset_peak(ac_allocator_t *allocator);
void ac_allocator_reset_accumulated(ac_allocator_t *allocator);

/* Reads the statistics under the lock; `modules` lacks the share that caches of threads hold. */
void ac_allocator_stats(ac_allocator_t *allocator, ac_device_stats_t *stats);

/* Reads the statistics.  If all work is known to be over, freed memory that caches of threads keep for it leaves them
 * before, so that it does not count as active. */
void ac_allocator_stats_settled(ac_allocator_t *allocator, ac_device_stats_t *stats);

/* Reads statistics and counters of one moment, with a deadline (CLOCK_REALTIME) for taking the lock;
 * false if it passed. */
bool ac_allocator_figures(ac_allocator_t *allocator, const struct timespec *deadline,
                          ac_device_stats_t *stats, ac_device_counters_t *counters);

/* Copies segments and blocks into the layout, in which the caller has made room.  Returns false if the
 * room is short, and `segments` and `blocks` say how much there is; or if the lock could not be taken
 * before `deadline` (CLOCK_REALTIME), and both are 0. */
bool ac_allocator_lay_out(ac_allocator_t *allocator, const struct timespec *deadline,
                          ac_layout_t *layout);

/* Returns nonzero if an invariant of block.h does not hold, or a `current` statistic differs from the sum
 * over blocks; `why` gets a word.  Sets `why` and returns 0 if it could not look at anything. */
int ac_allocator_check(ac_allocator_t *allocator, const char **why);

/* Called when the last graph of the capture session has gone: its blocks wait for a fence, as if they
 * were freed now. */
void ac_allocator_release(ac_allocator_t *allocator, uint64_t session);

#endif
