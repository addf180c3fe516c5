/* The stream-ordered API.  The arena of the stream's context serves a request if the context is a primary
 * one and current, and if the library serves the memory pool (mempools.h).  The driver serves every other
 * request, including wrong arguments, and a counter has the reason.  Programs may mix the APIs: the driver
 * gets a pool's pointer given to cuMemFree, the library gets its own given to cuMemFreeAsync. */
#include "hooks/body.h"
#include "hooks/direct_hooks.h"

#include "allocator/cache/lane.h"
#include "device/driver.h"
#include "hooks/fill.h"
#include "hooks/guard.h"
#include "track/mempools.h"
#include "track/modules.h"
#include "track/observers.h"
#include "track/pool_access.h"
#include "tell/tracing.h"
#include "tell/wrong_free.h"
#include "hooks/serve.h"

/* A request.  `named`: it names `pool`; else it uses the device's current pool. */
typedef struct {
    CUdeviceptr *pointer;
    size_t bytes;
    CUstream stream;
    bool per_thread, named;
    CUmemoryPool pool;
    CUdevice device;  /* of the context; its current pool serves if none is named */
    unsigned mempool; /* number of the pool; 0: not known */
    const void *caller;
    ac_passed_t passed; /* why the driver has to serve it */
    uint64_t begin;     /* ns */
    ac_claim_t claim;
    bool relies; /* until ac_mempools_relied */
} ask_t;

static bool is_capturing(CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ac_cuda_is_capturing(NULL) &&
           (!ac_driver.cuStreamIsCapturing ||
            ac_driver.cuStreamIsCapturing(ac_stream_resolved(stream, per_thread), &status) ||
            status != CU_STREAM_CAPTURE_STATUS_NONE);
}

static unsigned pool_of(const ask_t *ask, ac_passed_t *why) {
    return ask->named ? ac_mempool_named(ask->pool, why) : ac_mempool_current(ask->device, why);
}

/* Returns the context that may serve the request.  NULL: the driver has to, because of ask->passed. */
static ac_context_t *serving(ac_thread_t *thread, ask_t *ask) {
    ask->passed = AC_PASSED(disabled);
    if (!ac_is_enabled())
        return NULL;
    ac_context_t *context = ac_context_of_stream(thread, ask->stream);
    ask->device = context ? context->cuda.device : 0;
    if (ask->named || context)
        ask->mempool = pool_of(ask, &ask->passed);
    if (context && !ask->mempool)
        return NULL;
    ask->passed = ask->mempool ? ac_mempool_reason(ask->mempool) : AC_PASSED(context);
    if (ask->passed != AC_POOL_OURS)
        return NULL;
    ask->passed = AC_PASSED(context);
    if (!context || context->created || context != ac_context_current(thread) ||
        ac_fence_broken(context->timeline) || atomic_load(&context->cuda.green) ||
        ac_mempool_device(ask->mempool) != ask->device)
        return NULL;
    ask->passed = AC_PASSED(capture);
    return is_capturing(ask->stream, ask->per_thread) ? NULL : context;
}

/* --- lanes of the thread's cache (allocator/cache/lane.h) --- */

/* Returns the cache with a lane for memory of the current pool in the order of the stream; NULL: none.
 * The result and *ask are valid until ac_generation differs from ask->generation. */
static ac_cache_t *lane_of(ac_thread_t *thread, const ac_context_t *context, CUstream stream,
                           bool per_thread, ac_lane_ask_t *ask) {
    ac_passed_t why;
    CUstream handle = ac_stream_resolved(stream, per_thread);
    ask->generation = ac_generation_now(); /* first: any later change makes the result outdated */
    if (!thread || !ac_is_enabled() || ac_is_filling() || !ac_fence_simple() ||
        ac_order_capturing() || ac_cuda_is_capturing(NULL) || context->created ||
        ac_cuda_stream_marks(&context->cuda) || ac_fence_broken(context->timeline) ||
        !ac_barrier_is_free() || atomic_load(&ac_contexts_ending))
        return NULL;
    ask->mempool = ac_mempool_current(context->cuda.device, &why);
    if (!ask->mempool || ac_mempool_reason(ask->mempool) != AC_POOL_OURS ||
        !ac_mempool_is_open(ask->mempool) ||
        ac_mempool_device(ask->mempool) != context->cuda.device)
        return NULL;
    ask->handle = handle;
    ask->stream = ac_cuda_stream_key(handle);
    AC_WINDOW(lane_asked);
    return ac_thread_cache(thread, context);
}

