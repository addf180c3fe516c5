/* The allocator: one per device, with an arena per context.  Pure C11: device, time and
 * statistics are parameters; no CUDA, no environment, no I/O.
 *
 * Small requests (<= the small limit) are served from segments of AC_SMALL_SEGMENT bytes, all
 * others from large segments that grow with what is reserved.  Blocks are split and coalesced
 * at once, at AC_GRANULE.  A freed block is handed out again when no work from before its free can
 * touch it any more, or when that work comes first in every stream that may use it: see ticket.h
 * and sole.h.
 *
 * Locks: one mutex per allocator guards all its arenas, segments, blocks, statistics and the
 * page-map slots of its segments.  It is never held over a device call, nor together with
 * another allocator's; a timeline's lock may be taken inside it.  All functions are
 * thread-safe unless they say otherwise, and take the lock themselves. */
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

/* What a configuration asks for on a device with `total_memory` bytes. */
ac_settings_t ac_settings_from(const ac_config_t *config, uint64_t total_memory);

/* A new allocator that counts into *stats and *counters (borrowed, zero at first).  NULL when
 * host memory is short. */
ac_allocator_t *ac_allocator_create(const ac_settings_t *settings, ac_device_stats_t *stats,
                                    ac_device_counters_t *counters);

/* Events of its memory are noted there from now on (observe/history.h). */
struct ac_history;
void ac_allocator_record(ac_allocator_t *allocator, struct ac_history *history);

void ac_allocator_configure(ac_allocator_t *allocator, const ac_settings_t *settings);

/* What threads keep goes back.  What they took without the lock before shows in all figures. */
void ac_allocator_recall(ac_allocator_t *allocator);

/* An arena for a new context; NULL when host memory or timelines are short. */
ac_arena_t *ac_arena_create(ac_allocator_t *allocator, const ac_device_ops_t *ops, void *context);

/* The context is gone and its memory with it: forget all segments without freeing them. The
 * arena must not be used afterwards; its record stays readable. */
void ac_arena_drop(ac_arena_t *arena);

/* Whether nothing is left of an arena that was dropped, and no call of the device for it is under
 * way: it may serve another context (the same pointer) from _again on, which fails as _create. */
bool ac_arena_is_over(ac_arena_t *arena);
bool ac_arena_again(ac_arena_t *arena);

/* The context is about to go, and its memory with it: wait for what other contexts may still do
 * to memory that the program freed; not beyond the limit, nor for more than a second for work
 * that the program may hold back. */
void ac_arena_quiesce(ac_arena_t *arena, uint64_t limit_ns);

/* The same for what waits until all contexts reach `target`. */
void ac_arena_await(ac_arena_t *arena, uint64_t target, uint64_t limit_ns);

ac_timeline_t *ac_arena_timeline(ac_arena_t *arena);
ac_allocator_t *ac_arena_allocator(ac_arena_t *arena);
void *ac_arena_context(ac_arena_t *arena); /* what it was created with */

/* How far a request goes: to the end; to free memory and no further, without a call of the device
 * (AC_BUSY where that does not serve), as `true` says; or to the end, but AC_OOM is none that counts. */
typedef enum { AC_ASK_ALL, AC_ASK_CACHED, AC_ASK_QUIETLY } ac_ask_t;

/* Serves a request of the calling thread from elsewhere; NULL: nothing does.  Called without a lock before a
 * request waits for work.  True: it did, and the request ends with AC_OOM, which does not count. */
extern AC_HIDDEN bool (*_Atomic ac_serve_elsewhere)(void);

/* Serve `bytes` (> 0).  AC_OK sets *address (a multiple of AC_GRANULE).  AC_OOM: not even after
 * giving back and waiting; AC_BUSY: the context captures and nothing fits; AC_FAILED. */
ac_status_t ac_arena_alloc(ac_arena_t *arena, uint64_t bytes, ac_ask_t how,
                           uint64_t *address);

/* The same for the module of that number (stats.h); the other one: for one that is not known. */
ac_status_t ac_arena_alloc_for(ac_arena_t *arena, unsigned module, uint64_t bytes,
                               ac_ask_t how, uint64_t *address);

