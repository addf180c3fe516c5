/* Memory of devices that the driver gives the program past the allocator: physical memory, arrays, and what it
 * serves of cuMemAlloc and of memory pools.
 *
 * A limit counts it: a hook claims the bytes, asks the driver, records what came of it and ends the claim, so
 * that threads together never pass the limit.  What is recorded (observe/beside.h) has counters of its own,
 * and a beginning and an end in the history.  Nothing is recorded where `thread` is NULL. */
#ifndef AC_DIRECT_H
#define AC_DIRECT_H

#include "track/context.h"
#include "track/thread.h"
#include "observe/history.h"

/* Bytes that a call of the driver is about to take. */
typedef struct {
    CUdevice device;
    uint64_t bytes; /* 0: none that a limit counts */
    bool held;      /* between _begin and _end */
} ac_claim_t;

/* Bytes that the calls take; _here: on the current context's device.  None if no limit is set, or if the driver
 * would refuse the arguments. */
ac_claim_t ac_claim_physical(ac_thread_t *thread, uint64_t bytes, const CUmemAllocationProp *what,
                             unsigned long long flags);
ac_claim_t ac_claim_here(ac_thread_t *thread, uint64_t bytes);

/* False: a limit forbids the call, and the answer is "out of memory".  _begin tries again after memory pools and
 * the cache gave back idle memory; _try does not. */
bool ac_claim_try(ac_claim_t *claim);
bool ac_claim_begin(ac_claim_t *claim);
void ac_claim_end(ac_claim_t *claim);

/* The driver answered `result`: a claim that failed has ended. */
static inline CUresult ac_claim_result(ac_claim_t *claim, CUresult result) {
    if (result != CUDA_SUCCESS)
        ac_claim_end(claim);
    return result;
}
#define AC_CLAIMED(claim, call)                                                                  \
    (ac_claim_begin(claim) ? ac_claim_result(claim, call) : CUDA_ERROR_OUT_OF_MEMORY)

/* cuMemCreate; memory of the host is none of a device's. */
void ac_direct_physical(ac_thread_t *thread, CUmemGenericAllocationHandle handle, uint64_t bytes,
                        const CUmemLocation *location, const void *caller);
void ac_direct_mapped(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes,
                      CUmemGenericAllocationHandle handle);
void ac_direct_retained(ac_thread_t *thread, CUmemGenericAllocationHandle handle);

/* An array or a mipmapped one. */
void ac_direct_array(ac_thread_t *thread, uint64_t handle, uint64_t bytes, const void *caller);

/* cuMemAlloc that the driver served, in the current context; memory of a pool, by its number, which counts with
 * the pool until that is destroyed (_pool_gone). */
void ac_direct_plain(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes);
void ac_direct_pooled(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes, unsigned pool);
void ac_direct_pool_gone(unsigned pool);

/* Around the driver's free of such memory: _serial before it, 0 where it is not known; _freed after it. */
uint64_t ac_direct_serial(const ac_thread_t *thread, CUdeviceptr address);
void ac_direct_freed(CUdeviceptr address, uint64_t serial, CUresult result);

/* Its arrays and its memory have gone with it. */
void ac_direct_context_gone(const ac_context_t *context);

/* The address for a call on mapped memory: AC_UNOWNED, which the driver refuses, for memory that the
 * program did not map. */
CUdeviceptr ac_direct_address(CUdeviceptr address, uint64_t bytes);

#endif
