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
    AC_RECORD_BOTH,    /* the context has green ones: whether its event covers their streams is
                          not documented, so these are joined by name as well */
    AC_RECORD_NONE     /* only a synchronisation can tell */
} ac_record_mode_t;

/* What happens here and is counted in process/process.c; indices of its table. */
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
 * `inside` stands for nothing and may serve another stream.
 *
 * Only its own thread can name a per-thread default stream.  Once a fence of another thread
 * needed one, each thread therefore records an event after each submission to its own, and fences
 * join that event. */
typedef struct {
    CUstream handle;
    uint64_t used;    /* mark of the newest submission; 0: none since a fence joined it */
    unsigned inside;  /* calls that submit to it and have not returned: every fence joins it */
    uint64_t thread;  /* per-thread default stream: whose; 0 for others */
    uint64_t clock;   /* of the context, at the newest submission */
    CUevent event;    /* per-thread default stream: recorded on it by its thread ... */
    uint64_t covered; /* ... when `used` was this */
    uint64_t awaited; /* the same, when a fence waited for its call too long */
} ac_cuda_stream_t;

typedef struct ac_cuda_context {
    CUcontext handle;
    unsigned long long id; /* cuCtxGetId, 0 where the driver has none */
    CUdevice device;
    _Atomic int mode;   /* ac_record_mode_t */
    _Atomic bool green; /* has green contexts, whose streams a synchronisation may leave out */
    _Atomic bool dead;  /* destroyed or reset */
    _Atomic int dying;  /* threads that ask the driver to; until it answers, ours wait */
    _Atomic int users;  /* calls of ours that are inside */
    _Atomic int captures; /* that may have a stream of this context */
    _Atomic uint64_t clock;     /* grows with each synchronisation that begins; at least 1 */
    _Atomic uint64_t lost;      /* when work last escaped the events, 0: never */
    _Atomic uint64_t recovered; /* what came no later has been synchronised */
    _Atomic bool asked;         /* a fence needed the per-thread stream of another thread */
    _Atomic unsigned filler_late; /* patterns that were not waited for to the end (cuda_fill.c) */
    _Atomic int fences;         /* fence records that name this one, the kept one among them */
    struct ac_cuda_fence *_Atomic kept; /* one that was released, with its event, for the next */
    ac_mutex_t lock;                    /* guards what follows */
    unsigned event_count;               /* spare events */
    CUevent event[AC_CUDA_EVENTS];
    CUstream keeper; /* our own stream: joins the streams of a fence */
    CUstream filler; /* another one, for patterns (cuda_fill.h) */
    unsigned stream_count;
    uint64_t marks;           /* of submissions so far */
    unsigned naming;          /* calls of ours that go through a copy of the streams */
    ac_cond_t named;          /* none any more */
    unsigned awaiting;        /* fences that wait for a call of another thread to return */
    ac_cond_t returned;       /* one has */
    ac_cuda_stream_t *stream; /* AC_CUDA_STREAMS entries, made at first need */
    bool syncing;             /* a thread of ours is in the driver's synchronisation, or in `work` */
    void (*work)(void *arg);  /* NULL: it synchronises */
    void *work_arg;
    uint64_t syncs;           /* of them, those that have ended */
    ac_status_t sync_status;  /* the last synchronisation ended with it */
    ac_cond_t sync_over;      /* one has ended */
} ac_cuda_context_t;

extern const ac_device_ops_t ac_cuda_ops;

/* Called for each event worth counting; set once by activation, may be NULL. */
extern void (*ac_cuda_count)(ac_cuda_event_t event);

/* Set when exit began: no driver call of our own any more. */
extern _Atomic bool ac_cuda_quiet;

/* Called after the driver gave memory for the cache or took it back: `kind` is AC_EVENT_SEGMENT_ALLOC,
 * _FREE, _MAP or _UNMAP.  The caller holds no lock, and is no part of a thread's cache; it may be a thread
 * of the library.  NULL: there is no observer. */
typedef void (*ac_cuda_memory_fn)(ac_event_kind_t kind, CUdevice device, uint64_t address,
                                  uint64_t bytes);
extern _Atomic ac_cuda_memory_fn ac_cuda_memory_observer;

/* Set when a context is not kept account of: its work is waited for by no fence, and cuMemUnmap is
 * not documented to wait as cuMemFree does, so that pages of living contexts stay. */
extern _Atomic bool ac_cuda_pages_stay;

/* Set at activation where pages are to be made so that other processes can open them. */
extern _Atomic bool ac_cuda_pages_exported;

/* Whether the pages of the device are. */
bool ac_cuda_pages_exportable(CUdevice device);

/* Whether the device's memory is the host's (Jetson, GB10).  Asks the driver once for each device. */
bool ac_cuda_integrated(CUdevice device);

