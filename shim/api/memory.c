/* Memory by the C API (accelcache.h): the same hooks as a program's own calls, so that the rules
 * and the figures are theirs. */
#include "api/api_int.h"

#include "allocator/cache/thread_cache.h"
#include "device/driver.h"
#include "bind/hooks.h"
#include "track/modules.h"
#include "tell/recording.h"

accel_status_t ac_api_status(CUresult result) {
    switch (result) {
    case CUDA_SUCCESS:
        return ACCEL_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return ACCEL_ERROR_DEVICE_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
        return ACCEL_ERROR_INVALID;
    default:
        return ACCEL_ERROR_CUDA;
    }
}

/* The result of a first try, which most often finds a context current. */
#define FIRST_TRY(call) (ac_is_active() ? (call) : CUDA_ERROR_NOT_INITIALIZED)

/* The likely result is checked first. */
#define LIKELY_DONE(result) __builtin_expect((result) == CUDA_SUCCESS, 1)

/* Returns true if the call lacked a device in its first try and there is one now, so that it has to be repeated.
 * *status: the answer if not. */
static bool again(CUresult result, accel_status_t *status) {
    *status = ac_api_status(result);
    if (result != CUDA_ERROR_NOT_INITIALIZED && result != CUDA_ERROR_INVALID_CONTEXT)
        return false;
    *status = ac_api_have_context();
    return *status == ACCEL_OK;
}

/* Calls the driver's hook, which counts the call. */
static __attribute__((noinline)) accel_status_t malloc_hooked(void **pointer, size_t bytes,
                                                              const void *caller) {
    CUdeviceptr address = 0;
    accel_status_t status = ACCEL_OK;
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    CUresult first = bytes ? FIRST_TRY(ac_mem_alloc(&address, bytes, caller)) : CUDA_SUCCESS;
    if (!LIKELY_DONE(first) && again(first, &status))
        status = ac_api_status(ac_mem_alloc(&address, bytes, caller));
    if (status == ACCEL_OK)
        *pointer = (void *)(uintptr_t)address;
    return status;
}

static __attribute__((noinline)) accel_status_t malloc_due(ac_cache_t *cache) {
    ac_cache_raise(cache);
    return ACCEL_OK;
}

/* A hit of the thread's cache makes no call of the hook, which would be a third of its cost. */
accel_status_t accel_malloc(void **pointer, size_t bytes) {
    ac_thread_t *thread = ac_thread_tls;
    const void *caller = __builtin_return_address(0);
    uint64_t address;
    if (!pointer || !ac_thread_is_fast(thread, AC_FAST_DRIVER_MALLOC, caller))
        return malloc_hooked(pointer, bytes, caller);
    ac_cache_t *cache = thread->fast[AC_FAST_DRIVER_MALLOC].cache;
    ac_take_t taken = ac_cache_take(cache, bytes, &address, ac_fence_handout_alone);
    if (__builtin_expect(!taken, 0))
        return malloc_hooked(pointer, bytes, caller);
    ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + AC_HOOK_cuMemAlloc_v2]);
    *pointer = (void *)(uintptr_t)address;
    return __builtin_expect(taken == AC_TAKE_DUE, 0) ? malloc_due(cache) : ACCEL_OK;
}

accel_status_t ac_api_refused(uint64_t address) {
    ac_block_info_t block;
    if (ac_block_find(address, &block) != AC_OK)
        return ACCEL_ERROR_NOT_OURS;
    if (!block.allocated)
        return ACCEL_ERROR_DOUBLE_FREE;
    return block.address == address ? ACCEL_ERROR_INVALID : ACCEL_ERROR_INTERIOR;
}

static __attribute__((noinline)) accel_status_t free_hooked(void *pointer) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    accel_status_t status = ac_pool_free(address);
    if (status != ACCEL_ERROR_NOT_OURS)
        return status;
    CUresult first = address ? FIRST_TRY(cuMemFree_v2(address)) : CUDA_SUCCESS;
    if (LIKELY_DONE(first))
        return ACCEL_OK;
    if (again(first, &status))
        status = ac_api_status(cuMemFree_v2(address));
    return status == ACCEL_ERROR_INVALID ? ac_api_refused(address) : status;
}

accel_status_t accel_free(void *pointer) {
    ac_thread_t *thread = ac_thread_tls;
    if (!ac_thread_is_fast(thread, AC_FAST_DRIVER, NULL) ||
        !ac_cache_give_handed(thread->fast[AC_FAST_DRIVER].cache, (uint64_t)(uintptr_t)pointer))
        return free_hooked(pointer);
    ac_count_row(&thread->row->counter[AC_COUNT_HOOKS + AC_HOOK_cuMemFree_v2]);
    return ACCEL_OK;
}

accel_status_t ac_api_malloc_async(void **pointer, size_t bytes, void *stream,
                                   const void *caller) {
    CUdeviceptr address = 0;
    accel_status_t status = ACCEL_OK;
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    ac_asking_t asking = ac_asking_begin(ac_thread_tls, caller);
    if (bytes && again(FIRST_TRY(cuMemAllocAsync(&address, bytes, stream)), &status))
        status = ac_api_status(cuMemAllocAsync(&address, bytes, stream));
    ac_asking_end(&asking, (void *)(uintptr_t)address);
    if (status == ACCEL_OK)
        *pointer = (void *)(uintptr_t)address;
    return status;
}

/* If another call freed the block before, an old record may be left. */
accel_status_t accel_malloc_async(void **pointer, size_t bytes, void *stream) {
    accel_status_t status =
        ac_api_malloc_async(pointer, bytes, stream, __builtin_return_address(0));
    if (status == ACCEL_OK)
        ac_raw_drop((uint64_t)(uintptr_t)*pointer);
    return status;
}

accel_status_t ac_api_free_async(void *pointer, void *stream) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    accel_status_t status = ACCEL_OK;
    if (address && again(FIRST_TRY(cuMemFreeAsync(address, stream)), &status))
        status = ac_api_status(cuMemFreeAsync(address, stream));
    return status == ACCEL_ERROR_INVALID ? ac_api_refused(address) : status;
}

/* The record goes first: once the block is free, it is another thread's. */
accel_status_t accel_free_async(void *pointer, void *stream) {
    ac_raw_t raw;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    accel_status_t pooled = ac_pool_free_after(address, stream);
    if (pooled != ACCEL_ERROR_NOT_OURS)
        return pooled;
    bool noted = ac_raw_take(address, &raw);
    accel_status_t status = ac_api_free_async(pointer, stream);
    if (noted)
        ac_raw_put_back(&raw, status);
    return status;
}
