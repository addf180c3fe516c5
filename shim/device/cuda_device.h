/* A CUDA context as the allocator's device: segments by cuMemAlloc, fences by events.
 *
 * One ac_cuda_context_t per live context; records are never freed, so that late callers find
 * `dead` instead of a fault, and serve again only when nothing refers to the former context.  The
 * capture gate lives here: beginning a capture takes it exclusively, recording takes it shared;
 * it is the only lock held over a driver call. */
#ifndef AC_CUDA_DEVICE_H
#define AC_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/cuda_abi.h"
#include "device/device.h"
#include "observe/history.h"
#include "lock.h"

/* How fences are recorded; see `fence` in the configuration. */
typedef enum {
    AC_RECORD_CTX,     /* one event for the whole context */
    AC_RECORD_STREAMS, /* each stream that had work, joined by a stream of ours */
    AC_RECORD_BOTH,    /* both: CUDA does not document whether the context's event covers the streams
                          of its green contexts */
    AC_RECORD_NONE     /* no events: the context is synchronised */
} ac_record_mode_t;

/* Events that process/process.c counts; indices of its table. */
typedef enum {
    AC_CUDA_FENCE_CTX,
    AC_CUDA_FENCE_STREAMS,
    AC_CUDA_FENCE_LEGACY,
    AC_CUDA_FENCE_SYNC,
    AC_CUDA_FENCE_QUERY,
    AC_CUDA_JOIN,
    AC_CUDA_STICKY
} ac_cuda_event_t;

enum { AC_CUDA_EVENTS = 64, AC_CUDA_STREAMS = 256 };

/* A stream that had work, for AC_RECORD_STREAMS and _BOTH.  An entry with neither `used` nor
 * `inside` is unused and may serve another stream.
 *
 * Only its own thread can name a per-thread default stream.  Once a fence of another thread
 * needed one, each thread therefore records an event after each submission to its own, and fences
 * join that event. */
typedef struct {
    CUstream handle;
    uint64_t used;    /* mark of the newest submission; 0: none since a fence joined it */
    unsigned inside;  /* calls that submit to it and have not returned: every fence joins it */
    uint64_t thread;  /* owner of a per-thread default stream; 0 for other streams */
    uint64_t clock;   /* of the context, at the newest submission */
    CUevent event;    /* per-thread default stream: recorded on it by its thread ... */
    uint64_t covered; /* ... when `used` was this */
    uint64_t awaited; /* value of `used` for which a fence waited too long */
} ac_cuda_stream_t;

typedef struct ac_cuda_context {
    CUcontext handle;
    unsigned long long id; /* cuCtxGetId; 0 if the driver lacks it */
    CUdevice device;
    _Atomic int mode;   /* ac_record_mode_t */
    _Atomic bool green; /* has green contexts; a synchronisation may leave out their streams */
    _Atomic bool dead;  /* destroyed or reset */
    _Atomic int dying;  /* threads inside the driver call that ends the context; our calls wait for its answer */
    _Atomic int users;  /* our calls inside the context */
    _Atomic int captures; /* captures that may have a stream of this context */
    _Atomic uint64_t clock;     /* grows with each synchronisation that begins; at least 1 */
    _Atomic uint64_t lost;      /* `clock` when work last escaped the events; 0: never */
    _Atomic uint64_t recovered; /* work that escaped up to this `clock` has been synchronised */
    _Atomic bool asked;         /* a fence needed the per-thread stream of another thread */
    _Atomic unsigned filler_late; /* patterns that may not be written yet (cuda_fill.c) */
    _Atomic int fences;         /* fence records of this context, the kept one included */
    struct ac_cuda_fence *_Atomic kept; /* a released record with its event, for the next fence */
    ac_mutex_t lock;                    /* guards all members below */
    unsigned event_count;               /* spare events */
    CUevent event[AC_CUDA_EVENTS];
    CUstream keeper; /* our own stream: joins the streams of a fence */
    CUstream filler; /* our stream for patterns (cuda_fill.h) */
    unsigned stream_count;
    uint64_t marks;           /* number of submissions so far */
    unsigned naming;          /* our calls that walk a copy of the streams */
    ac_cond_t named;          /* `naming` fell to 0 */
    unsigned awaiting;        /* fences that wait for a call of another thread to return */
    ac_cond_t returned;       /* a call returned */
    ac_cuda_stream_t *stream; /* AC_CUDA_STREAMS entries, made at first need */
    bool syncing;             /* a thread of the library is in the driver's synchronisation, or in `work` */
    void (*work)(void *arg);  /* NULL: it synchronises */
    void *work_arg;
    uint64_t syncs;           /* synchronisations that have ended */
    ac_status_t sync_status;  /* status of the last synchronisation */
    ac_cond_t sync_over;      /* a synchronisation ended */
} ac_cuda_context_t;

