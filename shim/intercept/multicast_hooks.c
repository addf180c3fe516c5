/* Memory of several devices behind one address. */
#include "intercept/body.h"

/* Memory of cuMemAlloc cannot be bound, that of a pool only if it was made to be shared.  Pages of
 * ours could be: their blocks would be written from other devices when they are long another owner's,
 * and they would have to stay where they are. */
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                             CUdeviceptr address, size_t size, unsigned long long flags) {
    AC_ENTER_OR_RETURN(cuMulticastBindAddr);
    CUresult result;
    CUdeviceptr asked = ac_owned(address) ? AC_UNOWNED : address;
    AC_RETRY(result, AC_NEED_UNKNOWN, real(object, offset, asked, size, flags));
    return result;
}
