/* Refused frees: frees of memory that is already free, and of addresses inside a block. They are counted,
 * and the first of each kind prints a warning on stderr. It names the module that frees and the module
 * that asked for the block, if they are known. The program gets the driver's answer in any case. */
#ifndef AC_WRONG_FREE_H
#define AC_WRONG_FREE_H

#include "device/cuda_abi.h"
#include "track/thread.h"

/* Reports a refused free of `address`, which lies in a segment of the library. `caller` is the code that
 * called the driver's hook, unless the thread is in a call of the runtime (frees_for). */
void ac_wrong_free(ac_thread_t *thread, uint64_t address, const void *caller);

/* Reports a refused free of memory of a private pool (accelcache.h), and returns the result of the call.
 * The segment of the pool may belong to the driver or to the library. */
CUresult ac_wrong_free_private(ac_thread_t *thread, uint64_t address);

#endif
