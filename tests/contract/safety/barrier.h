/* Shared by the two parts of the barrier program. barrier.c: results that the host reads behind a
 * free. barrier_waits.c: whether a free waited. */
#ifndef TEST_BARRIER_H
#define TEST_BARRIER_H

#include <stdbool.h>
#include <stddef.h>

#include "accelcache.h"
#include "harness.h"

#define KIB ((size_t)1024)
#define HELD_NS 1000000000000ll

/* Objects of the running case: its context, two streams, a kernel that stores a number late, a kernel
 * that is held, 4 KiB of the device, and page-locked memory that the host reads. */
extern CUcontext first;
extern CUstream stream, other;
extern CUfunction store, held;
extern CUdeviceptr memory;
extern volatile unsigned *result;

bool real_time(void);
void write_to(CUdeviceptr address, unsigned value, CUstream on);
CUdeviceptr block(void);
void barrier(void);
void to_host(unsigned value);
void to_host_legacy(unsigned value);
void rows(unsigned value);
void launch_graph(CUgraph graph);
void captured(unsigned value);
void managed(unsigned value);

/* The cases of the second part. */
typedef struct {
    const char *name;
    void (*run)(void);
} barrier_look_t;
extern const barrier_look_t barrier_looks[];
extern const unsigned barrier_look_count;

#endif
