/* Internals of the simulated driver: objects, scheduler, address space, and the rules of its
 * locks.
 *
 * README.md says how a driver call runs and how work is ordered.  For bodies,
 * SIM_API(cuMemFree_v2)(CUdeviceptr address) { ... } in any file:
 *
 *   - they run WITH the global lock held (rows marked LOCKLESS in calls.def: without);
 *   - they call other bodies or sim_* functions, never exported cu* functions;
 *   - "initialised, not forked, not in a host function" has been checked already. */
#ifndef SIM_H
#define SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_abi.h"
#include "simcuda.h"

#define SIM_API(symbol) CUresult sim_do_##symbol
#define SIM_UNUSED      __attribute__((unused))

/* ---- functions of the API: ids, traits (exports.c, unsupported.c, calls.def) ---- */

typedef enum {
#define CU_FN(symbol, name, since, mode, params, args) SIM_FN_##symbol,
#include "device/cuda_functions.def"
#undef CU_FN
#define CU_NAME(symbol, name, since, mode, behaviour) SIM_FN_##symbol,
#include "extra_names.def"
#undef CU_NAME
    SIM_FN_COUNT
} sim_fn_t;

/* Declares every body, so that definitions are checked against their signatures. */
#define CU_FN(symbol, name, since, mode, params, args) CUresult sim_do_##symbol params;
#include "device/cuda_functions.def"
#undef CU_FN

enum {
    SIM_LOCKLESS = 1,  /* body runs without the global lock */
    SIM_PREINIT = 2,   /* allowed before cuInit, in fork children and in host functions */
    SIM_ALLOCATES = 4, /* a planned fault answers OUT_OF_MEMORY unless it names a code */
    SIM_UNSAFE = 8,    /* not allowed while a stream captures: sim_capture_unsafe decides */
};

const char *sim_fn_symbol(sim_fn_t fn);
/* Adds the size-dependent part of the running call's cost (ns_per_mib of the cost table). */
void sim_call_bytes(sim_fn_t fn, uint64_t bytes);
/* Adds ns_per_page of the cost table for each page of the call beyond the first one. */
void sim_call_pages(sim_fn_t fn, uint64_t pages);
/* Writes one line to the call log (`log:`); used by unsupported bodies.  Any lock state. */
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- handles: type-stable slots, reused newest first (slab.c; global lock) ---- */

/* First member of each object behind a handle.  Slots are never unmapped, so a stale or
 * foreign handle is recognised, and a new object may get a dead one's handle value. */
typedef struct sim_object {
    struct sim_object *next_free;
    uint64_t id; /* unique over the process and all kinds, never reused */
    bool live;
} sim_object_t;

typedef struct {
    const char *what;
    size_t stride, capacity; /* bytes per slot; most slots there can be */
    unsigned char *base;     /* reserved at first use */
    size_t used;             /* slots ever handed out */
    size_t live;
    sim_object_t *free;
} sim_slab_t;

