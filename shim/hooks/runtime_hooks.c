/* Hooks of the runtime's functions.  A hit does not enter the runtime if the thread's context is known.
 * Every other call goes to the real runtime function, which reaches the driver hooks.  Lazy initialisation
 * and cudaGetLastError thus stay the runtime's own. */
#include "allocator/cache/lane.h"
#include "hooks/body.h"
#include "hooks/fill.h"
#include "hooks/guard.h"
#include "track/modules.h"
#include "track/observers.h"
#include "bind/runtimes.h"
#include "tell/tracing.h"

/* Returns the context that allocations of this runtime are known to use in this thread, or NULL. */
static ac_context_t *fast_context(ac_thread_t *thread, const ac_runtime_t *runtime) {
    if (!thread || !thread->runtime || thread->prover != runtime ||
        atomic_load_explicit(&ac_current_unseen, memory_order_relaxed) ||
        thread->generation != ac_generation_now() || ac_fence_broken(thread->runtime->timeline))
        return NULL;
    return thread->runtime;
}

/* Called after a real allocation; `last_alloc` was NULL before it.  If the allocation reached our driver
 * hook in the current context, this runtime uses that context in this thread. */
static ac_runtime_error_t proved(const ac_runtime_t *runtime, ac_runtime_error_t result) {
    ac_thread_t *thread = ac_thread_tls;
    bool good = thread && result == CUDA_SUCCESS && atomic_load(&ac_fast_path) &&
                ac_runtime_may_be_skipped(runtime) && thread->last_alloc == thread->known;
    if (thread) {
        thread->runtime = good ? thread->known : NULL;
        ac_thread_clear_fast(thread);
        thread->prover = runtime;
    }
    return result;
}

/* The context that serves a call without the runtime (NULL: the runtime has to serve it), and the thread's
 * cache for it (NULL: there is none). */
typedef struct {
    ac_context_t *context;
    ac_cache_t *cache;
} server_t;

/* Finds the server of a call.  The thread remembers it for the calling code. */
static server_t server_for(ac_thread_t *thread, ac_fast_use_t use, const void *caller) {
    if (ac_thread_is_fast(thread, use, caller) || ac_thread_is_apart(thread, use, caller))
        return (server_t){thread->runtime, thread->fast[use].cache};
    uint64_t generation =
        ac_generation_now(); /* first: a later change makes the remembered cache outdated */
    ac_context_t *context = fast_context(thread, ac_runtime_of(caller));
    ac_cache_t *cache = context ? ac_thread_cache(thread, context) : NULL;
    if (cache && generation == thread->generation && ac_hits_are_simple()) {
        AC_WINDOW(server_found);
        ac_thread_set_code(thread, use, caller, generation, cache);
    }
    return (server_t){context, cache};
}

static ac_status_t alloc_for(ac_thread_t *thread, const server_t *server, unsigned module,
                             size_t bytes, uint64_t *address) {
    if (!server->cache)
        return ac_arena_alloc_for(server->context->arena, module, bytes, true, address);
    ac_thread_ask_for(thread, server->cache, module);
    return ac_cache_alloc(server->cache, bytes, true, address);
}

/* Serves a request that is not known to be a hit of the thread's cache.  `missed`: the cache that has no
 * block for the request, like the free memory; NULL: no cache was asked. */
static __attribute__((noinline)) ac_runtime_error_t
malloc_slow(ac_thread_t *thread, void **pointer, size_t bytes, const void *caller,
            const ac_cache_t *missed) {
    server_t server = server_for(thread, AC_FAST_MALLOC, caller);
    uint64_t address;
    if (server.context && pointer && bytes && !ac_guard_next(thread) &&
        (!missed || missed != server.cache)) {
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        ac_status_t status =
            alloc_for(thread, &server, ac_module_asking(thread, caller), bytes, &address);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        if (status == AC_OK && ac_fill_served(server.context, address, bytes)) {
            ac_guard_passed(thread);
            ac_trace_hit(thread, server.context, NULL, address, bytes, caller);
            *pointer = (void *)(uintptr_t)address;
            return CUDA_SUCCESS;
        }
    }
    ac_runtime_t *runtime = ac_runtime_of(caller);
    ac_count(thread, AC_COUNT_runtime_forwarded);
    cudaMalloc_fn *real = AC_REAL_RUNTIME(runtime, cudaMalloc);
    if (!real)
        return AC_RUNTIME_MISSING;
    if (thread)
        thread->last_alloc = NULL;
    ac_asking_t asking = ac_asking_begin(thread, caller);
    ac_runtime_error_t result = real(pointer, bytes);
    ac_asking_end(&asking, pointer && result == CUDA_SUCCESS ? *pointer : NULL);
    return proved(runtime, result);
}

