/* The interface between the files of stream_stress.
 *
 * stress_device.c  the driver, found at run time, and the kernels
 * stress_work.c    the work of a thread: batches of buffers, streams, graphs
 * stream_stress.c  options, threads, verdict, report
 *
 * Every buffer has an owner, a number that no other buffer has.  A kernel fills the buffer with a
 * pattern made from this number.  At the end of the buffer's life another kernel checks the
 * pattern.  Both kernels take up to BATCH buffers at once.  The device counts mismatches and
 * checked buffers. */
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

/* Loads the driver and makes the context of device 0 current.  Returns false if there is no driver
 * or no device. */
bool stress_device_open(char *name, size_t room);

/* FILL_EARLY is a programmatic launch, if the device supports it: it may begin before the previous
 * kernel has ended.  CHECK_STUCK runs longer than all other kernels. */
typedef enum { FILL, FILL_EARLY, CHECK, CHECK_SLOW, CHECK_STUCK, KERNELS } stress_kernel_t;

typedef struct {
    unsigned count;
    CUdeviceptr at[BATCH];
    unsigned words[BATCH], owner[BATCH];
} stress_buffers_t;

/* A stream.  If `ptsz`, calls use the functions for per-thread default streams. */
typedef struct {
    CUstream handle;
    bool ptsz;
} stress_lane_t;

#define ON_LANE(lane, function, ...)                                                             \
    ((lane).ptsz ? cu.function##_ptsz(__VA_ARGS__) : cu.function(__VA_ARGS__))

/* Launches the kernel on `lane`.  Each of its threads first waits for `delay` clocks. */
void stress_launch(stress_kernel_t kernel, const stress_buffers_t *buffers, unsigned delay,
                   stress_lane_t lane);

/* Counters of the kernels, and the first mismatches. */
typedef struct {
    uint64_t mismatches, checked;
    struct {
        uint32_t owner, word, found, unused;
    } first[LOGGED];
} stress_result_t;
/* Reads the counters. Pre: the device is idle. */
void stress_result(stress_result_t *result);

/* ---- stress_work.c ---- */

typedef struct {
    uint64_t ops, seed;
    double seconds;                  /* no batch begins later; 0: no time limit */
    unsigned streams, threads, live; /* live: batches that a thread keeps */
    unsigned max_bytes;
    bool plain, async; /* the APIs to use */
} stress_options_t;

extern stress_options_t stress_options;
extern _Atomic uint64_t stress_taken, stress_checks; /* allocations made, checks launched */

typedef struct stress_worker stress_worker_t;

/* Runs the first phase, before the threads start: only one stream works at a time. */
void stress_begin(void);
/* Does one thread's share of the work.  Makes the context current in this thread. */
void *stress_work(void *index);
/* Returns seconds of a monotonic clock. */
double stress_clock(void);
/* Retires the batches that threads left in the mailboxes. */
void stress_finish(void);

#endif