/* Returns the cache of the thread's current context if that is known without a query; else NULL. */
static ac_cache_t *known_cache(ac_thread_t *thread) {
    bool known = thread && thread->known && thread->generation == ac_generation_now() &&
                 !atomic_load_explicit(&ac_current_unseen, memory_order_relaxed);
    return known ? ac_thread_cache(thread, thread->known) : NULL;
}

static bool take_from_lane(ac_thread_t *thread, unsigned module, const ask_t *ask,
                           uint64_t *address) {
    ac_cache_t *cache = ask->named ? NULL : known_cache(thread);
    if (!cache)
        return false;
    ac_thread_ask_for(thread, cache, module);
    ac_take_t taken = ac_lane_take(cache, ac_stream_resolved(ask->stream, ask->per_thread),
                                   ask->bytes, address);
    if (taken)
        thread->last_alloc = thread->known;
    return taken == AC_TAKE_DUE ? ac_cache_raise(cache) : taken;
}

static bool give_to_lane(ac_thread_t *thread, CUdeviceptr pointer, CUstream stream,
                         bool per_thread) {
    ac_cache_t *cache = known_cache(thread);
    return cache && !thread->records &&
           ac_lane_give(cache, ac_stream_resolved(stream, per_thread), pointer);
}

/* Takes memory for a request that `context` serves from the lane, which may have to be made first. */
static bool take_from_lane_long(ac_thread_t *thread, const ac_context_t *context, unsigned module,
                                const ask_t *ask, uint64_t *address) {
    ac_lane_ask_t lane;
    ac_cache_t *cache = lane_of(thread, context, ask->stream, ask->per_thread, &lane);
    if (cache) {
        ac_thread_ask_for(thread, cache, module);
        return lane.mempool == ask->mempool &&
               ac_lane_take_long(cache, &lane, ask->bytes, address);
    }
    for (cache = thread->caches; cache; cache = cache->sibling)
        if (cache->arena == context->arena && !ac_cache_is_gone(cache))
            ac_lane_clear(cache, ac_stream_resolved(ask->stream, ask->per_thread));
    return false;
}

/* Counts the request in its pool until it is served or cancelled; false: the pool has no room for it.  If
 * the pool was destroyed since it was found, the driver has to serve the request, without a pool. */
static bool admit(ask_t *ask) {
    AC_WINDOW(pool_found);
    if (!ask->mempool)
        return true;
    if (!ac_mempool_admit(ask->mempool, ask->bytes))
        return false;
    if (pool_of(ask, &ask->passed) != ask->mempool) {
        ac_mempool_cancel(ask->mempool, ask->bytes);
        ask->mempool = 0;
        ask->passed = AC_PASSED(unknown);
    }
    AC_WINDOW(pool_sure);
    return true;
}

bool ac_async_hit(ac_thread_t *thread, ac_context_t *context, unsigned module, size_t bytes,
                  CUstream stream, bool per_thread, uint64_t *address) {
    ask_t ask = {.bytes = bytes, .stream = stream, .per_thread = per_thread};
    if (serving(thread, &ask) != context)
        return false;
    if (take_from_lane_long(thread, context, module, &ask, address))
        return true;
    if (!admit(&ask) || !ask.mempool)
        return false;
    if (ac_arena_alloc_from(context->arena, module, ask.mempool,
                            ac_stream_named(stream, per_thread), bytes, true, address) == AC_OK) {
        if (ac_mempool_reason(ask.mempool) != AC_POOL_OURS)
            ac_pool_reach_again(ask.mempool);
        return true;
    }
    ac_mempool_cancel(ask.mempool, bytes);
    return false;
}

