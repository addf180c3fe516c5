/* Facts 6 and 7: the identity of a block, seen from an address inside it; shared memory; and pages
 * of virtual memory management. */
#include "facts.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INSIDE = 70000, REQUEST = 300000, SEGMENT_ALIGN = 2 << 20, PATTERN = 0x5a17c0de };

/* ---------------------------------------------------------------- 6 */

static void range(CUdeviceptr base) {
    CUdeviceptr found = 0;
    size_t size = 0;
    CUresult result = cu.cuMemGetAddressRange_v2(&found, &size, base + INSIDE);
    fact_answer(CLAIM_6_range_from_inside, !result && found == base && size == REQUEST,
                "Base %#llx, %d bytes; at +%d the answer was %s: %#llx, %zu bytes.", base,
                REQUEST, INSIDE, gpu_error(result), found, size);
}

static unsigned long long attribute(CUpointer_attribute which, CUdeviceptr address,
                                    CUresult *result) {
    unsigned long long value = 0;
    CUresult now = cu.cuPointerGetAttribute(&value, which, address);
    *result = *result ? *result : now;
    return value;
}

static void attributes(CUdeviceptr base) {
    CUresult result = CUDA_SUCCESS;
    unsigned long long start, size, id, outer;
    start = attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, base + INSIDE, &result);
    size = attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, base + INSIDE, &result);
    id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, base + INSIDE, &result);
    outer = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, base, &result);
    fact_answer(CLAIM_6_attributes_from_inside,
                !result && start == base && size == REQUEST && id == outer,
                "Base %#llx, %d bytes, id %llu; at +%d: %s, %#llx, %llu bytes, id %llu.", base,
                REQUEST, outer, INSIDE, gpu_error(result), start, size, id);
}

static void new_ids(void) {
    enum { COUNT = 8 };
    unsigned long long ids[COUNT];
    CUresult result = CUDA_SUCCESS;
    bool different = true;
    for (int i = 0; i < COUNT; i++) {
        CUdeviceptr memory;
        MUST(cu.cuMemAlloc_v2(&memory, REQUEST));
        ids[i] = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory, &result);
        for (int j = 0; j < i; j++)
            different &= ids[j] != ids[i];
        MUST(cu.cuMemFree_v2(memory));
    }
    fact_answer(CLAIM_6_buffer_id_is_new, !result && different,
                "%s; %d allocations, one at a time, had the ids %llu to %llu.", gpu_error(result),
                COUNT, ids[0], ids[COUNT - 1]);
}

/* Opens the handle in a new process of this program.  `said` gets "error name" or "SUCCESS" with
 * the first word.  Returns false if the process failed. */
