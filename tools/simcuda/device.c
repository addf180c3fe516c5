/* Devices: their number, their names, and the peers that each one reaches.  Global lock.
 *
 * Guess: a device that CUDA_VISIBLE_DEVICES names twice hides all of them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "state.h"

sim_device_t sim_devices[SIM_MAX_DEVICES];

/* The first bytes of a device's identity.  The last byte is its number on the machine. */
static const char identity[16] = "simulated-cuda-";

static void identify(CUuuid *out, int physical) {
    memcpy(out->bytes, identity, sizeof identity);
    out->bytes[15] = (char)physical;
}

/* Returns true if the text is a prefix of the device's "GPU-73696d75-...", the form of
 * nvidia-smi. */
static bool begins_uuid(int physical, const char *text, size_t length) {
    char name[sizeof "GPU-" + 2 * sizeof(CUuuid) + 4] = "GPU-";
    CUuuid uuid;
    identify(&uuid, physical);
    size_t at = 4;
    for (unsigned i = 0; i < sizeof uuid.bytes; i++)
        at += (size_t)snprintf(name + at, sizeof name - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                               (unsigned char)uuid.bytes[i]);
    return length > 4 && length <= at && !strncasecmp(name, text, length);
}

/* Returns the machine's number of the device that an entry of the list names; -1: none. */
static int named_device(const char *entry, size_t length) {
    int count = (int)sim_config.devices, found = -1;
    char *end;
    if (length && isdigit((unsigned char)*entry)) {
        unsigned long number = strtoul(entry, &end, 10);
        return end == entry + length && number < (unsigned long)count ? (int)number : -1;
    }
    for (int i = 0; i < count; i++) {
        if (!begins_uuid(i, entry, length))
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

static int add_device(int count, int physical) {
    for (int i = 0; i < count; i++)
        if (sim_devices[i].physical == physical)
            return 0; /* named twice: the driver shows no device */
    sim_devices[count] =
        (sim_device_t){.ordinal = count, .physical = physical, .total = sim_config.memory};
    return count + 1;
}

/* Reads CUDA_VISIBLE_DEVICES, which selects devices and their order.  The first entry that names
 * no device ends the list. */
void sim_devices_start(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    if (!list) {
        for (int i = 0; i < (int)sim_config.devices; i++)
            count = add_device(count, i);
        return;
    }
    while (*list) {
        size_t length = strcspn(list, ",");
        int physical = named_device(list, length);
        if (physical < 0)
            break;
        int more = add_device(count, physical);
        count = more;
        if (!more)
            break;
        list += length + (list[length] == ',');
    }
    sim_config.devices = (uint64_t)count;
}

CUresult sim_device_check(CUdevice device) {
    return device >= 0 && (uint64_t)device < sim_config.devices ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_DEVICE;
}

bool sim_peer_allowed(int from_device, int to_device) {
    return from_device != to_device && sim_config.peer;
}

SIM_API(cuDeviceGetCount)(int *count) {
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)sim_config.devices;
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGet)(CUdevice *device, int ordinal) {
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(ordinal);
    if (!result)
        *device = ordinal;
    return result;
}

static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
#define SIM_ATTRIBUTE(attribute, value) {attribute, value},
#include "device_attributes.def"
#undef SIM_ATTRIBUTE
};

SIM_API(cuDeviceGetAttribute)(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
        *value = sim_devices[device].physical + 1;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
        *value = sim_config.vmm;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_INTEGRATED) {
        *value = sim_config.integrated;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) {
        *value = sim_config.pageable;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) {
        *value = sim_config.multicast;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED ||
        attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) {
        *value = sim_config.rdma;
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        if (attributes[i].attribute == attribute) {
            *value = attributes[i].value;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static int attribute_of(CUdevice_attribute attribute) {
    int value = 0;
    sim_do_cuDeviceGetAttribute(&value, attribute, 0);
    return value;
}

SIM_API(cuDeviceGetProperties)(CUdevprop *out, CUdevice device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    *out = (CUdevprop){
        .maxThreadsPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        .maxThreadsDim = {attribute_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                          attribute_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                          attribute_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
        .maxGridSize = {attribute_of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                        attribute_of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                        attribute_of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
        .sharedMemPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .totalConstantMemory = attribute_of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        .SIMDWidth = attribute_of(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        .memPitch = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        .regsPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        .clockRate = attribute_of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .textureAlign = attribute_of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceComputeCapability)(int *major, int *minor, CUdevice device) {
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    *major = attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetName)(char *name, int room, CUdevice device) {
    if (!name || room <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (!result)
        snprintf(name, (size_t)room, "%s", sim_config.name);
    return result;
}

SIM_API(cuDeviceTotalMem_v2)(size_t *bytes, CUdevice device) {
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (!result)
        *bytes = sim_devices[device].total;
    return result;
}

static CUresult uuid(CUuuid *out, CUdevice device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    identify(out, sim_devices[device].physical);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetUuid)(CUuuid *out, CUdevice device) {
    return uuid(out, device);
}

SIM_API(cuDeviceGetUuid_v2)(CUuuid *out, CUdevice device) {
    return uuid(out, device);
}

SIM_API(cuDeviceGetPCIBusId)(char *out, int room, CUdevice device) {
    if (!out || room <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (!result && snprintf(out, (size_t)room, "0000:%02X:00.0",
                            (unsigned)sim_devices[device].physical + 1) >= room)
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

/* Accepts domain:bus:device.function, domain:bus:device and bus:device.function. */
SIM_API(cuDeviceGetByPCIBusId)(CUdevice *device, const char *text) {
    unsigned domain = 0, bus = 0, slot = 0;
    if (!device || !text)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; !domain && !slot && i < (int)sim_config.devices; i++)
        if (sim_devices[i].physical + 1 == (int)bus) {
            *device = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

static CUresult check_pair(const void *out, CUdevice a, CUdevice b) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(a);
    return result ? result : sim_device_check(b);
}

SIM_API(cuDeviceCanAccessPeer)(int *out, CUdevice from, CUdevice to) {
    CUresult result = check_pair(out, from, to);
    if (!result)
        *out = sim_peer_allowed(from, to);
    return result;
}

SIM_API(cuDeviceGetP2PAttribute)(int *out, CUdevice_P2PAttribute which, CUdevice a, CUdevice b) {
    CUresult result = check_pair(out, a, b);
    if (result)
        return result;
    if (a == b || !which || which > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
        return CUDA_ERROR_INVALID_VALUE;
    *out = which != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK &&
           which != CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED &&
           sim_peer_allowed(a, b);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetTexture1DLinearMaxWidth)
(size_t *out, SIM_UNUSED CUarray_format format, unsigned channels, CUdevice device) {
    if (!out || !channels)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (!result)
        *out = (size_t)attribute_of(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
    return result;
}

SIM_API(cuDeviceGetExecAffinitySupport)
(int *out, SIM_UNUSED CUexecAffinityType type, CUdevice device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (!result)
        *out = 0;
    return result;
}

SIM_API(cuFlushGPUDirectRDMAWrites)
(SIM_UNUSED CUflushGPUDirectRDMAWritesTarget target,
 SIM_UNUSED CUflushGPUDirectRDMAWritesScope scope) {
    return CUDA_ERROR_NOT_SUPPORTED; /* attribute ..._FLUSH_WRITES_OPTIONS is 0 */
}
