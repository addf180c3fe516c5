/* Virtual memory management: cuda.h, "Virtual Memory Management". */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extra.h"

#define GRAIN (2 * MIB)

extern char **environ;

static CUmemAllocationProp prop_of(int device, unsigned handle_types) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = handle_types,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static CUmemGenericAllocationHandle create(size_t size) {
    CUmemAllocationProp prop = prop_of(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t size) {
    CUdeviceptr p;
    OK(cuMemAddressReserve(&p, size, 0, 0, 0));
    return p;
}

static CUresult allow(CUdeviceptr p, size_t size, CUmemAccess_flags flags) {
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
    return cuMemSetAccess(p, size, &desc, 1);
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t size) {
    CUdeviceptr p = reserve(size);
    OK(cuMemMap(p, size, 0, handle, 0));
    OK(allow(p, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return p;
}

START_TEST(life_of_memory) {
    size_t granularity = 0;
    CUmemAllocationProp prop = prop_of(0, 0), got;
    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ck_assert_uint_eq(granularity, GRAIN);
    CUdeviceptr p = reserve(4 * GRAIN);
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
    CUmemGenericAllocationHandle handle = create(2 * GRAIN), again;
    ck_assert_uint_eq(simcuda_used_memory(0), 2 * GRAIN); /* physical memory counts */
    OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
    ck_assert_uint_eq(got.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuMemMap(p + GRAIN, 2 * GRAIN, 0, handle, 0));
    unsigned long long flags = 9;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    OK(cuMemGetAccess(&flags, &here, p + GRAIN));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(allow(p + GRAIN, 2 * GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemGetAccess(&flags, &here, p + GRAIN + 5));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(p + GRAIN + 77)));
    ck_assert_uint_eq(again, handle);
    OK(cuMemRelease(again));

    CUdeviceptr last = p + 3 * GRAIN - 4;
    OK(extra_launch(NULL, last, 42));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(last), 42);

    OK(cuMemRelease(handle)); /* the mapping keeps the memory */
    GIVES(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(simcuda_used_memory(0), 2 * GRAIN);
    GIVES(cuMemAddressFree(p, 4 * GRAIN), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemUnmap(p + GRAIN, GRAIN), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(p + GRAIN, 2 * GRAIN));
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
    GIVES(cuMemUnmap(p + GRAIN, 2 * GRAIN), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressFree(p, 2 * GRAIN), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(p, 4 * GRAIN));
    GIVES(cuMemAddressFree(p, 4 * GRAIN), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(no_access_faults) {
    CUmemGenericAllocationHandle handle = create(GRAIN);
    CUdeviceptr p = reserve(GRAIN);
    OK(cuMemMap(p, GRAIN, 0, handle, 0));
    OK(extra_launch(NULL, p, 1));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(read_only_faults_on_writes) {
    CUdeviceptr p = mapped(create(GRAIN), GRAIN);
    unsigned back = 1;
    OK(allow(p, GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READ));
    CUstream s = extra_stream();
    OK(cuMemcpyDtoHAsync_v2(&back, p, 4, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(back, 0);
    OK(extra_launch(s, p, 1));
    GIVES(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(unmapped_reservation_faults) {
    CUdeviceptr p = mapped(create(GRAIN), GRAIN);
    OK(cuMemUnmap(p, GRAIN));
    OK(extra_launch(NULL, p, 1));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* The body of a kernel without declared accesses: accesses as many bytes as its argument says. */
static void sweep(const simcuda_launch_t *launch) {
    CUdeviceptr address;
    unsigned bytes;
    memcpy(&address, launch->params[0], sizeof address);
    memcpy(&bytes, launch->params[1], sizeof bytes);
    memset(simcuda_host(address), 7, bytes);
}

static CUresult launch_sweep(CUdeviceptr address, unsigned bytes) {
    static const unsigned short sizes[] = {8, 4};
    const simcuda_kernel_t kernel = {.name = "sweep",
                                     .fn = sweep,
                                     .duration_ns = 1000,
                                     .param_count = 2,
                                     .param_bytes = sizes};
    CUmodule module;
    CUfunction function;
    ck_assert_int_eq(simcuda_register_kernel(&kernel), 0);
    OK(cuModuleLoadData(&module, "stand-in"));
    OK(cuModuleGetFunction(&function, module, "sweep"));
    void *params[] = {&address, &bytes};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    return cuCtxSynchronize();
}

START_TEST(kernels_that_compute_fault) {
    CUdeviceptr p = reserve(4 * GRAIN);
    CUmemGenericAllocationHandle handle = create(GRAIN);
    OK(cuMemMap(p + GRAIN, GRAIN, 0, handle, 0));
    OK(allow(p + GRAIN, GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(launch_sweep(p + GRAIN, GRAIN));
    ck_assert_uint_eq(simcuda_fault_address(), 0);
    GIVES(launch_sweep(p + GRAIN + 5, GRAIN - 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(simcuda_fault_address(), p + 2 * GRAIN);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS); /* it stays */
}
END_TEST

START_TEST(kernels_fault_after_an_unmapping) {
    CUdeviceptr p = mapped(create(GRAIN), GRAIN), q;
    OK(cuMemUnmap(p, GRAIN));
    OK(cuMemAddressFree(p, GRAIN)); /* no border is left behind */
    OK(cuMemAlloc_v2(&q, GRAIN));
    OK(launch_sweep(q, GRAIN));
    p = mapped(create(GRAIN), GRAIN);
    OK(launch_sweep(p, GRAIN));
    OK(cuMemUnmap(p, GRAIN));
    GIVES(launch_sweep(p + 40, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(simcuda_fault_address(), p + 40);
}
END_TEST

/* Contents belong to the physical memory: they move with it and show wherever it is mapped. */
START_TEST(remapping_keeps_contents) {
    CUmemGenericAllocationHandle handle = create(GRAIN);
    CUdeviceptr a = mapped(handle, GRAIN), b = mapped(handle, GRAIN);
    OK(extra_launch(NULL, a + 8, 6));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(b + 8), 6);
    OK(cuMemUnmap(a, GRAIN));
    CUdeviceptr c = mapped(handle, GRAIN);
    ck_assert_uint_eq(extra_word(c + 8), 6);
    OK(cuMemMap(a, GRAIN, 0, create(GRAIN), 0));
    OK(allow(a, GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    ck_assert_uint_eq(extra_word(a + 8), 0);
}
END_TEST

/* One copy over two mappings side by side. */
START_TEST(neighbours_are_one_range) {
    CUdeviceptr p = reserve(2 * GRAIN);
    OK(cuMemMap(p, GRAIN, 0, create(GRAIN), 0));
    OK(cuMemMap(p + GRAIN, GRAIN, 0, create(GRAIN), 0));
    OK(allow(p, 2 * GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemsetD8_v2(p + GRAIN - 64, 0x11, 128));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(p + GRAIN - 4), 0x11111111);
    ck_assert_uint_eq(extra_word(p + GRAIN), 0x11111111);
    OK(cuMemUnmap(p, 2 * GRAIN));
}
END_TEST

START_TEST(wrong_arguments) {
    CUmemAllocationProp prop = prop_of(0, 0);
    CUmemGenericAllocationHandle handle, other = create(GRAIN);
    CUdeviceptr p = reserve(2 * GRAIN), q;
    GIVES(cuMemCreate(&handle, GRAIN - 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(NULL, GRAIN, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(&handle, GRAIN, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(&handle, 1024 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    prop.location.id = 5;
    GIVES(cuMemCreate(&handle, GRAIN, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    GIVES(cuMemAddressReserve(&q, 100, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressReserve(&q, GRAIN, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressReserve(&q, GRAIN, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressReserve(&q, (size_t)1 << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemMap(p, 2 * GRAIN, 0, other, 0), CUDA_ERROR_INVALID_VALUE); /* too small */
    GIVES(cuMemMap(p + 4096, GRAIN, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemMap(p + 2 * GRAIN, GRAIN, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemMap(p, GRAIN, 0, 0x1234, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(p, GRAIN, 0, other, 0));
    GIVES(cuMemMap(p, GRAIN, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(allow(p, 2 * GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_VALUE);
    GIVES(allow(p, GRAIN, 77), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemSetAccess(p, GRAIN, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 9}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    GIVES(cuMemSetAccess(p, GRAIN, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    CUmemGenericAllocationHandle kept;
    OK(cuMemAlloc_v2(&q, 64));
    GIVES(cuMemRetainAllocationHandle(&kept, (void *)(uintptr_t)q), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(alignment_and_hint) {
    CUdeviceptr p, q;
    OK(cuMemAddressReserve(&p, 3 * GRAIN, 64 * MIB, 0, 0));
    ck_assert_uint_eq(p % (64 * MIB), 0);
    OK(cuMemAddressFree(p, 3 * GRAIN));
    OK(cuMemAddressReserve(&q, GRAIN, 0, p + GRAIN, 0));
    ck_assert_uint_eq(q, p + GRAIN);
    CUdeviceptr elsewhere;
    OK(cuMemAddressReserve(&elsewhere, GRAIN, 0, q, 0)); /* taken: only a hint */
    ck_assert_uint_ne(elsewhere, q);
}
END_TEST

/* Thousands of handles need no descriptors. */
START_TEST(many_handles) {
    enum { COUNT = 120, ROUNDS = 20 };
    CUmemGenericAllocationHandle handles[COUNT];
    CUdeviceptr p = reserve(COUNT * GRAIN);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            handles[i] = create(GRAIN);
            OK(cuMemMap(p + i * GRAIN, GRAIN, 0, handles[i], 0));
        }
        OK(allow(p, COUNT * GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        for (unsigned i = 0; i < COUNT; i++) {
            ck_assert_uint_eq(extra_word(p + i * GRAIN), 0); /* fresh memory is zero here */
            OK(extra_launch(NULL, p + i * GRAIN, i + 1));
        }
        OK(cuCtxSynchronize());
        for (unsigned i = 0; i < COUNT; i++)
            ck_assert_uint_eq(extra_word(p + i * GRAIN), i + 1);
        OK(cuMemUnmap(p, COUNT * GRAIN));
        for (unsigned i = 0; i < COUNT; i++)
            OK(cuMemRelease(handles[i]));
        ck_assert_uint_eq(simcuda_used_memory(0), 0);
    }
}
END_TEST

START_TEST(sharing_in_one_process) {
    CUmemGenericAllocationHandle handle = create(GRAIN), imported;
    CUmemAllocationProp plain = prop_of(0, 0);
    CUmemGenericAllocationHandle unshared;
    int fd = -1;
    OK(cuMemCreate(&unshared, GRAIN, &plain, 0));
    GIVES(
        cuMemExportToShareableHandle(&fd, unshared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(unshared));
    GIVES(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ck_assert_int_ge(fd, 0);
    CUdeviceptr a = mapped(handle, GRAIN);
    OK(extra_launch(NULL, a, 12));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(a, GRAIN));
    OK(cuMemRelease(handle));
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
    /* The descriptor alone keeps the contents. */
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ck_assert_uint_eq(simcuda_used_memory(0), GRAIN);
    CUdeviceptr b = mapped(imported, GRAIN);
    ck_assert_uint_eq(extra_word(b), 12);
    close(fd);
    int strange = open("/dev/null", O_RDONLY);
    GIVES(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)strange,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          CUDA_ERROR_INVALID_VALUE);
    close(strange);
    GIVES(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)-1,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

enum { PASSED_FD = 77 };

/* The other process: reads 21 and writes 22 next to it. */
START_TEST(import_side) {
    CUmemGenericAllocationHandle handle;
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)PASSED_FD,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr p = mapped(handle, GRAIN);
    ck_assert_uint_eq(extra_word(p), 21);
    OK(extra_launch(NULL, p + 4, 22));
    OK(cuCtxSynchronize());
}
END_TEST

START_TEST(sharing_between_processes) {
    create(GRAIN); /* so that the piece is not the file's first */
    CUmemGenericAllocationHandle handle = create(GRAIN);
    CUdeviceptr p = mapped(handle, GRAIN);
    OK(extra_launch(NULL, p, 21));
    OK(cuCtxSynchronize());
    int fd, status = -1;
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ck_assert_int_eq(dup2(fd, PASSED_FD), PASSED_FD);
    pid_t child;
    char *arguments[] = {(char[]){"check_vmm"}, (char[]){"import"}, NULL};
    ck_assert_int_eq(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(extra_word(p + 4), 22);
}
END_TEST

START_TEST(dma_buf_stand_in) {
    CUdeviceptr plain, range = reserve(2 * GRAIN), pool;
    int fd = -1;
    OK(cuMemAlloc_v2(&plain, MIB));
    OK(cuMemGetHandleForAddressRange(&fd, plain + 4096, 8192, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                     0));
    struct stat info;
    ck_assert_int_eq(fstat(fd, &info), 0);
    ck_assert_int_eq(info.st_size, 8192);
    close(fd);
    static const struct {
        uint64_t offset, size;
    } wrong[] = {{0, 2 * MIB}, {512, 4096}, {0, 100}, {0, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        GIVES(cuMemGetHandleForAddressRange(&fd, plain + wrong[i].offset, wrong[i].size,
                                            CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
              CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemGetHandleForAddressRange(&fd, plain, 4096, 9, 0), CUDA_ERROR_INVALID_VALUE);
    /* A reservation must be mapped throughout. */
    OK(cuMemMap(range, GRAIN, 0, create(GRAIN), 0));
    GIVES(cuMemGetHandleForAddressRange(&fd, range, 2 * GRAIN,
                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(range + GRAIN, GRAIN, 0, create(GRAIN), 0));
    OK(cuMemGetHandleForAddressRange(&fd, range, 2 * GRAIN, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                     0));
    close(fd);
    OK(cuMemAllocAsync(&pool, MIB, NULL));
    GIVES(cuMemGetHandleForAddressRange(&fd, pool, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "import"))
        return extra_part(import_side);
    TCase *t;
    Suite *suite = extra_suite("virtual memory", &t);
    tcase_add_test(t, life_of_memory);
    tcase_add_test(t, no_access_faults);
    tcase_add_test(t, read_only_faults_on_writes);
    tcase_add_test(t, unmapped_reservation_faults);
    tcase_add_test(t, kernels_that_compute_fault);
    tcase_add_test(t, kernels_fault_after_an_unmapping);
    tcase_add_test(t, remapping_keeps_contents);
    tcase_add_test(t, neighbours_are_one_range);
    tcase_add_test(t, wrong_arguments);
    tcase_add_test(t, alignment_and_hint);
    tcase_add_test(t, many_handles);
    tcase_add_test(t, sharing_in_one_process);
    tcase_add_test(t, sharing_between_processes);
    tcase_add_test(t, dma_buf_stand_in);
    return run_suite(suite);
}
