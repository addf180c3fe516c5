/* A management library of the tests' own: devices of 1 GiB, of which 24 MiB are the driver's. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MIB    ((unsigned long long)1 << 20)

EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned size);
static unsigned char known[16], none[16];

EXPORT void *fake_device(const char *uuid) {
    if (uuid)
        memcpy(known, uuid, sizeof known);
    return uuid ? known : none;
}

EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    const unsigned char *b = device;
    snprintf(text, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, nvmlMemory_t *memory) {
    if (!device || !memory)
        return 2;
    *memory = (nvmlMemory_t){1024 * MIB, 1000 * MIB, 24 * MIB};
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, nvmlMemory_v2_t *memory) {
    if (!device || !memory)
        return 2;
    if (memory->version != nvmlMemory_v2)
        return 25;
    *memory = (nvmlMemory_v2_t){nvmlMemory_v2, 1024 * MIB, 24 * MIB, 1000 * MIB, 0};
    return 0;
}
