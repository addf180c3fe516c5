/* Common code of the programs in this folder: buffers of words that a kernel changes, and sums of
 * them.
 *
 * Each program prints its results, which are the same in every run.  The suite runs it plain and
 * under the library, and compares the output.  Exit status: 0 correct, 1 a value is wrong, 2 a
 * necessary call failed, 77 the program cannot run here (stderr has the reason). */
#ifndef RIGHT_H
#define RIGHT_H

#include "gpu.h"

/* Opens the device and the kernel, or ends the program with status 77. */
void right_open(void);
/* Prints the reason on stderr and ends the program with status 77. */
_Noreturn void right_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A stream.  If `ptsz`, calls use the functions for per-thread default streams. */
typedef struct {
    CUstream handle;
    bool ptsz;
} right_lane_t;
#define RIGHT_LANE(stream) ((right_lane_t){stream, false})
CUstream right_stream(void);

/* Loads the kernel in the current context.  right_open does this for the primary context and sets
 * right_mix_function. */
void right_kernel(CUfunction *mix);
extern CUfunction right_mix_function;

/* Launches words[i] = words[i] * 1664525 + add + i, for i below `words`. */
void right_mix(CUdeviceptr at, unsigned words, unsigned add, right_lane_t lane);
/* Launches this computation with `mix`, the kernel of another context. */
void right_mix_by(CUfunction mix, CUdeviceptr at, unsigned words, unsigned add,
                  right_lane_t lane);

/* Launches work on memory that the caller is about to free; its result is not read.  If the memory
 * gets a new owner before this work ends, that owner's sums are wrong. */
void right_last_work(CUdeviceptr at, unsigned words, right_lane_t lane);

/* Waits for the lane's work and returns the sum of the words.  Every different word changes it. */
unsigned long long right_sum(CUdeviceptr at, unsigned words, right_lane_t lane);
/* Returns the sum over host memory. */
unsigned long long right_host_sum(const void *memory, size_t bytes);

CUdeviceptr right_alloc(size_t bytes);
/* Returns a pseudo-random number below n and updates the seed. */
unsigned right_below(unsigned long long *seed, unsigned n);

/* ---- CUDA's libraries, opened at run time (libraries.c) ---- */

/* Opens the first of the sonames that is found; if there is none, ends with status 77. */
void *right_library(const char *what, const char *const *sonames);
/* Looks up a function; if the library lacks it, ends the program with status 1. */
void right_find(void *library, const char *name, void *slot);
/* Ends the program if `status` is not 0: with 77 on the simulated device, because NVIDIA's
 * libraries do not run there, else with 2. */
void right_library_must(int status, const char *call);
#define LIBRARY_MUST(call) right_library_must((int)(call), #call)

/* Allocates n floats on the device, with random values between -1 and 1. */
CUdeviceptr right_floats(size_t n, unsigned long long seed);
/* Waits for all work of the context, frees the floats, and returns their sum. */
unsigned long long right_floats_end(CUdeviceptr at, size_t n);

#endif