/* The same for a stream, of the memory pool with that number (space/mempool.h).  The caller has seen
 * that the stream is the arena's context's, and claimed the bytes where the pool has a limit.
 * _alloc_on: of the first pool, for a module that is not known. */
ac_status_t ac_arena_alloc_from(ac_arena_t *arena, unsigned module, unsigned mempool,
                                ac_stream_t stream, uint64_t bytes, ac_ask_t how,
                                uint64_t *address);
ac_status_t ac_arena_alloc_on(ac_arena_t *arena, ac_stream_t stream, uint64_t bytes,
                              ac_ask_t how, uint64_t *address);

/* The same on pages of its own (space/guard_place.h), for a stream or, where `stream` is NULL, a plain request.
 * Where it is not AC_GUARD_SERVED, *address is unset and any other request may serve.  Calls the device. */
ac_guard_answer_t ac_arena_alloc_guarded(ac_arena_t *arena, unsigned module, unsigned mempool,
                                         const ac_stream_t *stream, uint64_t bytes,
                                         uint64_t *address);

/* The block at `address` is about to be freed by that module, which matters to guarded ones. */
void ac_guard_freeing(uint64_t address, unsigned module);

/* The program synchronised the context: pages of guarded blocks that were freed go, if the device is
 * idle.  Where another thread is at it, that is waited for, half a second at the most. */
void ac_guard_settle(ac_arena_t *arena);

/* The same by the cache's owner, hit or not (cache/thread_cache.h), for the module of
 * ac_cache_ask_for. */
ac_status_t ac_cache_alloc(ac_cache_t *cache, uint64_t bytes, ac_ask_t how,
                           uint64_t *address);

/* The same where ac_cache_take failed, from free memory alone.  Returns the address; 0: there is
 * none.  _ready: where that found none, from what the device is done with, too: it is asked for that,
 * and not waited for. */
uint64_t ac_cache_fetch(ac_cache_t *cache, uint64_t bytes);
uint64_t ac_cache_fetch_ready(ac_cache_t *cache, uint64_t bytes);

/* Free the block at `address`, of whichever allocator.  AC_OK; AC_NOT_OURS; AC_BAD_ADDRESS
 * (inside our segments, but no allocated block starts there); AC_FAILED: host memory is short, and its
 * work does not end. */
ac_status_t ac_block_free(uint64_t address);

/* The same in the order of `stream`, a stream of the context of `arena`.  Whose block it is does
 * not matter; the work before it counts as submitted to that context. */
ac_status_t ac_block_free_on(ac_arena_t *arena, ac_stream_t stream, uint64_t address);

/* The same by the cache's owner, hit or not; _missed: ac_cache_give did not keep it. */
ac_status_t ac_cache_free(ac_cache_t *cache, uint64_t address);
ac_status_t ac_cache_free_missed(ac_cache_t *cache, uint64_t address);

/* What the block around `address` looks like from outside. */
typedef struct {
    ac_arena_t *arena;
    uint64_t address, size, requested; /* bytes */
    uint64_t segment_address, segment_size;
    bool allocated;                  /* false: freed or never handed out */
    bool async;                      /* by a request that named a stream ... */
    uint8_t module;                  /* that asked; not allocated: last, where that is known */
    uint8_t mempool;                 /* ... of this memory pool (space/mempool.h); 0 */
    bool paged;                      /* on pages of an expandable segment */
    uint64_t pages_begin, pages_end; /* allocated, and on pages: addresses */
    /* lifetime.h; allocated: serial 0: others know nothing of it */
    uint64_t serial, exported;
    bool sync;
} ac_block_info_t;

/* AC_OK and *info for an address inside one of our segments; AC_NOT_OURS. */
ac_status_t ac_block_find(uint64_t address, ac_block_info_t *info);

/* Whether the program may copy from or to these bytes (> 0): they lie in a block that it holds, up to
 * the end of its last granule, or that it freed in the order of a stream while work of the context is
 * not known to be over.  AC_OK, and in *found the block's record, for ac_block_has; NULL: it has none that
 * lasts.  AC_BAD_ADDRESS; AC_NOT_OURS. */
