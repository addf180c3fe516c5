/* The calls by which libraries choose how to send memory (libraries.def).  Their results are equal
 * with and without the library.
 *
 * usage: libraries [async_ipc] [unexported]
 *   async_ipc     memory of cudaMallocAsync answers as that of cudaMalloc
 *   unexported    memory cannot be exported, so a library chooses another way */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static char said[256];

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    size_t at = strlen(said);
    va_list list;
    va_start(list, format);
    vsnprintf(said + at, sizeof said - at, format, list);
    va_end(list);
}

/* The memory of a query: an address in a block of `bytes`. */
typedef struct {
    CUdeviceptr block, address;
    size_t bytes;
} memory_t;

static CUresult get(void *out, CUpointer_attribute which, CUdeviceptr address) {
    return cuPointerGetAttribute(out, which, address);
}

static unsigned long long number(CUpointer_attribute which, CUdeviceptr address) {
    unsigned long long value = 0;
    MUST(get(&value, which, address));
    return value;
}

static bool has_vmm_handle(CUdeviceptr address) {
    CUmemGenericAllocationHandle handle;
    return cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) == CUDA_SUCCESS;
}

static bool has_ipc_handle(CUdeviceptr address) {
    CUipcMemHandle handle, again;
    if (cuIpcGetMemHandle(&handle, address) != CUDA_SUCCESS)
        return false;
    MUST(cuIpcGetMemHandle(&again, address)); /* PyTorch and Open MPI compare the bytes */
    EXPECT(memcmp(&handle, &again, sizeof handle) == 0);
    return true;
}

static void expect_range(const memory_t *memory) {
    CUdeviceptr base = 0;
    size_t size = 0;
    MUST(cuMemGetAddressRange_v2(&base, &size, memory->address));
    EXPECT(base == memory->block && size == memory->bytes);
}

static void sync_memops(CUdeviceptr address) {
    unsigned on = 1;
    MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    EXPECT(number(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address) == 1);
}

static bool is_legacy_capable(CUdeviceptr address) {
    return number(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
}

/* --- UCX --- */

static void ucx_type(const memory_t *memory) {
    CUmemorytype type = 0;
    unsigned managed = 7;
    int device = -1;
    CUcontext context = NULL;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *out[] = {&type, &managed, &device, &context};
    if (has_vmm_handle(memory->address)) {
        say("fabric memory");
        return;
    }
    MUST(cuPointerGetAttributes(4, which, out, memory->address));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && !managed && device == 0);
    if (!context) {
        say("managed: no context");
        return;
    }
    expect_range(memory);
    say("cuda, its range");
}

static void ucx_ipc(const memory_t *memory) {
    unsigned long long types = 99;
    CUmemoryPool pool = NULL;
    expect_range(memory);
    EXPECT(number(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory->block) != 0);
    say("id, ");
    if (is_legacy_capable(memory->block)) {
        say(has_ipc_handle(memory->block) ? "legacy handle" : "broken promise");
        return;
    }
    MUST(get(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory->block));
    MUST(get(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory->block));
    say(types ? "a handle of %s" : "no way", pool ? "its pool" : "its own");
}

static void ucx_dmabuf(const memory_t *memory) {
    CUdeviceptr mask = (CUdeviceptr)sysconf(_SC_PAGESIZE) - 1;
    CUdeviceptr from = memory->block & ~mask, to = (memory->block + memory->bytes + mask) & ~mask;
    int fd = -1;
    CUresult result = cuMemGetHandleForAddressRange(&fd, from, to - from,
                                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    say(result == CUDA_SUCCESS ? "descriptor" : "refused");
    if (fd >= 0)
        close(fd);
}

/* --- NCCL --- */

static void nccl_p2p(const memory_t *memory) {
    say(has_ipc_handle(memory->block) ? "handle, " : "no handle");
    if (strcmp(said, "handle, "))
        return;
    expect_range(memory);
    say("its base");
}

static void nccl_register(const memory_t *memory) {
    CUdeviceptr base = 0;
    size_t size = 0;
    MUST(cuMemGetAddressRange_v2(&base, &size, memory->address));
    EXPECT(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory->address) == CU_MEMORYTYPE_DEVICE);
    if (has_vmm_handle(base))
        say("registered, exported page");
    else if (!is_legacy_capable(base))
        say("not registered");
    else
        say("registered, %s", has_ipc_handle(base) ? "legacy handle" : "broken promise");
    EXPECT(base == memory->block && size == memory->bytes);
}

static void nccl_window(const memory_t *memory) {
    say(has_vmm_handle(memory->address) ? "a handle" : "no handle of its own");
}

/* --- MPI --- */

static void openmpi_type(const memory_t *memory) {
    unsigned type = 0, managed = 7;
    CUcontext context = NULL;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *out[] = {&type, &context, &managed};
    CUmemoryPool pool = NULL;
    CUmemAccess_flags flags = 0;
    MUST(cuPointerGetAttributes(3, which, out, memory->address));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && !managed);
    say("device %d, ", (int)number(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory->address));
    if (context) {
        say("its context");
        return;
    }
    EXPECT(!has_vmm_handle(memory->address));
    MUST(get(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory->address));
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    EXPECT(pool != NULL);
    MUST(cuMemPoolGetAccess(&flags, pool, &location));
    say(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? "a pool it may use" : "a closed pool");
}

