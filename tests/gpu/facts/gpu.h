/* The device for the checks of this folder and of right/: the whole driver API, found at run
 * time, two kernels, a clock, and a test whether a call waits.
 *
 * One thread opens the device.  Afterwards any thread may call every function.  On the simulated
 * device the clock is the simulated one, so that nothing here depends on the machine's load. */
#ifndef GPU_H
#define GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_abi.h"
#include "harness.h"

/* The driver's exports for all functions of cuda_functions.def; NULL if an export is missing. */
typedef struct {
#define CU_FN(symbol, name, since, mode, params, args) symbol##_fn *symbol;
#include "device/cuda_functions.def"
#undef CU_FN
} gpu_driver_t;

/* A kernel in one context, and its duration in clocks. */
typedef struct {
    CUfunction function;
    unsigned long long clocks;
} gpu_kernel_t;

typedef struct {
    CUdevice device;
    CUcontext primary;           /* current in the opening thread */
    gpu_kernel_t quick, slow;    /* of that context; see gpu_launch */
    volatile uint32_t *words;    /* pinned memory that kernels write to; GPU_WORDS of them */
    int devices, version, major; /* version: of the driver; major: compute capability */
    bool simulated;
    double slow_ms; /* least duration of a slow kernel */
} gpu_t;

extern gpu_driver_t cu;
extern gpu_t gpu;

enum { GPU_WORDS = 4096, GPU_WORDS_KEPT = 16 }; /* gpu_does_wait uses the first ones */

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* True if the driver has the function. */
#define GPU_HAS(symbol) (cu.symbol != NULL)

/* Looks up the driver's functions and calls none.  Returns false if there is no libcuda.so.1. */
bool gpu_load(void);
/* Does gpu_load and cuInit, makes the first device's primary context current, and loads the
 * kernels.  Returns false if there is no driver or no device. */
bool gpu_open(void);

/* Returns the driver's name of a result without CUDA_ERROR_ ("SUCCESS", "INVALID_VALUE"), or its
 * number. */
const char *gpu_error(CUresult result);

/* Returns milliseconds of a monotonic clock. */
double gpu_clock(void);
/* Sleeps for a moment between two polls.  On the simulated device also advances its time. */
void gpu_pause(void);
/* Sleeps for a moment in real time only.  For host functions, which must not call the driver. */
void gpu_rest(void);

/* Launches a kernel of one thread.  The kernel first reads the word at `from`.  It then works for a
 * moment (gpu.quick) or for slow_ms (gpu.slow), and writes the old value plus one to `to`.
 * Addresses are device memory or gpu_word(i). */
CUresult gpu_try(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to);
/* Launches like gpu_try and ends the program if the launch fails. */
void gpu_launch(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to);
/* Launches like gpu_try, but the kernel may begin before the stream's previous kernel has ended. */
CUresult gpu_launch_early(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to);
/* Returns PTX text number n, for the assembler; "" after the last one. */
const char *gpu_text(unsigned n);
/* Returns the device address of gpu.words[i]. */
CUdeviceptr gpu_word(unsigned i);
/* Loads the kernels into the current context. */
void gpu_kernels(gpu_kernel_t *quick, gpu_kernel_t *slow);

/* A second context, with a non-blocking stream and kernels. */
typedef struct {
    CUcontext context;
    CUstream stream;
    gpu_kernel_t quick, slow;
} gpu_beside_t;
/* Returns the second context, made by cuCtxCreate at the first call; NULL if this fails.  The first
 * call needs the primary context to be current, and leaves it so. */
const gpu_beside_t *gpu_beside(void);

/* A green context over all processors, its view as a CUcontext, and a stream in it.  It uses the
 * primary context's kernels. */
typedef struct {
    CUgreenCtx green;
    CUcontext view;
    CUstream stream;
} gpu_green_t;
/* Returns the green context, made at the first call; NULL if it is not available. */
const gpu_green_t *gpu_green(void);

/* Returns true if driver and device support virtual memory management. */
bool gpu_has_pages(void);

/* The outcome of gpu_does_wait. */
typedef struct {
    enum { GPU_UNCLEAR, GPU_WAITED, GPU_DID_NOT } answer;
    CUresult result;           /* of the call */
    double call_ms, kernel_ms; /* kernel_ms: from its launch to its end, as the host saw it */
} gpu_wait_t;
typedef CUresult gpu_call_t(void *arg);
/* Tests whether `call` holds up the host until a slow kernel in `stream` is over.  The current
 * context must be the stream's.  If `other` is not NULL, it is current during the call. */
gpu_wait_t gpu_does_wait(CUstream stream, gpu_kernel_t slow, CUcontext other, gpu_call_t *call,
                         void *arg);

#endif
