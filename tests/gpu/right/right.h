/* What the programs of this folder share: buffers of words that a kernel changes, and sums of
 * them.
 *
 * Each program prints what it computed, the same in every run: the suite runs it plain and under
 * the library and compares.  Exit status 0, 1 when a value is wrong, 2 when a call failed
 * that has to work, 77 with the reason on stderr where the program cannot run here. */
#ifndef RIGHT_H
#define RIGHT_H

#include "gpu.h"

/* Opens the device and the kernel, or ends the program with status 77. */
void right_open(void);
/* "cannot run here": a line on stderr, status 77. */
_Noreturn void right_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A stream: `ptsz` takes the functions for per-thread default streams and a handle of NULL. */
typedef struct {
    CUstream handle;
    bool ptsz;
} right_lane_t;
#define RIGHT_LANE(stream) ((right_lane_t){stream, false})
CUstream right_stream(void);

/* The kernel in the current context; opened by right_open for the primary one. */
void right_kernel(CUfunction *mix);
extern CUfunction right_mix_function;

/* words[i] = words[i] * 1664525 + add + i, for i below `words`. */
void right_mix(CUdeviceptr at, unsigned words, unsigned add, right_lane_t lane);
/* The same with the kernel of another context. */
void right_mix_by(CUfunction mix, CUdeviceptr at, unsigned words, unsigned add,
                  right_lane_t lane);

/* Work whose result is not read, for when the memory is about to be freed: should it have a new
 * owner before this is over, that owner's sums come out wrong. */
void right_last_work(CUdeviceptr at, unsigned words, right_lane_t lane);

/* The sum of the device's words once the lane's work is over: any word that differs changes it.
 */
unsigned long long right_sum(CUdeviceptr at, unsigned words, right_lane_t lane);
/* The same of memory of the host. */
unsigned long long right_host_sum(const void *memory, size_t bytes);

CUdeviceptr right_alloc(size_t bytes);
/* Pseudo-random numbers below n: the same for the same seed. */
unsigned right_below(unsigned long long *seed, unsigned n);

/* ---- CUDA's libraries, opened at run time (libraries.c) ---- */

/* The first of the sonames that the loader or a CUDA installation has; no such library: 77. */
void *right_library(const char *what, const char *const *sonames);
/* A function of it; it has to be there. */
void right_find(void *library, const char *name, void *slot);
/* Ends the program unless `status` is 0: with 77 on the simulated device, where no library of
 * NVIDIA's runs, else with 2. */
void right_library_must(int status, const char *call);
#define LIBRARY_MUST(call) right_library_must((int)(call), #call)

/* n floats between -1 and 1 on the device. */
CUdeviceptr right_floats(size_t n, unsigned long long seed);
/* The sum over them, when all work of the context is over, and that memory is freed. */
unsigned long long right_floats_end(CUdeviceptr at, size_t n);

#endif
