/* The CUDA device under real threads, with fences by streams, on a driver of this test. Threads
 * come and go, and submit to per-thread streams and to streams that they create and destroy.
 *
 * They record fences and join events, synchronise, capture, and lose their context. The test also
 * serves ThreadSanitizer: the driver's own counters are relaxed, and order nothing. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "device/cuda_int.h"
#include "device/driver.h"
#include "run_suite.h"

/* Threads at a time, lives of each, rounds of each life, and handles of created streams per
 * thread. */
enum { THREADS = 16, LIVES = 20, ROUNDS = 200, NAMES = 3 };

/* Streams by index: the legacy one, this library's, the per-thread ones (by number, from 1 on),
 * and created ones. */
enum {
    LEGACY,
    OURS,
    OWN,
    NAMED = OWN + 2 + THREADS * LIVES,
    STREAMS = NAMED + THREADS * NAMES,
    EVENTS = 4096,
    FIRST = 0x1000
};

typedef struct {
    _Atomic unsigned at[STREAMS]; /* progress of each stream */
} clocks_t;

static struct {
    _Atomic unsigned submitted[STREAMS], complete[STREAMS];
    clocks_t ours, event[EVENTS];
    _Atomic bool gone[STREAMS], destroyed[EVENTS];
    _Atomic unsigned events, errors;
    _Atomic bool capturing, context_gone;
} d;

static ac_cuda_context_t context;
static const CUcontext handle = (CUcontext)0x100;
static __thread uint64_t number;        /* number of this thread */
static __thread unsigned last[STREAMS]; /* covered by the newest record on our stream */

static uint64_t thread_now(void) {
    return number;
}

static void wrong(const char *what) {
    if (atomic_fetch_add(&d.errors, 1) < 10)
        fprintf(stderr, "thread %u: %s\n", (unsigned)number, what);
}

static void called(void) {
    if (atomic_load_explicit(&d.context_gone, memory_order_relaxed))
        wrong("a call in a context that is gone");
}

static CUstream stream_at(unsigned i) {
    return (CUstream)(uintptr_t)(FIRST + 16 * i);
}

static unsigned index_of(CUstream stream) {
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return stream == CU_STREAM_LEGACY ? LEGACY : OWN + (unsigned)number;
    unsigned i = (unsigned)((uintptr_t)stream - FIRST) / 16;
    if (i >= STREAMS || atomic_load_explicit(&d.gone[i], memory_order_relaxed)) {
        wrong("the driver is given a stream that is gone");
        return LEGACY;
    }
    return i;
}

static unsigned get(_Atomic unsigned *figure) {
    return atomic_load_explicit(figure, memory_order_relaxed);
}

static void raise_to(_Atomic unsigned *figure, unsigned n) {
    unsigned seen = get(figure);
    while (seen < n && !atomic_compare_exchange_weak_explicit(
                           figure, &seen, n, memory_order_relaxed, memory_order_relaxed))
        ;
}

static CUresult get_current(CUcontext *out) {
    *out = handle;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *out) {
    *out = 0;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *out, unsigned flags) {
    (void)flags;
    called();
    unsigned made = atomic_fetch_add_explicit(&d.events, 1, memory_order_relaxed) + 1;
    if (made > EVENTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUevent)(uintptr_t)made;
    return CUDA_SUCCESS;
}

static unsigned index_of_event(CUevent event) {
    unsigned i = (unsigned)(uintptr_t)event - 1;
    if (i >= EVENTS || atomic_load_explicit(&d.destroyed[i], memory_order_relaxed)) {
        wrong("the driver is given an event that is gone");
        return 0;
    }
    return i;
}

