// The part of DLPack that accelcache.hpp uses, with the layout of its version 0.x structures.
#ifndef STANDIN_DLPACK_H
#define STANDIN_DLPACK_H

#include <cstdint>

#define DLPACK_VERSION 80

enum DLDeviceType : std::int32_t { kDLCUDA = 2 };
enum DLDataTypeCode { kDLUInt = 1 };
struct DLDevice {
    DLDeviceType device_type;
    std::int32_t device_id;
};
struct DLDataType {
    std::uint8_t code, bits;
    std::uint16_t lanes;
};
struct DLTensor {
    void *data;
    DLDevice device;
    std::int32_t ndim;
    DLDataType dtype;
    std::int64_t *shape, *strides;
    std::uint64_t byte_offset;
};
struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(DLManagedTensor *self);
};

#endif
