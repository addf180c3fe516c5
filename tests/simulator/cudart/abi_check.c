/* Compiling this file is the test: our declarations of the runtime API against NVIDIA's.
 * Only NVIDIA's header is included; our tables are expanded over it.  A wrong number or layout
 * fails an assertion, a wrong signature clashes with NVIDIA's declaration. */
#include <stddef.h>

#include <cuda_runtime_api.h>

#define RT_MAJOR 13
#if CUDART_VERSION / 1000 != RT_MAJOR
#error "the toolkit is of another major version than the tables describe"
#endif

/* ---------------------------------------------------------------- numbers */
#define SAME(name, value) _Static_assert((long long)(name) == (long long)(value), #name);

#define RT_ERROR(name, number, text) SAME(name, number)
#include "errors.def"

#define RT_ENUM(tag)
#define RT_VALUE(name, value) SAME(name, value)
#define RT_ENUM_END(tag)
#define RT_FLAG(name, value) SAME(name, value)
#include "runtime_values.def"

/* ---------------------------------------------------------------- layouts */
#define RT_STRUCT(tag)                   struct ours_##tag {
#define RT_FIELD(tag, type, name, array) type name array;
#define RT_STRUCT_END(tag)                                                                       \
    }                                                                                            \
    ;
#include "runtime_structs.def"
#undef RT_STRUCT
#undef RT_FIELD
#undef RT_STRUCT_END

#define RT_STRUCT(tag) SAME(sizeof(struct ours_##tag), sizeof(struct tag))
#define RT_FIELD(tag, type, name, array)                                                         \
    SAME(offsetof(struct ours_##tag, name), offsetof(struct tag, name))                          \
    SAME(sizeof(((struct ours_##tag *)0)->name), sizeof(((struct tag *)0)->name))
#define RT_STRUCT_END(tag)
#include "runtime_structs.def"

/* ---------------------------------------------------------------- signatures */
#define RT_FN(name, params)                             cudaError_t CUDARTAPI name params;
#define RT_FN2(name, suffix, params)                    cudaError_t CUDARTAPI name params;
#define RT_FORWARD(name, params, driver, args)          cudaError_t CUDARTAPI name params;
#define RT_FORWARD2(name, suffix, params, driver, args) cudaError_t CUDARTAPI name params;
#define RT_QUERY(name, params, driver, args)            cudaError_t CUDARTAPI name params;
#include "runtime.def"
