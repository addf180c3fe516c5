/* Pinned host memory: requests, frees, and the answers to queries about a block.
 *
 * The runtime's cudaMallocHost, cudaHostAlloc and cudaFreeHost arrive here.  CUDA documents no wait
 * of cudaFreeHost.  A free works like cudaFree: the host waits only with free_sync, and the memory
 * waits for all work that was submitted to any context. */
#include "hooks/pinned_int.h"

#include "allocator/order/capture.h"
#include "device/driver.h"
#include "observe/host_memory.h"

/* --- requests --- */

enum {
    FLAGS = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED
};

/* The kind of memory of cuMemAllocHost: the call has no flags, and the driver chooses them. */
enum { PLAIN = 1 << 16 };

static CUresult ask(void **out, size_t bytes, uint32_t kind) {
    return kind == PLAIN ? AC_REAL(cuMemAllocHost_v2)(out, bytes)
                         : AC_REAL(cuMemHostAlloc)(out, bytes, kind);
}

/* Returns true if the context's requests are cached.  With green contexts none are: the driver may
 * say that the memory belongs to the green context. */
static bool is_kept_in(const ac_context_t *context) {
    return ac_is_enabled() && ac_process_config()->pinned_cache &&
           !atomic_load(&context->cuda.green);
}

static ac_context_t *pinned_context(ac_thread_t *thread) {
    ac_context_t *context =
        ac_process_config()->pinned_cache ? ac_context_serving(thread) : NULL;
    return context && is_kept_in(context) ? context : NULL;
}

static bool take(const ac_host_key_t *key, uint64_t size, uint64_t bytes, void **out) {
    uint64_t address, now = ac_cuda_ops.now_ns();
    if (!ac_host_take(&ac_pinned, key, size, bytes, now, &address) &&
        (size == bytes || !ac_host_take(&ac_pinned, key, bytes, bytes, now, &address)))
        return false;
    *out = (void *)(uintptr_t)address;
    return true;
}

/* Serves a request from the cache: from ready blocks, then from blocks that a query of the device
 * shows to be ready.  While any stream captures, the driver has to be asked: it usually refuses a
 * request for pinned memory and invalidates the capture. */
static bool hit(const ac_host_key_t *key, uint64_t size, uint64_t bytes, void **out) {
    if (!ac_host_kept(&ac_pinned) || ac_order_capturing())
        return false;
    if (take(key, size, bytes, out))
        return true;
    if (!ac_host_waits(&ac_pinned, key, size))
        return false;
    ac_fence_close(NULL, AC_REACH_ALL);
    ac_fence_poll(NULL, AC_REACH_ALL);
    return take(key, size, bytes, out);
}

/* Gets memory from the driver.  If memory is short, the size is not rounded. */
static CUresult obtain(ac_thread_t *thread, ac_context_t *context, const ac_host_key_t *key,
                       uint64_t size, size_t bytes, void **out) {
    uint64_t begin = ac_cuda_ops.now_ns();
    CUresult result = ask(out, size, key->kind);
    for (int wait = 0; wait < 2 && result == CUDA_ERROR_OUT_OF_MEMORY; wait++)
        if (ac_pinned_make_room(context, bytes, wait))
            result = ask(out, size = bytes, key->kind);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && size != bytes)
        result = ask(out, size = bytes, key->kind);
    AC_RETRY_AFTER(result, AC_NEED_HOST(bytes), ask(out, bytes, key->kind));
    ac_count_add(thread, AC_COUNT_pinned_driver_ns, ac_cuda_ops.now_ns() - begin);
    if (result == CUDA_SUCCESS)
        ac_host_add(&ac_pinned, key, (uintptr_t)*out, size, bytes);
    return result;
}

static bool serve(ac_thread_t *thread, const ac_host_key_t *key, uint64_t size, size_t bytes,
                  void **out) {
    uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
    bool served = hit(key, size, bytes, out);
    ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
    if (served)
        ac_count(thread, AC_COUNT_pinned_cached_allocs);
    if (served && key->kind != PLAIN && (key->kind & CU_MEMHOSTALLOC_DEVICEMAP))
        ac_shown_memory((uintptr_t)*out);
    return served;
}

bool ac_pinned_hit(ac_thread_t *thread, ac_context_t *context, uint32_t kind, size_t bytes,
                   void **out) {
    uint64_t size = is_kept_in(context) ? ac_host_size(bytes) : 0;
    const ac_host_key_t key = {context, kind, ac_host_memory_node()};
    return size && serve(thread, &key, size, bytes, out);
}