static bool opened_elsewhere(const CUipcMemHandle *handle, char *said, size_t room) {
    char text[2 * sizeof handle->reserved + 1], self[512];
    int pipes[2], status = -1;
    size_t used = 0;
    for (size_t i = 0; i < sizeof handle->reserved; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle->reserved[i]);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || pipe(pipes))
        return false;
    self[length] = '\0';
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        execl(self, self, "--open", text, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    for (ssize_t n; used + 1 < room && (n = read(pipes[0], said + used, room - 1 - used)) > 0;)
        used += (size_t)n;
    said[used] = '\0';
    close(pipes[0]);
    if (child > 0)
        waitpid(child, &status, 0);
    return child > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

int fact_open(const char *text) {
    CUipcMemHandle handle;
    CUdeviceptr memory = 0;
    uint32_t value = 0;
    if (strlen(text) != 2 * sizeof handle.reserved || !gpu_open())
        return 1;
    for (size_t i = 0; i < sizeof handle.reserved; i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        handle.reserved[i] = (char)byte;
    }
    CUresult result =
        cu.cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (!result)
        result = cu.cuMemcpyDtoH_v2(&value, memory, sizeof value);
    printf("%s %u", gpu_error(result), value);
    if (memory)
        MUST(cu.cuIpcCloseMemHandle(memory));
    return 0;
}

static void handles(CUdeviceptr base) {
    CUipcMemHandle inner, forged;
    char said[64], wanted[64];
    MUST(cu.cuMemsetD32_v2(base, PATTERN, 1));
    MUST(cu.cuMemsetD32_v2(base + INSIDE / 4 * 4, ~(unsigned)PATTERN, 1));
    MUST(cu.cuCtxSynchronize());
    CUresult result = cu.cuIpcGetMemHandle(&inner, base + INSIDE / 4 * 4);
    snprintf(wanted, sizeof wanted, "SUCCESS %u", (unsigned)PATTERN);
    if (result)
        fact_skip(CLAIM_6_ipc_names_base, "unknown: cuIpcGetMemHandle answered %s",
                  gpu_error(result));
    else if (!opened_elsewhere(&inner, said, sizeof said))
        fact_skip(CLAIM_6_ipc_names_base, "unknown: the other process failed");
    else
        fact_answer(CLAIM_6_ipc_names_base, !strcmp(said, wanted),
                    "Another process opened it and read: %s; the base holds %u.", said,
                    (unsigned)PATTERN);
    /* A handle that the driver never makes: text, a process id, an offset. */
    memset(&forged, 0, sizeof forged);
    snprintf(forged.reserved, sizeof forged.reserved, "accelcache block %d at +%d", (int)getpid(),
             INSIDE);
    if (!opened_elsewhere(&forged, said, sizeof said))
        fact_answer(CLAIM_6_foreign_handle_refused, false, "The process that opened it failed.");
    else
        fact_answer(CLAIM_6_foreign_handle_refused, strncmp(said, "SUCCESS", 7) != 0,
                    "cuIpcOpenMemHandle in another process: %s.", said);
}

void fact_6(void) {
    CUdeviceptr base;
    MUST(cu.cuMemAlloc_v2(&base, REQUEST));
    range(base);
    attributes(base);
    new_ids();
    handles(base);
    MUST(cu.cuMemFree_v2(base));
}

/* ---------------------------------------------------------------- 7 */

static CUmemAllocationProp prop;
static CUmemAccessDesc access_of;
static size_t page;

static CUresult put(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
    CUresult result = cu.cuMemMap(at, page, 0, handle, 0);
    return result ? result : cu.cuMemSetAccess(at, page, &access_of, 1);
}

static void mapped_twice(CUdeviceptr reserved, CUmemGenericAllocationHandle handle) {
    uint32_t value = 0;
    CUresult result = put(reserved, handle);
    if (!result)
        result = put(reserved + page, handle);
    if (!result)
        result = cu.cuMemsetD32_v2(reserved, PATTERN, page / 4);
    if (!result)
        result = cu.cuMemcpyDtoH_v2(&value, reserved + 2 * page - 4, sizeof value);
    fact_answer(CLAIM_7_mapped_twice, !result && value == PATTERN,
                "%s; filled at one address, the other one held %#x (filled with %#x).",
                gpu_error(result), value, (unsigned)PATTERN);
    cu.cuMemUnmap(reserved + page, page);
}

static void contents_move(CUdeviceptr reserved, CUmemGenericAllocationHandle handle) {
    uint32_t value = 0;
    MUST(cu.cuMemsetD32_v2(reserved, PATTERN + 1, page / 4));
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuMemUnmap(reserved, page));
    CUresult result = put(reserved + 2 * page, handle);
    if (!result)
        result = cu.cuMemcpyDtoH_v2(&value, reserved + 3 * page - 4, sizeof value);
    fact_answer(CLAIM_7_contents_move, !result && value == PATTERN + 1,
                "%s; %#x was left in it, %#x was found.", gpu_error(result),
                (unsigned)PATTERN + 1, value);
}

static void released_while_mapped(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
    uint32_t value = 0;
    MUST(cu.cuMemsetD32_v2(at, PATTERN, page / 4));
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuMemRelease(handle));
    CUresult result = cu.cuMemcpyDtoH_v2(&value, at, sizeof value);
    fact_answer(CLAIM_7_released_while_mapped, !result && value == PATTERN,
                "%s; %#x was left in it, %#x was found.", gpu_error(result), (unsigned)PATTERN,
                value);
    cu.cuMemUnmap(at, page);
}

