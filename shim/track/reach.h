/* Checks the device memory that copies and fills name.
 *
 * A range that begins in memory of the library must lie in one block that the program holds.  It may
 * extend to the end of the block's last granule.  The driver knows only segments: it would let the
 * call overwrite neighbours.  Not checked: host addresses, memory of other owners, arguments that the
 * driver refuses by itself, and everything with check_ranges:false.
 *
 * The short way only accepts: it knows blocks that the thread named recently.  Only a look-up under
 * the lock of the memory's owner refuses. */
#ifndef AC_REACH_H
#define AC_REACH_H

#include "allocator/allocator.h"
#include "device/cuda_abi.h"
#include "track/thread.h"

/* Returns the bytes of `count` elements.  If the product overflows, returns UINT64_MAX, which no
 * block has. */
static inline uint64_t ac_reach_bytes(uint64_t count, unsigned element) {
    uint64_t bytes;
    return __builtin_mul_overflow(count, element, &bytes) ? UINT64_MAX : bytes;
}

/* Returns the index of an address in `reached`. */
static inline uint32_t ac_reach_place(uint64_t address) {
    return (uint32_t)address * 0x9e3779b1u >> (32 - AC_REACHED_BITS);
}

/* Clears the recent blocks of a new thread. */
void ac_reach_begin(ac_thread_t *thread);

/* Returns false if the range must not be used.  Takes a lock. */
bool ac_reach_look(ac_thread_t *thread, ac_named_t side, uint64_t address, uint64_t bytes);

static inline bool ac_reach_ok(ac_thread_t *thread, ac_named_t side, uint64_t address,
                               uint64_t bytes) {
    if (__builtin_expect(ac_block_has(thread->last_reached[side], address, bytes), 1))
        return true;
    const ac_block_t *block = thread->reached[ac_reach_place(address)];
    if (!ac_block_has(block, address, bytes))
        return !ac_page_map_owner(address) || ac_reach_look(thread, side, address, bytes);
    thread->last_reached[side] = block;
    return true;
}

/* Returns true if the rows lie in the last block of the side, with the bytes after each row up to the
 * pitch; false proves nothing.  Signed numbers save one instruction: the driver refuses negative
 * ones. */
static inline bool ac_reach_rows_last(const ac_thread_t *thread, ac_named_t side, uint64_t address,
                                      uint64_t pitch, uint64_t width, uint64_t rows) {
    int64_t bytes;
    return width <= pitch &&
           !__builtin_mul_overflow((int64_t)pitch, (int64_t)rows, &bytes) &&
           ac_block_has(thread->last_reached[side], address, (uint64_t)bytes);
}

#define AC_REACH_LAST(thread, side, copy, which)                                                 \
    ac_reach_rows_last(thread, side,                                                             \
                       (copy)->which##Device + (copy)->which##XInBytes +                         \
                           (copy)->which##Y * (copy)->which##Pitch,                              \
                       (copy)->which##Pitch, (copy)->WidthInBytes, (copy)->Height)

/* Return false if the call names memory that must not be used. */
bool ac_reach_rows_look(ac_thread_t *thread, uint64_t address, uint64_t pitch, uint64_t width,
                        uint64_t rows);
bool ac_reach_2d_look(ac_thread_t *thread, const CUDA_MEMCPY2D *copy);
bool ac_reach_3d(ac_thread_t *thread, const CUDA_MEMCPY3D *copy);
bool ac_reach_3d_peer(ac_thread_t *thread, const CUDA_MEMCPY3D_PEER *copy);
bool ac_reach_node(ac_thread_t *thread, const CUgraphNodeParams *params);
bool ac_reach_memset(ac_thread_t *thread, const CUDA_MEMSET_NODE_PARAMS *fill);

__attribute__((always_inline)) static inline bool
ac_reach_rows(ac_thread_t *thread, uint64_t address, uint64_t pitch, uint64_t width,
              unsigned element, uint64_t rows) {
    width = ac_reach_bytes(width, element);
    return ac_reach_rows_last(thread, AC_NAMED_TO, address, pitch, width, rows) ||
           ac_reach_rows_look(thread, address, pitch, width, rows);
}

__attribute__((always_inline)) static inline bool ac_reach_2d(ac_thread_t *thread,
                                                              const CUDA_MEMCPY2D *copy) {
    return !copy ||
           (AC_REACH_LAST(thread, AC_NAMED_FROM, copy, src) &&
            AC_REACH_LAST(thread, AC_NAMED_TO, copy, dst)) ||
           ac_reach_2d_look(thread, copy);
}

/* Check batches and return false if an entry must not be used; *refused, if not NULL, is that entry. */
bool ac_reach_batch(ac_thread_t *thread, const CUdeviceptr *to, const CUdeviceptr *from,
                    const size_t *bytes, size_t count, size_t *refused);
bool ac_reach_3d_batch(ac_thread_t *thread, const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count,
                       size_t *refused);

#endif
