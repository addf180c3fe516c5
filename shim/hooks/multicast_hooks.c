/* Hooks of multicast objects: memory of several devices behind one address. */
#include "hooks/body.h"
#include "track/mempools.h"
#include "observe/log.h"

/* Leaves all memory pools to the driver if the object may be bound to memory of cudaMallocAsync.  An
 * object for other processes takes only memory that can be shared, which is never ours, and changes
 * nothing.  A program asks for the granularity before it allocates the memory to bind. */
static void leave_pools(const CUmulticastObjectProp *prop) {
    if (!prop->handleTypes)
        ac_mempools_leave(AC_PASSED(kind));
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                   CUmulticastGranularity_flags option) {
    AC_ENTER_OR_RETURN(cuMulticastGetGranularity);
    CUresult result = real(granularity, prop, option);
    if (result == CUDA_SUCCESS)
        leave_pools(prop);
    return result;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *object,
                           const CUmulticastObjectProp *prop) {
    AC_ENTER_OR_RETURN(cuMulticastCreate);
    CUresult result;
    AC_RETRY(result, AC_NEED_UNKNOWN, real(object, prop));
    if (result == CUDA_SUCCESS)
        leave_pools(prop);
    return result;
}

/* Returns an address that the driver refuses for memory of ours: memory of cuMemAlloc cannot be bound.
 * The driver would bind pages of ours.  Other devices could then write to blocks that already have
 * another owner, and the pages could not move. */
static CUdeviceptr bindable(CUdeviceptr address) {
    return ac_owned(address) ? AC_UNOWNED : address;
}

static void say_not_bound(CUdeviceptr address) {
    ac_block_info_t info;
    if (ac_owned(address) && ac_block_find(address, &info) == AC_OK && ac_block_is_pooled(&info))
        ac_log_once(AC_LOG_WARNING,
                    "memory of cudaMallocAsync was not bound to a multicast object: accelcache "
                    "served it before it could know; ask cuMulticastGetGranularity for such an "
                    "object before it is allocated");
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                             CUdeviceptr address, size_t size, unsigned long long flags) {
    AC_ENTER_OR_RETURN(cuMulticastBindAddr);
    CUresult result;
    AC_RETRY(result, AC_NEED_UNKNOWN, real(object, offset, bindable(address), size, flags));
    say_not_bound(address);
    return result;
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device,
                                size_t offset, CUdeviceptr address, size_t size,
                                unsigned long long flags) {
    AC_ENTER_OR_RETURN(cuMulticastBindAddr_v2);
    CUresult result;
    AC_RETRY(result, AC_NEED_UNKNOWN,
             real(object, device, offset, bindable(address), size, flags));
    say_not_bound(address);
    return result;
}
