/* Multicast objects: cuda.h, "Multicast Object Management"; and mapped ones, as NCCL's NVLS uses
 * them.  The race detector is on. */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "extra.h"

#define GRAIN (2 * MIB)
#define FD    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

enum { PASSED_FD = 77, TO_FD, FROM_FD };

extern char **environ;

/* ---- memory ---- */

static CUmemGenericAllocationHandle create(int device, size_t size) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = FD,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t size) {
    CUdeviceptr p;
    OK(cuMemAddressReserve(&p, size, 0, 0, 0));
    return p;
}

static CUresult allow(CUdeviceptr p, size_t size, int device, CUmemAccess_flags flags) {
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return cuMemSetAccess(p, size, &desc, 1);
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t size, int device) {
    CUdeviceptr p = reserve(size);
    OK(cuMemMap(p, size, 0, handle, 0));
    OK(allow(p, size, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return p;
}

static CUmemGenericAllocationHandle team(unsigned devices, size_t size, unsigned types) {
    CUmulticastObjectProp prop = {.numDevices = devices, .size = size, .handleTypes = types};
    CUmemGenericAllocationHandle object;
    OK(cuMulticastCreate(&object, &prop));
    return object;
}

/* A team of both devices with memory of `size` on each, mapped at memory[device]; the object is
 * mapped at the answer. */
static CUdeviceptr whole(CUmemGenericAllocationHandle *object, size_t size,
                         CUdeviceptr memory[2]) {
    *object = team(2, size, FD);
    for (int device = 0; device < 2; device++)
        OK(cuMulticastAddDevice(*object, device));
    for (int device = 0; device < 2; device++) {
        CUmemGenericAllocationHandle handle = create(device, size);
        memory[device] = mapped(handle, size, device);
        OK(cuMulticastBindMem(*object, 0, handle, 0, size, 0));
        OK(cuMemRelease(handle));
    }
    CUdeviceptr p = mapped(*object, size, 0);
    OK(allow(p, size, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return p;
}

/* ---- kernels ---- */

/* multimem.st, multimem.red, multimem.ld_reduce of one word. */
static void multimem_store(const simcuda_launch_t *launch) {
    CUdeviceptr to = *(CUdeviceptr *)launch->params[0];
    unsigned *word;
    for (unsigned i = 0; (word = simcuda_multimem(to, i)); i++)
        *word = *(unsigned *)launch->params[1];
}

static void multimem_add(const simcuda_launch_t *launch) {
    CUdeviceptr to = *(CUdeviceptr *)launch->params[0];
    unsigned *word;
    for (unsigned i = 0; (word = simcuda_multimem(to, i)); i++)
        *word += *(unsigned *)launch->params[1];
}

static void multimem_sum(const simcuda_launch_t *launch) {
    CUdeviceptr from = *(CUdeviceptr *)launch->params[0], to = *(CUdeviceptr *)launch->params[1];
    const unsigned *word;
    unsigned sum = 0;
    for (unsigned i = 0; (word = simcuda_multimem(from, i)); i++)
        sum += *word;
    *(unsigned *)simcuda_host(to) = sum;
}

static CUresult launch(const char *name, simcuda_kernel_fn *fn, CUdeviceptr at, uint64_t value,
                       CUstream stream) {
    static const simcuda_access_t store[] = {
        {.param = 0, .count_param = -1, .bytes = 4, .writes = 1}};
    static const simcuda_access_t sum[] = {
        {.param = 0, .count_param = -1, .bytes = 4},
        {.param = 1, .count_param = -1, .bytes = 4, .writes = 1}};
    bool reads = fn == multimem_sum;
    simcuda_kernel_t kernel = {.name = name,
                               .fn = fn,
                               .duration_ns = 10000,
                               .param_count = 2,
                               .access_count = reads ? 2 : 1,
                               .access = reads ? sum : store};
    CUmodule module;
    CUfunction function;
    void *params[] = {&at, &value};
    ck_assert_int_eq(simcuda_register_kernel(&kernel), 0);
    OK(cuModuleLoadData(&module, "stand-in"));
    OK(cuModuleGetFunction(&function, module, name));
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static CUresult store(CUdeviceptr at, unsigned value, CUstream stream) {
    return launch("multimem_store", multimem_store, at, value, stream);
}

/* ---- objects ---- */

START_TEST(order_of_calls) {
    CUmulticastObjectProp prop = {.numDevices = 2, .size = GRAIN + 4096, .handleTypes = FD};
    CUmemGenericAllocationHandle object, memory = create(0, 2 * GRAIN);
    size_t granularity = 0;
    OK(cuMulticastGetGranularity(&granularity, &prop, 0));
    ck_assert_uint_eq(granularity, GRAIN);
    GIVES(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_VALUE);
    prop.size = 4 * GRAIN;
    prop.flags = 1;
    GIVES(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_VALUE);
    object = team(2, 4 * GRAIN, FD);
    OK(cuMulticastAddDevice(object, 0));
    GIVES(cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastAddDevice(object, 9), CUDA_ERROR_INVALID_DEVICE);
    GIVES(cuMulticastAddDevice(memory, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastAddDevice(object, 1));
    static const struct {
        size_t offset, from, size;
    } wrong[] = {{4 * GRAIN, 0, GRAIN}, {0, GRAIN, 2 * GRAIN}, {0, 0, 4096}, {0, 4096, GRAIN},
                 {4096, 0, GRAIN},      {0, 0, 0},             {3 * GRAIN, 0, 2 * GRAIN}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        GIVES(cuMulticastBindMem(object, wrong[i].offset, memory, wrong[i].from, wrong[i].size, 0),
              CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, 0, memory, 0, GRAIN, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem_v2(object, 1, 0, memory, 0, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem_v2(object, 9, 0, memory, 0, GRAIN, 0), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMulticastBindMem_v2(object, 0, 0, memory, 0, 2 * GRAIN, 0));
    GIVES(cuMulticastBindMem(object, GRAIN, memory, 0, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(memory)); /* the object keeps it */
    ck_assert_uint_eq(simcuda_used_memory(0), 2 * GRAIN);
    GIVES(cuMulticastUnbind(object, 1, 0, 2 * GRAIN), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastUnbind(object, 0, 0, GRAIN), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(object, 0, 0, 2 * GRAIN));
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
    OK(cuMemRelease(object));
    ck_assert_uint_eq(simcuda_live("multicasts"), 0);
    GIVES(cuMulticastAddDevice(object, 1), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* An object accepts mapped memory and memory of pools by address, but no memory of cuMemAlloc. An
 * object that other processes may open accepts only memory that can be exported. */
START_TEST(by_address) {
    CUmemGenericAllocationHandle object = team(1, 4 * GRAIN, FD), own = team(1, 4 * GRAIN, 0);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle memory = create(0, 2 * GRAIN), unshared;
    CUdeviceptr plain, pool, p = mapped(memory, 2 * GRAIN, 0), seen;
    int fd;
    OK(cuMulticastAddDevice(object, 0));
    OK(cuMulticastAddDevice(own, 0));
    OK(cuMemAlloc_v2(&plain, 4 * GRAIN));
    OK(cuMemAllocAsync(&pool, 4 * GRAIN, NULL));
    OK(cuCtxSynchronize());
    CUdeviceptr even = (pool + GRAIN - 1) & ~(GRAIN - 1);
    OK(cuMemCreate(&unshared, GRAIN, &prop, 0));
    GIVES(cuMulticastBindAddr(object, 0, plain, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(own, 0, plain, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(object, 0, even, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, 0, unshared, 0, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(object, 0, p, 4 * GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(object, 0, p + 4096, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr_v2(object, 1, 0, p, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr_v2(object, 9, 0, p, GRAIN, 0), CUDA_ERROR_INVALID_DEVICE);
    GIVES(cuMulticastBindAddr_v2(object, 0, 0, plain, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindAddr_v2(object, 0, 3 * GRAIN, p + GRAIN, GRAIN, 0));
    OK(cuMulticastBindMem(own, 0, unshared, 0, GRAIN, 0));
    OK(cuMulticastBindAddr(own, GRAIN, even, GRAIN, 0));
    GIVES(cuMemExportToShareableHandle(&fd, own, FD, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemExportToShareableHandle(&fd, object, 2, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemExportToShareableHandle(&fd, object, FD, 1), CUDA_ERROR_INVALID_VALUE);

    seen = mapped(own, 2 * GRAIN, 0);
    OK(store(seen + GRAIN + 8, 7, NULL));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(even + 8), 7);
    OK(cuMemRelease(object));
    ck_assert_uint_eq(simcuda_race_reports(), 0);
}
END_TEST

/* ---- waiting for the team ---- */

static struct {
    CUmemGenericAllocationHandle object, memory;
    CUdeviceptr range;
    atomic_int returned;
} waiting;

static void *bind_early(void *arg) {
    (void)arg;
    OK(cuCtxSetCurrent(extra_ctx));
    OK(cuMulticastBindMem(waiting.object, 0, waiting.memory, 0, GRAIN, 0));
    atomic_fetch_add(&waiting.returned, 1);
    return NULL;
}

static void *map_early(void *arg) {
    (void)arg;
    OK(cuCtxSetCurrent(extra_ctx));
    OK(cuMemMap(waiting.range, GRAIN, 0, waiting.object, 0));
    atomic_fetch_add(&waiting.returned, 1);
    return NULL;
}

/* Binding and mapping wait for all devices of the object. Wrong arguments are refused at once. */
START_TEST(the_team_is_waited_for) {
    pthread_t thread[2];
    waiting.object = team(2, 2 * GRAIN, FD);
    waiting.memory = create(0, GRAIN);
    waiting.range = reserve(2 * GRAIN);
    OK(cuMulticastAddDevice(waiting.object, 1));
    GIVES(cuMulticastBindMem(waiting.object, 0, waiting.memory, 0, 2 * GRAIN, 0),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemMap(waiting.range, GRAIN, GRAIN, waiting.object, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemMap(waiting.range + 4096, GRAIN, 0, waiting.object, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemMap(waiting.range, 4 * GRAIN, 0, waiting.object, 0), CUDA_ERROR_INVALID_VALUE);
    pthread_create(&thread[0], NULL, bind_early, NULL);
    pthread_create(&thread[1], NULL, map_early, NULL);
    for (int i = 0; i < 30; i++) { /* other calls go on */
        CUdeviceptr p;
        OK(cuMemAlloc_v2(&p, 4096));
        OK(cuMemFree_v2(p));
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    ck_assert_int_eq(atomic_load(&waiting.returned), 0);
    OK(cuMulticastAddDevice(waiting.object, 0));
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    ck_assert_int_eq(atomic_load(&waiting.returned), 2);
}
END_TEST

/* ---- mapped objects ---- */

START_TEST(stores_reach_all) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory[2], result;
    CUdeviceptr p = whole(&object, 2 * GRAIN, memory);
    OK(cuMemAlloc_v2(&result, 4));
    ck_assert_ptr_null(simcuda_host(p));
    ck_assert_ptr_null(simcuda_multimem(p, 2));
    ck_assert_ptr_null(simcuda_multimem(memory[0], 0));
    OK(store(p + GRAIN + 4, 5, NULL));
    OK(launch("multimem_add", multimem_add, p + GRAIN + 4, 2, NULL));
    OK(launch("multimem_sum", multimem_sum, p + GRAIN + 4, result, NULL));
    OK(cuCtxSynchronize());
    for (int device = 0; device < 2; device++)
        ck_assert_uint_eq(extra_word(memory[device] + GRAIN + 4), 7);
    ck_assert_uint_eq(extra_word(result), 14);
    /* copies and fills are stores */
    unsigned words[] = {11, 12};
    OK(cuMemsetD32_v2(p, 3, 4));
    OK(cuMemcpyHtoD_v2(p + 8, words, sizeof words));
    OK(cuMemcpyDtoD_v2(p + 2 * GRAIN - 4, result, 4));
    OK(cuCtxSynchronize());
    for (int device = 0; device < 2; device++) {
        ck_assert_uint_eq(extra_word(memory[device] + 4), 3);
        ck_assert_uint_eq(extra_word(memory[device] + 12), 12);
        ck_assert_uint_eq(extra_word(memory[device] + 2 * GRAIN - 4), 14);
    }
    ck_assert_uint_eq(simcuda_race_reports(), 0);
}
END_TEST

START_TEST(what_it_answers) {
    CUmemGenericAllocationHandle object, again;
    CUmemAllocationProp prop;
    CUdeviceptr memory[2], base;
    CUdeviceptr p = whole(&object, 4 * GRAIN, memory);
    unsigned type = 9, legacy = 9, ordinal = 9, rdma = 9;
    unsigned long long types = 9, flags = 9;
    size_t size;
    CUcontext context = extra_ctx;
    CUipcMemHandle ipc;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    int fd;
    CUdeviceptr inside = p + GRAIN + 5;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    OK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
    OK(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside));
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
    ck_assert(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && !context);
    ck_assert(!legacy && !rdma && types == FD);
    OK(cuMemGetAddressRange_v2(&base, &size, inside));
    ck_assert(base == p && size == 4 * GRAIN);
    OK(cuMemGetAccess(&flags, &here, inside));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    GIVES(cuIpcGetMemHandle(&ipc, p), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemGetHandleForAddressRange(&fd, p, GRAIN, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemGetAllocationPropertiesFromHandle(&prop, object), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)inside));
    ck_assert_uint_eq(again, object);
    OK(cuMemRelease(again));
    ck_assert_uint_eq(simcuda_live("mappings"), 3);
}
END_TEST

/* Handle and mapping keep the object, the object keeps the memory. */
START_TEST(what_keeps_it) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory[2];
    CUdeviceptr p = whole(&object, GRAIN, memory);
    OK(cuMemRelease(object));
    GIVES(cuMemRelease(object), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastUnbind(object, 0, 0, GRAIN), CUDA_ERROR_INVALID_VALUE);
    OK(store(p, 9, NULL));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(memory[1]), 9);
    GIVES(cuMemAddressFree(p, GRAIN), CUDA_ERROR_INVALID_VALUE);
    for (int device = 0; device < 2; device++)
        OK(cuMemUnmap(memory[device], GRAIN));
    ck_assert_uint_eq(simcuda_used_memory(1), GRAIN);
    OK(store(p, 9, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(p, GRAIN));
    OK(cuMemAddressFree(p, GRAIN));
    ck_assert_uint_eq(simcuda_live("multicasts"), 0);
    ck_assert_uint_eq(simcuda_live("physical"), 0);
    ck_assert_uint_eq(simcuda_used_memory(1), 0);
    ck_assert_uint_eq(simcuda_race_reports(), 0);
}
END_TEST

/* Faults by access rights of each device, and at a place to which one device has bound nothing. */
static const enum { NO_ACCESS, READ_ONLY, UNBOUND, READ_BY_COPY, OUTSIDE, WRONG_DEVICE } faults[] =
    {NO_ACCESS, READ_ONLY, UNBOUND, READ_BY_COPY, OUTSIDE, WRONG_DEVICE};

START_TEST(what_faults) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory[2], p;
    unsigned word;
    CUresult result = CUDA_SUCCESS;
    p = whole(&object, 2 * GRAIN, memory);
    switch (faults[_i]) {
    case NO_ACCESS:
        OK(allow(p, 2 * GRAIN, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
        OK(store(p, 1, NULL));
        break;
    case READ_ONLY:
        OK(allow(p, 2 * GRAIN, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
        OK(store(p, 1, NULL));
        break;
    case UNBOUND:
        OK(cuMulticastUnbind(object, 1, 0, 2 * GRAIN));
        OK(store(p, 1, NULL));
        break;
    case READ_BY_COPY:
        result = cuMemcpyDtoH_v2(&word, p, 4);
        GIVES(result, CUDA_ERROR_ILLEGAL_ADDRESS);
        return;
    case OUTSIDE:
        GIVES(cuMemcpyHtoD_v2(p + 2 * GRAIN - 2, "1234", 4), CUDA_ERROR_ILLEGAL_ADDRESS);
        return;
    case WRONG_DEVICE: {
        CUmemGenericAllocationHandle one = team(1, GRAIN, FD);
        OK(cuMulticastAddDevice(one, 0));
        CUdeviceptr q = mapped(one, GRAIN, 0);
        GIVES(allow(q, GRAIN, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_DEVICE);
        OK(store(q, 1, NULL)); /* nothing is bound at all */
        break;
    }
    }
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* ---- the race detector ---- */

/* Work through the object uses the memory behind it, as owned at that time. */
START_TEST(a_race_through_it) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory[2];
    CUdeviceptr p = whole(&object, GRAIN, memory);
    CUstream one = extra_stream(), two = extra_stream();
    simcuda_owner_begin(memory[1] + 4096, 4096);
    OK(store(p + 4096, 1, one));
    simcuda_owner_end(memory[1] + 4096);
    simcuda_owner_begin(memory[1] + 4096, 4096);
    if (_i) /* in order */
        OK(cuStreamSynchronize(one));
    OK(cuMemsetD8Async(memory[1] + 4096, 2, 16, two));
    ck_assert_uint_eq(simcuda_race_found("unordered"), !_i);
}
END_TEST

START_TEST(unmapped_under_work) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory[2];
    CUdeviceptr p = whole(&object, GRAIN, memory);
    CUstream stream = extra_stream();
    OK(store(p, 1, stream));
    if (_i)
        OK(cuStreamSynchronize(stream));
    OK(cuMemUnmap(p, GRAIN));
    ck_assert_uint_eq(simcuda_race_found("released"), !_i);
}
END_TEST

/* ---- other processes ---- */

static void tell(int fd, uint64_t value) {
    ck_assert_int_eq(write(fd, &value, sizeof value), sizeof value);
}

static uint64_t hear(int fd) {
    uint64_t value = 0;
    ck_assert_int_eq(read(fd, &value, sizeof value), sizeof value);
    return value;
}

static pid_t other_process(CUmemGenericAllocationHandle object, const char *part, int *to,
                           int *from) {
    int fd, there[2], back[2];
    pid_t child;
    char name[32];
    snprintf(name, sizeof name, "%s", part);
    char *arguments[] = {(char[]){"check_multicast"}, name, NULL};
    OK(cuMemExportToShareableHandle(&fd, object, FD, 0));
    ck_assert(pipe(there) == 0 && pipe(back) == 0);
    ck_assert_int_eq(dup2(fd, PASSED_FD), PASSED_FD);
    ck_assert_int_eq(dup2(there[0], TO_FD), TO_FD);
    ck_assert_int_eq(dup2(back[1], FROM_FD), FROM_FD);
    ck_assert_int_eq(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    close(fd);
    close(back[1]);
    close(FROM_FD);
    *to = there[1];
    *from = back[0];
    return child;
}

/* Does the steps of one rank of NCCL: adds its device, maps its memory and the object, and binds.
 * Binding waits for the other rank. */
static CUdeviceptr rank(CUmemGenericAllocationHandle object, int device, CUdeviceptr *memory) {
    CUmemGenericAllocationHandle handle = create(device, 2 * GRAIN);
    *memory = mapped(handle, 2 * GRAIN, device);
    OK(cuMulticastAddDevice(object, device));
    OK(cuMulticastBindMem(object, 0, handle, 0, 2 * GRAIN, 0));
    return mapped(object, 2 * GRAIN, device);
}

START_TEST(rank_side) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory;
    CUcontext ctx;
    OK(cuDevicePrimaryCtxRetain(&ctx, 1));
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)PASSED_FD, FD));
    GIVES(cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE); /* the other's */
    CUdeviceptr p = rank(object, 1, &memory);
    tell(FROM_FD, 1);
    hear(TO_FD); /* the other one has stored 5 */
    ck_assert_uint_eq(extra_word(memory + GRAIN), 5);
    OK(launch("multimem_add", multimem_add, p + GRAIN, 3, NULL));
    OK(cuCtxSynchronize());
    tell(FROM_FD, 2);
    hear(TO_FD);
    OK(cuMulticastUnbind(object, 1, 0, 2 * GRAIN));
    OK(cuMemUnmap(p, 2 * GRAIN));
    OK(cuMemRelease(object));
    ck_assert_uint_eq(simcuda_live("multicasts"), 0);
    ck_assert_uint_eq(simcuda_race_reports(), 0);
    tell(FROM_FD, 3);
}
END_TEST

START_TEST(two_processes) {
    CUmemGenericAllocationHandle object = team(2, 4 * GRAIN, FD);
    CUdeviceptr memory, result;
    int to, from, status = -1;
    OK(cuMemAlloc_v2(&result, 4));
    pid_t child;
    CUmemGenericAllocationHandle handle = create(0, 2 * GRAIN);
    memory = mapped(handle, 2 * GRAIN, 0);
    OK(cuMulticastAddDevice(object, 0));
    child = other_process(object, "rank", &to, &from);
    OK(cuMulticastBindMem(object, 0, handle, 0, 2 * GRAIN, 0)); /* the other one is not there yet */
    CUdeviceptr p = mapped(object, 2 * GRAIN, 0);
    hear(from);
    OK(store(p + GRAIN, 5, NULL));
    OK(cuCtxSynchronize());
    tell(to, 1);
    hear(from);
    ck_assert_uint_eq(extra_word(memory + GRAIN), 8);
    OK(launch("multimem_sum", multimem_sum, p + GRAIN, result, NULL));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(result), 16);
    tell(to, 2);
    hear(from); /* it has unbound */
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(simcuda_race_reports(), 0);
    OK(store(p + GRAIN, 5, NULL));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* Binds, and is killed. */
START_TEST(killed_side) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory;
    OK(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)PASSED_FD, FD));
    rank(object, 1, &memory);
    tell(FROM_FD, 1);
    pause();
}
END_TEST

START_TEST(a_killed_process) {
    CUmemGenericAllocationHandle object = team(2, 4 * GRAIN, FD);
    CUdeviceptr memory;
    int to, from;
    pid_t child = other_process(object, "killed", &to, &from);
    CUdeviceptr p = rank(object, 0, &memory);
    hear(from);
    OK(store(p, 5, NULL));
    OK(cuCtxSynchronize());
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    /* its place is free again */
    CUmemGenericAllocationHandle handle = create(1, 2 * GRAIN);
    OK(cuMulticastBindMem(object, 0, handle, 0, 2 * GRAIN, 0));
    OK(store(p, 6, NULL));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(memory), 6);
}
END_TEST

/* Frees its memory while the other process stores to it. */
START_TEST(owner_side) {
    CUmemGenericAllocationHandle object;
    CUdeviceptr memory;
    OK(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)PASSED_FD, FD));
    rank(object, 1, &memory);
    simcuda_owner_begin(memory, 4096);
    tell(FROM_FD, 1);
    hear(TO_FD);
    simcuda_owner_end(memory);
    simcuda_owner_begin(memory, 4096);
    OK(cuMemsetD8Async(memory, 2, 16, extra_stream()));
    tell(FROM_FD, simcuda_race_found("unordered"));
}
END_TEST

START_TEST(a_race_between_processes) {
    CUmemGenericAllocationHandle object = team(2, 4 * GRAIN, FD);
    CUdeviceptr memory;
    int to, from;
    pid_t child = other_process(object, "owner", &to, &from);
    CUdeviceptr p = rank(object, 0, &memory);
    hear(from);
    OK(store(p, 5, NULL));
    if (_i)
        OK(cuCtxSynchronize());
    tell(to, 1);
    ck_assert_uint_eq(hear(from), !_i);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        const TTest *const *test;
    } parts[] = {{"rank", &rank_side}, {"killed", &killed_side}, {"owner", &owner_side}};
    for (size_t i = 0; argc > 1 && i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(argv[1], parts[i].name))
            return extra_part(*parts[i].test);
    TCase *t;
    Suite *suite = extra_suite("multicast", &t);
    tcase_add_test(t, order_of_calls);
    tcase_add_test(t, by_address);
    tcase_add_test(t, the_team_is_waited_for);
    tcase_add_test(t, stores_reach_all);
    tcase_add_test(t, what_it_answers);
    tcase_add_test(t, what_keeps_it);
    tcase_add_loop_test(t, what_faults, 0, sizeof faults / sizeof *faults);
    tcase_add_loop_test(t, a_race_through_it, 0, 2);
    tcase_add_loop_test(t, unmapped_under_work, 0, 2);
    tcase_add_test(t, two_processes);
    tcase_add_test(t, a_killed_process);
    tcase_add_loop_test(t, a_race_between_processes, 0, 2);
    return run_suite(suite);
}
