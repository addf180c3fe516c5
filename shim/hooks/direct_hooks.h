/* Device memory that the driver gives the program without the allocator: physical memory, arrays, and the
 * part of cuMemAlloc and of memory pools that the driver serves.
 *
 * A limit counts it.  A hook claims the bytes, asks the driver, records the result and ends the claim; so
 * threads together never exceed the limit.  The records (observe/beside.h) have their own counters, and a
 * beginning and an end in the history.  If `thread` is NULL, nothing is recorded. */
#ifndef AC_DIRECT_H
#define AC_DIRECT_H

#include "track/context.h"
#include "track/thread.h"
#include "observe/history.h"

/* Bytes that a call of the driver is about to take: a claim. */
typedef struct {
    CUdevice device;
    uint64_t bytes; /* 0: a limit counts nothing */
    bool held;      /* between _begin and _end */
} ac_claim_t;

/* Return a claim of the bytes that a call takes: cuMemCreate (_physical), or a call for the current context's
 * device (_here).  The claim is empty if no limit is set, or if the driver would refuse the arguments. */
ac_claim_t ac_claim_physical(ac_thread_t *thread, uint64_t bytes, const CUmemAllocationProp *what,
                             unsigned long long flags);
ac_claim_t ac_claim_here(ac_thread_t *thread, uint64_t bytes);

/* Begin the claim.  False: a limit forbids the call, and the answer is "out of memory".  _begin tries again
 * after memory pools and the cache gave back idle memory; _try does not. */
bool ac_claim_try(ac_claim_t *claim);
bool ac_claim_begin(ac_claim_t *claim);

/* Ends the claim; does nothing if the claim is not held. */
void ac_claim_end(ac_claim_t *claim);

/* Ends the claim if the driver's `result` is an error.  Returns `result`. */
static inline CUresult ac_claim_result(ac_claim_t *claim, CUresult result) {
    if (result != CUDA_SUCCESS)
        ac_claim_end(claim);
    return result;
}
#define AC_CLAIMED(claim, call)                                                                  \
    (ac_claim_begin(claim) ? ac_claim_result(claim, call) : CUDA_ERROR_OUT_OF_MEMORY)

/* Record physical memory: what cuMemCreate returned, a mapping of it, and one more handle to it.  Memory of the
 * host is not counted for a device. */
void ac_direct_physical(ac_thread_t *thread, CUmemGenericAllocationHandle handle, uint64_t bytes,
                        const CUmemLocation *location, const void *caller);
void ac_direct_mapped(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes,
                      CUmemGenericAllocationHandle handle);
void ac_direct_retained(ac_thread_t *thread, CUmemGenericAllocationHandle handle);

/* Records an array or a mipmapped array that the driver made. */
void ac_direct_array(ac_thread_t *thread, uint64_t handle, uint64_t bytes, const void *caller);

/* Record memory that the driver served: of cuMemAlloc in the current context (_plain), or of the pool with that
 * number (_pooled).  Pooled memory counts with its pool until the pool is destroyed (_pool_gone). */
void ac_direct_plain(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes);
void ac_direct_pooled(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes, unsigned pool);
void ac_direct_pool_gone(unsigned pool);

/* Returns the serial of recorded memory at the address; 0: there is no record.  Call it before the driver's
 * free. */
uint64_t ac_direct_serial(const ac_thread_t *thread, CUdeviceptr address);

/* Ends the record with that serial after the driver's free, if `result` is success. */
void ac_direct_freed(CUdeviceptr address, uint64_t serial, CUresult result);

/* Ends the records of a destroyed context: its arrays and its memory have gone with it. */
void ac_direct_context_gone(const ac_context_t *context);

/* Returns the address to give the driver in a call on mapped memory.  For memory that the program did not map
 * it is AC_UNOWNED, which the driver refuses. */
CUdeviceptr ac_direct_address(CUdeviceptr address, uint64_t bytes);

#endif
