/* Record of a thread of the program: its current context and its row of counters.  One pointer of
 * thread-local storage leads to it.  The library makes the record at the thread's first hooked CUDA
 * call. */
#ifndef AC_THREAD_H
#define AC_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/order/fence.h"
#include "allocator/order/generation.h"
#include "track/modules.h"
#include "track/running.h"
#include "observe/holding.h"
#include "observe/live.h"

struct ac_context;
struct ac_trace_lane;

/* State that serves a hit without a look-up: code in `code` uses memory of the cache's context.  For
 * a use that allocates, the cache already counts for the module of the code (ac_thread_ask_for): a
 * hit does not check it. */
typedef struct {
    ac_code_t code;
    struct ac_cache *cache;
} ac_fast_t;

/* Uses of ac_fast_t.  A program mostly frees in other code than it allocates in, so each use
 * remembers the code that called last.  Names of the driver serve the thread's current context,
 * whatever code calls them. */
typedef enum {
    AC_FAST_MALLOC,
    AC_FAST_FREE,
    AC_FAST_DRIVER,        /* calls from any code */
    AC_FAST_DRIVER_MALLOC, /* while AC_FAST_DRIVER holds: requests of code with a known module */
    AC_FAST_USES
} ac_fast_use_t;
enum { AC_FAST_CODES = 16 };

/* Result of a submission to a stream, for the next one to the same stream.  Valid while ac_generation
 * keeps its value; for a default stream, also only while the context is current. */
typedef struct {
    void *stream;            /* resolved handle */
    uint64_t generation;     /* ac_generation of the result; 0: none */
    ac_timeline_t *timeline; /* timeline of the context */
    uint64_t clock; /* while the clock shows this, only the call is left to do (fence.h) */
} ac_submit_path_t;

/* While the clock shows `clock`, a submission to another stream of the timeline has nothing else to
 * do either: several streams are in use, and none is followed. */
typedef struct {
    const ac_timeline_t *timeline;
    uint64_t clock; /* 0: none */
} ac_looked_t;

/* Kinds of the thread's requests for pinned memory, by function of the runtime and flags
 * (pinned_runtime.c). */
enum { AC_PINNED_PLAIN, AC_PINNED_FLAGGED, AC_PINNED_FUNCTIONS, AC_PINNED_FLAGS = 8 };
typedef struct {
    struct ac_context *context; /* NULL: nothing is known */
    const struct ac_runtime *runtime;
    uint64_t generation;
    uint32_t kind[AC_PINNED_FUNCTIONS]
                 [AC_PINNED_FLAGS]; /* kind of ac_host_key_t, plus 1; 0: not seen */
} ac_pinned_path_t;

/* A stream has one place for its path in `path`.  If another stream has that place, its path is in
 * one of AC_SUBMIT_WAYS places in `more`. */
enum {
    AC_SUBMIT_PATH_BITS = 6,
    AC_SUBMIT_PATHS = 1 << AC_SUBMIT_PATH_BITS,
    AC_SUBMIT_MORE_BITS = 9,
    AC_SUBMIT_MORE = 1 << AC_SUBMIT_MORE_BITS,
    AC_SUBMIT_WAYS = 8
};

/* Recording of the thread's calls (recording.h). */
typedef struct {
    ac_holding_t freeing; /* block of the free under way; address 0: it was not known */
    int64_t until_sample; /* bytes of requests until the next sample */
    uint64_t seed;        /* 0: not begun */
    bool missed;          /* the request under way missed */
    uint32_t tid;         /* kernel id; 0: not asked for yet */
} ac_recorder_t;

/* Blocks that recent copies and fills named (reach.h): the last one of each side, and others by
 * address. */
typedef enum { AC_NAMED_TO, AC_NAMED_FROM, AC_NAMED_SIDES } ac_named_t;
enum { AC_REACHED_BITS = 8, AC_REACHED = 1 << AC_REACHED_BITS };