static CUresult event_destroy(CUevent event) {
    called();
    atomic_store_explicit(&d.destroyed[index_of_event(event)], true, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream) {
    clocks_t *clocks = &d.event[index_of_event(event)];
    unsigned of = index_of(stream);
    called();
    if (atomic_load_explicit(&d.capturing, memory_order_relaxed))
        wrong("a record while a stream captures");
    for (unsigned i = 0; i < STREAMS; i++) {
        unsigned n = of == OURS ? get(&d.ours.at[i]) : 0;
        if (of == LEGACY || of == i)
            n = get(&d.submitted[i]);
        atomic_store_explicit(&clocks->at[i], n, memory_order_relaxed);
        if (of == OURS)
            last[i] = n;
    }
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags) {
    clocks_t *clocks = &d.event[index_of_event(event)];
    (void)flags;
    called();
    if (index_of(stream) == OURS)
        for (unsigned i = 0; i < STREAMS; i++)
            raise_to(&d.ours.at[i], get(&clocks->at[i]));
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *out, unsigned flags) {
    (void)flags;
    called();
    *out = stream_at(OURS);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event) {
    called();
    return index_of_event(event) % 3 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static void complete(void) {
    for (unsigned i = 0; i < STREAMS; i++)
        raise_to(&d.complete[i], get(&d.submitted[i]));
}

static CUresult synchronize(void) {
    called();
    complete();
    return CUDA_SUCCESS;
}

/* Newest submission to each stream that other threads may know of. A kernel may run before its
 * call returns, and tell another thread. */
static _Atomic unsigned told[STREAMS];

static void work_on(CUstream stream, unsigned index) {
    bool marked = ac_cuda_stream_begin(&context, stream);
    unsigned n = atomic_fetch_add_explicit(&d.submitted[index], 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&told[index], n, memory_order_release);
    ac_cuda_stream_end(&context, stream, marked);
}

static _Atomic unsigned fences;

/* Records a fence and checks that it covers all work that this thread knows of. */
static void fence(void) {
    unsigned known[STREAMS];
    void *made = NULL;
    for (unsigned i = 0; i < STREAMS; i++)
        known[i] = atomic_load_explicit(&told[i], memory_order_acquire);
    if (ac_cuda_ops.fence_record(&context, false, &made) != AC_OK)
        return;
    atomic_fetch_add_explicit(&fences, 1, memory_order_relaxed);
    for (unsigned i = 0; i < STREAMS; i++)
        if (last[i] < known[i] && get(&d.complete[i]) < known[i])
            wrong("work that a fence does not cover");
    ac_cuda_ops.fence_query(&context, made);
    ac_cuda_ops.fence_release(&context, made);
}

static void join(CUstream of, CUstream to) {
    void *made = NULL;
    if (ac_cuda_ops.join_record(&context, ac_cuda_stream_key(of), &made) != AC_OK)
        return;
    ac_cuda_ops.join_wait(&context, made, ac_cuda_stream_key(to));
    ac_cuda_ops.fence_release(&context, made);
}

static void capture(void) {
    ac_cuda_capture_begin(NULL);
    atomic_store_explicit(&d.capturing, true, memory_order_relaxed);
    ac_cuda_capture_began(NULL, true);
    work_on(CU_STREAM_PER_THREAD, OWN + (unsigned)number);
    atomic_store_explicit(&d.capturing, false, memory_order_relaxed);
    ac_cuda_capture_ended(NULL);
}

static void program_synchronises(void) {
    uint64_t begun = ac_cuda_lost(&context);
    complete();
    ac_cuda_synced(&context, begun);
}

static _Atomic bool stopped;
static pthread_mutex_t one_captures = PTHREAD_MUTEX_INITIALIZER;

static void *live(void *of) {
    number = (uint64_t)(uintptr_t)of;
    unsigned place = (unsigned)(number - 1) / LIVES, own = OWN + (unsigned)number;
    unsigned random = (unsigned)number * 2654435761u;
    for (unsigned round = 0; round < ROUNDS && !atomic_load(&stopped); round++) {
        unsigned named = NAMED + place * NAMES + round % NAMES;
        random = random * 1103515245u + 12345u;
        work_on(CU_STREAM_PER_THREAD, own);
        work_on(stream_at(named), named);
        switch (random >> 16 & 15) {
        case 0: /* another stream gets its handle */
            ac_cuda_stream_retire(&context, stream_at(named), true);
            atomic_store_explicit(&d.gone[named], true, memory_order_relaxed);
            sched_yield();
            atomic_store_explicit(&d.gone[named], false, memory_order_relaxed);
            break;
        case 1:
            join(stream_at(named), CU_STREAM_PER_THREAD);
            break;
        case 2:
            program_synchronises();
            break;
        case 3:
            if (pthread_mutex_trylock(&one_captures) == 0) {
                capture();
                pthread_mutex_unlock(&one_captures);
            }
            break;
        case 4:
            ac_cuda_ops.synchronize(&context, 0);
            break;
        default:
            fence();
        }
    }
    return NULL;
}

static void *place(void *first) {
    for (unsigned i = 0; i < LIVES; i++) {
        pthread_t thread;
        void *of = (void *)((uintptr_t)first + i);
        if (pthread_create(&thread, NULL, live, of) != 0) {
            wrong("no thread");
            return NULL;
        }
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void begin(void) {
    ac_driver.cuCtxGetCurrent = get_current;
    ac_driver.cuCtxGetDevice = get_device;
    ac_driver.cuCtxSynchronize = synchronize;
    ac_driver.cuEventCreate = event_create;
    ac_driver.cuEventDestroy_v2 = event_destroy;
    ac_driver.cuEventRecord = event_record;
    ac_driver.cuEventQuery = event_query;
    ac_driver.cuStreamWaitEvent = wait_event;
    ac_driver.cuStreamCreate = stream_create;
    ac_driver.cuCtxRecordEvent = NULL;
    ac_cuda_thread = thread_now;
    ac_cuda_context_init(&context, handle, 0, 0, AC_RECORD_STREAMS);
}

static pthread_t at[THREADS];

static void start(void) {
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&at[i], NULL, place, (void *)(1 + i * LIVES)), 0);
}

static void finish(void) {
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(at[i], NULL);
    unsigned errors = get(&d.errors), events = get(&d.events);
    ck_assert_uint_eq(errors, 0);
    ck_assert_uint_le(events, EVENTS);
}

START_TEST(fences_cover_what_threads_know_of) {
    start();
    finish();
    unsigned recorded = get(&fences);
    int users = atomic_load(&context.users);
    ck_assert_uint_gt(recorded, THREADS * LIVES * ROUNDS / 4);
    ck_assert_uint_eq(context.naming + context.awaiting, 0);
    ck_assert_int_eq(users, 0);
}
END_TEST

/* The context ends while the threads run. No call of this library is inside at that time, and
 * none follows. */
START_TEST(no_call_outlives_the_context) {
    start();
    while (get(&d.submitted[NAMED]) < ROUNDS)
        sched_yield();
    ac_cuda_context_dying(&context);
    atomic_store_explicit(&d.context_gone, true, memory_order_relaxed);
    ac_cuda_context_kill(&context);
    atomic_store(&stopped, true);
    finish();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_threads");
    TCase *tests = tcase_create("cuda_threads");
    tcase_add_checked_fixture(tests, begin, NULL);
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, fences_cover_what_threads_know_of);
    tcase_add_test(tests, no_call_outlives_the_context);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
