/* Private pools: their lives, requests and frees; when freed memory that other streams used serves again; and
 * where segments come from and go to.
 *
 * One lock guards all pools.  No source of segments is called under it, so two threads may both ask for one. */
#include "api/pools_int.h"

#include <stdlib.h>

#include "device/driver.h"
#include "device/wait.h"
#include "failpoint.h"
#include "track/context.h"
#include "track/observers.h"
#include "lock.h"

ac_mutex_t ac_pools_lock = AC_MUTEX(POOLS);
ac_pool_t *ac_pools;
static uint64_t last_id; /* of accel_pool_create */
uint64_t ac_pools_used_elsewhere;
static _Atomic bool any; /* there was a pool */
static _Atomic int rescuers; /* pools with ACCEL_POOL_USE_ON_OOM; changes under the lock */
static _Atomic bool waiting; /* a block or a line waits for a fence */

static const accel_pool_id_t none = AC_POOL_NONE;

ac_pool_t *ac_pool_named(accel_pool_id_t id) {
    ac_pool_t *pool = ac_pools;
    while (pool && (!ac_pool_is(pool->id, id) || !pool->users))
        pool = pool->next;
    return pool;
}

static void set_flags(ac_pool_t *pool, unsigned flags) {
    bool before = pool->flags & ACCEL_POOL_USE_ON_OOM, now = flags & ACCEL_POOL_USE_ON_OOM;
    atomic_store(&rescuers, atomic_load(&rescuers) + now - before);
    if (now)
        ac_rescue_begin();
    pool->flags = flags;
}

void ac_pool_sweep(ac_pool_t *pool) {
    if (pool->users || pool->calls || pool->ways)
        return;
    for (ac_pool_line_t *line = pool->lines; line; line = line->next)
        if (line->space.segments)
            return;
    ac_pool_t **at = &ac_pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    set_flags(pool, 0);
    while (pool->lines)
        ac_pool_line_end(pool->lines);
    free(pool);
}

/* Describes an allocated block; the caller holds the lock. */
static ac_pool_info_t info_of(const ac_block_t *block) {
    const ac_pool_line_t *line = ac_pool_line_of(block->segment);
    return (ac_pool_info_t){.address = ac_block_address(block),
                            .size = block->size,
                            .bytes = block->requested,
                            .stream = line->stream,
                            .pool = line->pool->id,
                            .device = line->device};
}

static bool is_private(uint64_t address) {
    ac_lock(&ac_pools_lock);
    bool found = ac_pool_segment_around(address);
    ac_unlock(&ac_pools_lock);
    return found;
}

/* Notes, under the lock, that no more requests name the line's stream. */
static void is_over(ac_pool_line_t *line) {
    if (line->gone)
        return;
    line->gone = true;
    line->rested = !line->space.segments;
    atomic_store(&line->rest.epoch, 0);
    atomic_store(&waiting, true);
}

static void thread_gone(uint64_t number) {
    ac_lock(&ac_pools_lock);
    for (ac_pool_t *pool = ac_pools; pool; pool = pool->next)
        for (ac_pool_line_t *line = pool->lines; line; line = line->next)
            if (line->stream == CU_STREAM_PER_THREAD && line->life == number)
                is_over(line);
    ac_unlock(&ac_pools_lock);
}

/* Numbers beyond the first half are the program's alone: the next one of accel_pool_create exists. */
static void note_number(accel_pool_id_t id) {
    if (!id.first && id.second > last_id && id.second <= INT64_MAX)
        last_id = id.second;
}

ac_pool_t *ac_pool_make(accel_pool_id_t id, unsigned flags,
                        const accel_allocator_t *allocator) {
    ac_pool_t *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    *pool = (ac_pool_t){.next = ac_pools, .id = id, .allocator = allocator};
    set_flags(pool, flags);
    ac_pools = pool;
    note_number(id);
    atomic_store(&any, true);
    atomic_store(&ac_private_observer, is_private);
    atomic_store(&ac_thread_gone_observer, thread_gone);
    return pool;
}

/* --- segments --- */

/* A segment on its way back to its source, in no line any more. */
typedef struct leaving {
    struct leaving *next;
    ac_raw_t raw;
    accel_pool_id_t pool;
    bool rested; /* as of the line */
} leaving_t;

