/* The memory that copies and fills name.
 *
 * A range that begins in memory of ours has to lie in one block that the program holds, up to the end of
 * the block's last granule: the driver, which knows segments, would let it overwrite the neighbours.  Not
 * checked: host addresses, memory of others, arguments that the driver refuses anyway, and everything
 * with check_ranges:false.
 *
 * The short way accepts only: from the blocks that the thread's last ranges lay in.  What refuses is a
 * look under the lock of the memory's owner. */
#ifndef AC_REACH_H
#define AC_REACH_H

#include "allocator/allocator.h"
#include "device/cuda_abi.h"
#include "intercept/thread.h"

/* Elements as bytes.  What has no number there is more than any block has. */
static inline uint64_t ac_reach_bytes(uint64_t count, unsigned element) {
    uint64_t bytes;
    return __builtin_mul_overflow(count, element, &bytes) ? UINT64_MAX : bytes;
}

/* Index of an address in `reached`. */
static inline uint32_t ac_reach_place(uint64_t address) {
    return (uint32_t)(address >> AC_GRANULE_BITS) * 0x9e3779b1u >> (32 - AC_REACHED_BITS);
}

/* Returns true if the range lies in a block of the thread's last ranges; false proves nothing. */
static inline bool ac_reach_is_known(const ac_thread_t *thread, uint64_t address,
                                     uint64_t bytes) {
    return ac_block_has(thread->reached[ac_reach_place(address)], address, bytes);
}

/* A new thread has no last ranges. */
void ac_reach_begin(ac_thread_t *thread);

/* Whether the range may be used, or is not ours to judge.  Takes a lock. */
bool ac_reach_look(ac_thread_t *thread, uint64_t address, uint64_t bytes);

static inline bool ac_reach_ok(ac_thread_t *thread, uint64_t address, uint64_t bytes) {
    return __builtin_expect(ac_reach_is_known(thread, address, bytes), 1) ||
           !ac_page_map_owner(address) || ac_reach_look(thread, address, bytes);
}

/* The same of whole calls, which name more than one range: rows of a fill, both sides of a copy, the
 * entries of a batch, which of them is refused in *refused (may be NULL). */
bool ac_reach_rows(ac_thread_t *thread, uint64_t address, uint64_t pitch, uint64_t width,
                   unsigned element, uint64_t rows);
bool ac_reach_2d(ac_thread_t *thread, const CUDA_MEMCPY2D *copy);
bool ac_reach_3d(ac_thread_t *thread, const CUDA_MEMCPY3D *copy);
bool ac_reach_3d_peer(ac_thread_t *thread, const CUDA_MEMCPY3D_PEER *copy);
bool ac_reach_batch(ac_thread_t *thread, const CUdeviceptr *to, const CUdeviceptr *from,
                    const size_t *bytes, size_t count, size_t *refused);
bool ac_reach_3d_batch(ac_thread_t *thread, const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count,
                       size_t *refused);
bool ac_reach_node(ac_thread_t *thread, const CUgraphNodeParams *params);
bool ac_reach_memset(ac_thread_t *thread, const CUDA_MEMSET_NODE_PARAMS *fill);

#endif