static void openmpi_ipc(const memory_t *memory) {
    static unsigned long long last;
    if (!has_ipc_handle(memory->address)) {
        say("no handle");
        return;
    }
    expect_range(memory);
    unsigned long long id = number(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory->address);
    sync_memops(memory->address);
    say("handle, range, %s id, synchronous", id == last ? "old" : "new");
    last = id;
}

static void mpich(const memory_t *memory) {
    unsigned type = 0;
    int device = -1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL}; /* through the runtime */
    void *out[] = {&type, &device};
    MUST(cuPointerGetAttributes(2, which, out, memory->address));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    say("device %d, ", device);
    if (!has_ipc_handle(memory->block)) {
        say("no handle");
        return;
    }
    say("handle, %s", number(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory->block) ? "id" : "no id");
}

static void cray_mpich(const memory_t *memory) {
    CUipcMemHandle handle;
    CUresult result = cuIpcGetMemHandle(&handle, memory->address);
    if (result != CUDA_SUCCESS)
        EXPECT(result == CUDA_ERROR_INVALID_VALUE);
    say(result == CUDA_SUCCESS ? "handle" : "cuIpcGetMemHandle: invalid argument");
}

/* --- others --- */

static void libfabric(const memory_t *memory) {
    unsigned type = 0, managed = 7;
    int device = -1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *out[] = {&type, &managed, &device};
    MUST(cuPointerGetAttributes(3, which, out, memory->address));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && !managed);
    expect_range(memory);
    say("device %d, range, ", device);
    if (!has_ipc_handle(memory->address)) {
        say("no handle");
        return;
    }
    EXPECT(number(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory->address) != 0);
    sync_memops(memory->address);
    say("handle, id, synchronous");
}

static void pytorch(const memory_t *memory) {
    say(has_ipc_handle(memory->block) ? "handle of the base" : "no handle");
}

static void base_and_offset(const memory_t *memory, CUdeviceptr base) {
    EXPECT(base == memory->block);
    say(has_ipc_handle(base) ? "base, handle, offset" : "base, no handle");
}

static void vllm(const memory_t *memory) {
    base_and_offset(memory, number(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory->address));
}

static void numba(const memory_t *memory) {
    CUdeviceptr base = 0;
    size_t size = 0;
    MUST(cuMemGetAddressRange_v2(&base, &size, memory->address));
    EXPECT(size == memory->bytes);
    base_and_offset(memory, base);
}

static const struct {
    const char *name;
    void (*ask)(const memory_t *memory);
    const char *plain, *async, *async_ipc;
} libraries[] = {
#define LIBRARY(name, source, plain, async, async_ipc) {#name, name, plain, async, async_ipc},
#include "libraries.def"
};

/* Returns the answer that replaces this one if memory cannot be exported. */
static const char *unexported(const char *answer) {
    static const struct {
        const char *with, *without;
    } pairs[] = {{"id, legacy handle", "id, no way"},
                 {"registered, legacy handle", "not registered"},
                 {"handle, its base", "no handle"},
                 {"handle, range, new id, synchronous", "no handle"},
                 {"device 0, handle, id", "device 0, no handle"},
                 {"handle", "cuIpcGetMemHandle: invalid argument"},
                 {"device 0, range, handle, id, synchronous", "device 0, range, no handle"},
                 {"handle of the base", "no handle"},
                 {"base, handle, offset", "base, no handle"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(answer, pairs[i].with) == 0)
            return pairs[i].without;
    return answer;
}

static bool async_ipc, no_exports;
static unsigned wrong;

static void ask(size_t which, const memory_t *memory, const char *kind, const char *wanted) {
    char title[64];
    snprintf(title, sizeof title, "%s, %s of %zu bytes", libraries[which].name, kind,
             memory->bytes);
    test_title = title;
    said[0] = 0;
    libraries[which].ask(memory);
    if (no_exports)
        wanted = unexported(wanted);
    if (strcmp(said, wanted) != 0) {
        fprintf(stderr, "%s: \"%s\", not \"%s\"\n", title, said, wanted);
        wrong++;
    }
    test_title = NULL;
}

/* Runs the queries of a library on blocks of each size, at their start and inside. Frees and
 * requests the blocks again. */
static void ask_all(size_t which) {
    static const size_t sizes[] = {700, 4 * KIB, 300 * KIB, 5 * MIB};
    const char *async = async_ipc ? libraries[which].async_ipc : libraries[which].async;
    CUstream stream = test_stream();
    for (unsigned i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
        memory_t memory = {.bytes = sizes[i / 4]};
        size_t inner = i % 2 ? memory.bytes / 3 : 0;
        CUdeviceptr beside;
        MUST(cuMemAlloc_v2(&beside, memory.bytes));
        MUST(cuMemAlloc_v2(&memory.block, memory.bytes));
        memory.address = memory.block + inner;
        ask(which, &memory, "cudaMalloc", libraries[which].plain);
        MUST(cuMemFree_v2(memory.block));
        MUST(cuMemFree_v2(beside));
        if (!async)
            continue;
        MUST(cuMemAllocAsync(&memory.block, memory.bytes, stream));
        MUST(cuStreamSynchronize(stream));
        memory.address = memory.block + inner;
        ask(which, &memory, "cudaMallocAsync", async);
        MUST(cuMemFreeAsync(memory.block, stream));
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream));
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        async_ipc |= strcmp(argv[i], "async_ipc") == 0;
        no_exports |= strcmp(argv[i], "unexported") == 0;
    }
    test_device(0);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        ask_all(i);
    return wrong ? TEST_WRONG : TEST_GOOD;
}