/* Gives the segment back at once if its source respects work on it: the cache does, and the program's free_fn
 * gets the stream.  The driver does not; the handle of a stream that has gone, or of another thread's default
 * stream, tells nothing.  Then all work is over first. */
static void give_segment(leaving_t *leaving) {
    const ac_raw_t *raw = &leaving->raw;
    void *memory = (void *)(uintptr_t)raw->address;
    bool respects = raw->allocator ? raw->life == ac_stream_life(raw->stream)
                                   : ac_owned(raw->address);
    if (!respects && !leaving->rested) {
        const ac_context_t *context = ac_context_primary(raw->device);
        leaving->raw.context = context ? context->cuda.handle : NULL;
        ac_late_give(&leaving->raw);
    } else if (raw->allocator) {
        raw->allocator->free_fn(memory, raw->bytes, raw->device, raw->stream);
    } else {
        accel_free(memory);
    }
}

/* Threads that hold segments which have left their lines and are not given back yet. */
static _Atomic unsigned giving;

/* Before another thread finds that the segments of `list` are gone. */
static void unlock_leaving(const leaving_t *list) {
    if (list)
        atomic_fetch_add(&giving, 1);
    ac_unlock(&ac_pools_lock);
}

/* After unlock_leaving. */
static void give_segments(leaving_t *list) {
    bool gives = list;
    if (gives)
        AC_WINDOW(segments_cut);
    while (list) {
        leaving_t *next = list->next;
        const ac_raw_t *raw = &list->raw;
        ac_history(ACCEL_TRACE_SEGMENT_FREE, raw->device, raw->address, raw->bytes, raw->stream,
                   list->pool, 0);
        give_segment(list);
        free(list);
        list = next;
    }
    if (gives)
        atomic_fetch_sub(&giving, 1);
}

/* A tenth of a second at most: a thread's free_fn may itself make the request. */
static void await_giving(void) {
    enum { NAPS = 100, NAP_NS = 1000000 };
    for (int nap = 0; atomic_load(&giving) && nap < NAPS; nap++)
        ac_nap(NAP_NS);
}

/* Idle segments of the line join *list.  If host memory is short, they stay. */
static void cut_idle(ac_pool_line_t *line, leaving_t **list) {
    ac_segment_t *segment;
    while ((segment = line->space.idle.first)) {
        leaving_t *leaving = malloc(sizeof *leaving);
        if (!leaving)
            return;
        *leaving = (leaving_t){.next = *list,
                               .raw = {.address = segment->address,
                                       .bytes = segment->size,
                                       .stream = line->stream,
                                       .life = line->life,
                                       .allocator = segment->source,
                                       .device = line->device,
                                       .recorded = true},
                               .pool = line->pool->id,
                               .rested = line->gone && line->rested};
        *list = leaving;
        ac_pool_remove(segment);
    }
}

static void cut_pool(const ac_pool_t *pool, leaving_t **list) {
    for (ac_pool_line_t *line = pool->lines; line; line = line->next)
        cut_idle(line, list);
}

/* Idle segments of pools without users join *list; the caller holds the lock. */
static void cut_unused(leaving_t **list) {
    for (ac_pool_t *pool = ac_pools, *next; pool; pool = next) {
        next = pool->next;
        if (!pool->users) {
            cut_pool(pool, list);
            ac_pool_sweep(pool);
        }
    }
}

/* A call that allocates is none that a capture of this thread forbids: the memory is not the
 * graph's. */
static accel_status_t ask_cache(void **memory, uint64_t size, bool quiet) {
    CUdeviceptr address;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed = ac_driver.cuThreadExchangeStreamCaptureMode &&
                   ac_driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    if (quiet)
        ac_api_quiet(true);
    accel_status_t status =
        ac_api_status(ac_mem_alloc_apart(&address, size, __builtin_return_address(0)));
    if (quiet)
        ac_api_quiet(false);
    if (status == ACCEL_OK)
        *memory = (void *)(uintptr_t)address;
    if (relaxed)
        ac_driver.cuThreadExchangeStreamCaptureMode(&mode);
    return status;
}