/* This function is not inlined, like the functions after a free that misses: with a call inside, a hit would
 * have to save registers. */
static __attribute__((noinline)) ac_runtime_error_t
malloc_missed(ac_thread_t *thread, void **pointer, size_t bytes, const void *caller) {
    ac_cache_t *cache = thread->fast[AC_FAST_MALLOC].cache;
    uint64_t address = pointer ? ac_cache_fetch(cache, bytes) : 0;
    /* If functions of the program can free memory, they are asked before the device. */
    if (__builtin_expect(!address, 0) && pointer && !ac_observed(AC_OBSERVE_FREE))
        address = ac_cache_fetch_ready(cache, bytes);
    if (__builtin_expect(!address, 0)) {
        ac_guard_missed(thread);
        return malloc_slow(thread, pointer, bytes, caller, cache);
    }
    *pointer = (void *)(uintptr_t)address;
    return CUDA_SUCCESS;
}

static __attribute__((noinline)) ac_runtime_error_t malloc_due(const ac_thread_t *thread) {
    ac_cache_raise(thread->fast[AC_FAST_MALLOC].cache);
    return CUDA_SUCCESS;
}

/* Serves a request from the thread's cache for the calling code. */
static inline __attribute__((always_inline)) ac_runtime_error_t
malloc_fast(ac_thread_t *thread, void **pointer, size_t bytes, const void *caller) {
    const ac_fast_t *fast = &thread->fast[AC_FAST_MALLOC];
    uint64_t address;
    ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + AC_HOOK_cudaMalloc]);
    ac_take_t taken = __builtin_expect(!pointer, 0)
                          ? AC_TAKE_NONE
                          : ac_cache_take(fast->cache, bytes, &address, ac_fence_handout_alone);
    if (__builtin_expect(!taken, 0))
        return malloc_missed(thread, pointer, bytes, caller);
    *pointer = (void *)(uintptr_t)address;
    return __builtin_expect(taken == AC_TAKE_DUE, 0) ? malloc_due(thread) : CUDA_SUCCESS;
}

/* Returns true if the thread's cache may serve the request although the code is not fast. */
static inline bool may_ask(ac_thread_t *thread, const void *caller) {
    return thread && ac_thread_recall_fast(thread, AC_FAST_MALLOC, caller) &&
           ac_guard_passes(thread);
}

static __attribute__((noinline)) ac_runtime_error_t
malloc_unknown(ac_thread_t *thread, void **pointer, size_t bytes, const void *caller) {
    if (may_ask(thread, caller))
        return malloc_fast(thread, pointer, bytes, caller);
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_cudaMalloc);
    return malloc_slow(thread, pointer, bytes, caller, NULL);
}

/* Does not contain malloc_unknown: with its calls inside, this function would have to save registers. */
static __attribute__((noinline)) ac_runtime_error_t
malloc_not_fast(ac_thread_t *thread, void **pointer, size_t bytes, const void *caller) {
    if (ac_thread_is_apart(thread, AC_FAST_MALLOC, caller) && ac_guard_counts(thread))
        return malloc_fast(thread, pointer, bytes, caller);
    return malloc_unknown(thread, pointer, bytes, caller);
}

ac_runtime_error_t cudaMalloc(void **pointer, size_t bytes) {
    ac_thread_t *thread = ac_thread_tls;
    const void *caller = __builtin_return_address(0);
    if (__builtin_expect(!ac_thread_is_fast(thread, AC_FAST_MALLOC, caller), 0))
        return malloc_not_fast(thread, pointer, bytes, caller);
    return malloc_fast(thread, pointer, bytes, caller);
}

/* Called after a real free of a thread that may never allocate; `last_free` was NULL before it.  If the
 * free reached our driver hook, this runtime frees through the hook in the current context.  The free
 * does not prove that the runtime would allocate in that context. */
static ac_runtime_error_t proved_to_free(const void *caller, uint64_t generation,
                                         ac_runtime_error_t result) {
    ac_thread_t *thread = ac_thread_tls;
    if (!thread || thread->runtime || result != CUDA_SUCCESS || !thread->last_free ||
        thread->last_free != thread->known || thread->generation != generation ||
        !atomic_load(&ac_fast_path) || !ac_hits_are_simple() ||
        !ac_runtime_may_be_skipped(ac_runtime_of(caller)))
        return result;
    ac_cache_t *cache = ac_thread_cache(thread, thread->known);
    if (cache)
        ac_thread_set_fast(thread, AC_FAST_FREE, caller, generation, cache);
    return result;
}

