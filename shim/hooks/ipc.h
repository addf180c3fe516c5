/* Interface between the hooks for IPC (ipc_export.c, ipc_import.c) and the other hooks. */
#ifndef AC_IPC_H
#define AC_IPC_H

#include "device/cuda_abi.h"
#include "track/ipc_views.h"

/* Called at activation. */
void ac_ipc_setup(void);

/* Serves the C API like cuIpcGetMemHandle, and also shares memory that was allocated in the order of
 * a stream. */
CUresult ac_ipc_share(CUipcMemHandle *handle, CUdeviceptr address);

/* Return the driver's answer about an address that is not ours, and correct it for imported memory.
 * A block of another process is described as an allocation of its own.  The rest of the mapping that
 * contains the block is described as no memory of this process. */
CUresult ac_ipc_address_range(cuMemGetAddressRange_v2_fn *real, CUdeviceptr *base, size_t *size,
                              CUdeviceptr address);
CUresult ac_ipc_attribute(cuPointerGetAttribute_fn *real, void *data,
                          CUpointer_attribute attribute, CUdeviceptr address);
CUresult ac_ipc_attributes(cuPointerGetAttributes_fn *real, unsigned count,
                           CUpointer_attribute *attributes, void **data, CUdeviceptr address);

/* Returns true if the address lies in an open mapping of another process's memory. */
static inline bool ac_ipc_covers(CUdeviceptr address) {
    ac_ipc_view_t view;
    return atomic_load(&ac_ipc_mappings) && ac_ipc_find(address, &view) != AC_IPC_ELSEWHERE;
}

#endif
