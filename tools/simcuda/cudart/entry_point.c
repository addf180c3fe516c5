/* cudaGetDriverEntryPoint: the program asks the runtime for driver functions.  The runtime asks
 * the cuGetProcAddress that it found itself. */
#include "internal.h"

/* A missing symbol is no failure: the pointer is NULL, and the status gives the reason. */
static CUresult query(const char *symbol, void **out, unsigned version, unsigned long long flags,
                      enum cudaDriverEntryPointQueryResult *status, enum simrt_mode mode) {
    if (symbol == NULL || out == NULL || version > INT32_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags == cudaEnableDefault && mode == RT_PER_THREAD) {
        flags = cudaEnablePerThreadDefaultStream;
    }
    void *address = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result =
        RT_DRIVER(cuGetProcAddress_v2)(symbol, &address, (int)version, flags, &found);
    if (result == CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER) { /* CUDA 11.3 to 11.8 */
        result = RT_DRIVER(cuGetProcAddress)(symbol, &address, (int)version, flags);
        found = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS
                                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    if (result == CUDA_ERROR_NOT_FOUND) {
        address = NULL;
        result = CUDA_SUCCESS;
        if (found == CU_GET_PROC_ADDRESS_SUCCESS) {
            found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        }
    }
    if (result == CUDA_SUCCESS) {
        *out = address;
        if (status != NULL) {
            *status = (enum cudaDriverEntryPointQueryResult)found;
        }
    }
    return result;
}

#if RT_MAJOR >= 12
cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    RT_CALL(simrt_initialize, query(symbol, out, RT_VERSION, flags, status, RT_LEGACY));
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **out, unsigned long long flags,
                                         enum cudaDriverEntryPointQueryResult *status) {
    RT_CALL(simrt_initialize, query(symbol, out, RT_VERSION, flags, status, RT_PER_THREAD));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    RT_CALL(simrt_initialize, query(symbol, out, version, flags, status, RT_LEGACY));
}

cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **out,
                                                  unsigned version, unsigned long long flags,
                                                  enum cudaDriverEntryPointQueryResult *status) {
    RT_CALL(simrt_initialize, query(symbol, out, version, flags, status, RT_PER_THREAD));
}
#else
/* Version 11 has no status, so a missing symbol is an error there. */
static CUresult query_or_fail(const char *symbol, void **out, unsigned long long flags,
                              enum simrt_mode mode) {
    CUresult result = query(symbol, out, RT_VERSION, flags, NULL, mode);
    return result == CUDA_SUCCESS && *out == NULL ? (CUresult)CUDA_ERROR_NOT_FOUND : result;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out, unsigned long long flags) {
    RT_CALL(simrt_initialize, query_or_fail(symbol, out, flags, RT_LEGACY));
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **out,
                                         unsigned long long flags) {
    RT_CALL(simrt_initialize, query_or_fail(symbol, out, flags, RT_PER_THREAD));
}
#endif