typedef struct ac_thread {
    ac_fast_t fast[AC_FAST_USES];
    uint64_t generation;             /* ac_generation when `known` and `runtime` were set */
    struct ac_context *known;        /* the driver's current context, proved by a real call */
    struct ac_context *runtime;      /* the context that cudaMalloc really used last */
    const struct ac_runtime *prover; /* runtime with that cudaMalloc (runtimes.h) */
    struct ac_context *last_alloc;   /* context of the newest cuMemAlloc hook call */
    struct ac_context *asked_too_much; /* context of the last request with AC_SERVED_TOO_LARGE (body.h) */
    struct ac_context *last_free;    /* context of the newest free of the library's memory */
    void *stream;                    /* newest stream handle resolved, and its context */
    uint64_t stream_generation;
    struct ac_context *stream_context;
    ac_joins_t joins;            /* streams that wait for the turn (sole.h) */
    struct ac_trace_lane *trace; /* the trace's lane; NULL: none is written */
    ac_live_row_t *row;          /* counters; shared: additions must be atomic */
    bool shared;
    uint64_t number;         /* unique for the life of the process */
    struct ac_cache *caches; /* one per context, by sibling (allocator/cache/thread_cache.h) */
    uint64_t refused;        /* ac_generation when the newest cache could not be opened */
    bool late;               /* the thread is ending: it gets no new cache */
    ac_code_t code;          /* code of the newest request (modules.h) */
    uint8_t asks_for;      /* module that called the runtime, during that call; 0: none */
    bool observing;        /* it runs an observer (observers.h) */
    bool quiet;            /* a failed request does not count: the caller then asks in another way */
    bool apart;            /* its request bypasses the thread's caches */
    struct ac_rescue *rescue; /* another source for its request (observers.h); NULL: none */
    bool records;          /* valid with `generation`: its calls are recorded (recording.h) */
    const void *asks_from; /* code that called the runtime to allocate, during that call */
    const void *frees_for; /* code that called the runtime to free, during that call */
    void **unwinding; /* target of the unwinder's abort(); NULL: it does not run (unwind.h) */
    ac_recorder_t recorder;
    uint32_t calls;         /* calls of timed hooks; one in AC_SAMPLE is timed */
    uint32_t guard_left;    /* requests up to the next guarded one; 0: not known */
    uint64_t guard_seed;    /* 0: none yet */
    uint64_t given_back;    /* ac_given_back when the thread last read it (body.h) */
    struct ac_thread *next; /* spare records */
    ac_pinned_path_t pinned;
    struct {
        struct ac_context *context; /* NULL: none came */
        uint32_t kind;
    } pinned_seen;                 /* the newest request that came by a driver hook */
    ac_fast_t before[AC_FAST_CODES]; /* uses of code that called before */
    unsigned replaced;               /* entries of `before` written so far */
    ac_looked_t looked;
    /* From here on fields outlive the thread, with the record. */
    ac_submitter_t submitter;
    bool has_paths, has_more; /* `path`, `more` have entries */
    const struct ac_block *last_reached[AC_NAMED_SIDES], *reached[AC_REACHED]; /* hints */
    ac_submit_path_t path[AC_SUBMIT_PATHS];
    ac_submit_path_t more[AC_SUBMIT_MORE];
} ac_thread_t;

/* Returns the path of the stream in `more`; if there is none, `path`. */
ac_submit_path_t *ac_submit_path_among_more(ac_thread_t *thread, ac_submit_path_t *path,
                                            const void *stream);

static inline ac_submit_path_t *ac_submit_path_first(ac_thread_t *thread, const void *stream) {
    uint64_t hash = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15u;
    return &thread->path[hash >> (64 - AC_SUBMIT_PATH_BITS)];
}

/* Returns the path of the stream.  If the stream has none, the result is another stream's path. */
static inline ac_submit_path_t *ac_submit_path_of(ac_thread_t *thread, const void *stream) {
    ac_submit_path_t *path = ac_submit_path_first(thread, stream);
    return __builtin_expect(path->stream == stream, 1)
               ? path
               : ac_submit_path_among_more(thread, path, stream);
}

/* Returns the place for a path of the stream, which may serve another stream now. */
ac_submit_path_t *ac_submit_path_place(ac_thread_t *thread, const void *stream);

extern AC_HIDDEN __thread ac_thread_t *ac_thread_tls __attribute__((tls_model("initial-exec")));

/* Returns the calling thread's record, made if needed.  Returns NULL if host memory is short, and for
 * a guest. */
ac_thread_t *ac_thread_get(void);

/* Returns true if the calling thread is a guest: a thread of the driver that runs a host function of
 * the program.  The driver refuses calls from there (CUDA_ERROR_NOT_PERMITTED).  Hooks must not
 * answer these calls, and their own calls of the driver would fail.  A guest gets no record: its
 * calls take the way of unknown threads and no short way. */
bool ac_thread_is_guest(void);

/* Called when the program gives the driver a function to call: from now on there may be guests. */
void ac_thread_expect_guests(void);

/* Returns the calling thread's cache for the context, made if needed; NULL: it has none. */
struct ac_cache *ac_thread_cache(ac_thread_t *thread, const struct ac_context *context);

/* Returns true if thread->fast[use].cache serves calls of the code at `caller`, counted in the thread's
 * own row. */
static inline bool ac_thread_is_fast(const ac_thread_t *thread, ac_fast_use_t use,
                                     const void *caller) {
    return thread && (use == AC_FAST_DRIVER || ac_code_holds(&thread->fast[use].code, caller)) &&
           thread->fast[use].code.generation == ac_generation_now();
}

/* Returns true if the thread's calls are recorded, by a trace or in the history (recording.h). */
extern AC_HIDDEN _Atomic bool ac_recording;
static inline bool ac_thread_records(const ac_thread_t *thread) {
    return thread->trace || atomic_load_explicit(&ac_recording, memory_order_relaxed);
}

/* Like ac_thread_is_fast, for recorded calls, and for requests while one in N is guarded (guard.h).
 * Here the thread stores the complement of the generation.  Then ac_thread_is_fast is false, and the
 * shorter way, which neither records nor guards, is not taken. */