static CUresult alloc(ac_thread_t *thread, void **out, size_t bytes, uint32_t kind) {
    CUresult result;
    bool plain = out && bytes && (kind == PLAIN || kind <= FLAGS);
    ac_context_t *context = plain ? pinned_context(thread) : NULL;
    uint64_t size = context ? ac_host_size(bytes) : 0;
    if (context) {
        thread->pinned_seen.context = context;
        thread->pinned_seen.kind = kind;
    }
    if (!size) {
        AC_RETRY(result, AC_NEED_HOST(bytes), ask(out, bytes, kind));
    } else {
        ac_host_key_t key = {context, kind, ac_host_memory_node()};
        if (serve(thread, &key, size, bytes, out))
            return CUDA_SUCCESS;
        result = obtain(thread, context, &key, size, bytes, out);
    }
    ac_context_note_current(thread, result);
    return result;
}

static CUresult recorded(ac_thread_t *thread, CUresult result, void **out, size_t bytes,
                         unsigned flags, const void *caller) {
    if (result == CUDA_SUCCESS && thread && out && (flags & CU_MEMHOSTALLOC_DEVICEMAP))
        ac_shown_memory((uintptr_t)*out);
    if (result == CUDA_SUCCESS && out)
        ac_record_beside(thread, AC_EVENT_PINNED_ALLOC, (uintptr_t)*out, bytes, caller);
    return result;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    AC_ENTER_OR_RETURN(cuMemHostAlloc);
    return recorded(thread,
                    flags < PLAIN ? alloc(thread, out, bytes, flags) : real(out, bytes, flags),
                    out, bytes, flags, __builtin_return_address(0));
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
    AC_ENTER_OR_RETURN(cuMemAllocHost_v2);
    return recorded(thread, alloc(thread, out, bytes, PLAIN), out, bytes, 0,
                    __builtin_return_address(0));
}

/* --- frees --- */

static CUresult driver_free(ac_thread_t *thread, cuMemFreeHost_fn *real, void *memory) {
    uint64_t begin = ac_cuda_ops.now_ns();
    CUresult result = real(memory);
    ac_count_add(thread, AC_COUNT_pinned_driver_ns, ac_cuda_ops.now_ns() - begin);
    ac_context_note_current(thread, result);
    return result;
}

static CUresult free_ours(ac_thread_t *thread, cuMemFreeHost_fn *real, void *memory) {
    ac_host_block_t *block;
    ac_context_t *context = ac_context_serving(thread);
    if (context && !ac_frees_wait() && ac_frees_may_wait())
        ac_free_await_in(thread, context);
    if (context && ac_frees_wait()) {
        CUresult result = ac_context_await(context);
        if (result != CUDA_SUCCESS && ac_driver_sticky(result))
            return result;
    }
    uint64_t limit = context ? ac_pinned_limit() : 0, now = ac_cuda_ops.now_ns();
    switch (ac_host_give(&ac_pinned, (uintptr_t)memory, limit, limit, now, &block)) {
    case AC_HOST_DEFERRED:
        ac_count(thread, AC_COUNT_pinned_deferred_frees);
        break;
    case AC_HOST_WAITS:
        ac_count(thread, AC_COUNT_pinned_fenced_frees);
        break;
    case AC_HOST_READY:
        break;
    case AC_HOST_LEAVES: {
        CUresult result = driver_free(thread, real, memory);
        ac_host_left(&ac_pinned, block, result == CUDA_SUCCESS, now);
        return result;
    }
    case AC_HOST_BAD: /* freed before, or inside a block: the driver reports the error */
        ac_count(thread, AC_COUNT_bad_frees);
        return real((void *)(uintptr_t)AC_UNOWNED);
    default: /* its context was destroyed meanwhile */
        return real(memory);
    }
    ac_count(thread, AC_COUNT_pinned_cached_frees);
    if (ac_host_kept(&ac_pinned) > limit)
        ac_pinned_give_back(UINT64_MAX, limit);
    return CUDA_SUCCESS;
}

/* Records the event before the free, since another block may have the address right after it.  If
 * the free fails, a second event cancels the first. */
static CUresult free_recorded(ac_thread_t *thread, cuMemFreeHost_fn *real, void *memory, bool ours,
                              const void *caller) {
    uint64_t address = (uintptr_t)memory;
    if (memory)
        ac_record_beside(thread, AC_EVENT_PINNED_FREE, address, 0, caller);
    CUresult result = ours ? free_ours(thread, real, memory) : real(memory);
    if (result == CUDA_SUCCESS && thread)
        ac_shown_memory_gone(address);
    if (memory && result != CUDA_SUCCESS)
        ac_record_beside(thread, AC_EVENT_REFUSED, address, 0, NULL);
    return result;
}