ac_status_t ac_block_reaches(uint64_t address, uint64_t bytes, const ac_block_t **found);

/* Without a lock: true if they do, and the block begins at `address`. */
bool ac_block_starts(uint64_t address, uint64_t bytes, const ac_block_t **found);

/* The arena that owns the page of `address`, or NULL; cheaper than ac_block_find. */
ac_arena_t *ac_block_arena(uint64_t address);

/* The block at `address` is known outside by its segment: the segment serves no other request
 * from now on and goes back to the driver when its last block is freed.  AC_OK (also when it
 * was so before), AC_NOT_OURS, AC_BAD_ADDRESS. *fresh tells whether it is so only now. */
ac_status_t ac_block_taint(uint64_t address, bool *fresh);

/* The same for the segment around `address`, whatever serves there by now: the driver was told
 * something of a block that another thread may have freed meanwhile.  AC_BAD_ADDRESS: it is on
 * pages. */
ac_status_t ac_address_taint(uint64_t address, bool *fresh);

/* The reason for one AC_OK of _taint is gone, and no one else has got to know the segment by it:
 * after the last one it serves again, where the block fills it and was not freed meanwhile. */
void ac_block_untaint(uint64_t address);

/* No cache takes the block at `address`, if one begins there, when it is freed: its free takes the
 * allocator's lock.  By its only holder, before it is shown to others. */
void ac_block_keep_apart(uint64_t address);

/* Others get to know the block at `address`: *serial names its lifetime (space/lifetime.h), now and
 * whenever it is asked for again, and no other one.  Its pages, if it has any, never move from now
 * on.  AC_OK; AC_NOT_OURS, AC_BAD_ADDRESS; AC_OOM: host memory is short, or the thread that may just
 * be freeing the block did not go on for half a second. */
ac_status_t ac_block_identify(uint64_t address, uint64_t *serial);

/* Other processes get to know it: ac_block_info_t shows `exported` (not 0) from now on, and
 * ac_lifetime_notify is called with it, now and at the block's free.  AC_OK; AC_BAD_ADDRESS: its
 * lifetime is not `serial`, and nothing was called; AC_NOT_OURS.  Called for a block that is
 * exported already it changes nothing: AC_BUSY. */
ac_status_t ac_block_export(uint64_t address, uint64_t serial, uint64_t exported);

/* Pages of a block that a thread shows to another process: they stay until they are returned. */
enum { AC_LENT = 128 };
typedef struct {
    ac_arena_t *arena;
    void *range;
    uint64_t from;  /* address of the first that is lent */
    unsigned count; /* of them, one behind the other */
    struct {
        uint64_t page, bytes;
    } at[AC_LENT];
} ac_lent_t;

/* Lend pages of the block at `address`, from `from` bytes behind the first one's begin on, as
 * many as *lent has room for.  AC_OK; AC_BAD_ADDRESS, AC_NOT_OURS: its lifetime is not `serial`,
 * or not exported, it is not on pages, or no page begins there.  One thread at a time; _return
 * takes what _lend gave it. */
ac_status_t ac_pages_lend(uint64_t address, uint64_t serial, uint64_t from, ac_lent_t *lent);
void ac_pages_return(const ac_lent_t *lent);

/* The program sets SYNC_MEMOPS of the block at `address`, or takes it back.  `set` tells the driver
 * so, without a lock: once for each of its allocations that the block lies in, with what one of the
 * addresses there has to have from now on; it is `on` where another block asks for it.  One change
 * at a time, waited for as the driver's own lock would be, for a second at the most.  What a block
 * asked for ends with its free.  AC_OK; AC_FAILED: `set` said false, and nothing has changed;
 * AC_NOT_OURS, AC_BAD_ADDRESS, AC_OOM: it was not called. */
typedef bool ac_sync_set_fn(void *arg, uint64_t address, bool on);
ac_status_t ac_block_sync(uint64_t address, bool on, ac_sync_set_fn *set, void *arg);

/* What others know of the block's memory has to stay true: its pages, if it has any, never move.
 * Answers as ac_block_taint. */
ac_status_t ac_block_pin(uint64_t address);