/* Bytes that the host and the control groups have left for such a device (ac_host_memory_left);
 * UINT64_MAX: its memory is its own, or that cannot be told.  A bound for what the program wants free,
 * and never a reason to refuse a request: the kernel may have more by the time it is asked. */
uint64_t ac_cuda_host_left(CUdevice device);

void ac_cuda_context_init(ac_cuda_context_t *context, CUcontext handle, unsigned long long id,
                          CUdevice device, ac_record_mode_t mode);

/* The driver is about to destroy or reset the context: wait until no call of ours is inside, a
 * second at the most, and have others wait outside.  Follow with _kill, or with _spare where the
 * driver refused. */
void ac_cuda_context_dying(ac_cuda_context_t *context);
void ac_cuda_context_spare(ac_cuda_context_t *context);

/* The context was destroyed or reset: no driver call with its handle any more.  _spare follows
 * when the caller is done with the record. */
void ac_cuda_context_kill(ac_cuda_context_t *context);

/* Whether nothing of a killed context is under way or kept any more: its record may serve another
 * context of the device, by _again.  Numbers that calls remember go on where they were. */
bool ac_cuda_context_is_over(ac_cuda_context_t *context);
void ac_cuda_context_again(ac_cuda_context_t *context, CUcontext handle, unsigned long long id,
                           ac_record_mode_t mode);

/* The whole context is synchronised: `ac_cuda_lost` before, `ac_cuda_synced` with its result
 * after success.  Work that had escaped the events by then is done, and streams that had no work
 * since have none. */
uint64_t ac_cuda_lost(ac_cuda_context_t *context);
void ac_cuda_synced(ac_cuda_context_t *context, uint64_t lost);

/* Green contexts of this one exist from now on.  A synchronisation of the program tells of all
 * its work no more: it may be that of a green one. */
void ac_cuda_context_greened(ac_cuda_context_t *context);

/* Around a call that gives work to `stream` of the context (AC_RECORD_CTX does not need it): the
 * work may run before the call returns, and fences recorded in between may come before it or
 * after it.  `stream` is resolved: a handle, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD of this
 * thread.  _begin returns whether a mark was made, for _end. */
bool ac_cuda_stream_begin(ac_cuda_context_t *context, CUstream stream);
void ac_cuda_stream_end(ac_cuda_context_t *context, CUstream stream, bool marked);

/* Whether marks are made; an answer that may change to true only. */
static inline bool ac_cuda_stream_marks(const ac_cuda_context_t *context) {
    return atomic_load_explicit(&context->mode, memory_order_relaxed) == AC_RECORD_STREAMS ||
           atomic_load_explicit(&context->green, memory_order_relaxed);
}

/* Work went to it already. */
static inline void ac_cuda_stream_used(ac_cuda_context_t *context, CUstream stream) {
    ac_cuda_stream_end(context, stream, false);
}

/* The key of a resolved stream of this thread, for device.h, and back: 1 is the legacy stream,
 * handles are themselves, a per-thread stream is its thread's number.  NULL for one of another
 * thread, which cannot be named here. */
uint64_t ac_cuda_stream_key(CUstream stream);
CUstream ac_cuda_stream_of_key(uint64_t key);

/* The stream is about to be destroyed; with `pending` it may still have work: our own stream then
 * waits for it, so that later fences cover it, in whatever way they are recorded.  Blocks while a
 * call of ours names streams: from the return on none names this one. */
void ac_cuda_stream_retire(ac_cuda_context_t *context, CUstream stream, bool pending);

/* Streams are about to go, and the call does not name them: the same for every one that had
 * work. */
void ac_cuda_streams_retire(ac_cuda_context_t *context);

/* A new descriptor, of a number above those of the standard streams, stands for the page: for one
 * other process.  The page stays meanwhile, by the caller's care.  AC_OK; AC_FAILED or any other
 * answer: there is none. */
ac_status_t ac_cuda_page_export(ac_cuda_context_t *context, uint64_t page, int *fd);

/* Lay the page behind such a descriptor, which stays the caller's, over `bytes` at `address`, where
 * nothing is mapped; then let the context's device use them, and where they are known also `owner`,
 * which the pages lie on (-1: not known), and those that may reach its memory.  CUDA_SUCCESS, or the
 * driver's answer for the context's own device.  _end takes whole ones away that no work uses any
 * more; AC_OK, or they are still there. */
CUresult ac_cuda_page_import(ac_cuda_context_t *context, int fd, uint64_t address,
                             uint64_t bytes);
CUresult ac_cuda_import_allow(ac_cuda_context_t *context, CUdevice owner, uint64_t address,
                              uint64_t bytes);
