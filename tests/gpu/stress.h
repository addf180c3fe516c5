/* What the parts of stream_stress share.
 *
 * stress_device.c  the driver, found at run time, and the kernels
 * stress_work.c    what a thread does: batches of buffers, streams, graphs
 * stream_stress.c  options, threads, verdict, report
 *
 * Every buffer has an owner, a number that no other buffer has.  A kernel fills the buffer with a
 * pattern made from it, another kernel checks the pattern at the end of the buffer's life; both
 * are given up to BATCH buffers at once.  Mismatches and checked buffers are counted on the
 * device. */
#ifndef STRESS_H
#define STRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness.h"

enum { BATCH = 8, LOGGED = 16 };

/* ---- stress_device.c ---- */

typedef struct {
#define DRIVER(symbol, optional) symbol##_fn *symbol;
#include "stress_driver.def"
#undef DRIVER
} stress_driver_t;

extern stress_driver_t cu;
extern bool stress_async, stress_graphs; /* the driver has the stream-ordered API, graphs */
extern CUcontext stress_context;

/* Load the driver, make the context of device 0 current.  False: no driver or no device. */
bool stress_device_open(char *name, size_t room);

/* FILL_EARLY may begin before the kernel in front of it has ended (a programmatic launch), where
 * the device can do that; CHECK_STUCK outlasts everything else. */
typedef enum { FILL, FILL_EARLY, CHECK, CHECK_SLOW, CHECK_STUCK, KERNELS } stress_kernel_t;

typedef struct {
    unsigned count;
    CUdeviceptr at[BATCH];
    unsigned words[BATCH], owner[BATCH];
} stress_buffers_t;

/* A stream: `ptsz` takes the functions for per-thread default streams and a handle of NULL. */
typedef struct {
    CUstream handle;
    bool ptsz;
} stress_lane_t;

#define ON_LANE(lane, function, ...)                                                             \
    ((lane).ptsz ? cu.function##_ptsz(__VA_ARGS__) : cu.function(__VA_ARGS__))

/* `delay`: clocks that each thread of the kernel waits first. */
void stress_launch(stress_kernel_t kernel, const stress_buffers_t *buffers, unsigned delay,
                   stress_lane_t lane);

/* What the kernels counted, device idle. */
typedef struct {
    uint64_t mismatches, checked;
    struct {
        uint32_t owner, word, found, unused;
    } first[LOGGED];
} stress_result_t;
void stress_result(stress_result_t *result);

/* ---- stress_work.c ---- */

typedef struct {
    uint64_t ops, seed;
    double seconds;                  /* no batch begins later; 0: no such end */
    unsigned streams, threads, live; /* live: batches that a thread keeps */
    unsigned max_bytes;
    bool plain, async; /* which of the APIs are used */
} stress_options_t;

extern stress_options_t stress_options;
extern _Atomic uint64_t stress_taken, stress_checks; /* allocations made, checks launched */

typedef struct stress_worker stress_worker_t;

/* What comes first: one stream at a time. */
void stress_begin(void);
/* A thread's share of the work; the context is made current in it. */
void *stress_work(void *index);
/* Seconds on a clock that never steps back. */
double stress_clock(void);
/* Retire what threads left for each other, and release what all of them hold. */
void stress_finish(void);

#endif
