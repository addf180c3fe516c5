/* Two functions of NVIDIA's management library, as its nvml.h declares them. */
#ifndef NVML_H
#define NVML_H

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
#define nvmlMemory_v2 ((unsigned)(sizeof(nvmlMemory_v2_t) | 2u << 24))

typedef int memory_info_fn(void *device, nvmlMemory_t *memory);
typedef int memory_info_v2_fn(void *device, nvmlMemory_v2_t *memory);
memory_info_fn nvmlDeviceGetMemoryInfo;
memory_info_v2_fn nvmlDeviceGetMemoryInfo_v2;

/* The device with these 16 bytes as its UUID; NULL: one that CUDA does not have. */
void *fake_device(const char *uuid);

#endif
