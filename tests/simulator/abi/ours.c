/* The layouts of cuda_abi.h against layouts.def; nvidia.c does the same with NVIDIA's header. */
#include "device/cuda_abi.h"

#define LAYOUT_SIZE(type, bytes)                                                                 \
    _Static_assert(sizeof(type) == (bytes), "our size of " #type);                               \
    enum { has_layout_##type = 1 };
#define LAYOUT_OFFSET(type, field, bytes)                                                        \
    _Static_assert(offsetof(type, field) == (bytes), "our offset of " #type "." #field);
#include "layouts.def"

/* Every structure of cuda_abi.h has its row, every enumeration is one 32-bit word. */
#define PFN_ROW(symbol, pfn)
#define STRUCT_ROW(type) _Static_assert(has_layout_##type, "layouts.def misses " #type);
#define ENUM_ROW(type)   _Static_assert(sizeof(type) == 4, "our size of " #type);
#include "rows.inc"