CUresult cuMemFreeHost(void *memory) {
    AC_ENTER_OR_RETURN(cuMemFreeHost);
    ac_host_info_t info;
    bool ours = thread && memory && ac_pinned_find((uintptr_t)memory, &info);
    CUresult result = free_recorded(thread, real, memory, ours, __builtin_return_address(0));
    if (!ours)
        ac_context_note_current(thread, result);
    return result;
}

bool ac_pinned_free_hit(ac_thread_t *thread, void *memory, const void *caller) {
    ac_host_info_t info;
    uint64_t address = (uintptr_t)memory;
    if (!ac_pinned_find(address, &info) || !info.allocated || info.address != address)
        return false;
    return free_recorded(thread, AC_REAL(cuMemFreeHost), memory, true, caller) == CUDA_SUCCESS;
}

CUresult ac_pinned_plain_free(cuMemFree_v2_fn *real, CUdeviceptr pointer) {
    ac_host_info_t info;
    if (!ac_pinned_find(pointer, &info))
        return real(pointer);
    CUresult result = real(info.allocated ? pointer : AC_UNOWNED);
    if (result == CUDA_SUCCESS)
        ac_host_forget(&ac_pinned, pointer);
    return result;
}

/* --- queries: the driver's answers, corrected for blocks of the cache --- */

static uint64_t seen(CUdeviceptr address, const ac_host_info_t *info) {
    return info->allocated ? address : AC_UNOWNED;
}

/* Replaces the rounded size by the requested one. */
static void patch_size(size_t *size, const ac_host_info_t *info) {
    if (*size == info->size)
        *size = info->requested;
}

static void patch(CUpointer_attribute attribute, const ac_host_info_t *info, void *data) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        patch_size(data, info);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        if (*(uint64_t *)data) /* 0: it has none */
            *(uint64_t *)data = info->id;
        break;
    default:
        break;
    }
}

CUresult ac_pinned_range(cuMemGetAddressRange_v2_fn *real, CUdeviceptr *base, size_t *size,
                         CUdeviceptr address, const ac_host_info_t *info) {
    CUresult result = real(base, size, seen(address, info));
    if (result == CUDA_SUCCESS && size)
        patch_size(size, info);
    return result;
}

CUresult ac_pinned_attribute(cuPointerGetAttribute_fn *real, void *data,
                             CUpointer_attribute attribute, CUdeviceptr address,
                             const ac_host_info_t *info) {
    CUresult result = real(data, attribute, seen(address, info));
    if (result == CUDA_SUCCESS && info->allocated)
        patch(attribute, info, data);
    return result;
}

CUresult ac_pinned_attributes(cuPointerGetAttributes_fn *real, unsigned count,
                              CUpointer_attribute *attributes, void **data, CUdeviceptr address,
                              const ac_host_info_t *info) {
    CUresult result = real(count, attributes, data, seen(address, info));
    for (unsigned i = 0; result == CUDA_SUCCESS && info->allocated && i < count; i++)
        patch(attributes[i], info, data[i]);
    return result;
}

/* The driver now remembers a setting of this block, so the block goes back to the driver at its
 * free. */
CUresult ac_pinned_set_attribute(cuPointerSetAttribute_fn *real, const void *value,
                                 CUpointer_attribute attribute, CUdeviceptr address,
                                 const ac_host_info_t *info) {
    ac_host_taint(&ac_pinned, address);
    return real(value, attribute, seen(address, info));
}

void ac_pinned_shared(uint64_t address) {
    ac_host_info_t info;
    if (ac_pinned_find(address, &info))
        ac_host_taint(&ac_pinned, address);
}

static void *seen_host(void *memory) {
    ac_host_info_t info;
    return ac_pinned_find((uintptr_t)memory, &info)
               ? (void *)(uintptr_t)seen((uintptr_t)memory, &info)
               : memory;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory, unsigned flags) {
    AC_ENTER_OR_RETURN(cuMemHostGetDevicePointer_v2);
    CUresult result = real(out, seen_host(memory), flags);
    if (result == CUDA_SUCCESS && thread)
        ac_shown_memory((uintptr_t)memory);
    return result;
}

CUresult cuMemHostUnregister(void *memory) {
    AC_ENTER_OR_RETURN(cuMemHostUnregister);
    CUresult result = real(seen_host(memory));
    if (result == CUDA_SUCCESS && thread)
        ac_shown_memory_gone((uintptr_t)memory);
    return result;
}

CUresult cuMemHostGetFlags(unsigned *out, void *memory) {
    AC_ENTER_OR_RETURN(cuMemHostGetFlags);
    (void)thread;
    return real(out, seen_host(memory));
}
