/* free_sync:auto: which frees wait for the device.
 *
 * A driver's free waits for the device, and some programs use no other synchronisation.  Visible work
 * is work with results that the host can read:
 *
 *   - an asynchronous copy to an address that the library does not know as the device's;
 *   - a graph, if any graph contains a visible copy;
 *   - a kernel or a graph, while the process holds visible memory;
 *   - anything, once work goes unseen.
 *
 * Visible memory is:
 *
 *   - managed memory, variables and pools of it;
 *   - page-locked memory that was mapped by a flag or has a known device address;
 *   - memory of cuMemCreate or of a pool, if it is the host's;
 *   - all memory, if a device reaches pageable memory.
 *
 * A free waits if visible work is pending in the block's context.  It stops waiting once the program
 * has awaited visible work of that context itself.  The program awaits it when it synchronises, or
 * sees complete, one of these: the context, a stream with visible work, an event behind it, a stream
 * that waits for that event.  A copy of the context's own memory that returns with its result in host
 * memory synchronises its stream (copies.h).  From then on no free of the context's memory waits.  If
 * a table below is full, its oldest entry is lost: frees may then wait although the program has
 * awaited a result. */
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

/* Visible work of a context. */
typedef struct {
    _Atomic uint64_t stream[AC_SHOWN_STREAMS]; /* keys of streams with visible work, each at the place of its hash */
    _Atomic uint64_t copied; /* epoch of the newest visible copy or graph; 0: none */
    _Atomic uint64_t missed; /* a wait for work up to this epoch was given up */
    _Atomic bool awaited;    /* the program has awaited visible work, or the context has ended */
    _Atomic bool shown;      /* it got visible work */
    uint64_t life;           /* number of the context that the record serves; 0: none yet */
} ac_shown_t;

/* True with free_sync:auto, while a context lives that the program has not awaited. */
extern AC_HIDDEN _Atomic bool ac_shows;

/* True while the process holds visible memory. */
extern AC_HIDDEN _Atomic bool ac_holds_shown;

/* Called after the settings changed. */
void ac_free_sync_configure(void);

/* Called when a context begins, and after it ended. */
void ac_shown_begin(struct ac_context *context);
void ac_shown_end(struct ac_context *context);

/* Called when visible memory comes and goes.  `address` 0: the library will not see its end. */
void ac_shown_memory(uint64_t address);
void ac_shown_memory_gone(uint64_t address);

/* Called with memory that the program got an address or a handle of, and with a device that it uses.
 * Each function asks the driver if this is visible memory. */
void ac_shown_found(CUdeviceptr address);
void ac_shown_physical(CUmemGenericAllocationHandle handle);
void ac_shown_device(CUdevice device);

/* Called when a graph gets a visible copy. */
void ac_graphs_show(void);

/* Returns true if the launch of a graph is visible work. */
bool ac_graph_shows(void);

/* Returns true if the address is not known as the device's. */
bool ac_address_shows(uint64_t address);

/* Called when the stream gets a visible copy or graph, or a visible kernel. */
void ac_shown_copy(struct ac_context *context, CUstream stream);
void ac_shown_kernel(struct ac_context *context, CUstream stream);

/* Returns true if ac_shown_kernel has nothing to do for the stream. */
bool ac_shown_knows(const struct ac_context *context, CUstream stream);

/* Called when the stream is destroyed: its handle may name another stream later. */
void ac_shown_stream_gone(struct ac_context *context, CUstream stream);

/* Called when the event is recorded in the stream; `stream` NULL: in all streams of the context.
 * `context` NULL: the event was recorded in an unknown place, or is destroyed. */
void ac_shown_recorded(struct ac_context *context, const CUstream *stream, CUevent event);

/* Called when the stream waits for the event. */
void ac_shown_joined(struct ac_context *context, CUstream stream, CUevent event);

/* Called when the program synchronised with, or saw complete, the stream, the event or the context
 * (NULL: unknown). */
void ac_shown_awaited_stream(struct ac_context *context, CUstream stream);
void ac_shown_awaited_event(CUevent event);
void ac_shown_awaited(struct ac_context *context);

/* Called before a free of memory of the context that holds `address`; waits if needed.  _in: for
 * memory that belongs to no context, with the context to wait for. */
void ac_free_await(struct ac_thread *thread, uint64_t address);
void ac_free_await_in(struct ac_thread *thread, struct ac_context *context);

#endif