/* Serves a request.  Returns AC_SERVED_LIMIT also if the pool has no room for it. */
static ac_served_t serve(ac_thread_t *thread, ask_t *ask) {
    uint64_t address;
    ask->passed = AC_PASSED(unknown);
    if (!thread || !ask->pointer || !ask->bytes)
        return AC_SERVED_BY_DRIVER;
    unsigned module = ac_module_asking(thread, ask->caller);
    bool guarded = ac_guard_next(thread);
    if (!guarded && take_from_lane(thread, (uint8_t)module, ask, &address)) {
        ac_guard_passed(thread);
        *ask->pointer = address;
        return AC_SERVED;
    }
    ac_context_t *context = serving(thread, ask);
    if (context && !guarded && take_from_lane_long(thread, context, module, ask, &address)) {
        ac_guard_passed(thread);
        thread->last_alloc = context;
        *ask->pointer = address;
        return AC_SERVED;
    }
    if (!admit(ask))
        return AC_SERVED_LIMIT;
    if (!context || !ask->mempool)
        return AC_SERVED_BY_DRIVER;
    ac_from_t from = {ac_stream_named(ask->stream, ask->per_thread), ask->mempool};
    ac_served_t served =
        ac_serve(thread, context, module, ask->caller, &from, ask->bytes, &address);
    if (served == AC_SERVED) {
        ac_fill_served_on(address, ask->bytes, ask->stream, ask->per_thread);
        *ask->pointer = address;
        if (ac_mempool_reason(ask->mempool) != AC_POOL_OURS)
            ac_pool_reach_again(ask->mempool);
    }
    if (served == AC_SERVED_LIMIT)
        ac_mempool_cancel(ask->mempool, ask->bytes);
    ask->passed = served == AC_SERVED_BY_NOTHING || served == AC_SERVED_TOO_LARGE
                      ? AC_PASSED(limit)
                      : AC_PASSED(unknown);
    return served;
}

/* Records that the driver put work into the stream: the order of later work depends on it. */
static void submitted(ac_thread_t *thread, CUstream stream, bool per_thread, CUresult result) {
    if (!thread)
        return;
    ac_context_t *context = ac_context_of_stream(thread, stream);
    if (!context && result == CUDA_SUCCESS)
        ac_context_unseen();
    if (context && atomic_load_explicit(&ac_streams_tracked, memory_order_acquire))
        ac_arena_submitted(context->arena,
                           ac_stream_named(stream, per_thread) == AC_STREAM_LEGACY);
    ac_context_note(context, result);
}

/* Returns true if the call takes memory now; during a capture the graph takes it later. */
static bool takes_memory(const ask_t *ask) {
    return ask->mempool && ask->pointer && !is_capturing(ask->stream, ask->per_thread);
}

static void passing(ac_thread_t *thread, ask_t *ask) {
    if (thread)
        thread->last_alloc = NULL;
    ac_count(thread, AC_COUNT_passed_async);
    ac_count(thread, ask->passed);
}

static void relied(ask_t *ask) {
    if (ask->relies)
        ac_mempools_relied();
    ask->relies = false;
}

static void passed(ac_thread_t *thread, ask_t *ask, CUresult result) {
    if (ask->mempool) {
        ac_mempool_cancel(ask->mempool, ask->bytes); /* the driver counts it */
        if (result == CUDA_SUCCESS) {
            ac_mempool_passed(ask->mempool);
            if (takes_memory(ask)) /* else the address belongs to a graph */
                ac_direct_pooled(thread, *ask->pointer, ask->bytes, ask->mempool);
            ac_mempools_look(ac_mempool_device(ask->mempool));
        }
        ac_claim_end(&ask->claim);
    }
    submitted(thread, ask->stream, ask->per_thread, result);
}

static CUresult driver_free(ac_thread_t *thread, cuMemFreeAsync_fn *real, CUdeviceptr pointer,
                            CUstream stream) {
    uint64_t begin = ac_passed_begin(thread), serial = ac_direct_serial(thread, pointer);
    CUresult result = real(pointer, stream);
    ac_direct_freed(pointer, serial, result);
    if (thread)
        ac_count(thread, AC_COUNT_passed_async_frees);
    ac_passed_end(thread, begin);
    if (result == CUDA_SUCCESS && thread)
        ac_mempools_given();
    return result;
}

/* Returns true if the limit has room for the bytes that the pool would grow by.  It claims first the bytes
 * that the pool lacks, then the whole request. */
