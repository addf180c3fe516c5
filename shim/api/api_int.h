/* Shared by the files of the C API.  The functions here are below those of accelcache.h and are not
 * exported.
 *
 * Locks are of AC_RANK_LEAF: no call of the driver, of the program or of another part of the
 * library is made under one. */
#ifndef AC_API_INT_H
#define AC_API_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "hooks/body.h"
#include "observe/json.h"
#include "tell/layouts.h"

/* Their declarations are exported. */
#pragma GCC visibility push(default)
#include "accelcache.h"
#include "accelcache_pools.h"
#include "accelcache_torch.h"
#pragma GCC visibility pop

/* --- api.c --- */

/* Have a driver that is loaded and initialised, and the shim awake. */
bool ac_api_ready(void);

/* Checks the device of a call: ACCEL_OK, ACCEL_ERROR_NO_DRIVER or _INVALID. */
accel_status_t ac_api_need(int device);

/* The device's primary context, retained once until it is reset; NULL: it cannot be had. */
CUcontext ac_api_primary(int device);

/* Returns true for the device's primary context, and for a green context's view of it; makes none. */
bool ac_api_is_primary(CUcontext context, int device);

/* Around calls of the driver for a device: a context of it is current, its primary one if there was
 * none, or with _push in any case.  False: that cannot be done, and there is nothing to leave. */
typedef struct {
    bool pushed;
    CUcontext context; /* the one that is current */
} ac_api_scope_t;
bool ac_api_enter(ac_api_scope_t *scope, int device);
bool ac_api_push(ac_api_scope_t *scope, int device);
void ac_api_leave(const ac_api_scope_t *scope);

accel_status_t ac_api_status(CUresult result);

/* Makes a context of the thread's current device current if the thread has none. */
accel_status_t ac_api_have_context(void);

/* Work on the stream may use the memory at `address`, and was submitted by now. */
accel_status_t ac_api_record(void *stream, uint64_t address);

/* --- memory.c --- */

/* accel_malloc_async for the code at `caller`. */
accel_status_t ac_api_malloc_async(void **pointer, size_t bytes, void *stream,
                                   const void *caller);

/* accel_free_async of memory without a record (ac_raw_t). */
accel_status_t ac_api_free_async(void *pointer, void *stream);

/* Why the free of what begins at `address`, or does not, was refused. ACCEL_ERROR_INVALID: a block
 * begins there that is still allocated; the fault is not the pointer's but the stream's. */
accel_status_t ac_api_refused(uint64_t address);

/* --- streams.c --- */

/* The calling thread's current stream on the device. */
void *ac_api_stream(int device);

/* The device that accel_maybe_exchange_device chose for the calling thread without making a context.
 * It holds as long as `context` is current, which was current then.  _choose: -1 for none; false if host
 * memory is short.  _chosen: -1 if there is none. */
bool ac_api_choose(int device, CUcontext context);
int ac_api_chosen(CUcontext context);

/* --- blocks.c: raw memory, by address --- */

typedef struct {
    uint64_t address;
    size_t bytes; /* asked for */
    void *stream;
    uint64_t life;                      /* of the stream: ac_stream_life */
    CUcontext context;                  /* that was current: a default stream is its own */
    const accel_allocator_t *allocator; /* NULL: the cache */
    int device;
    bool ordered;  /* of the cache: allocated in the order of `stream` */
    bool recorded; /* other streams use it */
    bool late;     /* the program has freed it: late.c */
    ac_moment_t moment; /* late: the work that it waits for; without a clock: not known yet */
    unsigned long long context_id; /* late: another context of the same handle has another one */
    uint32_t stack; /* of the request (ac_history_stack); 0: not known */
    uint64_t look; /* late: the number of the look that a thread has at it; 0: none */
} ac_raw_t;

/* Note the block, in place of an older one at its address.  False: host memory is short. */
bool ac_raw_add(const ac_raw_t *raw);

/* The block that begins at `address`, and that the program has not freed; _take removes it, so that one of
 * two threads has it.  _is_late: it has freed it.  _drop forgets a block that a call without knowledge of the
 * record freed. */
