/* The captures that the program began and that have not ended: on which stream, into which graph.
 *
 * While there is one, no call of ours records, queries, synchronises or gives back (the gate in
 * device/cuda_device.h), and frees are held (graphs.h).  If the end of a capture were missed, this
 * would last for ever.  A capture ends with cuStreamEndCapture, with its stream, with its context, or,
 * on a per-thread stream, with its thread.
 *
 * All functions are thread-safe. */
#ifndef AC_CAPTURES_H
#define AC_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_abi.h"

struct ac_context;

/* One that is about to begin or to end. */
typedef struct {
    CUstream stream;            /* resolved: never NULL */
    uint64_t thread;            /* of a per-thread stream: the thread's number; else 0 */
    struct ac_context *context; /* NULL: unknown */
    CUgraph graph;              /* what it is captured into, NULL: a new one */
} ac_capture_t;

/* Around the driver's call that begins a capture.  Between the two no fence is recorded. */
void ac_capture_begin(void);
void ac_capture_began(const ac_capture_t *capture, bool began);

/* The driver ended it, and gave `graph` or NULL. False: no such capture was known. */
bool ac_capture_ended(const ac_capture_t *capture, CUgraph graph);

/* The driver is about to destroy the stream, whose handle may come back at once.  True: it was
 * capturing; give *taken to _left with the driver's answer. */
bool ac_capture_leaving(CUstream stream, ac_capture_t *taken);
void ac_capture_left(const ac_capture_t *taken, bool destroyed);

/* The context has gone, or the thread. */
void ac_captures_context_gone(const struct ac_context *context);
void ac_captures_thread_gone(uint64_t thread);

#endif
