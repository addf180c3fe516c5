/* See late.h.  As C++ libraries with static containers of device memory do. */
#include "late.h"

static CUdeviceptr kept;

void late_keep(CUdeviceptr block) {
    kept = block;
}

__attribute__((destructor)) static void finalise(void) {
    if (kept)
        cuMemFree_v2(kept);
}
