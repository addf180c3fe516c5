/* free_sync:auto: which frees wait for the device.
 *
 * A driver's free waits for the device, and some programs use no other synchronisation.  Until the
 * program has awaited a result of a context itself, a free of that context's memory waits if work
 * is pending there whose result the host can see:
 *
 *   - an asynchronous copy to an address that is not known as the device's,
 *   - a graph, if any graph contains such a copy,
 *   - a kernel or a graph, while the process holds managed memory, or page-locked memory that was
 *     mapped by a flag or whose device address was asked for,
 *   - anything, once work goes unseen.
 *
 * The program awaits a result when it synchronises, or sees complete, the context, a stream that
 * was given such work, a stream that waits for an event behind it, or that event.  Then the
 * context's frees never wait again.  If a table below is full, the oldest entry is lost: frees
 * wait longer than they have to. */
#ifndef AC_FREE_SYNC_H
#define AC_FREE_SYNC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_abi.h"
#include "device/device.h"

struct ac_context;
struct ac_thread;

enum { AC_SHOWN_STREAMS = 64 };

/* Of a context. */
typedef struct {
    _Atomic uint64_t stream[AC_SHOWN_STREAMS]; /* keys, each at the place of its hash */
    _Atomic uint64_t copied; /* epoch of the newest copy or graph that the host can see; 0: none */
    _Atomic uint64_t missed; /* a wait for work up to this epoch was given up */
    _Atomic bool awaited;    /* or not followed: the context has ended */
    _Atomic bool shown;      /* it was given such work */
    uint64_t life;           /* tells contexts apart that a record served; 0: none yet */
} ac_shown_t;

/* With free_sync:auto, and while a context lives that the program has not awaited. */
extern AC_HIDDEN _Atomic bool ac_shows;

/* The process holds memory that the host sees kernels write to. */
extern AC_HIDDEN _Atomic bool ac_holds_shown;

/* Follows the settings. */
void ac_free_sync_configure(void);

/* A context begins, or has ended. */
void ac_shown_begin(struct ac_context *context);
void ac_shown_end(struct ac_context *context);

/* Memory that the host sees kernels write to comes, and goes.  `address` 0: it is never known to
 * go. */
void ac_shown_memory(uint64_t address);
void ac_shown_memory_gone(uint64_t address);

/* A graph was given a copy to the host. */
void ac_graphs_show(void);

/* Returns true if the host can see what a launch of a graph writes. */
bool ac_graph_shows(void);

/* Returns true if the address is not known as the device's. */
bool ac_address_shows(uint64_t address);

/* The stream was given such a copy or graph, or such a kernel. */
void ac_shown_copy(struct ac_context *context, CUstream stream);
void ac_shown_kernel(struct ac_context *context, CUstream stream);

/* Returns true if ac_shown_kernel has nothing to do for the stream. */
bool ac_shown_knows(const struct ac_context *context, CUstream stream);

/* The stream's handle is no longer that stream's. */
void ac_shown_stream_gone(struct ac_context *context, CUstream stream);

/* The event was recorded in the stream; in all streams of the context, if that is NULL.
 * `context` NULL: in an unknown place, or the event has gone. */
void ac_shown_recorded(struct ac_context *context, const CUstream *stream, CUevent event);

/* The stream waits for the event. */
void ac_shown_joined(struct ac_context *context, CUstream stream, CUevent event);

/* The program synchronised, or saw complete, the stream, the event, or the context. */
void ac_shown_awaited_stream(struct ac_context *context, CUstream stream);
void ac_shown_awaited_event(CUevent event);
void ac_shown_awaited(struct ac_context *context);

/* Called before a free of memory of the context that holds `address`; waits if it has to.  _in: of
 * memory that belongs to no context. */
void ac_free_await(struct ac_thread *thread, uint64_t address);
void ac_free_await_in(struct ac_thread *thread, struct ac_context *context);

#endif