#define SIM_SLAB(type, count)                                                                    \
    { .what = #type, .stride = sizeof(type), .capacity = (count) }

/* Makes a zeroed live object with a new id; NULL when full. */
void *sim_slab_take(sim_slab_t *slab);
void sim_slab_give(sim_slab_t *slab, void *object);
/* Returns true if the handle names a live object of this slab.  Any value may be passed. */
bool sim_slab_has(const sim_slab_t *slab, const void *handle);
/* Returns the live object number `*at` or the next one, NULL at the end:
 * for (size_t i = 0; (o = next(s, &i));) */
void *sim_slab_next(const sim_slab_t *slab, size_t *at);
uint64_t sim_next_id(void);

/* Functions that count the kinds of live.def, for simcuda_live. */
#define SIM_LIVE(kind, doc) uint64_t sim_live_##kind(void);
#include "live.def"
#undef SIM_LIVE
#define SIM_LIVE_COUNT(kind) uint64_t sim_live_##kind(void)

/* ---- ordered trees keyed by a 64-bit number, intrusive (tree.c) ---- */

typedef struct sim_node {
    struct sim_node *child[2];
    uint64_t key;
    uint32_t priority;
} sim_node_t;

void sim_tree_insert(sim_node_t **root, sim_node_t *node); /* key set, unique */
void sim_tree_remove(sim_node_t **root, sim_node_t *node);
sim_node_t *sim_tree_find(sim_node_t *root, uint64_t key);  /* equal, or NULL */
sim_node_t *sim_tree_floor(sim_node_t *root, uint64_t key); /* greatest <= key */
sim_node_t *sim_tree_ceil(sim_node_t *root, uint64_t key);  /* least >= key */

/* ---- device address space (space.c; global lock) ----
 *
 * One PROT_NONE reservation holds all device addresses; the host faults on them.  Contents
 * live in the mirror, a shared mapping of one memory file of the same size at a constant
 * distance: contents of address A are at A + sim_mirror_delta.  Files that map physical
 * memory at chosen addresses (VMM, IPC) mmap(MAP_FIXED | MAP_SHARED) over the mirror and
 * restore it with sim_mirror_restore; then other code needs no special case. */

#define SIM_SMALL_ALIGN 512ull
#define SIM_LARGE_ALIGN (2ull << 20)
#define SIM_LARGE_SIZE  (1ull << 20) /* from here on addresses are 2 MiB-aligned */

/* Reserves address space of the process.  With clock:virtual it has the same address in every run,
 * if that is free, so that device addresses and handles repeat.  MAP_FAILED: failure. */
void *sim_reserve(uint64_t size, int protection, int flags, int file_or_none);

extern int64_t sim_mirror_delta;
extern int sim_mirror_fd;               /* memory file; offset of A is A - sim_space_base() */
uint64_t sim_space_base(void);          /* 0 before cuInit */
bool sim_space_holds(uint64_t address); /* inside the reservation? */

/* Takes a free range of addresses.  The size is rounded up to align (>= 512, a power of two).
 * `hint` is used if it is aligned and free; 0: no hint.  Returns 0 if there is no room. */
uint64_t sim_range_take(uint64_t size, uint64_t align, uint64_t hint);
void sim_range_give(uint64_t address, uint64_t size); /* size as given to take */
/* Drops the contents and puts the memory file back under [address, address + size). */
void sim_mirror_restore(uint64_t address, uint64_t size);
void sim_mirror_discard(uint64_t address, uint64_t size); /* contents only */
/* Makes contents unreachable, or reachable again.  Reserved addresses without a mapping are barred. */
void sim_mirror_bar(uint64_t address, uint64_t size, bool barred);

/* ---- allocation records (memory.c; global lock) ---- */

typedef enum {
    SIM_MEM_DEVICE,  /* cuMemAlloc, cuMemAllocPitch */
    SIM_MEM_GLOBAL,  /* module variable */
    SIM_MEM_MANAGED, /* contents at the address itself, host-accessible */
    SIM_MEM_HOST,    /* pinned by cuMemHostAlloc: ditto */
    SIM_MEM_REGISTERED,
    SIM_MEM_POOL,  /* mempool.c */
    SIM_MEM_VMM,   /* vmm.c: one record per mapping */
    SIM_MEM_MULTICAST, /* multicast_map.c: one per mapping of an object; has no contents itself */
    SIM_MEM_IPC,   /* ipc.c: memory of another process */
    SIM_MEM_ARRAY, /* array.c: storage of an array */
} sim_mem_kind_t;

typedef struct sim_alloc {
    sim_node_t node; /* key = base; in the record index */
    uint64_t base;
    uint64_t size;    /* as asked */
    uint64_t charged; /* bytes counted against the device, 0 for host kinds */
    uint64_t id;      /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    sim_mem_kind_t kind;
    int device;    /* ordinal; for host kinds the device of the context */
    CUcontext ctx; /* owner; NULL for pool and VMM memory */
    uint64_t ctx_id;
    unsigned flags; /* of cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged */
    bool touched;   /* contents were written: discard them at the end */
    bool sync_memops;
    bool exported;         /* ipc.c: another process may know it; sim_ipc_freed when it goes */
    bool read_only;        /* VMM access: reads only */
    bool no_access;        /* mapped but no access given yet: touching it faults */
    bool managed;          /* MANAGED, or of a pool of managed memory */
    CUmemoryPool pool;     /* SIM_MEM_POOL */
    unsigned handle_types; /* ALLOWED_HANDLE_TYPES */
    void *host;  /* HOST, REGISTERED, MANAGED, their pools: host address (= base) */
    void *owner; /* for the file that made the record */
} sim_alloc_t;

/* Charges the device, or answers OUT_OF_MEMORY.  cuMemGetInfo reports the rest as free. */
CUresult sim_device_charge(int device, uint64_t bytes);
/* Charges the device.  If it is full, pools first give back unused memory (pool_yield). */
CUresult sim_device_charge_all(int device, uint64_t bytes);
void sim_device_uncharge(int device, uint64_t bytes);

/* Makes a record at [base, base+size), which the caller took from sim_range_take (or host memory).
 * The caller fills the remaining fields.  NULL without memory. */
sim_alloc_t *sim_alloc_new(sim_mem_kind_t kind, uint64_t base, uint64_t size, int device,
                           CUcontext ctx);
/* Removes only the record.  The caller handles range, charge and contents. */
void sim_alloc_delete(sim_alloc_t *record);
sim_alloc_t *sim_alloc_at(uint64_t base);        /* record that starts here */
sim_alloc_t *sim_alloc_around(uint64_t address); /* record that contains it */
sim_alloc_t *sim_alloc_next(sim_alloc_t *after); /* in address order; NULL: first */
sim_alloc_t *sim_alloc_from(uint64_t base);      /* first record that starts there or later */
/* Allocates plain device memory, with range, charge and record, for cuMemAlloc, arrays and module
 * variables.  The charge is the size rounded up to 512. */
CUresult sim_device_alloc(CUcontext ctx, sim_mem_kind_t kind, uint64_t size, sim_alloc_t **out);
void sim_device_free(sim_alloc_t *record);

/* Mappings of physical memory (vmm.c).  sim_vmm_mapped is their number.  _place returns the place
 * of the memory behind a mapping: a number that is no address and is never used again.  _alias
 * returns the next mapping of the same memory after `before` (NULL: the first); NULL at the end. */
extern size_t sim_vmm_mapped;
uint64_t sim_vmm_place(const sim_alloc_t *record);
sim_alloc_t *sim_vmm_alias(const sim_alloc_t *record, const sim_alloc_t *before);
bool sim_vmm_rdma(const sim_alloc_t *record); /* network cards may use it */
/* Memory that can be bound to a multicast object: bytes from `place` on of a file of this process. */
typedef struct {
    CUmemGenericAllocationHandle handle; /* physical memory; 0: memory of a pool, at `address` */
    CUdeviceptr address;
    int device, file;
    uint64_t place, size;
    uint64_t from; /* first byte, in the memory behind the handle */
    unsigned handle_types;
} sim_memory_t;

/* For multicast.c.  _physical describes the memory that a handle names; false: it names none.
 * _behind describes the memory at an address of a mapping.  _hold keeps physical memory alive until
 * _let_go.  _shown returns the address at which byte `from` of it is mapped; 0: it is not mapped.
 * *bytes receives the bytes mapped from there on. */
bool sim_vmm_physical(CUmemGenericAllocationHandle handle, sim_memory_t *out);
void sim_vmm_behind(const sim_alloc_t *record, uint64_t address, sim_memory_t *out);
void sim_vmm_hold(CUmemGenericAllocationHandle memory);
void sim_vmm_let_go(CUmemGenericAllocationHandle memory);
uint64_t sim_vmm_shown(CUmemGenericAllocationHandle memory, uint64_t from, uint64_t *bytes);

/* Multicast objects (multicast.c).  _has: the handle names one.  _retain, _release: count handles. */
bool sim_multicast_has(CUmemGenericAllocationHandle handle);
void sim_multicast_retain(CUmemGenericAllocationHandle handle);
void sim_multicast_release(CUmemGenericAllocationHandle handle);
/* Sharing with other processes.  _export makes a descriptor of an object.  _import opens one and
 * sets *result; false: the descriptor is of something else. */
CUresult sim_multicast_export(int *out, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type);
bool sim_multicast_import(CUmemGenericAllocationHandle *out, int from, CUresult *result);

/* Mapped objects (multicast_map.c).  sim_multicast_mapped is the number of mappings.  _map waits
 * until the team is complete.  _member: the device is in the team that is mapped. */
extern size_t sim_multicast_mapped;
CUresult sim_multicast_map(uint64_t address, uint64_t size, CUmemGenericAllocationHandle handle);
void sim_multicast_unmapped(CUmemGenericAllocationHandle handle);
bool sim_multicast_member(const sim_alloc_t *record, int device);
/* Returns false if not all devices have bound memory to each byte of multicast objects in the
 * range. */
bool sim_multicast_ready(uint64_t address, uint64_t length);
/* _at returns true if the address belongs to an object.  _store stores there, which reaches the
 * memory of all devices. */
bool sim_multicast_at(uint64_t address);
void sim_multicast_store(uint64_t address, const void *bytes, uint64_t length);

/* Returns true if every byte is mapped and allows the access; marks written records as
 * touched. */
bool sim_range_ok(uint64_t address, uint64_t length, bool write);
/* Returns true if kernels of the context may touch these bytes, all of which are mapped.  Memory
 * of another device needs peer access to its context, or the device's access right on the mapping,
 * the pool or the graph's allocation. */
bool sim_reaches(CUcontext ctx, uint64_t address, uint64_t length, bool write);
bool sim_vmm_allows(const sim_alloc_t *record, int device, bool write);
bool sim_pool_allows(const sim_alloc_t *record, int device, bool write);
bool sim_peer_enabled(CUcontext ctx, uint64_t peer_id);
/* Returns the host address of the bytes at a device, managed or host address.  No lock needed. */
void *sim_bytes(uint64_t address);

/* ---- devices and contexts (device.c, context.c; global lock) ---- */

enum { SIM_MAX_DEVICES = 64 };

typedef struct {
    int ordinal;  /* number in the process: CUDA_VISIBLE_DEVICES */
    int physical; /* as the machine has it */
    uint64_t total, used, used_high;
    CUcontext primary; /* its slot is kept over resets: same handle value */
    unsigned primary_refs;
    unsigned primary_flags;
    CUmemoryPool default_pool, current_pool; /* mempool.c, made on demand */
    uint64_t peers[SIM_MAX_DEVICES];         /* contexts with access enabled, counted */
    void *extra;                             /* for mempool.c: graph memory figures */
} sim_device_t;

typedef struct CUcontext_handle {
    sim_object_t object; /* id: cuCtxGetId; a reset primary context gets a new one */
    int device;
    unsigned uses;        /* cuCtxCreate, cuCtxAttach; cuCtxDetach ends the last */
    bool primary, active; /* active: false between reset/last release and next retain */
    bool green;           /* made by cuCtxFromGreenCtx: parent holds memory and work */
    CUcontext parent;     /* primary context of a green one, else NULL */
    CUgreenCtx green_of;
    unsigned flags, api_version;
    CUresult sticky; /* error that every later use answers, 0: none */
    size_t limits[16];
    CUstream legacy;  /* default stream; in `streams` too */
    CUstream streams; /* list by stream->next */
    struct {
        struct sim_work *work; /* last item of a destroyed stream */
        bool blocking;
        uint64_t green_id; /* of the stream's green context, 0: none */
    } * orphans;
    size_t orphan_count, orphan_room;
    struct sim_work *barrier; /* cuCtxWaitEvent: later items depend on it */
    struct sim_op *gone[2];   /* race detector: work of destroyed streams, blocking ones; all */
    size_t captures;          /* streams of the context that capture; graph.c counts */
    uint64_t peers[SIM_MAX_DEVICES]; /* ids of contexts this one may access */
    size_t peer_count;
} sim_context_t;

typedef struct CUgreenCtx_handle {
    sim_object_t object;
    CUcontext primary; /* owns its memory */
    CUcontext view;    /* cuCtxFromGreenCtx, NULL until asked */
    int device;
    struct sim_work *barrier; /* cuGreenCtxWaitEvent: later items of its streams depend on it */
    struct sim_op *gone;      /* race detector: work of destroyed streams */
} sim_green_t;

/* Per thread; reached by one initial-exec pointer. */
typedef struct sim_thread {
    CUcontext current; /* top of the stack, NULL */
    struct {
        CUcontext ctx;
        uint64_t id;
    } * stack;
    size_t depth, room;
    struct {
        CUcontext ctx;
        uint64_t id;
        CUstream stream;
    } * own; /* per-thread default streams */
    size_t own_count;
    unsigned capture_mode; /* cuThreadExchangeStreamCaptureMode; CU_STREAM_CAPTURE_MODE_* */
    bool in_host_function; /* driver calls answer NOT_PERMITTED */
    uint64_t call_ns;      /* cost still to be paid by the running call */
    unsigned polls;        /* queries without news since it last submitted or saw something */
} sim_thread_t;

extern sim_device_t sim_devices[SIM_MAX_DEVICES];
extern sim_slab_t sim_contexts, sim_greens, sim_streams, sim_events;

sim_thread_t *sim_thread(void); /* made on demand; NULL without memory */
/* Returns the thread's context if it is usable, otherwise INVALID_CONTEXT, CONTEXT_IS_DESTROYED or
 * its sticky error.  For a green context *out is the green view; sim_ctx_home gives the primary. */
CUresult sim_ctx_current(CUcontext *out);
CUresult sim_ctx_check(CUcontext ctx);      /* live and not in error, else the error */
CUcontext sim_ctx_home(CUcontext ctx);      /* owner of memory and default streams */
CUresult sim_device_check(CUdevice device); /* INVALID_DEVICE */
bool sim_peer_allowed(int from_device, int to_device);

/* ---- work (work.c; global lock unless said) ---- */

typedef enum {
    SIM_WORK_KERNEL,
    SIM_WORK_COPY,
    SIM_WORK_FILL,
    SIM_WORK_HOST,   /* host function or stream callback */
    SIM_WORK_RECORD, /* event record */
    SIM_WORK_WAIT,   /* event wait */
    SIM_WORK_MARK,   /* nothing: a join point */
    SIM_WORK_WRITE_VALUE,
    SIM_WORK_WAIT_VALUE,
    SIM_WORK_ALLOC, /* stream-ordered allocation becomes usable */
    SIM_WORK_FREE,
    SIM_WORK_OTHER,
} sim_work_type_t;

typedef struct {
    uint64_t address, length;
    bool write;
} sim_access_t;

typedef struct sim_work sim_work_t;

typedef struct {
    const char *name;
    sim_work_type_t type;
    unsigned flags; /* SIM_RUN_* */
    /* Takes effect; an error becomes the context's sticky error. NULL: nothing to do. */
    CUresult (*run)(sim_work_t *work);
    /* SIM_RUN_GATED: returns true if the item may complete.  Called after other work and
     * periodically. */
    bool (*ready)(sim_work_t *work);
    /* Frees what payload points to (payload itself is the scheduler's); NULL: nothing. */
    void (*release)(void *payload);
    /* Fills `to`, a byte copy of `from`, with copies of the objects that `from` points to; false:
     * no memory.  NULL: the byte copy is enough.  Needed for capture into graphs. */
    bool (*clone)(void *to, const void *from);
} sim_work_ops_t;

enum {
    SIM_RUN_UNLOCKED = 1, /* run is called without the global lock (kernels, big copies) */
    SIM_RUN_HOST = 2,     /* run is user code, in a thread of its own; implies UNLOCKED */
    SIM_RUN_GATED = 4,
    SIM_RUN_ALWAYS = 8, /* run even if the context is in error (stream callbacks) */
};

typedef enum { SIM_NEW, SIM_BLOCKED, SIM_QUEUED, SIM_RUNNING, SIM_DONE } sim_work_state_t;

struct sim_work {
    const sim_work_ops_t *ops;
    unsigned refs;
    sim_work_state_t state;
    uint64_t seq; /* order of submission over the process */
    CUcontext ctx;
    uint64_t ctx_id, stream_id;      /* 0: no stream */
    uint64_t duration;               /* ns */
    uint64_t submitted, start, done; /* ns on the device clock */
    size_t pending;                  /* dependencies not complete */
    sim_work_t **dependents;
    size_t dependent_count, dependent_room;
    size_t heap_at;
    sim_work_t *next;       /* scheduler: list of items to complete, or gated ones */
    sim_access_t *accesses; /* checked before run; one unmapped byte faults the context */
    size_t access_count, access_room;
    bool failed;       /* did not run: its context is in error */
    bool staged;       /* a copy whose pageable source was read at submission */
    bool programmatic; /* a launch that may start before the kernel before it is over */
    struct sim_op *op; /* its record in the race detector, or NULL */
    const char *label; /* kernel name or NULL; outlives the item */
    size_t payload_bytes;
    _Alignas(max_align_t) unsigned char payload[]; /* ops-specific; SIM_PAYLOAD */
};
#define SIM_PAYLOAD(work, type) ((type *)(void *)(work)->payload)

/* Makes an item, with refs = 1 for the caller and a zeroed payload.  NULL without memory. */
sim_work_t *sim_work_new(const sim_work_ops_t *ops, CUcontext ctx, size_t payload_bytes);
bool sim_work_touches(sim_work_t *work, uint64_t address, uint64_t length, bool write);
sim_work_t *sim_work_clone(const sim_work_t *work); /* state NEW, no dependencies */
sim_work_t *sim_work_ref(sim_work_t *work);         /* NULL is allowed */
void sim_work_unref(sim_work_t *work);
/* Completes `work` (NEW) after `before`.  Does nothing if that is NULL or complete.  False: no
 * memory. */
bool sim_work_after(sim_work_t *work, sim_work_t *before);
/* Completes `work` after `before`, but the program may rely only on the beginning of `before`. */
bool sim_work_after_start(sim_work_t *work, sim_work_t *before);
/* Passes a NEW item to the scheduler, which takes its own reference. */
void sim_work_submit(sim_work_t *work);

/* Submits work to a stream, the usual way.  Takes the caller's reference.  On a capturing stream
 * the item goes to sim_capture_record instead.  Legacy-stream work is refused while a blocking
 * stream of the context captures.  `kept`, if not NULL, receives a reference for waiting on
 * success (NULL when captured). */
CUresult sim_enqueue(CUstream stream, sim_work_t *work, sim_work_t **kept);
/* The parts of sim_enqueue, for graph launches: _order adds the dependencies of stream order,
 * _advance makes the item the stream's last one. */
bool sim_stream_order(CUstream stream, sim_work_t *work);
void sim_stream_advance(CUstream stream, sim_work_t *work);
/* Orders `work` after all work submitted to the context so far, in all streams, green ones
 * included.  For the view of a green context, only its streams and the default ones count. */
bool sim_ctx_order(CUcontext ctx, sim_work_t *work);
/* Orders all later work of the context, or of a green context's streams, after `work`'s
 * event. */
CUresult sim_ctx_barrier(CUcontext ctx, CUevent event);

/* Waits for the item.  Waits drop the lock while time passes, and objects may be destroyed
 * meanwhile: recheck handles. */
void sim_wait(sim_work_t *work); /* NULL is allowed */
/* Waits for the item.  The host may rely only on its beginning, as for a copy from pageable memory. */
void sim_wait_reached(sim_work_t *work);
CUresult sim_wait_stream(CUstream stream);
CUresult sim_wait_ctx(CUcontext ctx); /* everything submitted so far; then its error */
void sim_wait_device(int ordinal);
bool sim_is_done(sim_work_t *work); /* after letting due work complete; NULL: true */
uint64_t sim_now(void);             /* device clock, ns; no lock needed */

extern const sim_work_ops_t sim_mark_ops; /* SIM_WORK_MARK, takes no time */
extern const sim_work_ops_t sim_wait_ops; /* SIM_WORK_WAIT, ditto */
/* Compute durations from the settings copy_gbps and device_gbps. */
uint64_t sim_copy_ns(uint64_t bytes, bool host_side);

/* ---- streams and events (stream.c, event.c; global lock) ---- */

struct sim_capture; /* graph.c */

typedef struct CUstream_handle {
    sim_object_t object; /* id: cuStreamGetId */
    CUcontext ctx;       /* home context */
    CUgreenCtx green;    /* or NULL */
    unsigned flags;      /* CU_STREAM_NON_BLOCKING */
    int priority;
    bool is_legacy, is_per_thread;
    sim_work_t *last;                /* newest item, or NULL */
    CUstreamAttrValue attributes[4]; /* in the order of stream_api.c's table */
    CUstream next, *link;            /* list of the context */
    struct sim_capture *capture;     /* graph.c: not NULL while capturing */
    CUgraphNode *capture_tail;       /* graph.c: nodes the next one depends on */
    size_t capture_tail_count, capture_tail_room;
    CUgraphNode capture_own; /* graph.c: newest node of the stream itself, or NULL */
} sim_stream_t;

typedef struct CUevent_handle {
    sim_object_t object;
    CUcontext ctx;
    unsigned flags;
    bool recorded;
    sim_work_t *work;            /* newest record, NULL: none yet */
    struct sim_capture *capture; /* graph.c: recorded into a capture; query, sync refuse */
    CUgraphNode *capture_nodes;  /* graph.c: freed by sim_capture_event_gone */
    size_t capture_node_count;
    void *shared; /* ipc_event.c: CU_EVENT_INTERPROCESS, made here or elsewhere */
} sim_event_t;

/* Resolves 0 (legacy or per-thread by `per_thread`), 1, 2 and handles.  The special handles use
 * the current context, other handles the stream's own.  Returns the errors of that context. */
CUresult sim_stream_get(CUstream handle, bool per_thread, CUstream *out);
CUresult sim_event_get(CUevent handle, CUevent *out); /* INVALID_HANDLE */
/* Record an event and wait for one, as work items in stream order (capture hooks included). */
CUresult sim_event_record(CUevent event, CUstream stream, unsigned flags);
CUresult sim_stream_wait_event(CUstream stream, CUevent event, unsigned flags);
/* Makes the item of an event record or wait, for graphs: it takes effect when it completes.
 * sim_event_attach makes `work` the event's newest record. */
sim_work_t *sim_record_work(CUcontext ctx, CUevent event);
/* Completes `work` (NEW) after the event's newest record.  False: no memory. */
bool sim_work_after_event(sim_work_t *work, CUevent event);
void sim_event_attach(CUevent event, sim_work_t *work);

/* ---- capture hooks: graph.c defines them; weak defaults in unsupported.c refuse ---- */

/* Takes over `work` (its reference) as a node of the stream's capture. */
CUresult sim_capture_record(CUstream stream, sim_work_t *work);
/* Replace record and wait if the stream or the event is in a capture. */
CUresult sim_capture_event_record(CUstream stream, CUevent event, unsigned flags);
CUresult sim_capture_event_wait(CUstream stream, CUevent event, unsigned flags);
/* Checks a call that is not allowed during capture (SIM_UNSAFE rows); called only while
 * sim_captures > 0.  Invalidates the capture and returns an error, or returns SUCCESS to let the
 * call pass. */
CUresult sim_capture_unsafe(sim_fn_t fn);
/* Checks a call that would synchronise or query the stream, or the context if stream is NULL. */
CUresult sim_capture_sync(CUcontext ctx, CUstream stream);
/* Checks work for the legacy stream.  It is refused, and the capture invalidated, while a blocking
 * stream of the context captures. */
CUresult sim_capture_implicit(CUcontext ctx);
void sim_capture_stream_gone(CUstream stream); /* destroyed while capturing */
void sim_capture_event_gone(CUevent event);
extern size_t sim_captures; /* streams capturing in the process; graph.c counts */

/* ---- kernels, for graph nodes (module.c, launch.c; global lock) ---- */

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    bool programmatic; /* see sim_work_t */
    bool cooperative;  /* all blocks have to run at once */
} sim_launch_args_t;

