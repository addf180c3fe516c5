/* Physical memory and arrays of the program (direct.h), and the calls that end them. */
#include "intercept/direct.h"

#include "allocator/space/page_map.h"
#include "intercept/body.h"
#include "intercept/ipc.h"
#include "intercept/recording.h"
#include "observe/beside.h"

/* Memory of cuMemAlloc, on pages or not, is no mapping of the program, nor is that of another process. */
CUdeviceptr ac_direct_address(CUdeviceptr address, uint64_t bytes) {
    bool countable = bytes <= (uint64_t)1 << 48 && address <= UINT64_MAX - bytes;
    bool ours = ac_block_arena(address) || (countable && ac_page_map_is_owned(address, bytes));
    return ours || ac_ipc_covers(address) ? AC_UNOWNED : address;
}

static void tell_end(ac_thread_t *thread, const ac_beside_t *ended, const void *caller) {
    ac_record_event(thread,
                    ended->kind == AC_BESIDE_ARRAY ? AC_EVENT_ARRAY_FREE : AC_EVENT_PHYSICAL_FREE,
                    ended->device, ended->handle, ended->bytes, caller);
}

/* Before its event, so that what had the number before ends in front of it. */
static void begin(ac_thread_t *thread, const ac_beside_t *made, const void *caller) {
    ac_beside_t ended;
    if (ac_beside_begin(made, &ended))
        tell_end(thread, &ended, NULL);
    ac_record_event(thread,
                    made->kind == AC_BESIDE_ARRAY ? AC_EVENT_ARRAY : AC_EVENT_PHYSICAL,
                    made->device, made->handle, made->bytes, caller);
}

void ac_direct_physical(ac_thread_t *thread, CUmemGenericAllocationHandle handle, uint64_t bytes,
                        const CUmemLocation *location, const void *caller) {
    if (!ac_history_is_on() || !thread || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return;
    begin(thread,
          &(ac_beside_t){.kind = AC_BESIDE_PHYSICAL,
                         .handle = handle,
                         .bytes = bytes,
                         .device = (uint16_t)location->id},
          caller);
}

void ac_direct_array(ac_thread_t *thread, uint64_t handle, uint64_t bytes, const void *caller) {
    ac_context_t *context = ac_history_is_on() && thread ? ac_context_of_stream(thread, NULL) : NULL;
    if (!context)
        return;
    begin(thread,
          &(ac_beside_t){.kind = AC_BESIDE_ARRAY,
                         .handle = handle,
                         .bytes = bytes,
                         .context = context,
                         .device = (uint16_t)context->cuda.device},
          caller);
}

void ac_direct_mapped(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes,
                      CUmemGenericAllocationHandle handle) {
    if (ac_history_is_on() && thread)
        ac_beside_map(address, bytes, handle);
}

void ac_direct_retained(ac_thread_t *thread, CUmemGenericAllocationHandle handle) {
    if (ac_history_is_on() && thread)
        ac_beside_retain(handle);
}

void ac_direct_context_gone(const ac_context_t *context) {
    ac_beside_t ended;
    bool again = true;
    while (again && ac_history_is_on()) {
        size_t at = 0;
        again = false;
        while (ac_beside_lost(context, &at, &ended)) {
            again = true;
            if (ac_thread_tls) /* without, they go as well: another context may get this record */
                tell_end(ac_thread_tls, &ended, NULL);
        }
    }
}

/* The serial is asked for before the driver may give the number again. */
#define END(symbol, which, handle)                                                               \
    AC_ENTER_OR_RETURN(symbol);                                                                  \
    ac_beside_t ended;                                                                           \
    uint64_t number = (uint64_t)(handle);                                                        \
    uint64_t serial =                                                                            \
        ac_history_is_on() && thread ? ac_beside_serial(AC_BESIDE_##which, number) : 0;          \
    CUresult result = real(handle);                                                              \
    ac_context_note_current(thread, result);                                                     \
    if (result == CUDA_SUCCESS && serial &&                                                      \
        ac_beside_end(AC_BESIDE_##which, number, serial, &ended))                                \
        tell_end(thread, &ended, __builtin_return_address(0));                                   \
    return result

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    END(cuMemRelease, PHYSICAL, handle);
}

CUresult cuArrayDestroy(CUarray array) {
    END(cuArrayDestroy, ARRAY, array);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    END(cuMipmappedArrayDestroy, ARRAY, array);
}

/* A mapping that another thread makes at these addresses comes after this call by the program's own order. */
CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    AC_ENTER_OR_RETURN(cuMemUnmap);
    ac_beside_t ended;
    uint64_t at = address;
    CUresult result = real(ac_direct_address(address, size), size);
    ac_context_note_current(thread, result);
    while (result == CUDA_SUCCESS && ac_history_is_on() && thread &&
           ac_beside_unmap(&at, address + size, &ended))
        tell_end(thread, &ended, __builtin_return_address(0));
    return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    AC_ENTER_OR_RETURN(cuMemAddressFree);
    (void)thread;
    return real(ac_direct_address(address, size), size);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuMemGetAccess);
    (void)thread;
    return real(flags, location, ac_direct_address(address, 1));
}