static bool claims(ac_thread_t *thread, ask_t *ask) {
    if (!thread || !ac_device_limited() || !takes_memory(ask) ||
        !ac_mempool_resides(ask->mempool))
        return true;
    ask->claim.device = ac_mempool_device(ask->mempool);
    ask->relies = ac_mempools_rely();
    ask->claim.bytes = ask->relies ? ac_mempool_growth(ask->mempool, ask->bytes) : ask->bytes;
    if (ac_claim_try(&ask->claim))
        return true;
    relied(ask);
    ask->claim.bytes = ask->bytes;
    return ac_claim_begin(&ask->claim);
}

/* Makes the driver's call for a request and measures its time. */
#define TIMED(call)                                                                              \
    (ask.begin = ac_passed_begin(thread),                                                        \
     result =                                                                                    \
         claims(thread, &ask) ? ac_claim_result(&ask.claim, call) : CUDA_ERROR_OUT_OF_MEMORY,    \
     relied(&ask), ac_passed_end(thread, ask.begin), result)

#define ALLOC(symbol, by_thread, by_name, which, params, args)                                   \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        ask_t ask = {.pointer = pointer,                                                         \
                     .bytes = bytes,                                                             \
                     .stream = stream,                                                           \
                     .per_thread = by_thread,                                                    \
                     .named = by_name,                                                           \
                     .pool = which,                                                              \
                     .caller = __builtin_return_address(0)};                                     \
        ac_served_t served = serve(thread, &ask);                                                \
        if (served == AC_SERVED || served == AC_SERVED_LIMIT) {                                  \
            result = served == AC_SERVED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;              \
        } else {                                                                                 \
            passing(thread, &ask);                                                               \
            AC_ASK_DRIVER(served, result, bytes, TIMED(real args));                              \
            passed(thread, &ask, result);                                                        \
        }                                                                                        \
        return ac_trace_allocated(AC_TRACE_ALLOC, result, pointer, bytes,                        \
                                  ac_stream_resolved(stream, by_thread), ask.caller);            \
    }
#define ALLOC_ASYNC(symbol, by_thread)                                                           \
    ALLOC(symbol, by_thread, false, NULL,                                                        \
          (CUdeviceptr * pointer, size_t bytes, CUstream stream), (pointer, bytes, stream))
#define ALLOC_FROM_POOL(symbol, by_thread)                                                       \
    ALLOC(symbol, by_thread, true, pool,                                                         \
          (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),             \
          (pointer, bytes, pool, stream))
ALLOC_ASYNC(cuMemAllocAsync, false)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, true)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, false)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true)

/* --- frees --- */

/* Returns true if the stream does not synchronise with the legacy default stream (it is non-blocking). */
static bool is_independent(ac_context_t *context, CUstream stream) {
    unsigned flags = 0;
    ac_cuda_scope_t scope;
    if (stream <= CU_STREAM_PER_THREAD || !ac_driver.cuStreamGetFlags ||
        !ac_cuda_enter(&context->cuda, &scope))
        return false;
    CUresult result = ac_driver.cuStreamGetFlags(stream, &flags);
    ac_cuda_leave(&scope);
    return result == CUDA_SUCCESS && flags & CU_STREAM_NON_BLOCKING;
}

static ac_status_t free_in_order(ac_thread_t *thread, ac_context_t *context, CUdeviceptr pointer,
                                 CUstream stream, bool per_thread) {
    ac_lane_ask_t lane;
    ac_cache_t *cache = lane_of(thread, context, stream, per_thread, &lane);
    if (cache && ac_lane_give_long(cache, &lane, pointer))
        return AC_OK;
    ac_fill_freed_on(context, pointer, stream, per_thread);
    ac_stream_t named = ac_stream_named(stream, per_thread);
    ac_cuda_stream_used(&context->cuda, ac_stream_resolved(stream, per_thread));
    if (ac_block_arena(pointer) != context->arena)
        ac_context_cross();
    ac_status_t status = ac_block_free_on(context->arena, named, pointer);
    if (!ac_arena_stream_asked(context->arena, named))
        ac_arena_stream_is(context->arena, named, is_independent(context, stream));
    return status;
}

static CUresult bad_free(ac_thread_t *thread, CUdeviceptr pointer, const void *caller) {
    ac_wrong_free(thread, pointer, caller);
    return CUDA_ERROR_INVALID_VALUE;
}