static accel_status_t ask_for_segment(const accel_allocator_t *source, uint64_t size, int device,
                                      void *stream, bool quiet, void **memory) {
    accel_status_t status = ACCEL_OK;
    if (!source)
        status = ask_cache(memory, size, quiet);
    else if (!(*memory = source->alloc_fn(size, device, stream)))
        status = ACCEL_ERROR_DEVICE_MEMORY;
    if (status == ACCEL_OK) /* else a free of the first block, which begins there, gave it to a cache */
        ac_block_keep_apart((uint64_t)(uintptr_t)*memory);
    return status;
}

/* --- freed memory that waits for a fence --- */

ac_timeline_t *ac_pool_timeline(int device) {
    ac_context_t *context = ac_context_primary(device);
    return context ? context->timeline : NULL;
}

/* Gives each block and line that waits on the device an epoch to wait for, and returns the last one.  While a
 * stream captures it does nothing: freed memory may be the graph's. */
static ac_pool_moment_t ask(int device) {
    ac_pool_moment_t moment = {.timeline = NULL};
    if (!atomic_load_explicit(&waiting, memory_order_acquire) || ac_cuda_is_capturing(NULL) ||
        !(moment.timeline = ac_pool_timeline(device)))
        return moment;
    ac_lock(&ac_pools_lock);
    for (ac_pool_t *pool = ac_pools; pool; pool = pool->next)
        for (ac_pool_line_t *line = pool->lines; line; line = line->next)
            if (line->device == device)
                ac_pool_ask(line, &moment);
    ac_unlock(&ac_pools_lock);
    return moment;
}

/* Frees, under the lock, memory if its work is over.  Idle segments of a stream that has gone join *list while
 * the program holds blocks of their line: until then the line serves no other stream (is_left). */
static void collect(int device, const ac_timeline_t *timeline, leaving_t **list) {
    bool any_waits = false;
    for (ac_pool_t *pool = ac_pools; pool; pool = pool->next)
        for (ac_pool_line_t *line = pool->lines; line; line = line->next) {
            bool waits = ac_pool_line_waits(line);
            if (waits && line->device == device)
                ac_pool_drain(line, timeline);
            if (waits && line->device == device && line->gone && line->rested && line->allocated)
                cut_idle(line, list);
            any_waits |= ac_pool_line_waits(line);
        }
    atomic_store(&waiting, any_waits);
    cut_unused(list);
}

/* Frees memory that the device is done with, after a wait of at most `limit_ns`. */
static void drain(int device, uint64_t limit_ns) {
    leaving_t *cut = NULL;
    ac_pool_moment_t moment = ask(device);
    if (!moment.newest.clock)
        return;
    ac_fence_await(moment.timeline, moment.newest, limit_ns);
    ac_lock(&ac_pools_lock);
    collect(device, moment.timeline, &cut);
    unlock_leaving(cut);
    give_segments(cut);
}

/* Drains all devices, and waits for each. */
static void drain_all(void) {
    for (int device = 0; atomic_load(&waiting) && device < accel_device_count(); device++)
        drain(device, AC_LATE_WAIT_NS);
}

void ac_pool_trim(void) {
    leaving_t *cut = NULL;
    if (!atomic_load(&any))
        return;
    drain_all();
    ac_lock(&ac_pools_lock);
    cut_unused(&cut);
    unlock_leaving(cut);
    give_segments(cut);
}

void ac_pool_device_gone(int device) {
    ac_lock(&ac_pools_lock);
    for (ac_pool_t *pool = ac_pools, *next; pool; pool = next) {
        next = pool->next;
        for (ac_pool_line_t *line = pool->lines; line; line = line->next)
            if (line->device == device)
                ac_pool_lose(line);
        ac_pool_sweep(pool);
    }
    ac_unlock(&ac_pools_lock);
}

/* Returns, under the lock, why the program cannot free memory at `address`. */
static accel_status_t refused(uint64_t address) {
    if (!ac_pool_segment_around(address))
        return ACCEL_ERROR_NOT_OURS;
    return ac_pool_block_around(address) ? ACCEL_ERROR_INTERIOR : ACCEL_ERROR_DOUBLE_FREE;
}

