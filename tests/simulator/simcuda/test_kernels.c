/* Modules, libraries and kernels: names and parameters from PTX text, host functions as
 * kernels, launch arguments. */
#include "sim_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static const char ptx[] = "// made by hand\n"
                          ".version 7.8\n.target sm_80\n.address_size 64\n"
                          ".visible .global .align 8 .b8 table[1000];\n"
                          ".global .attribute(.managed) .align 4 .u32 flag = 1;\n"
                          "/* .entry in_a_comment() */\n"
                          ".func (.param .b32 r) helper(.param .b32 x) { ret; }\n"
                          ".visible .entry scale(\n"
                          "    .param .u64 scale_data,\n"
                          "    .param .u32 scale_count,\n"
                          "    .param .f32 scale_by,\n"
                          "    .param .align 8 .b8 scale_extra[24]\n"
                          ")\n.maxntid 256, 1, 1\n{\n"
                          "    .reg .b64 %rd<4>;\n    .shared .align 4 .b8 buffer[64];\n"
                          "    ld.param.u64 %rd1, [scale_data];\n    { ret; }\n}\n"
                          ".visible .entry empty()\n{ ret; }\n";

static CUmodule load(void) {
    CUmodule module;
    OK(cuModuleLoadData(&module, ptx));
    return module;
}

/* Found by its name in this program, which exports it. */
__attribute__((visibility("default"))) void simcuda_kernel_scale(const simcuda_launch_t *launch);
void simcuda_kernel_scale(const simcuda_launch_t *launch) {
    CUdeviceptr data;
    unsigned count;
    float by, extra;
    memcpy(&data, launch->params[0], sizeof data);
    memcpy(&count, launch->params[1], sizeof count);
    memcpy(&by, launch->params[2], sizeof by);
    memcpy(&extra, launch->params[3], sizeof extra);
    float *values = simcuda_host(data);
    for (unsigned i = 0; i < count; i++)
        values[i] = values[i] * by + extra;
}

START_TEST(names_come_from_ptx_text) {
    CUfunction function;
    CUdeviceptr base;
    size_t bytes, offset, size;
    unsigned count;
    start();
    CUmodule module = load();
    OK(cuModuleGetFunctionCount(&count, module));
    ck_assert_uint_eq(count, 2);
    GIVES(cuModuleGetFunction(&function, module, "helper"), CUDA_ERROR_NOT_FOUND);
    GIVES(cuModuleGetFunction(&function, module, "in_a_comment"), CUDA_ERROR_NOT_FOUND);
    GIVES(cuModuleGetFunction(&function, module, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleGetFunction(&function, module, "scale"));
    OK(cuFuncGetParamInfo(function, 3, &offset, &size));
    ck_assert_uint_eq(offset, 16);
    ck_assert_uint_eq(size, 24);
    GIVES(cuFuncGetParamInfo(function, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleGetGlobal_v2(&base, &bytes, module, "table"));
    ck_assert_uint_eq(bytes, 1000);
    OK(cuMemsetD8_v2(base, 1, bytes));
    GIVES(cuModuleGetGlobal_v2(&base, &bytes, module, "buffer"), CUDA_ERROR_NOT_FOUND);
    GIVES(cuMemFree_v2(base), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(simcuda_live_allocations(NULL), 2);
    OK(cuModuleUnload(module));
    ck_assert_uint_eq(simcuda_live_allocations(NULL), 0);
    GIVES(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    GIVES(run(function, NULL), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* The number after .ptr is the alignment of the target, not of the pointer. */
START_TEST(pointers_are_aligned_as_pointers) {
    static const char text[] = ".version 7.8\n.target sm_80\n.address_size 64\n"
                               ".visible .entry k(.param .u32 n,\n"
                               " .param .u64 .ptr .global .align 1 p,\n"
                               " .param .u64 .ptr .align 16 q,\n"
                               " .param .align 16 .b8 r[3])\n{ ret; }\n";
    static const size_t offsets[] = {0, 8, 16, 32}, sizes[] = {4, 8, 8, 3};
    CUmodule module;
    CUfunction function;
    start();
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&function, module, "k"));
    for (size_t i = 0; i < 4; i++) {
        size_t offset, size;
        OK(cuFuncGetParamInfo(function, i, &offset, &size));
        ck_assert_uint_eq(offset, offsets[i]);
        ck_assert_uint_eq(size, sizes[i]);
    }
}
END_TEST

START_TEST(parameters_have_a_limit) {
    static const char *const lists[] = {
        ".param .b8 a[65530], .param .u64 b", ".param .b8 a[32760], .param .u64 b",
        ".param .b8 a[18446744073709551615]", ".param .align 1099511627776 .b8 a[1]",
        ".param .b8 a[4294967296][4294967296], .param .u64 b"};
    char text[200];
    CUmodule module;
    CUlibrary library;
    CUfunction function;
    start();
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        snprintf(text, sizeof text, ".version 7.8\n.entry k(%s) { ret; }\n", lists[i]);
        GIVES(cuModuleLoadData(&module, text), CUDA_ERROR_INVALID_PTX);
        GIVES(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0),
              CUDA_ERROR_INVALID_PTX);
    }
    OK(cuModuleLoadData(&module, ".version 7.8\n.entry k(.param .b8 a[32764]) { ret; }\n"));
    OK(cuModuleGetFunction(&function, module, "k"));
    char whole[32764] = {0};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){whole}, NULL));
}
END_TEST