extern const ac_device_ops_t ac_cuda_ops;

/* Called for each event worth counting; set once by activation, may be NULL. */
extern void (*ac_cuda_count)(ac_cuda_event_t event);

/* Set when exit began: the library makes no more driver calls of its own. */
extern _Atomic bool ac_cuda_quiet;

/* Called after the driver gave memory for the cache or took it back: `kind` is AC_EVENT_SEGMENT_ALLOC,
 * _FREE, _MAP or _UNMAP.  The caller holds no lock, and is no part of a thread's cache; it may be a thread
 * of the library.  NULL: there is no observer. */
typedef void (*ac_cuda_memory_fn)(ac_event_kind_t kind, CUdevice device, uint64_t address,
                                  uint64_t bytes);
extern _Atomic ac_cuda_memory_fn ac_cuda_memory_observer;

/* Set when the library does not follow a context.  No fence waits for its work, and CUDA does not document that
 * cuMemUnmap waits like cuMemFree.  So pages of living contexts stay. */
extern _Atomic bool ac_cuda_pages_stay;

/* Set at activation if new pages must be exportable to other processes. */
extern _Atomic bool ac_cuda_pages_exported;

/* Returns true if pages of the device are exportable. */
bool ac_cuda_pages_exportable(CUdevice device);

/* Returns true if the device uses the host's memory (Jetson, GB10).  Asks the driver once for each device. */
bool ac_cuda_integrated(CUdevice device);

/* Returns the bytes that the host and the control groups have left for such a device (ac_host_memory_left);
 * UINT64_MAX if the device has its own memory, or if it is not known.  The figure decides when idle memory is
 * returned.  It never refuses a request: the kernel may have more at the request. */
uint64_t ac_cuda_host_left(CUdevice device);

void ac_cuda_context_init(ac_cuda_context_t *context, CUcontext handle, unsigned long long id,
                          CUdevice device, ac_record_mode_t mode);

/* Called before the driver destroys or resets the context.  Waits until none of our calls is inside, a second at
 * most, and makes later ones wait outside.  _kill follows, or _spare if the driver refused. */
void ac_cuda_context_dying(ac_cuda_context_t *context);
void ac_cuda_context_spare(ac_cuda_context_t *context);

/* Called after the context was destroyed or reset: its handle is not used again.  _spare follows when the
 * caller is done with the record. */
void ac_cuda_context_kill(ac_cuda_context_t *context);

/* Returns true if a killed context has no call and no fence left: _again may use its record for another
 * context of the device.  Numbers that calls remember continue. */
bool ac_cuda_context_is_over(ac_cuda_context_t *context);
void ac_cuda_context_again(ac_cuda_context_t *context, CUcontext handle, unsigned long long id,
                           ac_record_mode_t mode);

/* Around a synchronisation of the whole context: `ac_cuda_lost` before it, `ac_cuda_synced` with that result
 * after success.  All work that had escaped the events is then over, and streams without work since have
 * none. */