/* Makes the item of a kernel launch, with copied arguments and declared accesses.  Errors are
 * those of cuLaunchKernel. */
CUresult sim_kernel_work(CUcontext ctx, const sim_launch_args_t *args, sim_work_t **out);
/* Describes the arguments of an item made by sim_kernel_work, and returns their number.  `params`,
 * if not NULL, receives pointers to the copies that the item owns. */
unsigned sim_kernel_describe(const sim_work_t *work, sim_launch_args_t *out, void **params);
/* Accepts CUkernel handles in place of CUfunction handles. */
CUresult sim_function_get(CUfunction handle, CUcontext ctx, CUfunction *out);

/* ---- copies and fills, for graph nodes (copy.c) ---- */

/* `stage`: read pageable host sources now (stream copies) instead of at run (graph nodes). */
CUresult sim_copy3d_work(CUcontext ctx, const CUDA_MEMCPY3D_PEER *copy, bool stage,
                         sim_work_t **out);
CUresult sim_fill_work(CUcontext ctx, uint64_t address, size_t pitch, unsigned value,
                       unsigned element_bytes, size_t width, size_t height, sim_work_t **out);
CUresult sim_host_work(CUcontext ctx, CUhostFn fn, void *data, sim_work_t **out);

/* Storage of an array, for copies (array.c).  The weak default answers INVALID_HANDLE.  The layout
 * is row after row, plane after plane, without padding. */
