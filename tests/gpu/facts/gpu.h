/* The device as the checks of this folder and of right/ see it: the whole driver API, found at
 * run time, two kernels, a clock, and the question whether a call waits.
 *
 * One thread opens the device; afterwards every function may be called from any thread.  On the
 * simulated device time is the simulated one, so that nothing here depends on how busy the
 * machine is. */
#ifndef GPU_H
#define GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_abi.h"
#include "harness.h"

/* Every function of cuda_functions.def as the driver exports it; NULL: it does not. */
typedef struct {
#define CU_FN(symbol, name, since, mode, params, args) symbol##_fn *symbol;
#include "device/cuda_functions.def"
#undef CU_FN
} gpu_driver_t;

/* A kernel in one context, and the clocks that it lets pass. */
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
    double slow_ms; /* what a slow kernel takes at least */
} gpu_t;

extern gpu_driver_t cu;
extern gpu_t gpu;

enum { GPU_WORDS = 4096, GPU_WORDS_KEPT = 16 }; /* the first ones are gpu_does_wait's own */

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Whether every named function is there. */
#define GPU_HAS(symbol) (cu.symbol != NULL)

/* The driver's functions, nothing called yet.  False: no libcuda.so.1. */
bool gpu_load(void);
/* Also cuInit, the first device's primary context, kernels.  False: no driver, or no device. */
bool gpu_open(void);

/* "SUCCESS", "INVALID_VALUE": the driver's name without CUDA_ERROR_, or the number. */
const char *gpu_error(CUresult result);

/* Milliseconds of a clock that never steps back. */
double gpu_clock(void);
/* Lets a moment pass: simulated time, or a short sleep between looks at a device. */
void gpu_pause(void);
/* The same for a host function, which may not call the driver: real time only. */
void gpu_rest(void);

/* A kernel of one thread: reads the word at `from`, works for a moment (`quick`) or for slow_ms
 * (`slow`), writes what it read at first plus one to `to`.  Addresses: device memory, or
 * gpu_word(i).  `early`: may begin before the kernel in front of it in its stream has ended. */
CUresult gpu_try(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to);
/* The same where it has to work. */
void gpu_launch(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to);
CUresult gpu_launch_early(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to);
/* PTX text number n, "" behind the last one: for the assembler. */
const char *gpu_text(unsigned n);
/* Device address of gpu.words[i]. */
CUdeviceptr gpu_word(unsigned i);
/* The kernels in the current context. */
void gpu_kernels(gpu_kernel_t *quick, gpu_kernel_t *slow);

/* A context of cuCtxCreate beside the primary one, with a non-blocking stream and kernels; the
 * primary one is current afterwards.  NULL: there is none to be had. */
typedef struct {
    CUcontext context;
    CUstream stream;
    gpu_kernel_t quick, slow;
} gpu_beside_t;
const gpu_beside_t *gpu_beside(void);

/* A green context over all processors, its view as a context and a stream in it; kernels of it
 * are the primary one's.  NULL: there is none to be had. */
typedef struct {
    CUgreenCtx green;
    CUcontext view;
    CUstream stream;
} gpu_green_t;
const gpu_green_t *gpu_green(void);

/* Whether the device has virtual memory management. */
bool gpu_has_pages(void);

/* Does `call` hold up the host until a slow kernel in `stream` is over?  The current context is
 * the stream's unless `other` is given: the call is made with that one current. */
typedef struct {
    enum { GPU_UNCLEAR, GPU_WAITED, GPU_DID_NOT } answer;
    CUresult result;           /* of the call */
    double call_ms, kernel_ms; /* kernel_ms: from its launch to its end, as the host saw it */
} gpu_wait_t;
typedef CUresult gpu_call_t(void *arg);
gpu_wait_t gpu_does_wait(CUstream stream, gpu_kernel_t slow, CUcontext other, gpu_call_t *call,
                         void *arg);

#endif