/* Once there is a green context, its default stream has the same handle as that of the primary context.  Memory
 * that was freed before in the order of the latter waits for a fence from then on; later frees look themselves. */
static void heed_views(void) {
    static _Atomic bool heeded;
    if (!ac_context_any_green() || atomic_load_explicit(&heeded, memory_order_acquire))
        return;
    ac_lock(&ac_pools_lock);
    for (ac_pool_t *pool = ac_pools; pool && !atomic_load(&heeded); pool = pool->next)
        for (ac_pool_line_t *line = pool->lines; line; line = line->next)
            if ((CUstream)line->stream <= CU_STREAM_PER_THREAD) {
                ac_pool_withhold(line, ++ac_pools_used_elsewhere);
                atomic_store(&waiting, true);
            }
    atomic_store(&heeded, true);
    ac_unlock(&ac_pools_lock);
}

/* Returns true if the order of the block's stream is not enough for what is served with it next. */
static bool needs_fence(const ac_block_t *block) {
    const ac_pool_line_t *line = ac_pool_line_of(block->segment);
    return block->ticket.place || ac_pool_line_is_gone(line) ||
           ((CUstream)line->stream <= CU_STREAM_PER_THREAD && ac_context_any_green());
}

/* Frees the block under the lock; with `after`, or if needed, it waits for a fence. */
static void put(ac_block_t *block, bool after, leaving_t **cut) {
    ac_pool_line_t *line = ac_pool_line_of(block->segment);
    ac_pool_t *pool = line->pool;
    if (after || needs_fence(block)) {
        ac_pool_defer(block, ++ac_pools_used_elsewhere);
        atomic_store(&waiting, true);
    } else {
        ac_pool_give(block);
    }
    if (!pool->users || ac_stream_is_gone(line->stream, line->life))
        cut_idle(line, cut);
    ac_pool_sweep(pool);
}

static void tell_free(const ac_pool_info_t *was) {
    uint32_t stack = ac_history_stack(ACCEL_CONTEXT_ALL, NULL);
    ac_history(ACCEL_TRACE_FREE_REQUESTED, was->device, was->address, was->bytes, was->stream,
               was->pool, stack);
    ac_history(ACCEL_TRACE_FREE_COMPLETED, was->device, was->address, was->bytes, was->stream,
               was->pool, stack);
}

/* `after`: the free comes after the work that this stream has; NULL: after no work. */
static accel_status_t free_block(uint64_t address, void *const *after) {
    leaving_t *cut = NULL;
    ac_pool_info_t was;
    if (!atomic_load_explicit(&any, memory_order_acquire))
        return ACCEL_ERROR_NOT_OURS;
    ac_lock(&ac_pools_lock);
    ac_block_t *block = ac_pool_block_at(address);
    accel_status_t status = block ? ACCEL_OK : refused(address);
    if (block && after) {
        ac_unlock(&ac_pools_lock);
        status = ac_api_record(*after, address);
        ac_lock(&ac_pools_lock);
        block = status == ACCEL_OK ? ac_pool_block_at(address) : NULL;
        if (status == ACCEL_OK && !block) /* another thread has freed it */
            status = ACCEL_ERROR_DOUBLE_FREE;
    }
    if (block) {
        was = info_of(block);
        put(block, after, &cut);
    }
    unlock_leaving(cut);
    if (status != ACCEL_OK)
        return status;
    tell_free(&was);
    ac_pool_moment_t moment = ask(was.device);
    if (moment.newest.clock)
        ac_fence_want(moment.timeline, moment.newest.all, AC_FENCE_BATCH_WEIGHT);
    give_segments(cut);
    return ACCEL_OK;
}

accel_status_t ac_pool_free(uint64_t address) {
    return free_block(address, NULL);
}

accel_status_t ac_pool_free_after(uint64_t address, void *stream) {
    return free_block(address, &stream);
}

bool ac_pool_record_at(uint64_t address) {
    if (!atomic_load_explicit(&any, memory_order_acquire))
        return false;
    ac_lock(&ac_pools_lock);
    ac_block_t *block = ac_pool_block_around(address);
    if (block)
        block->ticket.place = ++ac_pools_used_elsewhere;
    ac_unlock(&ac_pools_lock);
    return block;
}

