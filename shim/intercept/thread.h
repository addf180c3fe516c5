/* What a thread of the program knows: its current context and its row of counters.  One pointer
 * of thread-local storage; the record is ours, made at the thread's first hooked CUDA call. */
#ifndef AC_THREAD_H
#define AC_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/single.h"
#include "observe/live.h"

struct ac_context;
struct ac_trace_lane;

typedef struct ac_thread {
    uint64_t generation;             /* ac_generation when `known` and `runtime` were set */
    struct ac_context *known;        /* the driver's current context, proved by a real call */
    struct ac_context *runtime;      /* the context that cudaMalloc really used last */
    const struct ac_runtime *prover; /* whose cudaMalloc that was (runtimes.h) */
    struct ac_context *last_alloc;   /* context of the newest cuMemAlloc hook call */
    void *stream;                    /* newest stream handle resolved, and its context */
    uint64_t stream_generation;
    struct ac_context *stream_context;
    ac_joins_t joins;            /* streams that wait for the turn (single.h) */
    struct ac_trace_lane *trace; /* where allocations are recorded; NULL: nothing is */
    ac_live_row_t *row;          /* counters; shared: additions must be atomic */
    bool shared;
    uint64_t number;        /* unique for the life of the process */
    uint32_t calls;         /* of the timed hooks: one in AC_SAMPLE is timed */
    struct ac_thread *next; /* spare records */
} ac_thread_t;

extern __thread ac_thread_t *ac_thread_tls __attribute__((tls_model("initial-exec")));

/* Grows whenever something another thread remembers may have become wrong: a context or stream
 * was destroyed, exit began, the cache was switched off. */
extern _Atomic uint64_t ac_generation;

static inline uint64_t ac_generation_now(void) {
    return atomic_load_explicit(&ac_generation, memory_order_acquire);
}

/* The calling thread's record, made if needed; NULL when host memory is short. */
ac_thread_t *ac_thread_get(void);

/* Forget what the calling thread knows of its current context. */
void ac_thread_forget(void);

/* Add to a counter of the live page (observe/live.h); `thread` may be NULL. */
static inline void ac_count_add(ac_thread_t *thread, unsigned counter, uint64_t n) {
    if (thread && !thread->shared) {
        uint64_t *cell = &thread->row->counter[counter];
        __atomic_store_n(cell, __atomic_load_n(cell, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
    } else {
        ac_live_row_t *common = atomic_load_explicit(&ac_live_common, memory_order_acquire);
        __atomic_fetch_add(&common->counter[counter], n, __ATOMIC_RELAXED);
    }
}

static inline void ac_count(ac_thread_t *thread, unsigned counter) {
    ac_count_add(thread, counter, 1);
}

/* Host time spent in the shim is estimated: reading the clock costs more than a cache hit, so one
 * call in AC_SAMPLE is timed (by `now`) and counts for all. */
enum { AC_SAMPLE = 128 };

static inline uint64_t ac_sample_begin(ac_thread_t *thread, uint64_t (*now)(void)) {
    return thread && thread->calls++ % AC_SAMPLE == 0 ? now() : 0;
}

static inline void ac_sample_end(ac_thread_t *thread, uint64_t begin, uint64_t (*now)(void)) {
    if (begin)
        ac_count_add(thread, AC_COUNT_shim_ns, (now() - begin) * AC_SAMPLE);
}

/* Notice when the main thread leaves by pthread_exit; from the constructor. */
void ac_thread_watch_main(void);

/* Have the end of threads noticed; from activation, before any thread has a record. */
void ac_thread_setup(void);

/* In a fork child: other threads may have held our lock. */
void ac_thread_fork_child(void);

#endif
