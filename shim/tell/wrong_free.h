/* Frees that are refused: of memory that is free already, and of addresses inside a block.  They are
 * counted, and the first of each kind is said on stderr: which module frees, and which one asked for
 * the block, where that is known.  The program gets the driver's answer all the same. */
#ifndef AC_WRONG_FREE_H
#define AC_WRONG_FREE_H

#include "device/cuda_abi.h"
#include "track/thread.h"

/* A free of `address`, which lies in our segments, was refused.  `caller`: the code that called the
 * driver's hook, where the thread is in no call of the runtime (frees_for). */
void ac_wrong_free(ac_thread_t *thread, uint64_t address, const void *caller);

/* The same of memory of a private pool (accelcache.h), whose segment may be the driver's as well as ours:
 * what the call answers. */
CUresult ac_wrong_free_private(ac_thread_t *thread, uint64_t address);

#endif
