/* The runtime's own names: a hit is served without entering the runtime when the thread's context
 * is known; everything else goes through the real runtime function, which arrives at the driver
 * hooks by itself, so that lazy initialisation and cudaGetLastError stay the runtime's own. */
#include "intercept/body.h"
#include "intercept/runtimes.h"

typedef int cudaError_type;
typedef cudaError_type cuda_malloc_fn(void **, size_t);
typedef cudaError_type cuda_free_fn(void *);
typedef cudaError_type cuda_set_device_fn(int);
AC_EXPORT cuda_malloc_fn cudaMalloc;
AC_EXPORT cuda_free_fn cudaFree;
AC_EXPORT cuda_set_device_fn cudaSetDevice;

/* What a runtime without the function, or no runtime at all, is told: cudaErrorSymbolNotFound. */
enum { RUNTIME_MISSING = 500 };

/* The context that cudaMalloc of this runtime is known to use in this thread, or NULL. */
static ac_context_t *fast_context(ac_thread_t *thread, const ac_runtime_t *runtime) {
    if (!thread || !thread->runtime || thread->prover != runtime ||
        atomic_load_explicit(&ac_current_unseen, memory_order_relaxed) ||
        thread->generation != ac_generation_now() ||
        atomic_load_explicit(&thread->runtime->line->broken, memory_order_relaxed))
        return NULL;
    return thread->runtime;
}

/* ISO C has no conversion from void * to a function pointer. */
#define REAL_RUNTIME(type, symbol)                                                               \
    union {                                                                                      \
        void *address;                                                                           \
        type *call;                                                                              \
    } real = {ac_runtime_get(runtime, AC_HOOK_##symbol)};                                        \
    if (!real.address)                                                                           \
    return RUNTIME_MISSING

cudaError_type cudaMalloc(void **pointer, size_t bytes) {
    ac_thread_t *thread = ac_thread_tls;
    ac_runtime_t *runtime = ac_runtime_of(__builtin_return_address(0));
    ac_context_t *context = fast_context(thread, runtime);
    uint64_t address;
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_cudaMalloc);
    if (context && pointer && bytes) {
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        ac_status_t status = ac_arena_alloc(context->arena, bytes, true, &address);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        if (status == AC_OK) {
            *pointer = (void *)(uintptr_t)address;
            ac_count(thread, AC_COUNT_fast_hits);
            return CUDA_SUCCESS;
        }
    }
    REAL_RUNTIME(cuda_malloc_fn, cudaMalloc);
    if (thread)
        thread->last_alloc = NULL;
    cudaError_type result = real.call(pointer, bytes);
    thread = ac_thread_tls;
    bool proved = thread && result == CUDA_SUCCESS && atomic_load(&ac_fast_path) &&
                  thread->last_alloc == thread->known;
    if (thread) {
        thread->runtime = proved ? thread->known : NULL;
        thread->prover = runtime;
    }
    return result;
}

cudaError_type cudaFree(void *pointer) {
    ac_thread_t *thread = ac_thread_tls;
    ac_runtime_t *runtime = ac_runtime_of(__builtin_return_address(0));
    ac_context_t *context = fast_context(thread, runtime);
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_cudaFree);
    if (context && pointer && !ac_config.free_sync) {
        uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
        ac_status_t status = ac_block_free((uint64_t)(uintptr_t)pointer);
        ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
        if (status == AC_OK) {
            ac_count(thread, AC_COUNT_fast_hits);
            return CUDA_SUCCESS;
        }
    }
    REAL_RUNTIME(cuda_free_fn, cudaFree);
    return real.call(pointer);
}

cudaError_type cudaSetDevice(int device) {
    ac_runtime_t *runtime = ac_runtime_of(__builtin_return_address(0));
    ac_count(ac_thread_tls, AC_COUNT_HOOKS + AC_HOOK_cudaSetDevice);
    REAL_RUNTIME(cuda_set_device_fn, cudaSetDevice);
    cudaError_type result = real.call(device);
    ac_thread_forget();
    return result;
}
