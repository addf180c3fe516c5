/* free_sync:auto: which frees wait for the device.
 *
 * A driver's free waits for the device, and some programs use no other synchronisation.  Visible work
 * is work with results that the host can read:
 *
 *   - an asynchronous copy to an address that is not known as the device's,
 *   - a graph, if any graph contains such a copy,
 *   - a kernel or a graph, while the process holds visible memory: managed memory, variables and pools
 *     of it, page-locked memory that was mapped by a flag or has a known device address, memory of
 *     cuMemCreate or of a pool that is the host's; all memory if a device reaches pageable memory,
 *   - anything, once work goes unseen.
 *
 * A free waits if visible work is pending in the block's context, until the program has awaited
 * visible work of that context itself.  The program awaits it when it synchronises, or sees
 * complete, one of these: the context, a stream with visible work, an event behind it, a stream that
 * waits for that event.  A copy of the context's own memory that returns with its result in host
 * memory synchronises its stream (copies.h).  From then on no free of the context's memory waits.  If a table below is
 * full, its oldest entry is lost: frees may then wait although the program has awaited a result. */
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
    _Atomic uint64_t stream[AC_SHOWN_STREAMS]; /* keys of streams with visible work, each at the place of its hash */
    _Atomic uint64_t copied; /* epoch of the newest visible copy or graph; 0: none */
    _Atomic uint64_t missed; /* a wait for work up to this epoch was given up */
    _Atomic bool awaited;    /* or not followed: the context has ended */
    _Atomic bool shown;      /* it was given visible work */
    uint64_t life;           /* number of the context that the record serves; 0: none yet */
} ac_shown_t;

/* With free_sync:auto, and while a context lives that the program has not awaited. */
extern AC_HIDDEN _Atomic bool ac_shows;

/* The process holds visible memory. */
extern AC_HIDDEN _Atomic bool ac_holds_shown;

/* Follows the settings. */
void ac_free_sync_configure(void);

/* A context begins, or has ended. */
void ac_shown_begin(struct ac_context *context);
void ac_shown_end(struct ac_context *context);

/* Visible memory comes, and goes.  `address` 0: its end will not be known. */
void ac_shown_memory(uint64_t address);
void ac_shown_memory_gone(uint64_t address);

/* Memory that the program was given an address or a handle of, and a device that it uses: visible memory
 * if the driver says so. */
void ac_shown_found(CUdeviceptr address);
void ac_shown_physical(CUmemGenericAllocationHandle handle);
void ac_shown_device(CUdevice device);

/* A graph was given a visible copy. */
void ac_graphs_show(void);

/* Returns true if the launch of a graph is visible work. */
bool ac_graph_shows(void);

/* Returns true if the address is not known as the device's. */
bool ac_address_shows(uint64_t address);

/* The stream was given a visible copy or graph, or a visible kernel. */
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

/* The program synchronised, or saw complete, the stream, the event, or the context (NULL: it is not known). */
void ac_shown_awaited_stream(struct ac_context *context, CUstream stream);
void ac_shown_awaited_event(CUevent event);
void ac_shown_awaited(struct ac_context *context);

/* Called before a free of memory of the context that holds `address`; waits if it has to.  _in: of
 * memory that belongs to no context. */
void ac_free_await(struct ac_thread *thread, uint64_t address);
void ac_free_await_in(struct ac_thread *thread, struct ac_context *context);

#endif