uint64_t ac_cuda_lost(ac_cuda_context_t *context);
void ac_cuda_synced(ac_cuda_context_t *context, uint64_t lost);

/* Notes that the context has green contexts.  A synchronisation of the program then no longer covers all work:
 * it may be one of a green context. */
void ac_cuda_context_greened(ac_cuda_context_t *context);

/* Around a call that gives work to `stream` of the context (AC_RECORD_CTX does not need it): the
 * work may run before the call returns, and fences recorded in between may come before it or
 * after it.  `stream` is resolved: a handle, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD of this
 * thread.  _begin returns whether a mark was made, for _end. */
bool ac_cuda_stream_begin(ac_cuda_context_t *context, CUstream stream);
void ac_cuda_stream_end(ac_cuda_context_t *context, CUstream stream, bool marked);

/* Returns true if submissions are marked; only changes from false to true. */
static inline bool ac_cuda_stream_marks(const ac_cuda_context_t *context) {
    return atomic_load_explicit(&context->mode, memory_order_relaxed) == AC_RECORD_STREAMS ||
           atomic_load_explicit(&context->green, memory_order_relaxed);
}

/* Notes work that was submitted already. */
static inline void ac_cuda_stream_used(ac_cuda_context_t *context, CUstream stream) {
    ac_cuda_stream_end(context, stream, false);
}

/* Convert between a resolved stream of this thread and its key for device.h: 1 for the legacy stream, the
 * thread's number for a per-thread stream, else the handle.  NULL for a per-thread stream of another thread,
 * which this thread cannot name. */
uint64_t ac_cuda_stream_key(CUstream stream);
CUstream ac_cuda_stream_of_key(uint64_t key);

/* Called before the stream is destroyed.  With `pending` it may have work: our own stream then waits for it, so that
 * later fences of all modes cover it.  Blocks while our calls name streams; after the return none names this
 * one. */
void ac_cuda_stream_retire(ac_cuda_context_t *context, CUstream stream, bool pending);

/* Called before a call that destroys streams without naming them.  Retires every stream that had work. */
void ac_cuda_streams_retire(ac_cuda_context_t *context);

/* Makes a descriptor of the page for one other process, with a number above the standard streams.  The caller keeps
 * the page meanwhile.  AC_OK; any other answer: there is none. */
ac_status_t ac_cuda_page_export(ac_cuda_context_t *context, uint64_t page, int *fd);

/* _import maps the page of a descriptor, which stays the caller's, over unmapped `bytes` at `address`.  _allow lets
 * the context's device use the pages, and also their device `owner` (-1: not known) with its peers.  They
 * return CUDA_SUCCESS, or the driver's answer for the context's own device.  _end unmaps whole pages that no
 * work uses; if it does not return AC_OK they are still mapped. */
CUresult ac_cuda_page_import(ac_cuda_context_t *context, int fd, uint64_t address,
                             uint64_t bytes);
CUresult ac_cuda_import_allow(ac_cuda_context_t *context, CUdevice owner, uint64_t address,
                              uint64_t bytes);
ac_status_t ac_cuda_import_end(ac_cuda_context_t *context, uint64_t address, uint64_t bytes);

/* Returns the devices that may reach the memory of `device`, as bits. */
uint64_t ac_cuda_peers_of(CUdevice device);

/* Lets `peer` reach the memory of `device`: pages mapped later allow it.  Returns true if that is new; pages that
 * are mapped already need pages_allow. */
bool ac_cuda_peer_add(CUdevice device, CUdevice peer);

/* Forbids `peer` the memory of `device`.  Returns true if that is new.  Mapped pages keep the peer in their lists
 * until pages_allow is called for them between _take_back and _taken, by one thread for each device.  A peer
 * that is removed meanwhile leaves with a later change.  _former returns true if any page may have a removed
 * peer. */