ac_status_t ac_cuda_import_end(ac_cuda_context_t *context, uint64_t address, uint64_t bytes);

/* The devices that may reach the memory of `device`: bits. */
uint64_t ac_cuda_peers_of(CUdevice device);

/* `peer` may reach the memory of `device` from now on: pages that are mapped afterwards allow it.
 * True: that is new, and what is mapped already has to be told (pages_allow). */
bool ac_cuda_peer_add(CUdevice device, CUdevice peer);

/* `peer` may not any more.  True: that is new.  Pages that are mapped keep it in their lists until
 * pages_allow is called for them between _take_back and _taken, where only one thread is for each
 * device; a peer that is removed meanwhile goes with a later change.  _former: whether any page may
 * have such a peer. */
bool ac_cuda_peer_remove(CUdevice device, CUdevice peer);
bool ac_cuda_peers_former(CUdevice device);
void ac_cuda_peers_take_back(CUdevice device);
void ac_cuda_peers_taken(CUdevice device);

/* Captures.  A context captures from _begin until _ended.  _begin comes before a call of the driver
 * that may have a stream of the context take part in a capture; `context` NULL: of any context.
 * _began, with its answer, opens the gate again; if the call may block, before the call.
 *
 * While a context captures the library records and synchronises nothing in it.  It queries fences and
 * gives memory back in threads in relaxed mode only (`beside` of device.h).  While anything captures,
 * the library asks for segments in the mode of the program's thread: modes know no contexts. */
void ac_cuda_capture_begin(ac_cuda_context_t *context);
void ac_cuda_capture_began(ac_cuda_context_t *context, bool began);
void ac_cuda_capture_ended(ac_cuda_context_t *context);

/* The capture stands for any context from now on: its end is that of NULL. */
void ac_cuda_capture_unplace(ac_cuda_context_t *context);

/* Around a synchronisation of the context, which a capture forbids whatever the thread's mode.
 * Returns false if the context captures, or if any capture is about to begin.  A capture that begins
 * meanwhile waits for the synchronisation, a second at most: the device may be waiting for that very
 * thread, and a second later the driver has long looked for captures.  No lock is held in between.
 * `context` NULL: it is not known which. */
bool ac_cuda_sync_begin(const ac_cuda_context_t *context);
void ac_cuda_sync_end(void);

/* Returns true if a stream of the context takes part in a capture, or may; NULL: of any context. */
bool ac_cuda_is_capturing(const ac_cuda_context_t *context);

/* Returns true if streams may take part in captures by calls that no hook sees.  Set once by
 * activation; NULL: they may not. */
extern bool (*ac_cuda_unseen)(void);

/* Give the legacy stream something while a capture forbids it, as the program's own call would:
 * that spoils the capture.  Returns the driver's answer. */
CUresult ac_cuda_probe_legacy(ac_cuda_context_t *context);

/* Whether no stream of the process captured at any time between the two calls. */
uint64_t ac_cuda_capture_mark(void);
bool ac_cuda_capture_none_since(uint64_t mark);

/* Give pinned memory of the context back to the driver; it may wait for the device.  AC_OK, also
 * where the context has gone, and the memory with it; AC_BUSY while any context captures; AC_FAILED. */
ac_status_t ac_cuda_host_free(ac_cuda_context_t *context, uint64_t address);

/* Number of the calling thread, unique for the life of the process (a kernel's thread id is used
 * again); set once by activation. */
extern uint64_t (*ac_cuda_thread)(void);

/* Make `context` current around a call and let it through other threads' captures.  Returns
 * false when the context cannot be made current, or another thread has been ending it for two
 * seconds.  In between the thread is not cancelled: the driver may wait in ways that the program may
 * cancel, and what the thread has taken (the capture gate, memory that is in no list meanwhile, its
 * place among `users`) would be lost. */
typedef struct {
    ac_cuda_context_t *context;
    int cancel; /* the thread's own state */
    bool pushed, relaxed;
    CUstreamCaptureMode mode;
} ac_cuda_scope_t;
bool ac_cuda_enter(ac_cuda_context_t *context, ac_cuda_scope_t *scope);
/* The same, with `own_mode` in the thread's own capture mode. */
bool ac_cuda_enter_as(ac_cuda_context_t *context, ac_cuda_scope_t *scope, bool own_mode);
void ac_cuda_leave(ac_cuda_scope_t *scope);

/* Whether the thread was in relaxed capture mode already: cuda.h then allows it the calls that a
 * capture may forbid ("potentially unsafe").  _barred: it was not, and the context captures. */
bool ac_cuda_is_relaxed(const ac_cuda_scope_t *scope);
bool ac_cuda_is_barred(const ac_cuda_scope_t *scope);

#endif