typedef struct {
    uint64_t base; /* device address of element (0,0,0) */
    size_t row_bytes, rows, planes;
} sim_array_layout_t;
CUresult sim_array_layout(CUarray array, sim_array_layout_t *out);

/* ---- life cycle hooks, called with the lock held; weak defaults do nothing ---- */

void sim_ctx_gone_graph(CUcontext ctx);
void sim_ctx_gone_pool(CUcontext ctx);
void sim_ctx_gone_vmm(CUcontext ctx);
void sim_ctx_gone_ipc(CUcontext ctx);
void sim_ctx_gone_array(CUcontext ctx);
/* Implements cuMemFree of records other than SIM_MEM_DEVICE, GLOBAL and MANAGED: it also frees
 * pool memory.  Weak default: INVALID_VALUE. */
CUresult sim_pool_free_sync(sim_alloc_t *record);

/* Called after a stream, an event or a context was synchronised.  Pools give back memory above
 * their release threshold. */
void sim_pool_synced(void);
/* Gives back physical memory that no pool of the device needs, and returns its size. */
uint64_t sim_pool_release_idle(int device);
/* Called when plain device memory with `exported` set is freed. */
void sim_ipc_freed(const sim_alloc_t *record);
extern size_t sim_imports;     /* allocations of other processes that are open */
extern size_t sim_vmm_imports; /* physical memory of other processes that is open */