bool ac_pool_find(uint64_t address, ac_pool_info_t *info) {
    if (!atomic_load_explicit(&any, memory_order_acquire))
        return false;
    ac_lock(&ac_pools_lock);
    const ac_block_t *block = ac_pool_block_around(address);
    if (block)
        *info = info_of(block);
    ac_unlock(&ac_pools_lock);
    return block;
}

bool ac_pool_segment_of(uint64_t address, uint64_t *segment, void **stream) {
    if (!atomic_load_explicit(&any, memory_order_acquire))
        return false;
    ac_lock(&ac_pools_lock);
    const ac_segment_t *found = ac_pool_segment_around(address);
    if (found) {
        *segment = found->address;
        *stream = ac_pool_line_of(found)->stream;
    }
    ac_unlock(&ac_pools_lock);
    return found;
}

/* --- requests --- */

/* Whether the line's memory is free in whichever order: then it may become another stream's. */
static bool is_left(const ac_pool_line_t *line) {
    return line->gone && line->rested && !line->allocated && !line->pending.first;
}

/* The line of the pool for the stream, one that was left or a new one if needed; NULL: host memory is
 * short. */
static ac_pool_line_t *line_of(ac_pool_t *pool, int device, void *stream, uint64_t life) {
    ac_pool_line_t *line = pool->lines, *left = NULL;
    while (line && (line->device != device || line->stream != stream || line->life != life)) {
        if (ac_pool_line_is_gone(line))
            is_over(line);
        if (line->device == device && is_left(line))
            left = line;
        line = line->next;
    }
    if (line)
        return line;
    line = left ? left : ac_pool_line_begin(pool, device);
    if (!line)
        return NULL;
    line->stream = stream;
    line->life = life;
    line->gone = false;
    if (stream == CU_STREAM_PER_THREAD && life > AC_STRANGERS)
        is_over(line); /* no request is of this one again */
    return line;
}

/* A request on its way to a pool. */
typedef struct {
    ac_pool_t *pool;
    size_t bytes;
    uint64_t size;
    int device;
    void *stream;
    uint64_t life;
    uint32_t stack;
} ask_t;

/* Under the lock. */
static bool take(const ask_t *ask, ac_pool_line_t *line, void **pointer) {
    bool whole = ask->pool->flags & ACCEL_POOL_NO_SPLIT;
    ac_block_t *block = line ? ac_pool_take(line, ask->size, ask->bytes, whole, ask->stack) : NULL;
    if (block)
        *pointer = (void *)(uintptr_t)ac_block_address(block);
    return block;
}

static bool look(const ask_t *ask, void **pointer) {
    ac_lock(&ac_pools_lock);
    ac_pool_line_t *line = line_of(ask->pool, ask->device, ask->stream, ask->life);
    bool found = take(ask, line, pointer);
    ac_unlock(&ac_pools_lock);
    return found;
}

static const accel_allocator_t *source_of(const ac_pool_t *pool) {
    return pool->allocator ? pool->allocator : ac_raw_allocator();
}

/* A new segment, and the block out of it: before another thread finds the segment idle.  `quiet`: there
 * will be another try. */
static accel_status_t grow(const ask_t *ask, bool quiet, void **pointer) {
    void *memory;
    uint64_t size = ac_pool_segment_size(ask->size);
    const accel_allocator_t *source = source_of(ask->pool);
    accel_status_t status =
        ask_for_segment(source, size, ask->device, ask->stream, quiet, &memory);
    if (status != ACCEL_OK)
        return status;
    ac_lock(&ac_pools_lock);
    ac_pool_line_t *line = line_of(ask->pool, ask->device, ask->stream, ask->life);
    bool added = line && ac_pool_add(line, (uint64_t)(uintptr_t)memory, size, source);
    bool taken = added && take(ask, line, pointer);
    ac_unlock(&ac_pools_lock);
    if (!added) {
        if (source)
            source->free_fn(memory, size, ask->device, ask->stream);
        else
            accel_free(memory);
        return ACCEL_ERROR_OUT_OF_MEMORY;
    }
    ac_history(ACCEL_TRACE_SEGMENT_ALLOC, ask->device, (uint64_t)(uintptr_t)memory, size,
               ask->stream, ask->pool->id, ask->stack);
    return taken ? ACCEL_OK : ACCEL_ERROR_OUT_OF_MEMORY;
}