static ac_status_t free_of(ac_cache_t *cache, uint64_t address, const ac_cache_t *missed) {
    if (!cache)
        return ac_block_free(address);
    return cache == missed ? ac_cache_free_missed(cache, address) : ac_cache_free(cache, address);
}

/* `missed`: the cache that did not keep the block; NULL: none was asked. */
static __attribute__((noinline)) ac_runtime_error_t
free_slow(ac_thread_t *thread, void *pointer, const void *caller, const ac_cache_t *missed) {
    server_t server = server_for(thread, AC_FAST_FREE, caller);
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    if ((server.context || server.cache) && pointer && !ac_frees_may_wait() &&
        !atomic_load(&ac_contexts_ending) && !ac_is_private(address)) {
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        ac_trace_freeing(address, caller);
        ac_guard_freed_by(thread, address, caller);
        ac_status_t status = free_of(server.cache, address, missed);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        if (status == AC_OK)
            return CUDA_SUCCESS;
        ac_trace_freed(address, true);
    }
    ac_count(thread, AC_COUNT_runtime_forwarded);
    cudaFree_fn *real = AC_REAL_RUNTIME(ac_runtime_of(caller), cudaFree);
    if (!real)
        return AC_RUNTIME_MISSING;
    uint64_t generation = ac_generation_now();
    if (thread) {
        thread->last_free = NULL;
        thread->frees_for = caller;
    }
    ac_runtime_error_t result = real(pointer);
    if (thread)
        thread->frees_for = NULL;
    return proved_to_free(caller, generation, result);
}

/* Frees a block of the thread's cache after work was submitted since the block was handed out. */
static __attribute__((noinline)) ac_runtime_error_t
free_rest(ac_thread_t *thread, void *pointer, const void *caller, ac_block_t *block) {
    ac_cache_t *cache = thread->fast[AC_FAST_FREE].cache;
    if (ac_cache_give_rest(cache, block))
        return CUDA_SUCCESS;
    return free_slow(thread, pointer, caller, cache);
}

/* Frees a block after work was submitted: the cache usually keeps it until that work is over. */
static __attribute__((noinline)) ac_runtime_error_t
free_touched(ac_thread_t *thread, void *pointer, const void *caller, ac_block_t *block) {
    return ac_cache_park_rest(thread->fast[AC_FAST_FREE].cache, block)
               ? CUDA_SUCCESS
               : free_rest(thread, pointer, caller, block);
}

static __attribute__((noinline)) ac_runtime_error_t
free_untouched_rest(ac_thread_t *thread, void *pointer, const void *caller, ac_block_t *block) {
    ac_cache_t *cache = thread->fast[AC_FAST_FREE].cache;
    if (ac_cache_give_untouched(cache, block))
        return CUDA_SUCCESS;
    return free_slow(thread, pointer, caller, cache);
}

/* Frees a block that no submission can have used.  It usually goes to the free memory with the next
 * request. */
static __attribute__((noinline)) ac_runtime_error_t
free_untouched(ac_thread_t *thread, void *pointer, const void *caller, ac_block_t *block) {
    return ac_cache_loosen_rest(thread->fast[AC_FAST_FREE].cache, block)
               ? CUDA_SUCCESS
               : free_untouched_rest(thread, pointer, caller, block);
}

/* Frees a block that the cache's table of handed-out blocks does not have, or that the short way refused. */
static __attribute__((noinline)) ac_runtime_error_t
free_missed(ac_thread_t *thread, void *pointer, const void *caller) {
    ac_cache_t *cache = thread->fast[AC_FAST_FREE].cache;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    ac_block_t *block = ac_cache_record(cache, address); /* may be another cache's: checked inside */
    ac_give_t given = block ? ac_cache_give_found_or_rest(cache, address, block) : AC_GIVE_NONE;
    if (given == AC_GIVE_TOUCHED)
        return free_touched(thread, pointer, caller, block);
    if (given == AC_GIVE_REST)
        return free_untouched(thread, pointer, caller, block);
    if (given == AC_GIVE_KEPT || (block && ac_cache_give(cache, block, address)))
        return CUDA_SUCCESS;
    return free_slow(thread, pointer, caller, cache);
}