/* ---- events shared between processes: ipc_event.c.  Called for events with `shared` set ---- */

bool sim_ipc_event_new(CUevent event); /* sets `shared`; false: no memory */
void sim_ipc_event_gone(CUevent event);
/* Makes the item for sim_record_work.  _recorded: event->work is that item and was submitted. */
sim_work_t *sim_ipc_record_work(CUcontext ctx, CUevent event);
void sim_ipc_event_recorded(CUevent event);
/* Finds the work that must complete before the event has happened, with a reference; *out NULL: none. */
bool sim_ipc_event_before(CUcontext ctx, CUevent event, sim_work_t **out);
CUresult sim_ipc_event_query(CUevent event);
CUresult sim_ipc_event_wait(CUevent event);

/* ---- settings (config.c from sim_config.def) and state (state.c) ---- */

typedef uint64_t SIM_TYPE_COUNT;
typedef uint64_t SIM_TYPE_SIZE;
typedef bool SIM_TYPE_BOOL;
typedef bool SIM_TYPE_CLOCK; /* true: virtual */
typedef char *SIM_TYPE_TEXT;
typedef char *SIM_TYPE_FAULTS;

typedef struct {
#define SIM_KEY(kind, key, member, initial, when, doc) SIM_TYPE_##kind member;
#include "sim_config.def"
} sim_config_t;

extern sim_config_t sim_config;

void sim_lock(void);
void sim_unlock(void);
extern const int sim_default_driver; /* cuDriverGetVersion unless `driver:` says otherwise */

#endif