static void rdma(void) {
    CUmemAllocationProp flagged = prop;
    CUmemGenericAllocationHandle handle;
    int able = 0;
    cu.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                            gpu.device);
    if (!fact_needs(CLAIM_7_rdma_flag_accepted, able,
                    "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED is 0"))
        return;
    flagged.allocFlags.gpuDirectRDMACapable = 1;
    CUresult result = cu.cuMemCreate(&handle, page, &flagged, 0);
    fact_answer(CLAIM_7_rdma_flag_accepted, !result, "The attribute is 1; cuMemCreate: %s.",
                gpu_error(result));
    if (!result)
        cu.cuMemRelease(handle);
}

static void rdma_plain(void) {
    CUdeviceptr memory;
    unsigned value = 0;
    MUST(cu.cuMemAlloc_v2(&memory, REQUEST));
    CUresult result =
        cu.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, memory);
    if (result)
        fact_skip(CLAIM_7_rdma_plain_memory, "unknown: the attribute answered %s",
                  gpu_error(result));
    else
        fact_answer(CLAIM_7_rdma_plain_memory, value, "The attribute is %u.", value);
    MUST(cu.cuMemFree_v2(memory));
}

static void peers(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc both[2] = {access_of, access_of};
    CUcontext other;
    CUdevice device;
    uint32_t value = 0;
    int can = 0;
    if (gpu.devices > 1) {
        MUST(cu.cuDeviceGet(&device, 1));
        cu.cuDeviceCanAccessPeer(&can, device, gpu.device);
    }
    if (!fact_needs(CLAIM_7_peer_access_by_set_access, can, "two devices that are peers"))
        return;
    both[1].location.id = device;
    MUST(cu.cuMemMap(at, page, 0, handle, 0));
    MUST(cu.cuMemSetAccess(at, page, both, 2));
    MUST(cu.cuMemsetD32_v2(at, PATTERN, page / 4));
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuDevicePrimaryCtxRetain(&other, device));
    MUST(cu.cuCtxSetCurrent(other));
    CUresult result = cu.cuMemcpyDtoH_v2(&value, at, sizeof value);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    fact_answer(CLAIM_7_peer_access_by_set_access, !result && value == PATTERN,
                "Read through device 1: %s, %#x (filled with %#x).", gpu_error(result), value,
                (unsigned)PATTERN);
    MUST(cu.cuMemUnmap(at, page));
}

void fact_7(void) {
    CUmemGenericAllocationHandle handle, second;
    CUdeviceptr reserved;
    if (!gpu_has_pages()) {
        for (claim_t claim = CLAIM_7_mapped_twice; claim <= CLAIM_7_peer_access_by_set_access;
             claim++)
            if (claim != CLAIM_7_rdma_plain_memory)
                fact_needs(claim, false, "virtual memory management");
        rdma_plain();
        return;
    }
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = gpu.device;
    access_of.location = prop.location;
    access_of.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cu.cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    fact_answer(CLAIM_7_granularity_fits, page && SEGMENT_ALIGN % page == 0, "It is %zu bytes.",
                page);
    fact_figure(CLAIM_7_granularity, (double)page / (double)MIB, "MiB", "%zu bytes.", page);
    MUST(cu.cuMemAddressReserve(&reserved, 4 * page, 0, 0, 0));
    MUST(cu.cuMemCreate(&handle, page, &prop, 0));
    MUST(cu.cuMemCreate(&second, page, &prop, 0));
    mapped_twice(reserved, handle);
    contents_move(reserved, handle);
    peers(reserved, second);
    released_while_mapped(reserved + 2 * page, handle);
    MUST(cu.cuMemRelease(second));
    MUST(cu.cuMemAddressFree(reserved, 4 * page));
    rdma();
    rdma_plain();
}