static inline __attribute__((always_inline)) ac_runtime_error_t
free_fast(ac_thread_t *thread, void *pointer, const void *caller) {
    ac_block_t *block;
    ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + AC_HOOK_cudaFree]);
    ac_give_t given = ac_cache_give_handed_or_rest(thread->fast[AC_FAST_FREE].cache,
                                                   (uint64_t)(uintptr_t)pointer, &block);
    if (__builtin_expect(given == AC_GIVE_TOUCHED, 0))
        return free_touched(thread, pointer, caller, block);
    if (__builtin_expect(given == AC_GIVE_REST, 0))
        return free_untouched(thread, pointer, caller, block);
    return given == AC_GIVE_KEPT ? CUDA_SUCCESS : free_missed(thread, pointer, caller);
}

static inline bool may_free(ac_thread_t *thread, const void *caller) {
    return thread && ac_thread_recall_fast(thread, AC_FAST_FREE, caller) &&
           !ac_thread_records(thread);
}

static __attribute__((noinline)) ac_runtime_error_t
free_unknown(ac_thread_t *thread, void *pointer, const void *caller) {
    if (may_free(thread, caller))
        return free_fast(thread, pointer, caller);
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_cudaFree);
    return free_slow(thread, pointer, caller, NULL);
}

ac_runtime_error_t cudaFree(void *pointer) {
    ac_thread_t *thread = ac_thread_tls;
    const void *caller = __builtin_return_address(0);
    if (__builtin_expect(!ac_thread_is_fast(thread, AC_FAST_FREE, caller), 0))
        return free_unknown(thread, pointer, caller);
    return free_fast(thread, pointer, caller);
}

ac_runtime_error_t cudaSetDevice(int device) {
    ac_runtime_t *runtime = ac_runtime_of(__builtin_return_address(0));
    ac_count(ac_thread_tls, AC_COUNT_HOOKS + AC_HOOK_cudaSetDevice);
    cudaSetDevice_fn *real = AC_REAL_RUNTIME(runtime, cudaSetDevice);
    if (!real)
        return AC_RUNTIME_MISSING;
    ac_runtime_error_t result = real(device);
    ac_thread_forget_device(result == CUDA_SUCCESS ? device : -1);
    return result;
}

/* --- stream-ordered requests and frees that the context's arena can serve --- */

static __attribute__((noinline)) ac_runtime_error_t
malloc_async_slow(ac_hook_t hook, const void *caller, void **pointer, size_t bytes,
                  CUstream stream, bool per_thread) {
    ac_thread_t *thread = ac_thread_tls;
    ac_context_t *context = server_for(thread, AC_FAST_MALLOC, caller).context;
    uint64_t address;
    if (context && pointer && bytes && !ac_guard_next(thread)) {
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        bool hit = ac_async_hit(thread, context, ac_module_asking(thread, caller), bytes, stream,
                                per_thread, &address);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        if (hit) {
            ac_guard_passed(thread);
            ac_fill_served_on(address, bytes, stream, per_thread);
            ac_trace_hit(thread, context, ac_stream_resolved(stream, per_thread), address, bytes,
                         caller);
            *pointer = (void *)(uintptr_t)address;
            return CUDA_SUCCESS;
        }
    }
    const ac_runtime_t *runtime = ac_runtime_of(caller);
    ac_count(thread, AC_COUNT_runtime_forwarded);
    cudaMallocAsync_fn *real = __extension__(cudaMallocAsync_fn *) ac_runtime_get(runtime, hook);
    if (!real)
        return AC_RUNTIME_MISSING;
    if (thread)
        thread->last_alloc = NULL;
    ac_asking_t asking = ac_asking_begin(thread, caller);
    ac_runtime_error_t result = real(pointer, bytes, stream);
    ac_asking_end(&asking, pointer && result == CUDA_SUCCESS ? *pointer : NULL);
    return proved(runtime, result);
}

static __attribute__((noinline)) ac_runtime_error_t
free_async_slow(ac_hook_t hook, const void *caller, void *pointer, CUstream stream,
                bool per_thread) {
    ac_thread_t *thread = ac_thread_tls;
    ac_context_t *context = server_for(thread, AC_FAST_FREE, caller).context;
    if (context && pointer) {
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        ac_trace_freeing_on((uint64_t)(uintptr_t)pointer, ac_stream_resolved(stream, per_thread),
                            caller);
        ac_guard_freed_by(thread, (uint64_t)(uintptr_t)pointer, caller);
        bool done =
            ac_async_free(thread, context, (uint64_t)(uintptr_t)pointer, stream, per_thread);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        if (done)
            return CUDA_SUCCESS;
        ac_trace_freed((uint64_t)(uintptr_t)pointer, true);
    }
    ac_count(thread, AC_COUNT_runtime_forwarded);
    cudaFreeAsync_fn *real =
        __extension__(cudaFreeAsync_fn *) ac_runtime_get(ac_runtime_of(caller), hook);
    if (!real)
        return AC_RUNTIME_MISSING;
    if (thread)
        thread->frees_for = caller;
    ac_runtime_error_t result = real(pointer, stream);
    if (thread)
        thread->frees_for = NULL;
    return result;
}


