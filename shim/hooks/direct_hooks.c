/* Physical memory, arrays and plain memory of the driver (direct_hooks.h), and the calls that free them. */
#include "hooks/direct_hooks.h"

#include "allocator/space/page_map.h"
#include "device/driver.h"
#include "device/wait.h"
#include "hooks/body.h"
#include "track/devices.h"
#include "hooks/ipc.h"
#include "track/mempools.h"
#include "tell/recording.h"
#include "observe/beside.h"

/* Memory of cuMemAlloc, on pages or not, is no mapping of the program.  Memory of another process is none,
 * either. */
CUdeviceptr ac_direct_address(CUdeviceptr address, uint64_t bytes) {
    bool countable = bytes <= (uint64_t)1 << 48 && address <= UINT64_MAX - bytes;
    bool ours = ac_block_arena(address) || (countable && ac_page_map_is_owned(address, bytes));
    return ours || ac_ipc_covers(address) ? AC_UNOWNED : address;
}

/* --- claims --- */

static ac_claim_t no_claim(void) {
    return (ac_claim_t){.bytes = 0};
}

/* A query of the granularity tells if the driver would refuse the arguments.  A call with wrong arguments claims
 * nothing, so that the driver reports its usual error even if the limit is reached. */
ac_claim_t ac_claim_physical(ac_thread_t *thread, uint64_t bytes, const CUmemAllocationProp *what,
                             unsigned long long flags) {
    size_t unit = 0;
    bool counts = thread && ac_device_limited() && what && !flags && bytes &&
                  what->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                  ac_driver.cuMemGetAllocationGranularity &&
                  ac_driver.cuMemGetAllocationGranularity(
                      &unit, what, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
                  unit && bytes % unit == 0;
    return counts ? (ac_claim_t){.device = what->location.id, .bytes = bytes} : no_claim();
}

ac_claim_t ac_claim_here(ac_thread_t *thread, uint64_t bytes) {
    const ac_context_t *context =
        thread && ac_device_limited() ? ac_context_of_stream(thread, NULL) : NULL;
    return context ? (ac_claim_t){.device = context->cuda.device, .bytes = bytes} : no_claim();
}

bool ac_claim_try(ac_claim_t *claim) {
    ac_allocator_t *allocator = claim->bytes ? ac_device_allocator(claim->device) : NULL;
    if (!allocator)
        return true;
    ac_mempools_look(claim->device);
    claim->held = ac_allocator_claim(allocator, claim->bytes);
    return claim->held;
}

/* The number of rounds is bounded, because other threads may take the memory that comes back. */
bool ac_claim_begin(ac_claim_t *claim) {
    enum { ROUNDS = 8, NAP_NS = 1000000 };
    for (int round = 0; round < ROUNDS; round++) {
        if (ac_claim_try(claim) || (ac_mempools_yield(claim->device) && ac_claim_try(claim)))
            return true;
        if (!ac_allocator_trim(ac_device_allocator(claim->device), false))
            ac_nap(NAP_NS); /* another thread may be giving memory back now */
    }
    return false;
}

void ac_claim_end(ac_claim_t *claim) {
    if (claim->held)
        ac_allocator_claimed(ac_device_allocator(claim->device), claim->bytes);
    claim->held = false;
}

/* --- beginnings --- */

static void hold(const ac_beside_t *memory, int64_t sign) {
    static const size_t figures[] = {
        [AC_BESIDE_PHYSICAL] = offsetof(ac_device_counters_t, physical_bytes),
        [AC_BESIDE_ARRAY] = offsetof(ac_device_counters_t, array_bytes),
        [AC_BESIDE_PLAIN] = offsetof(ac_device_counters_t, driver_bytes)};
    bool pooled = memory->kind == AC_BESIDE_PLAIN && memory->memory;
    ac_allocator_t *allocator = pooled ? NULL : ac_device_allocator(memory->device);
    if (allocator && memory->bytes)
        ac_allocator_hold(allocator, figures[memory->kind], sign * (int64_t)memory->bytes);
}

static void note_end(ac_thread_t *thread, const ac_beside_t *ended, const void *caller) {
    hold(ended, -1);
    if (thread && ended->told && ac_history_is_on())
        ac_record_event(
            thread, ended->kind == AC_BESIDE_ARRAY ? AC_EVENT_ARRAY_FREE : AC_EVENT_PHYSICAL_FREE,
            ended->device, ended->handle, ended->bytes, caller);
}

/* Counts memory, records it, and then writes its event.  The count comes first, because another thread may end
 * the memory once it is recorded.  The record comes before the event, so that the end of older memory with the
 * same number precedes it. */
static void begin(ac_thread_t *thread, ac_beside_t *made, const void *caller) {
    ac_beside_t ended;
    made->told = made->kind != AC_BESIDE_PLAIN && ac_history_is_on();
    hold(made, 1);
    if (ac_beside_begin(made, &ended))
        note_end(thread, &ended, NULL);
    if (!made->serial)
        hold(made, -1);
    if (made->told)
        ac_record_event(thread,
                        made->kind == AC_BESIDE_ARRAY ? AC_EVENT_ARRAY : AC_EVENT_PHYSICAL,
                        made->device, made->handle, made->bytes, caller);
}

/* Returns true if memory is recorded.  With enabled:false the history alone needs it. */
static bool records(const ac_thread_t *thread) {
    return thread && (ac_is_enabled() || ac_history_is_on());
}

void ac_direct_physical(ac_thread_t *thread, CUmemGenericAllocationHandle handle, uint64_t bytes,
                        const CUmemLocation *location, const void *caller) {
    if (thread && location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        ac_shown_memory(0);
    if (!records(thread) || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return;
    begin(thread,
          &(ac_beside_t){.kind = AC_BESIDE_PHYSICAL,
                         .handle = handle,
                         .bytes = bytes,
                         .device = (uint16_t)location->id},
          caller);
}

static void begin_here(ac_thread_t *thread, ac_beside_kind_t kind, uint64_t handle,
                       uint64_t bytes, const void *caller) {
    ac_context_t *context = records(thread) ? ac_context_of_stream(thread, NULL) : NULL;
    if (context)
        begin(thread,
              &(ac_beside_t){.kind = (uint8_t)kind,
                             .handle = handle,
                             .bytes = bytes,
                             .context = context,
                             .device = (uint16_t)context->cuda.device},
              caller);
}

void ac_direct_array(ac_thread_t *thread, uint64_t handle, uint64_t bytes, const void *caller) {
    begin_here(thread, AC_BESIDE_ARRAY, handle, bytes, caller);
}

void ac_direct_plain(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes) {
    if (ac_is_enabled())
        begin_here(thread, AC_BESIDE_PLAIN, address, bytes, NULL);
}

void ac_direct_pooled(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes, unsigned pool) {
    if (thread && ac_is_enabled() && ac_mempool_resides(pool))
        begin(thread,
              &(ac_beside_t){.kind = AC_BESIDE_PLAIN,
                             .handle = address,
                             .bytes = bytes,
                             .memory = pool,
                             .device = (uint16_t)ac_mempool_device(pool)},
              NULL);
}

/* Makes the pool's memory plain memory.  Its bytes are counted first, because it may be freed as plain memory
 * right after; bytes that were freed meanwhile are subtracted. */
void ac_direct_pool_gone(unsigned pool) {
    ac_beside_t memory = {.kind = AC_BESIDE_PLAIN, .device = (uint16_t)ac_mempool_device(pool)};
    if (!ac_mempool_resides(pool))
        return;
    memory.bytes = ac_beside_pooled(pool, false);
    hold(&memory, 1);
    memory.bytes -= ac_beside_pooled(pool, true);
    hold(&memory, -1);
}

void ac_direct_mapped(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes,
                      CUmemGenericAllocationHandle handle) {
    if (thread)
        ac_beside_map(address, bytes, handle);
}

void ac_direct_retained(ac_thread_t *thread, CUmemGenericAllocationHandle handle) {
    if (thread)
        ac_beside_retain(handle);
}

/* --- ends --- */

void ac_direct_context_gone(const ac_context_t *context) {
    ac_beside_t ended;
    for (bool again = true; again;) {
        size_t at = 0;
        again = false;
        while (ac_beside_lost(context, &at, &ended)) {
            again = true;
            note_end(ac_thread_tls, &ended, NULL);
        }
    }
}

uint64_t ac_direct_serial(const ac_thread_t *thread, CUdeviceptr address) {
    return thread ? ac_beside_serial(AC_BESIDE_PLAIN, address) : 0;
}

void ac_direct_freed(CUdeviceptr address, uint64_t serial, CUresult result) {
    ac_beside_t ended;
    if (serial && result == CUDA_SUCCESS &&
        ac_beside_end(AC_BESIDE_PLAIN, address, serial, &ended))
        note_end(NULL, &ended, NULL);
}

/* Reads the serial before the driver's call: during the call the driver may give the number again. */
#define END(symbol, which, handle)                                                               \
    AC_ENTER_OR_RETURN(symbol);                                                                  \
    ac_beside_t ended;                                                                           \
    uint64_t number = (uint64_t)(handle);                                                        \
    uint64_t serial = thread ? ac_beside_serial(AC_BESIDE_##which, number) : 0;                  \
    CUresult result = real(handle);                                                              \
    ac_context_note_current(thread, result);                                                     \
    if (result == CUDA_SUCCESS && serial &&                                                      \
        ac_beside_end(AC_BESIDE_##which, number, serial, &ended))                                \
        note_end(thread, &ended, __builtin_return_address(0));                                   \
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

/* Ends the mappings after the driver's call.  Another thread's new mapping at these addresses comes after this
 * call, by the program's own order. */
CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    AC_ENTER_OR_RETURN(cuMemUnmap);
    ac_beside_t ended;
    uint64_t at = address;
    CUresult result = real(ac_direct_address(address, size), size);
    ac_context_note_current(thread, result);
    while (result == CUDA_SUCCESS && thread && ac_beside_unmap(&at, address + size, &ended))
        note_end(thread, &ended, __builtin_return_address(0));
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