START_TEST(dynamic_shared_memory_is_asked_for) {
    CUfunction function;
    start();
    OK(cuModuleGetFunction(&function, load(), "empty"));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 49152, NULL, NULL, NULL));
    GIVES(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 100000, NULL, NULL, NULL));
    GIVES(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 100001, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(other_images_have_every_name) {
    static const unsigned char cubin[64] = {0x7f, 'E', 'L', 'F'};
    CUmodule module;
    CUfunction function;
    CUdeviceptr base;
    size_t bytes;
    start();
    OK(cuModuleLoadData(&module, cubin));
    OK(cuModuleGetFunction(&function, module, "whatever"));
    OK(run(function, NULL));
    OK(cuModuleGetGlobal_v2(&base, &bytes, module, "whatever"));
    ck_assert_uint_eq(bytes, 65536);
    GIVES(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
}
END_TEST

static void scale_and_check(CUfunction function, CUdeviceptr data) {
    unsigned count = 3;
    float by = 2, extra[6] = {0.5f}, values[3] = {1, 2, 3};
    void *params[] = {&data, &count, &by, extra};
    OK(cuMemcpyHtoD_v2(data, values, sizeof values));
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    by = 100; /* arguments were copied */
    OK(cuMemcpyDtoH_v2(values, data, sizeof values));
    ck_assert_float_eq(values[0], 2.5f);
    ck_assert_float_eq(values[2], 6.5f);
}

START_TEST(kernels_of_the_program_compute) {
    CUfunction function;
    CUdeviceptr data;
    start();
    OK(cuMemAlloc_v2(&data, 4096));
    OK(cuModuleGetFunction(&function, load(), "scale"));
    scale_and_check(function, data);
    struct {
        CUdeviceptr data;
        unsigned count;
        float by;
        float extra[6];
    } packed = {data, 1, 3, {0}};
    size_t size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, NULL};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    float value;
    OK(cuMemcpyDtoH_v2(&value, data, sizeof value));
    ck_assert_float_eq(value, 7.5f);
    size = 8;
    GIVES(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(libraries_make_functions_per_context) {
    CUlibrary library, found;
    CUkernel kernel;
    CUfunction one, two;
    CUcontext other;
    CUdeviceptr data, base;
    size_t bytes;
    start();
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "scale"));
    OK(cuKernelGetLibrary(&found, kernel));
    ck_assert_ptr_eq(found, library);
    OK(cuKernelGetFunction(&one, kernel));
    OK(cuMemAlloc_v2(&data, 4096));
    scale_and_check((CUfunction)(void *)kernel, data);
    scale_and_check(one, data);
    OK(cuLibraryGetGlobal(&base, &bytes, library, "table"));
    ck_assert_uint_eq(bytes, 1000);
    GIVES(cuLibraryGetManaged(&base, &bytes, library, "table"), CUDA_ERROR_NOT_FOUND);
    OK(cuLibraryGetManaged(&base, &bytes, library, "flag"));
    ck_assert_uint_eq(bytes, 4);
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuKernelGetFunction(&two, kernel));
    ck_assert_ptr_ne(one, two);
    GIVES(run(one, NULL), CUDA_ERROR_INVALID_HANDLE); /* of another context */
    OK(cuLibraryUnload(library));
    GIVES(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

static unsigned long long seen_value;
static unsigned seen_grid;

static void look(const simcuda_launch_t *launch) {
    memcpy(&seen_value, launch->params[0], sizeof seen_value);
    seen_grid = launch->grid[1];
}

START_TEST(registrations_come_first) {
    simcuda_kernel_t kernel = {
        .name = "empty", .fn = look, .duration_ns = 2000000, .param_count = 1};
    unsigned long long value = 99;
    void *params[] = {&value};
    CUfunction function;
    start();
    OK(cuModuleGetFunction(&function, load(), "empty"));
    ck_assert_int_eq(simcuda_register_kernel(&kernel), 0);
    CUevent before = mark(NULL);
    OK(cuLaunchKernel(function, 1, 7, 1, 1, 1, 1, 0, NULL, params, NULL));
    CUevent after = mark(NULL);
    OK(cuEventSynchronize(after));
    ck_assert_uint_eq(seen_value, 99);
    ck_assert_uint_eq(seen_grid, 7);
    ck_assert_int_ge(between(before, after), 2);
    GIVES(cuLaunchKernel(function, 1, 7, 1, 1, 1, 1, 0, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static _Atomic int steps_left; /* of the kernel that waits for another one */
static _Atomic bool asker_ran_it;
static pthread_t asker;

static void await_other(const simcuda_launch_t *launch) {
    bool waits;
    memcpy(&waits, launch->params[0], sizeof waits);
    if (pthread_equal(pthread_self(), asker))
        atomic_store(&asker_ran_it, true);
    else if (!waits)
        atomic_store(&steps_left, 0);
    while (waits && atomic_load(&steps_left) && !atomic_load(&asker_ran_it))
        usleep(100);
}

/* With clock:real a kernel does not run in a thread that queries or waits. A kernel that waits for another one holds up
 * only its own stream. */
START_TEST(kernels_have_their_own_threads) {
    enum { WAITING = 3 };
    simcuda_kernel_t kernel = {.name = "empty", .fn = await_other, .param_count = 1};
    CUstream stream[WAITING + 1];
    CUevent after[WAITING + 1];
    CUfunction function;
    start();
    OK(cuModuleGetFunction(&function, load(), "empty"));
    ck_assert_int_eq(simcuda_register_kernel(&kernel), 0);
    asker = pthread_self();
    for (int turn = 0; turn < 2; turn++) {
        atomic_store(&steps_left, 1);
        for (int i = 0; i <= WAITING; i++) {
            bool waits = i < WAITING;
            void *params[] = {&waits};
            OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
            OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream[i], params, NULL));
            after[i] = mark(stream[i]);
        }
        for (int i = 0; i <= WAITING; i++)
            while (turn == 0 && cuEventQuery(after[i]) == CUDA_ERROR_NOT_READY)
                ;
        OK(cuCtxSynchronize());
        ck_assert(!atomic_load(&asker_ran_it));
    }
}
END_TEST

START_TEST(launch_shapes_are_checked) {
    CUfunction function;
    start();
    OK(cuModuleGetFunction(&function, load(), "empty"));
    GIVES(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuLaunchKernel(function, 1, 1, 1, 32, 33, 1, 0, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuLaunchKernel(function, 1, 70000, 1, 1, 1, 1, 0, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1};
    OK(cuLaunchKernelEx(&config, function, NULL, NULL));
    GIVES(cuLaunchKernelEx(NULL, function, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    int blocks, grid, block;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 0));
    ck_assert_int_eq(blocks, 8);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    ck_assert_int_eq(block, 1024);
    ck_assert_int_eq(grid, 264);
}
END_TEST

START_TEST(cooperative_launches_run_at_once) {
    CUfunction function;
    int blocks;
    start();
    OK(cuModuleGetFunction(&function, load(), "empty"));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 0));
    unsigned most = (unsigned)blocks * 132;
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    for (unsigned more = 0; more < 2; more++) {
        CUresult wanted = more ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
        GIVES(cuLaunchCooperativeKernel(function, most + more, 1, 1, 256, 1, 1, 0, NULL, NULL), wanted);
        CUlaunchConfig config = {most + more, 1, 1, 256, 1, 1, 0, NULL, &cooperative, 1};
        GIVES(cuLaunchKernelEx(&config, function, NULL, NULL), wanted);
    }
    OK(cuLaunchKernel(function, most + 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
}
END_TEST

/* Block shape and parameters are kept with the function, as pycuda still sets them. */
START_TEST(launches_of_old) {
    CUfunction function;
    CUdeviceptr data;
    float values[3] = {1, 2, 3}, extra[6] = {0.5f};
    start();
    OK(cuMemAlloc_v2(&data, 4096));
    OK(cuMemcpyHtoD_v2(data, values, sizeof values));
    OK(cuModuleGetFunction(&function, load(), "scale"));
    GIVES(cuLaunch(function), CUDA_ERROR_INVALID_VALUE); /* no shape */
    GIVES(cuFuncSetBlockShape(function, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuFuncSetBlockShape(function, 1024, 2, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuFuncSetBlockShape(NULL, 1, 1, 1), CUDA_ERROR_INVALID_HANDLE);
    OK(cuFuncSetBlockShape(function, 32, 2, 1));
    OK(cuFuncSetSharedSize(function, 64));
    OK(cuParamSetv(function, 0, &data, sizeof data));
    OK(cuParamSeti(function, 8, 3));
    OK(cuParamSetf(function, 12, 2));
    OK(cuParamSetv(function, 16, extra, sizeof extra));
    GIVES(cuParamSetv(function, 4090, extra, sizeof extra), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuParamSeti(function, -4, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuParamSetSize(function, 39));
    GIVES(cuLaunchGrid(function, 2, 2), CUDA_ERROR_INVALID_VALUE); /* the last one is cut off */
    OK(cuParamSetSize(function, 40));
    GIVES(cuParamSetSize(function, 4097), CUDA_ERROR_INVALID_VALUE);
    OK(cuLaunchGrid(function, 2, 2));
    OK(cuParamSetf(function, 12, 10)); /* the launch has its own */
    OK(cuMemcpyDtoH_v2(values, data, sizeof values));
    ck_assert_float_eq(values[0], 2.5f);
    OK(cuLaunchGridAsync(function, 1, 1, NULL));
    OK(cuLaunch(function));
    OK(cuMemcpyDtoH_v2(values, data, sizeof values));
    ck_assert_float_eq(values[0], 255.5f);
}
END_TEST

SUITE_MAIN("kernels", names_come_from_ptx_text, pointers_are_aligned_as_pointers,
           parameters_have_a_limit, dynamic_shared_memory_is_asked_for, other_images_have_every_name,
           kernels_of_the_program_compute, libraries_make_functions_per_context,
           registrations_come_first, kernels_have_their_own_threads, launch_shapes_are_checked, cooperative_launches_run_at_once,
           launches_of_old)
