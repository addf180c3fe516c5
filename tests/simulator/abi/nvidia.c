/* Values, signatures, versions and layouts of shim/device against NVIDIA's own headers.
 * cuda_abi.h is deliberately not included here: all type names below are NVIDIA's. */
#define __CUDA_API_VERSION_INTERNAL /* keep every symbol under its exported name */
#define CUDA_ENABLE_DEPRECATED
#include <stddef.h>
#include <cuda.h>
#include <cudaTypedefs.h>

#define CU_VALUE(name, value)                                                                    \
    _Static_assert((long long)(name) == (long long)(value), "value of " #name);
#include "cuda_values.def"

#define CU_FN(symbol, name, since, mode, params, args)                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), CUresult params),            \
                   "signature of " #symbol);
#include "cuda_functions.def"

#define LAYOUT_SIZE(type, bytes)                                                                 \
    _Static_assert(sizeof(type) == (bytes), "NVIDIA's size of " #type);
#define LAYOUT_OFFSET(type, field, bytes)                                                        \
    _Static_assert(offsetof(type, field) == (bytes), "NVIDIA's offset of " #type "." #field);
#include "layouts.def"

/* NVIDIA names a pointer type for each (name, version, mode) that cuGetProcAddress knows: its
 * existence confirms the row's version, its type the row's symbol. */
#define PFN_ROW(symbol, pfn)                                                                     \
    _Static_assert(__builtin_types_compatible_p(pfn, __typeof__(&symbol)), #pfn " is " #symbol);
#define STRUCT_ROW(type)
#define ENUM_ROW(type) _Static_assert(sizeof(type) == 4, "NVIDIA's size of " #type);
#include "rows.inc"

#ifdef WRONG_VALUE
_Static_assert(CUDA_ERROR_OUT_OF_MEMORY == 3, "wrong VALUE");
#endif
#ifdef WRONG_FUNCTION
_Static_assert(__builtin_types_compatible_p(__typeof__(cuMemAlloc_v2),
                                            CUresult(CUdeviceptr *, unsigned)),
               "wrong FUNCTION");
#endif
#ifdef WRONG_LAYOUT
_Static_assert(offsetof(CUDA_MEMCPY2D, srcDevice) == 24, "wrong LAYOUT");
#endif
