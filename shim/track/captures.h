/* The captures that the program began and that have not ended: the stream, the graph, and the
 * contexts that take part.
 *
 * A context takes part if a capture began on one of its streams.  It also takes part if one of its
 * streams joined a capture, by a wait for an event of it.  Meanwhile no call of the library records,
 * synchronises or gives memory back in the context (the gate in device/cuda_device.h), and frees are
 * held (graphs.h).  A capture ends with cuStreamEndCapture, with its stream, with its context, or, on
 * a per-thread stream, with its thread.  A join ends with its capture, which is known by the driver's
 * id.
 *
 * If the library does not know something, it assumes more: a stream of an unknown context stands for
 * all contexts, and a join without an id lasts until no capture is left.  A wait counts as a join
 * until the driver has answered.
 *
 * All functions are thread-safe. */
#ifndef AC_CAPTURES_H
#define AC_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_abi.h"

struct ac_context;

/* A capture that is about to begin or to end; with `joined`, a context that joined a capture. */
typedef struct {
    CUstream stream;            /* resolved: never NULL */
    uint64_t thread;            /* number of the thread, for a per-thread stream; else 0 */
    struct ac_context *context; /* NULL: unknown */
    CUgraph graph;              /* graph that the capture adds to; NULL: a new one */
    cuuint64_t id;              /* the driver's id; 0: not known */
    bool joined;
} ac_capture_t;

/* Called before and after the driver's call that begins a capture.  Between the two calls no fence is
 * recorded. */
void ac_capture_begin(const ac_capture_t *capture);
void ac_capture_began(ac_capture_t *capture, bool began);

/* Called before and after the driver's call that makes a stream wait for an event.  `context` NULL:
 * the stream belongs to an unknown one.  If _begin returns false, nothing captures and the caller
 * does not call _end.  `waits`: the driver's call succeeded. */
bool ac_capture_join_begin(struct ac_context *context);
void ac_capture_join_end(struct ac_context *context, CUstream stream, bool waits);

/* Called after the driver ended the capture and returned `graph` or NULL.  Returns false if the
 * capture was unknown. */
bool ac_capture_ended(const ac_capture_t *capture, CUgraph graph);

/* Called before the driver destroys the stream, because a new stream may get the same handle at once.
 * Returns true if the stream was capturing: the caller then passes *taken to _left with the driver's
 * answer. */
bool ac_capture_leaving(CUstream stream, ac_capture_t *taken);
void ac_capture_left(const ac_capture_t *taken, bool destroyed);

/* Called after the context, or the thread, ended: end their captures. */
void ac_captures_context_gone(const struct ac_context *context);
void ac_captures_thread_gone(uint64_t thread);

#endif