/* Returns true if the driver knows the handle and the stream does not capture. */
static bool is_stream(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned flags;
    return (uintptr_t)stream > 2 && ac_driver.cuStreamGetFlags &&
           ac_driver.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
           (!ac_cuda_is_capturing(NULL) || !ac_driver.cuStreamIsCapturing ||
            (ac_driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
             status == CU_STREAM_CAPTURE_STATUS_NONE));
}

/* Frees a block of ours in the order of `stream`.  A capturing stream can free only memory that a graph
 * allocated.  The legacy stream can free nothing while a stream captures that synchronises with it. */
static CUresult free_on_stream(ac_thread_t *thread, cuMemFreeAsync_fn *real, CUdeviceptr pointer,
                               CUstream stream, bool per_thread, const void *caller) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    ac_status_t freed;
    if (thread) {
        ac_context_t *context = ac_context_of_stream(thread, stream);
        if (context && ac_fence_broken(context->timeline)) {
            /* The driver reports an error of the context before one of the pointer. */
            CUresult result =
                ac_driver.cuStreamSynchronize(ac_stream_resolved(stream, per_thread));
            if (ac_driver_sticky(result))
                return result;
        }
        if (!context && is_stream(stream)) { /* the stream's context is not known */
            ac_context_unseen();
            freed = ac_block_free(pointer);
            return freed == AC_OK ? CUDA_SUCCESS : bad_free(thread, pointer, caller);
        }
        if (!context)
            return real(AC_UNOWNED, stream);
        if (ac_cuda_is_capturing(NULL) && ac_driver.cuStreamIsCapturing) {
            CUresult result =
                ac_driver.cuStreamIsCapturing(ac_stream_resolved(stream, per_thread), &status);
            if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
                return real(AC_UNOWNED, stream); /* reports that, or that the capture is invalid */
            if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
                result = ac_cuda_probe_legacy(&context->cuda);
            if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
                return result;
        }
        if (ac_is_private(pointer))
            return ac_wrong_free_private(thread, pointer);
        freed = free_in_order(thread, context, pointer, stream, per_thread);
    } else {
        freed = ac_block_mark_used(pointer);
        if (freed == AC_OK)
            freed = ac_block_free(pointer);
    }
    return freed == AC_OK ? CUDA_SUCCESS : bad_free(thread, pointer, caller);
}

bool ac_async_free(ac_thread_t *thread, ac_context_t *context, uint64_t address, CUstream stream,
                   bool per_thread) {
    return ac_owned(address) && ac_context_of_stream(thread, stream) == context &&
           !ac_cuda_is_capturing(NULL) && !ac_is_private(address) &&
           free_in_order(thread, context, address, stream, per_thread) == AC_OK;
}

#define FREE_ASYNC(symbol, per_thread)                                                           \
    CUresult symbol(CUdeviceptr pointer, CUstream stream) {                                      \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        if (give_to_lane(thread, pointer, stream, per_thread))                                   \
            return CUDA_SUCCESS;                                                                 \
        if (ac_owned(pointer) && ac_is_guest(thread))                                            \
            return real(AC_UNOWNED, stream);                                                     \
        ac_trace_freeing_on(pointer, ac_stream_resolved(stream, per_thread),                     \
                            __builtin_return_address(0));                                        \
        if (ac_owned(pointer)) {                                                                 \
            uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);                        \
            ac_guard_freed_by(thread, pointer, __builtin_return_address(0));                     \
            result = free_on_stream(thread, real, pointer, stream, per_thread,                   \
                                    __builtin_return_address(0));                                \
            ac_sample_end(thread, begin, ac_cuda_ops.now_ns);                                    \
        } else {                                                                                 \
            result = ac_is_private(pointer) ? ac_wrong_free_private(thread, pointer)             \
                                            : driver_free(thread, real, pointer, stream);        \
            submitted(thread, stream, per_thread, result);                                       \
        }                                                                                        \
        ac_trace_freed(pointer, result != CUDA_SUCCESS);                                         \
        return result;                                                                           \
    }
FREE_ASYNC(cuMemFreeAsync, false)
FREE_ASYNC(cuMemFreeAsync_ptsz, true)