/* How long a request that would fail waits for work on freed memory of pools, and again on late frees. */
static uint64_t patience(void) {
    double wait = ac_process_config()->oom_wait * 1e9;
    return wait < AC_LATE_WAIT_NS ? (uint64_t)wait : AC_LATE_WAIT_NS;
}

/* Gives back idle segments of other streams' lines of the pool, and of pools without users.  Waits for threads that
 * are giving segments back. */
static void give_way(const ask_t *ask) {
    leaving_t *cut = NULL;
    ac_lock(&ac_pools_lock);
    cut_pool(ask->pool, &cut);
    cut_unused(&cut);
    unlock_leaving(cut);
    give_segments(cut);
    await_giving();
    ac_late_free(patience());
}

accel_status_t ac_pool_alloc(ac_pool_t *pool, void **pointer, size_t bytes, int device,
                             void *stream, uint32_t stack) {
    ask_t ask = {pool,   bytes,  ac_pool_round(bytes),
                 device, stream, ac_stream_life(stream), stack};
    if (!ask.size) /* the cache says so, and counts it */
        return ask_for_segment(source_of(pool), bytes, device, stream, false, pointer);
    heed_views();
    drain(device, 0);
    accel_status_t status = ACCEL_OK;
    if (!look(&ask, pointer))
        status = grow(&ask, true, pointer);
    if (status == ACCEL_ERROR_DEVICE_MEMORY) {
        drain(device, patience());
        status = ACCEL_OK;
        if (!look(&ask, pointer)) {
            give_way(&ask);
            status = grow(&ask, false, pointer);
        }
    }
    if (status != ACCEL_OK)
        return status;
    ac_history(ACCEL_TRACE_ALLOC, device, (uint64_t)(uintptr_t)*pointer, bytes, stream, pool->id,
               stack);
    return ACCEL_OK;
}

void ac_pool_told(const ac_pool_t *pool, accel_pool_id_t *id, const accel_allocator_t **source) {
    *id = pool->id;
    *source = source_of(pool);
}

/* Returns true if the line may serve a request of the stream that would fail. */
static bool rescues(const ac_pool_line_t *line, int device, void *stream, uint64_t life) {
    return line->pool->flags & ACCEL_POOL_USE_ON_OOM && line->device == device &&
           line->stream == stream && line->life == life;
}

bool ac_pool_may_rescue(int device, void *stream) {
    bool may = false;
    if (!atomic_load_explicit(&rescuers, memory_order_acquire))
        return false;
    uint64_t life = ac_stream_life(stream);
    ac_lock(&ac_pools_lock);
    for (ac_pool_t *pool = ac_pools; pool && !may; pool = pool->next)
        for (ac_pool_line_t *line = pool->lines; line && !may; line = line->next)
            may = rescues(line, device, stream, life);
    ac_unlock(&ac_pools_lock);
    return may;
}

bool ac_pool_rescue(void **pointer, size_t bytes, int device, void *stream, uint32_t stack) {
    uint64_t size = ac_pool_round(bytes), life = ac_stream_life(stream);
    ac_block_t *block = NULL;
    accel_pool_id_t id = none;
    if (!size || !atomic_load_explicit(&any, memory_order_acquire))
        return false;
    heed_views();
    drain(device, 0);
    ac_lock(&ac_pools_lock);
    for (ac_pool_t *pool = ac_pools; pool && !block; pool = pool->next)
        for (ac_pool_line_t *line = pool->lines; line && !block; line = line->next)
            if (rescues(line, device, stream, life))
                block =
                    ac_pool_take(line, size, bytes, pool->flags & ACCEL_POOL_NO_SPLIT, stack);
    if (block) {
        *pointer = (void *)(uintptr_t)ac_block_address(block);
        id = ac_pool_line_of(block->segment)->pool->id;
    }
    ac_unlock(&ac_pools_lock);
    if (block)
        ac_history(ACCEL_TRACE_ALLOC, device, (uint64_t)(uintptr_t)*pointer, bytes, stream, id,
                   stack);
    return block;
}