bool ac_raw_find(uint64_t address, ac_raw_t *raw);
bool ac_raw_take(uint64_t address, ac_raw_t *raw);
bool ac_raw_is_late(uint64_t address);
void ac_raw_drop(uint64_t address);

/* A look at the next block from place *at on that the program has freed and no other thread looks at; false:
 * there is none among the next `slots` places, or up to the end, after which *at is 0 as at first.  The record
 * stays, so that another free is known as one too many, until _take_looked, directly before the block is freed,
 * or the look ends.  _take_looked is false if another call freed the block meanwhile. */
bool ac_raw_look_late(ac_raw_t *raw, size_t *at, size_t slots);
bool ac_raw_take_looked(const ac_raw_t *raw);
void ac_raw_end_look(const ac_raw_t *raw);

/* A free came to this.  Memory that the program still holds keeps its record, for the next try. */
void ac_raw_put_back(const ac_raw_t *raw, accel_status_t status);

/* Returns true if there is no raw memory. */
bool ac_raw_none(void);

/* Other streams use the block. False: there is none at `address`. */
bool ac_raw_record(uint64_t address);

/* A number for the stream behind the handle: another one when the handle comes back for another
 * stream.  Each thread has one for its per-thread default stream, that of its record or, without one, a new
 * number from AC_STRANGERS on each time.  _is_gone: the stream that had the number was destroyed; of
 * per-thread default streams it knows nothing. */
#define AC_STRANGERS ((uint64_t)INT64_MAX)
uint64_t ac_stream_life(void *stream);
bool ac_stream_is_gone(void *stream, uint64_t life);

/* --- late.c --- */

/* Whether a free that came to this may be done later. */
bool ac_late_may(accel_status_t status);

/* Free the block as soon as no stream captures and the work that may use it is over: with the next request or
 * free of raw memory, or when idle memory goes back.  _give: now, where that can be.  False: host memory is
 * short. */
bool ac_late_add(const ac_raw_t *raw);
void ac_late_give(ac_raw_t *raw);

/* Free what waits for that, unless a stream captures, with a wait for work of so long at the most.  True: the
 * driver has got some. */
enum { AC_LATE_WAIT_NS = 1000000000 };
bool ac_late_free(uint64_t limit_ns);

/* The same for a few of them, without a wait, and with the next call for the next ones: a request or free costs
 * no more where many wait. */
void ac_late_free_few(void);

/* --- raw.c --- */

/* Free the block, which has no record any more; with `waits` after all work, if its stream's order is not
 * enough (_waits).  ACCEL_ERROR_BUSY: a stream captures. */
accel_status_t ac_raw_give(const ac_raw_t *raw, bool waits);
bool ac_raw_waits(const ac_raw_t *raw);

/* accel_raw_delete for a caller that learns of no failure. */
void ac_raw_delete_late(void *pointer);

/* The stack of the request for the block of the cache that begins there; 0: not known, or not raw memory. */
uint32_t ac_raw_stack(uint64_t address);

/* The block around the address, of raw memory that the driver served itself. */
bool ac_raw_of_driver(uint64_t address, ac_raw_t *raw);

/* Requests of this thread that fail for want of memory do not count and are not told of: another way is
 * tried after them. */
void ac_api_quiet(bool quiet);

/* Raw memory of a device; `bytes` > 0. */
accel_status_t ac_raw_alloc(void **pointer, size_t bytes, int device, void *stream,
                            const void *caller);

/* The allocator that was set; NULL: the cache. */
const accel_allocator_t *ac_raw_allocator(void);

/* A copy of the caller's functions, of its size, that stays for ever. NULL: it lacks one of the two
 * that are needed (*status: ACCEL_ERROR_INVALID), or host memory is short. */
const accel_allocator_t *ac_allocator_copy(const accel_allocator_t *functions,
                                           accel_status_t *status);

/* --- pools.c: private pools --- */

/* Returns the pool for requests of the stream that are made with that context current; NULL: none.  It stays
 * until _unroute.  Pools have memory of primary contexts alone. */
typedef struct ac_pool ac_pool_t;
ac_pool_t *ac_pool_route(int device, CUcontext context, void *stream);
void ac_pool_unroute(ac_pool_t *pool);

/* In a context of the device that is current. */
accel_status_t ac_pool_alloc(ac_pool_t *pool, void **pointer, size_t bytes, int device,
                             void *stream, uint32_t stack);