bool ac_cuda_peer_remove(CUdevice device, CUdevice peer);
bool ac_cuda_peers_former(CUdevice device);
void ac_cuda_peers_take_back(CUdevice device);
void ac_cuda_peers_taken(CUdevice device);

/* Captures.  A context captures from _begin until _ended.  _begin comes before a call of the driver
 * that may have a stream of the context take part in a capture; `context` NULL: of any context.
 * _began, with its answer, opens the gate again; if the call may block, before the call.
 *
 * While a context captures the library records and synchronises nothing in it.  It queries fences and
 * returns memory only in threads in relaxed mode (device.h: `beside`).  While anything captures,
 * the library asks for segments in the mode of the program's thread: modes know no contexts. */
void ac_cuda_capture_begin(ac_cuda_context_t *context);
void ac_cuda_capture_began(ac_cuda_context_t *context, bool began);
void ac_cuda_capture_ended(ac_cuda_context_t *context);

/* Makes the capture one of any context: its end is that of NULL. */
void ac_cuda_capture_unplace(ac_cuda_context_t *context);

/* Around a synchronisation of the context, which a capture forbids in every mode of the thread.
 * Returns false if the context captures, or if any capture is about to begin.  A capture that begins
 * meanwhile waits for the synchronisation, a second at most: the device may be waiting for that very
 * thread, and the driver looks for captures well within that second.  Holds no lock in between.
 * `context` NULL: not known. */
bool ac_cuda_sync_begin(const ac_cuda_context_t *context);
void ac_cuda_sync_end(void);

/* Returns true if a stream of the context takes part in a capture, or may; NULL: of any context. */
bool ac_cuda_is_capturing(const ac_cuda_context_t *context);

/* Returns true if streams may take part in captures by calls that no hook sees.  Set once by
 * activation; NULL: they may not. */
extern bool (*ac_cuda_unseen)(void);

/* Gives the legacy stream work while a capture forbids it, and thereby spoils the capture, as the program's own call
 * would.  Returns the driver's answer. */
CUresult ac_cuda_probe_legacy(ac_cuda_context_t *context);

/* _none_since returns true if no stream of the process captured since _mark. */
uint64_t ac_cuda_capture_mark(void);
bool ac_cuda_capture_none_since(uint64_t mark);

/* Returns pinned memory of the context to the driver, which may wait for the device.  AC_OK, also if the context
 * and its memory have gone; AC_BUSY while any context captures; AC_FAILED. */
ac_status_t ac_cuda_host_free(ac_cuda_context_t *context, uint64_t address);

/* Number of the calling thread, unique for the life of the process (a kernel's thread id is used
 * again); set once by activation. */
extern uint64_t (*ac_cuda_thread)(void);

/* Makes `context` current around a call that may pass captures of other threads.  Returns false if the context cannot be
 * made current, or if another thread has been ending it for two seconds.  The thread is not cancelled in
 * between: it holds the capture gate, memory in no list, and a place among `users`. */
typedef struct {
    ac_cuda_context_t *context;
    int cancel; /* the thread's own state */
    bool pushed, relaxed;
    CUstreamCaptureMode mode;
} ac_cuda_scope_t;
bool ac_cuda_enter(ac_cuda_context_t *context, ac_cuda_scope_t *scope);
/* Enters like ac_cuda_enter; with `own_mode` in the thread's own capture mode. */
bool ac_cuda_enter_as(ac_cuda_context_t *context, ac_cuda_scope_t *scope, bool own_mode);
void ac_cuda_leave(ac_cuda_scope_t *scope);

/* _is_relaxed returns true if the thread was in relaxed capture mode before: CUDA then allows it calls that a capture
 * may forbid ("potentially unsafe").  _is_barred returns true if it was not, and the context captures. */
bool ac_cuda_is_relaxed(const ac_cuda_scope_t *scope);
bool ac_cuda_is_barred(const ac_cuda_scope_t *scope);

#endif