/* --- the life of pools --- */

accel_status_t accel_pool_create(unsigned flags, const accel_allocator_t *allocator,
                                 accel_pool_id_t *pool) {
    accel_status_t status = ACCEL_OK;
    const accel_allocator_t *copy = NULL;
    if (!pool || flags & ~(unsigned)(ACCEL_POOL_USE_ON_OOM | ACCEL_POOL_NO_SPLIT))
        return ACCEL_ERROR_INVALID;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    if (allocator && !(copy = ac_allocator_copy(allocator, &status)))
        return status;
    ac_lock(&ac_pools_lock);
    accel_pool_id_t id = {0, ++last_id};
    ac_pool_t *made = ac_pool_make(id, flags, copy);
    if (made)
        made->users = 1;
    ac_unlock(&ac_pools_lock);
    if (!made) {
        free((void *)(uintptr_t)copy);
        return ACCEL_ERROR_OUT_OF_MEMORY;
    }
    if (copy && copy->init_fn)
        copy->init_fn(accel_device_count());
    *pool = id;
    return ACCEL_OK;
}

accel_status_t accel_pool_retain(accel_pool_id_t id) {
    if (ac_pool_is(id, none))
        return ACCEL_ERROR_INVALID;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    ac_lock(&ac_pools_lock);
    ac_pool_t *pool = ac_pool_named(id);
    if (!pool)
        pool = ac_pool_make(id, 0, NULL);
    if (pool)
        pool->users++;
    ac_unlock(&ac_pools_lock);
    return pool ? ACCEL_OK : ACCEL_ERROR_OUT_OF_MEMORY;
}

accel_status_t ac_pool_release(accel_pool_id_t id, int device) {
    leaving_t *cut = NULL;
    const accel_allocator_t *set = ac_raw_allocator(), *told = NULL;
    ac_lock(&ac_pools_lock);
    ac_pool_t *pool = ac_pool_named(id);
    accel_status_t status = !pool                            ? ACCEL_ERROR_INVALID
                            : pool->users == 1 && pool->ways ? ACCEL_ERROR_BUSY
                                                             : ACCEL_OK;
    if (status == ACCEL_OK && --pool->users == 0) {
        told = source_of(pool);
        cut_pool(pool, &cut);
        ac_pool_sweep(pool);
    }
    unlock_leaving(cut);
    give_segments(cut);
    if (!pool && set && set->begin_allocate_to_pool_fn && set->release_pool_fn) {
        told = set; /* the pool is the program's own */
        status = ACCEL_OK;
    }
    if (told && told->release_pool_fn)
        told->release_pool_fn(device, id);
    return status;
}

accel_status_t accel_pool_release(accel_pool_id_t pool) {
    return ac_pool_release(pool, accel_current_device());
}

int accel_pool_use_count(accel_pool_id_t id) {
    ac_lock(&ac_pools_lock);
    const ac_pool_t *pool = ac_pool_named(id);
    int users = pool ? pool->users : 0;
    ac_unlock(&ac_pools_lock);
    return users;
}

accel_status_t accel_pool_set_flags(accel_pool_id_t id, unsigned flags) {
    if (flags & ~(unsigned)(ACCEL_POOL_USE_ON_OOM | ACCEL_POOL_NO_SPLIT))
        return ACCEL_ERROR_INVALID;
    ac_lock(&ac_pools_lock);
    ac_pool_t *pool = ac_pool_named(id);
    if (pool)
        set_flags(pool, flags);
    ac_unlock(&ac_pools_lock);
    return pool ? ACCEL_OK : ACCEL_ERROR_INVALID;
}

accel_status_t accel_pool_empty(accel_pool_id_t id) {
    leaving_t *cut = NULL;
    if (ac_pool_is(id, none))
        return accel_empty_cache();
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    drain_all();
    ac_lock(&ac_pools_lock);
    ac_pool_t *pool = ac_pool_named(id);
    if (pool)
        cut_pool(pool, &cut);
    unlock_leaving(cut);
    give_segments(cut);
    ac_late_free(AC_LATE_WAIT_NS);
    return pool ? ACCEL_OK : ACCEL_ERROR_INVALID;
}
