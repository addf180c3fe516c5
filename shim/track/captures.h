/* The captures that the program began and that have not ended: on which stream, into which graph; and the
 * contexts that take part in them.
 *
 * A context takes part if a capture began on one of its streams, or if one of its streams joined a
 * capture: by a wait for an event of it.  Meanwhile no call of the library records, synchronises or gives
 * back there (the gate in device/cuda_device.h), and frees are held (graphs.h).  A capture ends with
 * cuStreamEndCapture, with its stream, with its context, or, on a per-thread stream, with its thread.  A
 * join ends with its capture, which is known by the driver's id.
 *
 * What is not known counts as more: a stream of an unknown context stands for all contexts, and a join
 * without an id lasts until no capture is left.  A wait counts as a join until the driver has answered.
 *
 * All functions are thread-safe. */
#ifndef AC_CAPTURES_H
#define AC_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_abi.h"

struct ac_context;

/* A capture that is about to begin or to end; with `joined`, a context that joined one. */
typedef struct {
    CUstream stream;            /* resolved: never NULL */
    uint64_t thread;            /* of a per-thread stream: the thread's number; else 0 */
    struct ac_context *context; /* NULL: unknown */
    CUgraph graph;              /* what it is captured into, NULL: a new one */
    cuuint64_t id;              /* the driver's; 0: not known */
    bool joined;
} ac_capture_t;

/* Around the driver's call that begins a capture.  Between the two no fence is recorded. */
void ac_capture_begin(const ac_capture_t *capture);
void ac_capture_began(ac_capture_t *capture, bool began);

/* Around the driver's call that has a stream of the context (NULL: of an unknown one) wait for an event.
 * _begin returns false if nothing captures: no _end.  `waits`: the call succeeded. */
bool ac_capture_join_begin(struct ac_context *context);
void ac_capture_join_end(struct ac_context *context, CUstream stream, bool waits);

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
