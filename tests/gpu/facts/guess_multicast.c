/* Probes of multicast objects: a team of one device, with memory of its own, mapped. */
#include "guesses.h"

#include <string.h>

static struct {
    CUmulticastObjectProp prop;
    CUmemAllocationProp memory;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle object;
    size_t grain;
} team;

/* Makes a team of one device.  If this fails, says the reason and returns false. */
static bool has_team(void) {
    int supported = 0;
    memset(&team, 0, sizeof team);
    team.prop.numDevices = 1;
    team.prop.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    team.memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    team.memory.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    team.memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    team.memory.location.id = gpu.device;
    team.access.location = team.memory.location;
    team.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, gpu.device);
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (supported && GPU_HAS(cuMulticastCreate)) {
        team.prop.size = 2 * MIB;
        result = cu.cuMulticastGetGranularity(&team.grain, &team.prop,
                                              CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
        team.prop.size = 2 * team.grain;
        if (!result)
            result = cu.cuMulticastCreate(&team.object, &team.prop);
        if (!result)
            result = cu.cuMulticastAddDevice(team.object, gpu.device);
    }
    if (result)
        say(supported ? "no team of one device: %s" : "not here", gpu_error(result));
    return !result;
}

static CUmemGenericAllocationHandle pages(bool shared) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = team.memory;
    if (!shared)
        prop.requestedHandleTypes = 0;
    MUST(cu.cuMemCreate(&handle, team.grain, &prop, 0));
    return handle;
}

static CUdeviceptr reserved(void) {
    CUdeviceptr range;
    MUST(cu.cuMemAddressReserve(&range, 2 * team.grain, team.grain, 0, 0));
    return range;
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr range = reserved();
    MUST(cu.cuMemMap(range, bytes, 0, handle, 0));
    MUST(cu.cuMemSetAccess(range, bytes, &team.access, 1));
    return range;
}

/* Binds memory to the first grain of the object and maps it at *memory.  Returns the address of the
 * mapped object. */
static CUdeviceptr mapped_object(CUdeviceptr *memory) {
    CUmemGenericAllocationHandle handle = pages(true);
    *memory = mapped(handle, team.grain);
    MUST(cu.cuMemsetD8_v2(*memory, 1, team.grain));
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuMulticastBindMem(team.object, 0, handle, 0, team.grain, 0));
    return mapped(team.object, 2 * team.grain);
}

static void say_result(const char *what, CUresult result) {
    say("%s%s", what, gpu_error(result));
}

void guess_multicast_member(void) {
    if (has_team())
        say_result("", cu.cuMulticastAddDevice(team.object, gpu.device));
}

void guess_multicast_bind(void) {
    if (!has_team())
        return;
    MUST(cu.cuMulticastBindMem(team.object, 0, pages(true), 0, team.grain, 0));
    say_result("where something is bound ",
               cu.cuMulticastBindMem(team.object, 0, pages(true), 0, team.grain, 0));
    say_result(", memory that is not shared ",
               cu.cuMulticastBindMem(team.object, team.grain, pages(false), 0, team.grain, 0));
    CUdeviceptr plain = some_memory(2 * team.grain);
    plain += team.grain - plain % team.grain;
    say_result(", cuMemAlloc's ",
               cu.cuMulticastBindAddr(team.object, team.grain, plain, team.grain, 0));
}

void guess_multicast_unbind(void) {
    if (has_team())
        say_result("", cu.cuMulticastUnbind(team.object, gpu.device, 0, team.grain));
}

void guess_multicast_map(void) {
    if (!has_team())
        return;
    CUdeviceptr range = reserved();
    say_result("with an offset ", cu.cuMemMap(range, team.grain, team.grain, team.object, 0));
    MUST(cu.cuMemAddressReserve(&range, 4 * team.grain, team.grain, 0, 0));
    say_result(", larger ", cu.cuMemMap(range, 4 * team.grain, 0, team.object, 0));
}

void guess_multicast_attributes(void) {
    unsigned type = 99, legacy = 99, rdma = 99;
    unsigned long long types = 99;
    CUcontext context = gpu.primary;
    CUdeviceptr memory, base = 0;
    size_t size = 0;
    if (!has_team())
        return;
    CUdeviceptr p = mapped_object(&memory), inside = p + team.grain + 5;
    cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside);
    cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside);
    cu.cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside);
    cu.cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside);
    cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside);
    say("type %u, %s context, legacy IPC %u, RDMA %u, handle types %llu", type,
        context ? "a" : "no", legacy, rdma, types);
    CUresult result = cu.cuMemGetAddressRange_v2(&base, &size, inside);
    say(", range %s",
        result ? gpu_error(result) : base == p && size == 2 * team.grain ? "mapping" : "another");
}

void guess_multicast_fill(void) {
    unsigned char byte = 0;
    CUdeviceptr memory;
    if (!has_team())
        return;
    CUdeviceptr p = mapped_object(&memory);
    CUresult result = cu.cuMemsetD8_v2(p + 5, 7, 1);
    say_result("", result ? result : cu.cuCtxSynchronize());
    if (!cu.cuMemcpyDtoH_v2(&byte, memory + 5, 1))
        say(", the memory behind it %s", byte == 7 ? "is filled" : "is not filled");
}

void guess_multicast_read(void) {
    unsigned char byte = 0;
    CUdeviceptr memory;
    if (has_team())
        say_result("", cu.cuMemcpyDtoH_v2(&byte, mapped_object(&memory), 1));
}

void guess_multicast_unbound(void) {
    CUdeviceptr memory;
    if (!has_team())
        return;
    CUresult result = cu.cuMemsetD8_v2(mapped_object(&memory) + team.grain, 7, 1);
    say_result("", result ? result : cu.cuCtxSynchronize());
}

void guess_multicast_retain(void) {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr memory;
    if (!has_team())
        return;
    CUdeviceptr p = mapped_object(&memory);
    say_result("", cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)p));
    say(", %s handle", handle == team.object ? "its" : "another");
}

void guess_multicast_release(void) {
    CUdeviceptr memory;
    if (!has_team())
        return;
    CUdeviceptr p = mapped_object(&memory);
    say_result("", cu.cuMemRelease(team.object));
    CUresult result = cu.cuMemsetD8_v2(p, 7, 1);
    say_result(", filled ", result ? result : cu.cuCtxSynchronize());
    say_result(", unbound ", cu.cuMulticastUnbind(team.object, gpu.device, 0, team.grain));
    say_result(", unmapped ", cu.cuMemUnmap(p, 2 * team.grain));
}