static inline bool ac_thread_is_apart(const ac_thread_t *thread, ac_fast_use_t use,
                                         const void *caller) {
    return thread && ac_code_holds(&thread->fast[use].code, caller) &&
           thread->fast[use].code.generation == ~ac_generation_now();
}

/* Remembers that the cache serves calls of the code at `caller`, as found in `generation`. */
void ac_thread_set_fast(ac_thread_t *thread, ac_fast_use_t use, const void *caller,
                        uint64_t generation, struct ac_cache *cache);

/* Like ac_thread_set_fast, and remembers the code for other uses, also after other code has called. */
void ac_thread_set_code(ac_thread_t *thread, ac_fast_use_t use, const void *caller,
                        uint64_t generation, struct ac_cache *cache);

/* Remembers that the cache serves the names of the driver in the thread's current context. */
void ac_thread_set_driver(ac_thread_t *thread, uint64_t generation, struct ac_cache *cache);

/* Restores for `use` what the thread remembers of the code at `caller`.  Returns false if it
 * remembers nothing. */
bool ac_thread_recall_fast(ac_thread_t *thread, ac_fast_use_t use, const void *caller);

/* Makes the thread's requests to its cache count for `module` from now on.  Forgets the uses of code
 * of other modules: ac_thread_recall_fast restores them. */
void ac_thread_ask_for(ac_thread_t *thread, struct ac_cache *cache, unsigned module);

/* Forgets all that the thread's caches serve. */
void ac_thread_clear_fast(ac_thread_t *thread);

/* While AC_FAST_DRIVER holds: sets AC_FAST_DRIVER_MALLOC for the code at `caller`.  Returns false if
 * the requests belong to another module, which called the runtime that this code is part of. */
bool ac_thread_name_caller(ac_thread_t *thread, const void *caller);

/* Forgets what the calling thread knows of its current context, unless that is still current. */
void ac_thread_forget(void);

/* Called after the runtime chose `device` for the calling thread (-1: it failed).  Forgets what the thread knows,
 * unless the runtime allocates from the primary context of that device already.  A runtime before version 12
 * makes its context current with its next call only, so the current context does not tell. */
void ac_thread_forget_device(int device);

/* Adds to a counter of the live page (observe/live.h).  `thread` may be NULL. */
static inline void ac_count_add(ac_thread_t *thread, unsigned counter, uint64_t n) {
    if (thread && !thread->shared) {
        uint64_t *cell = &thread->row->counter[counter];
        __atomic_store_n(cell, __atomic_load_n(cell, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
    } else {
        ac_live_row_t *common = atomic_load_explicit(&ac_live_common, memory_order_acquire);
        __atomic_fetch_add(&common->counter[counter], n, __ATOMIC_RELAXED);
        ac_live_note_added();
    }
}

/* Adds 1 to a cell of a row that belongs to the calling thread alone. */
static inline void ac_count_row(uint64_t *cell) {
    ac_tally_add(cell, 1);
}

static inline void ac_count(ac_thread_t *thread, unsigned counter) {
    ac_count_add(thread, counter, 1);
}

/* Host time spent in the shim is estimated.  Reading the clock costs more than a cache hit, so one
 * call in AC_SAMPLE is timed (by `now`) and counts for all.  The timed calls differ from thread to
 * thread: the first call of a thread is slower than all others and must not count for them. */
enum { AC_SAMPLE_BITS = 7, AC_SAMPLE = 1 << AC_SAMPLE_BITS };

/* Returns the first value of `calls` for the thread with this number. */
static inline uint32_t ac_sample_phase(uint64_t number) {
    return (uint32_t)(number * 0x9e3779b97f4a7c15u >> (64 - AC_SAMPLE_BITS));
}

static inline uint64_t ac_sample_begin(ac_thread_t *thread, uint64_t (*now)(void)) {
    return thread && thread->calls++ % AC_SAMPLE == 0 ? now() : 0;
}

static inline void ac_sample_end(ac_thread_t *thread, uint64_t begin, uint64_t (*now)(void)) {
    if (begin)
        ac_count_add(thread, AC_COUNT_shim_ns, (now() - begin) * AC_SAMPLE);
}

/* Returns the module of a request that `thread` makes by a call from `caller`.  Inside a call of the
 * runtime, it is the module that called the runtime. */
static inline unsigned ac_module_asking(ac_thread_t *thread, const void *caller) {
    if (thread->asks_for)
        return thread->asks_for;
    uint64_t generation = ac_generation_now();
    if (thread->code.generation != generation || !ac_code_holds(&thread->code, caller)) {
        thread->code = ac_module_code(caller);
        thread->code.generation = generation;
    }
    return thread->code.module;
}

/* Makes the library notice when the main thread ends by pthread_exit.  Called by the constructor.
 * Returns false if the library will not notice. */
bool ac_thread_watch_main(void);

/* Returns true if the calling thread may not call the driver.  In a fork child another thread of the
 * parent may have held a lock.  A guest may not call the driver either. */
bool ac_thread_is_refused(void);

/* Makes the library notice when threads end.  Called at activation, before any thread has a record. */
void ac_thread_setup(void);

/* Called in a fork child: other threads may have held the lock. */
void ac_thread_fork_child(void);

#endif
