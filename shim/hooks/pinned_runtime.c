/* Hooks of the runtime's functions for pinned memory.  A hit does not enter the runtime if the
 * thread knows the driver call that the runtime would make.
 *
 * CUDA does not document which function of the driver the runtime calls, and with which flags.  The
 * thread therefore learns it from a request that goes through the runtime: its record keeps the call
 * that reached our driver hook, and the context (ac_pinned_path_t).  The record is valid for
 * requests of the thread by the same runtime with the same flags, until the generation grows or the
 * thread's context may have changed.  Every other call goes through the runtime. */
#include "hooks/pinned_int.h"
#include "bind/runtimes.h"

/* Returns the path that the thread knows for the runtime; NULL: none. */
static ac_pinned_path_t *path_of(ac_thread_t *thread, const ac_runtime_t *runtime) {
    if (!thread || !thread->pinned.context || thread->pinned.runtime != runtime ||
        thread->pinned.generation != ac_generation_now() ||
        atomic_load_explicit(&ac_current_unseen, memory_order_relaxed) ||
        ac_fence_broken(thread->pinned.context->timeline))
        return NULL;
    return &thread->pinned;
}

static bool hit(const void *caller, unsigned function, unsigned flags, size_t bytes, void **out) {
    ac_thread_t *thread = ac_thread_tls;
    if (!thread || !thread->pinned.context || !out || !bytes || flags >= AC_PINNED_FLAGS)
        return false;
    const ac_pinned_path_t *path = path_of(thread, ac_runtime_of(caller));
    uint32_t kind = path ? path->kind[function][flags] : 0;
    if (!kind || !ac_pinned_hit(thread, path->context, kind - 1, bytes, out))
        return false;
    ac_record_beside(thread, AC_EVENT_PINNED_ALLOC, (uintptr_t)*out, bytes, caller);
    return true;
}

/* Called before the runtime's function, for the code at `caller`. */
static uint64_t ask_begin(const void *caller) {
    ac_thread_t *thread = ac_thread_tls;
    ac_count(thread, AC_COUNT_runtime_forwarded);
    if (thread) {
        thread->pinned_seen.context = NULL;
        thread->asks_from = caller;
    }
    return ac_generation_now();
}

/* Called after the runtime's function: remembers the call that reached the driver hook. */
static void ask_end(const void *caller, unsigned function, unsigned flags, uint64_t generation,
                    ac_runtime_error_t result) {
    ac_thread_t *thread = ac_thread_tls;
    if (thread)
        thread->asks_from = NULL;
    if (!thread || result != CUDA_SUCCESS || !thread->pinned_seen.context ||
        flags >= AC_PINNED_FLAGS || thread->pinned_seen.context != thread->known ||
        thread->generation != generation || !atomic_load(&ac_fast_path))
        return;
    ac_pinned_path_t *path = &thread->pinned;
    const ac_runtime_t *runtime = ac_runtime_of(caller);
    if (!ac_runtime_may_be_skipped(runtime))
        return;
    if (path->context != thread->known || path->runtime != runtime ||
        path->generation != generation)
        *path = (ac_pinned_path_t){
            .context = thread->known, .runtime = runtime, .generation = generation};
    path->kind[function][flags] = thread->pinned_seen.kind + 1;
}

ac_runtime_error_t cudaMallocHost(void **pointer, size_t bytes) {
    const void *caller = __builtin_return_address(0);
    ac_count(ac_thread_tls, AC_COUNT_HOOKS + AC_HOOK_cudaMallocHost);
    if (hit(caller, AC_PINNED_PLAIN, 0, bytes, pointer))
        return CUDA_SUCCESS;
    cudaMallocHost_fn *real = AC_REAL_RUNTIME(ac_runtime_of(caller), cudaMallocHost);
    if (!real)
        return AC_RUNTIME_MISSING;
    uint64_t generation = ask_begin(caller);
    ac_runtime_error_t result = real(pointer, bytes);
    ask_end(caller, AC_PINNED_PLAIN, 0, generation, result);
    return result;
}

ac_runtime_error_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    const void *caller = __builtin_return_address(0);
    ac_count(ac_thread_tls, AC_COUNT_HOOKS + AC_HOOK_cudaHostAlloc);
    if (hit(caller, AC_PINNED_FLAGGED, flags, bytes, pointer))
        return CUDA_SUCCESS;
    cudaHostAlloc_fn *real = AC_REAL_RUNTIME(ac_runtime_of(caller), cudaHostAlloc);
    if (!real)
        return AC_RUNTIME_MISSING;
    uint64_t generation = ask_begin(caller);
    ac_runtime_error_t result = real(pointer, bytes, flags);
    ask_end(caller, AC_PINNED_FLAGGED, flags, generation, result);
    return result;
}

ac_runtime_error_t cudaFreeHost(void *pointer) {
    const void *caller = __builtin_return_address(0);
    ac_thread_t *thread = ac_thread_tls;
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_cudaFreeHost);
    if (pointer && thread && thread->pinned.context && path_of(thread, ac_runtime_of(caller)) &&
        !ac_frees_may_wait() && !atomic_load(&ac_contexts_ending) &&
        ac_pinned_free_hit(thread, pointer, caller))
        return CUDA_SUCCESS;
    cudaFreeHost_fn *real = AC_REAL_RUNTIME(ac_runtime_of(caller), cudaFreeHost);
    ac_count(thread, AC_COUNT_runtime_forwarded);
    if (!real)
        return AC_RUNTIME_MISSING;
    if (!thread)
        return real(pointer);
    thread->asks_from = caller;
    ac_runtime_error_t result = real(pointer);
    thread->asks_from = NULL;
    return result;
}