/* Others get to know memory on pages by its address, as they do with ac_block_identify and _pin of
 * such a block: with expandable_segments:auto native segments serve from now on. */
void ac_allocator_is_shared(ac_allocator_t *allocator);

/* The block at `address` serves that module.  AC_OK; AC_NOT_OURS, AC_BAD_ADDRESS;
 * AC_OOM: host memory is short, and nothing has changed. */
ac_status_t ac_block_attribute(uint64_t address, unsigned module);

/* Make every later free of the block wait for a fence, as if work on it had been seen. */
ac_status_t ac_block_mark_used(uint64_t address);

/* Memory pools (mempools.c).  The number stands for a new pool: marks and settings begin anew;
 * blocks that are still out count on. */
void ac_mempool_open(ac_allocator_t *allocator, unsigned number, uint64_t threshold,
                     uint64_t limit);

void ac_mempool_figures(ac_allocator_t *allocator, unsigned number, ac_mempool_t *figures);
uint64_t ac_mempool_reset(ac_allocator_t *allocator, unsigned number, ac_mark_t mark);
void ac_mempool_keep(ac_allocator_t *allocator, unsigned number, uint64_t threshold);

/* The program trims the pool to `least` bytes: what it holds in reserve beyond that is none any
 * more, and as much idle memory of the device goes back as no pool is to find again.  Waits for
 * nothing. */
void ac_mempool_trim(ac_allocator_t *allocator, unsigned number, uint64_t least);

/* In a pool with a limit a request of `bytes` is under way, and counts there until it is served,
 * or until _unclaim.  False: beside `other` bytes that the driver holds for the pool it would
 * exceed the limit. */
bool ac_mempool_claim(ac_allocator_t *allocator, unsigned number, uint64_t bytes, uint64_t other);
void ac_mempool_unclaim(ac_allocator_t *allocator, unsigned number, uint64_t bytes);

/* Give back idle segments of all arenas, if all work of the process is over; with `wait`, wait
 * for that first, for oom_wait at the most (counted as num_sync_all_streams), and in the end for
 * what other threads are giving back, for half a second at the most.  Where work is not over, they
 * are owed.  Returns bytes that the caller gave back. */
uint64_t ac_allocator_trim(ac_allocator_t *allocator, bool wait);

/* The same with a wait, for a call of the driver that answered "out of memory" and takes `need`
 * bytes of the device (0: not known): nothing where these would not be what it lacks, or where
 * idle memory would not make room for them.  It may lack them, too, where the host has no more than
 * `host_left` for the device (ac_cuda_host_left); AC_UNLIMITED.  What other threads are giving back is
 * waited for before that is looked at, too. */
uint64_t ac_allocator_trim_for(ac_allocator_t *allocator, uint64_t need, uint64_t host_left);

/* Give back the addresses of ranges that hold no memory.  Returns bytes. */
uint64_t ac_allocator_trim_addresses(ac_allocator_t *allocator);

/* To be called once in each interval of the caller's: give back the segments that were idle for
 * `epochs` whole intervals, and the whole pages of free memory that nothing was freed in for as
 * long.  (These epochs are no epochs of fence.h.)  Waits for nothing.  Returns bytes given back. */
uint64_t ac_allocator_decay(ac_allocator_t *allocator, uint32_t epochs);

/* Give back what is owed (ac_trim_owed, supply/pages.h), if that waits for nothing.  False:
 * something stays owed, or may be by the next call: the budget of pages is more than usual. */
bool ac_allocator_settle_debt(ac_allocator_t *allocator);

/* Returns the bytes of segments, and of whole pages, of which neither the program nor a captured graph has a block:
 * what a trim could give back.  Threads keep what they have. */
uint64_t ac_allocator_idle_bytes(ac_allocator_t *allocator);

/* Bytes of all segments and pages that neither the program nor a graph holds: with what is idle next to blocks. */
uint64_t ac_allocator_unused_bytes(ac_allocator_t *allocator);

/* Free memory after a request has failed.  `kept`: bytes that would have gone back, but for work that
 * may use them.  `movable`: bytes next to blocks that the program holds which pages of `page` bytes could
 * bring to the request, wherever the pages began; 0 if the device has no pages. */
