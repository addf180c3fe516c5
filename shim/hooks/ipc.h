/* IPC between the files that keep it (ipc_export.c, ipc_import.c) and the other hooks. */
#ifndef AC_IPC_H
#define AC_IPC_H

#include "device/cuda_abi.h"
#include "track/ipc_views.h"

/* From activation. */
void ac_ipc_setup(void);

/* cuIpcGetMemHandle for the C API, whose memory may be shared though it was allocated in the order of
 * a stream. */
CUresult ac_ipc_share(CUipcMemHandle *handle, CUdeviceptr address);

/* The driver's answer about an address that is not ours, put right where it is imported: of a block
 * of another process it speaks as of an allocation of its own, and other parts of the mapping that
 * the block lies in are no memory of this process. */
CUresult ac_ipc_address_range(cuMemGetAddressRange_v2_fn *real, CUdeviceptr *base, size_t *size,
                              CUdeviceptr address);
CUresult ac_ipc_attribute(cuPointerGetAttribute_fn *real, void *data,
                          CUpointer_attribute attribute, CUdeviceptr address);
CUresult ac_ipc_attributes(cuPointerGetAttributes_fn *real, unsigned count,
                           CUpointer_attribute *attributes, void **data, CUdeviceptr address);

/* Whether the address lies in what is open of other processes. */
static inline bool ac_ipc_covers(CUdeviceptr address) {
    ac_ipc_view_t view;
    return atomic_load(&ac_ipc_mappings) && ac_ipc_find(address, &view) != AC_IPC_ELSEWHERE;
}

#endif