static inline ac_runtime_error_t malloc_async(ac_hook_t hook, const void *caller, void **pointer,
                                              size_t bytes, CUstream stream, bool per_thread) {
    ac_thread_t *thread = ac_thread_tls;
    ac_take_t taken = AC_TAKE_NONE;
    uint64_t address;
    if (pointer && (__builtin_expect(ac_thread_is_fast(thread, AC_FAST_MALLOC, caller), 1) ||
                    (ac_thread_is_apart(thread, AC_FAST_MALLOC, caller) && ac_guard_counts(thread)) ||
                    may_ask(thread, caller))) {
        ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + hook]);
        taken = ac_lane_take(thread->fast[AC_FAST_MALLOC].cache,
                             ac_stream_resolved(stream, per_thread), bytes, &address);
        if (__builtin_expect(!taken, 0))
            ac_guard_missed(thread);
    } else {
        ac_count(thread, AC_COUNT_HOOKS + hook);
    }
    if (__builtin_expect(!taken, 0))
        return malloc_async_slow(hook, caller, pointer, bytes, stream, per_thread);
    *pointer = (void *)(uintptr_t)address;
    return __builtin_expect(taken == AC_TAKE_DUE, 0) ? malloc_due(thread) : CUDA_SUCCESS;
}

static inline ac_runtime_error_t free_async(ac_hook_t hook, const void *caller, void *pointer,
                                            CUstream stream, bool per_thread) {
    ac_thread_t *thread = ac_thread_tls;
    if (__builtin_expect(ac_thread_is_fast(thread, AC_FAST_FREE, caller), 1) || may_free(thread, caller)) {
        ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + hook]);
        if (ac_lane_give(thread->fast[AC_FAST_FREE].cache, ac_stream_resolved(stream, per_thread),
                         (uint64_t)(uintptr_t)pointer))
            return CUDA_SUCCESS;
    } else {
        ac_count(thread, AC_COUNT_HOOKS + hook);
    }
    return free_async_slow(hook, caller, pointer, stream, per_thread);
}

#define STREAM_ORDERED(suffix, per_thread)                                                       \
    ac_runtime_error_t cudaMallocAsync##suffix(void **pointer, size_t bytes, CUstream stream) {  \
        return malloc_async(AC_HOOK_cudaMallocAsync##suffix, __builtin_return_address(0),        \
                            pointer, bytes, stream, per_thread);                                 \
    }                                                                                            \
    ac_runtime_error_t cudaFreeAsync##suffix(void *pointer, CUstream stream) {                   \
        return free_async(AC_HOOK_cudaFreeAsync##suffix, __builtin_return_address(0), pointer,   \
                          stream, per_thread);                                                   \
    }
STREAM_ORDERED(, false)
STREAM_ORDERED(_ptsz, true)

/* --- other functions: always forwarded; their memory counts for the module that asked --- */

/* `outcome`: the block's address after the call.  If the program passes NULL, the runtime answers. */
#define FORWARDED(symbol, params, args, outcome)                                                 \
    ac_runtime_error_t symbol params {                                                           \
        ac_thread_t *thread = ac_thread_tls;                                                     \
        const void *caller = __builtin_return_address(0);                                        \
        ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_##symbol);                                     \
        ac_count(thread, AC_COUNT_runtime_forwarded);                                            \
        symbol##_fn *real = AC_REAL_RUNTIME(ac_runtime_of(caller), symbol);                      \
        if (!real)                                                                               \
            return AC_RUNTIME_MISSING;                                                           \
        ac_asking_t asking = ac_asking_begin(thread, caller);                                    \
        ac_runtime_error_t result = real args;                                                   \
        ac_asking_end(&asking, result == CUDA_SUCCESS && pointer ? (outcome) : NULL);            \
        return result;                                                                           \
    }
FORWARDED(cudaMallocPitch, (void **pointer, size_t *pitch, size_t width, size_t height),
          (pointer, pitch, width, height), *pointer)
FORWARDED(cudaMalloc3D, (ac_pitched_t * pointer, ac_extent_t extent), (pointer, extent),
          pointer->pointer)
FORWARDED(cudaMallocFromPoolAsync,
          (void **pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
          (pointer, bytes, pool, stream), *pointer)
FORWARDED(cudaMallocFromPoolAsync_ptsz,
          (void **pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
          (pointer, bytes, pool, stream), *pointer)