/* Sets *id to its number, and *source to the source of its segments; NULL: the cache. */
void ac_pool_told(const ac_pool_t *pool, accel_pool_id_t *id, const accel_allocator_t **source);

/* _rescue serves a request that would fail from a pool with ACCEL_POOL_USE_ON_OOM.  _may_rescue: one has memory
 * for the stream. */
bool ac_pool_may_rescue(int device, void *stream);
bool ac_pool_rescue(void **pointer, size_t bytes, int device, void *stream, uint32_t stack);

/* An allocated block of a pool. */
typedef struct {
    uint64_t address, size;
    size_t bytes; /* asked for */
    void *stream;
    accel_pool_id_t pool;
    int device;
} ac_pool_info_t;

/* Both are false if no allocated block of a pool lies around the address. */
bool ac_pool_find(uint64_t address, ac_pool_info_t *info);
bool ac_pool_record_at(uint64_t address);

/* Frees the block that begins at `address`; _after: behind the work that the stream has so far.
 * ACCEL_ERROR_NOT_OURS: no pool has a segment there.  If no block begins there, it answers as accel_free. */
accel_status_t ac_pool_free(uint64_t address);
accel_status_t ac_pool_free_after(uint64_t address, void *stream);

/* Sets *segment to the begin of the pool's segment around the address, and *stream to its stream. */
bool ac_pool_segment_of(uint64_t address, uint64_t *segment, void **stream);

/* Gives back idle segments of pools without users. */
void ac_pool_trim(void);

/* The device's primary context has ended, and what pools had of its memory. */
void ac_pool_device_gone(int device);

/* Does accel_pool_release, and gives `device` to release_pool_fn. */
accel_status_t ac_pool_release(accel_pool_id_t id, int device);

/* Does accel_begin_allocate_to_pool.  Once no call of the filter is to come any more, `drop` (may be NULL) is
 * called with `arg`; not if this fails. */
accel_status_t ac_pool_begin(int device, accel_pool_id_t id, accel_stream_filter_t filter,
                             void *arg, void (*drop)(void *arg));

/* --- frames.c --- */

/* Frames of the stack of that number as PyTorch's snapshots have them, innermost first; [] for 0.  `known` (an
 * object) keeps those that were asked for: frames have their names looked up once. */
json_t *ac_frames_json(json_t *known, uint32_t stack, bool *failed);

/* --- state.c --- */

/* Copies segments and blocks of a device's cache.  False: host memory is short, or the allocator does not answer. */
bool ac_api_lay_out(ac_layout_t *layout, ac_allocator_t *allocator);

/* --- history.c --- */

/* True: there is a tracker, or a history. */
extern AC_HIDDEN _Atomic bool ac_history_wanted;
void ac_history_tell(accel_trace_action_t action, int device, uint64_t address, size_t bytes,
                     void *stream, accel_pool_id_t pool, uint32_t stack);
static inline void ac_history(accel_trace_action_t action, int device, uint64_t address,
                              size_t bytes, void *stream, accel_pool_id_t pool, uint32_t stack) {
    if (__builtin_expect(atomic_load_explicit(&ac_history_wanted, memory_order_acquire), 0))
        ac_history_tell(action, device, address, bytes, stream, pool, stack);
}

/* The number of the stack (ac_record_context) that what the thread does now has in the history, where that
 * keeps those of `when`; else 0.  Calls the program's recorder: under no lock. */
extern AC_HIDDEN _Atomic int ac_history_when;
uint32_t ac_history_look(const void *caller);
static inline uint32_t ac_history_stack(accel_context_when_t when, const void *caller) {
    bool keeps = atomic_load_explicit(&ac_history_when, memory_order_acquire) >= (int)when;
    return __builtin_expect(keeps, 0) ? ac_history_look(caller) : 0;
}

/* The history of a device, oldest first: at most `most` entries into `entries`; with `most` 0 how many
 * there are. */
size_t ac_history_read(int device, accel_trace_entry_t *entries, size_t most);

static inline bool ac_pool_is(accel_pool_id_t a, accel_pool_id_t b) {
    return a.first == b.first && a.second == b.second;
}

#endif