typedef struct {
    uint64_t kept, movable;
} ac_free_bytes_t;
ac_free_bytes_t ac_allocator_free_bytes(ac_allocator_t *allocator, uint64_t page);

/* Count a request that failed without being made: it is for more than the device has. */
void ac_allocator_count_oom(ac_allocator_t *allocator);

/* Before the driver is asked for `bytes` of the device past the allocator.  False: the limit forbids
 * them.  Waits a tenth of a second at most, for other such calls.  _claimed: the call has ended, and
 * what came of it is recorded. */
bool ac_allocator_claim(ac_allocator_t *allocator, uint64_t bytes);
void ac_allocator_claimed(ac_allocator_t *allocator, uint64_t bytes);

/* The program holds `change` bytes more of such memory.  `figure`: the offset of its counter in
 * ac_device_counters_t; the limit counts those that ac_supply_limit names. */
void ac_allocator_hold(ac_allocator_t *allocator, size_t figure, int64_t change);

/* Part of such a figure, if the library learns it by asking the driver: `bytes` as of the question with number
 * `look`.  An answer to a question that began before the last recorded one changes nothing. */
typedef struct {
    uint64_t bytes, look; /* under the allocator's lock */
} ac_allocator_sum_t;
void ac_allocator_hold_now(ac_allocator_t *allocator, size_t figure, ac_allocator_sum_t *part,
                           uint64_t look, uint64_t bytes);

/* Bytes that may still be reserved below the limit; AC_UNLIMITED without one. */
uint64_t ac_allocator_room(ac_allocator_t *allocator);

/* Bytes that may be reserved; AC_UNLIMITED. */
uint64_t ac_allocator_limit(ac_allocator_t *allocator);

/* Bytes that the device says are free.  A device call; false: it does not tell. */
bool ac_allocator_available(ac_allocator_t *allocator, uint64_t *bytes);

/* Call `visit` for each block that the program holds.  Threads that take and free without the
 * lock meanwhile are not waited for.  False: the lock was not to be had before `deadline`
 * (CLOCK_REALTIME). */
bool ac_allocator_held(ac_allocator_t *allocator, const struct timespec *deadline,
                       ac_held_visit_fn *visit, void *arg);

/* Memory whose work is known to be over leaves the active figures, which other processes read as they are:
 * after the program synchronised.  Functions that read the statistics do so themselves.  No device call. */
void ac_allocator_settle(ac_allocator_t *allocator);

void ac_allocator_reset_peak(ac_allocator_t *allocator);
void ac_allocator_reset_accumulated(ac_allocator_t *allocator);

/* Read the statistics under the lock; `modules` lacks what caches of threads have of it. */
void ac_allocator_stats(ac_allocator_t *allocator, ac_device_stats_t *stats);

/* Reads the statistics.  If all work is known to be over, freed memory that caches of threads keep for it leaves them
 * before, so that it does not count as active. */
void ac_allocator_stats_settled(ac_allocator_t *allocator, ac_device_stats_t *stats);

/* The counters as well, of the same moment, for who must not wait for ever: false when the lock
 * was not to be had before `deadline` (CLOCK_REALTIME). */
bool ac_allocator_figures(ac_allocator_t *allocator, const struct timespec *deadline,
                          ac_device_stats_t *stats, ac_device_counters_t *counters);

/* Copy segments and blocks into the layout, which the caller has made room in.  False: there is not
 * enough, and `segments` and `blocks` say how much there is to copy; or the lock was not to be had
 * before `deadline` (CLOCK_REALTIME), and both are 0. */
bool ac_allocator_lay_out(ac_allocator_t *allocator, const struct timespec *deadline,
                          ac_layout_t *layout);

/* Nonzero if an invariant of block.h does not hold, or a `current` statistic differs from what
 * the blocks say; `why` gets a word.  So it does where nothing could be looked at, with 0. */
int ac_allocator_check(ac_allocator_t *allocator, const char **why);

/* No graph of the capture session is left: its blocks wait for a fence like any freed now. */
void ac_allocator_release(ac_allocator_t *allocator, uint64_t session);

#endif
