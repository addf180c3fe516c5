/* Thread records (thread.h). */
#include "track/thread.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "allocator/cache/thread_cache.h"
#include "allocator/carve.h"
#include "device/driver.h"
#include "track/context.h"
#include "track/modules.h"
#include "track/running.h"
#include "observe/raw.h"
#include "observe/start.h"
#include "observe/trace.h"
#include "lock.h"

__thread ac_thread_t *ac_thread_tls __attribute__((tls_model("initial-exec")));

AC_START_DATA static ac_mutex_t lock = AC_MUTEX(LEAF);
AC_START_DATA static ac_thread_t *spare;
/* Maximum number of records of ended threads that keep a cache.  Recalls look at each of them, and
 * the next threads may never come. */
enum { HANDED_ON_MOST = 32 };
AC_START_DATA static _Atomic unsigned handed_on;
AC_START_DATA static pthread_key_t key;
AC_START_DATA static _Atomic bool key_made;
AC_START_DATA static _Atomic uint64_t numbers;

/* Values of the key: for a main thread that has no record yet, and for a thread that is ending. */
static char main_mark, late_mark;

AC_START_DATA static _Atomic bool guests;

void ac_thread_expect_guests(void) {
    if (!atomic_load_explicit(&guests, memory_order_relaxed))
        atomic_store(&guests, true);
}

/* Asks the driver, which alone knows.  The call changes nothing, and a capture of another thread does
 * not forbid it. */
static bool asked_guest(void) {
    size_t available, total;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed = ac_driver.cuThreadExchangeStreamCaptureMode &&
                   ac_driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    CUresult result = ac_driver.cuMemGetInfo_v2(&available, &total);
    if (relaxed)
        ac_driver.cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_ERROR_NOT_PERMITTED;
}

bool ac_thread_is_guest(void) {
    return !ac_thread_tls && atomic_load(&ac_state) == AC_STATE_ACTIVE &&
           (atomic_load(&guests) || atomic_load(&ac_fence_untracked)) && asked_guest();
}

bool ac_thread_is_refused(void) {
    return atomic_load_explicit(&ac_state, memory_order_acquire) == AC_STATE_INERT ||
           ac_thread_is_guest();
}

ac_thread_t *ac_thread_get(void) {
    if (ac_thread_tls)
        return ac_thread_tls;
    if (ac_thread_is_guest())
        return NULL;
    ac_lock(&lock);
    ac_thread_t *thread = spare;
    if (thread)
        spare = thread->next;
    ac_unlock(&lock);
    if (!thread && (thread = ac_carve(sizeof *thread)))
        ac_tell_thread_begins(thread);
    if (!thread) { /* the library cannot follow this thread's work */
        ac_streams_unseen();
        return NULL;
    }
    ac_live_row_t *row = thread->row; /* row of the record's former thread */
    ac_cache_t *caches = thread->caches;
    bool shared = thread->shared;
    memset(thread, 0, offsetof(ac_thread_t, submitter));
    thread->caches = caches;
    if (thread->has_paths)
        memset(thread->path, 0, sizeof thread->path);
    if (thread->has_more)
        memset(thread->more, 0, sizeof thread->more);
    thread->has_paths = thread->has_more = false;
    thread->number = atomic_fetch_add(&numbers, 1) + 1;
    thread->given_back = atomic_load(&ac_given_back);
    thread->calls = ac_sample_phase(thread->number);
    thread->row = row ? row : ac_live_row_take(&shared);
    thread->shared = shared;
    if (caches) {
        atomic_fetch_sub(&handed_on, 1);
        ac_cache_take_over(caches);
    }
    thread->trace = ac_trace_lane_take(thread->number);
    ac_thread_tls = thread;
    thread->late = atomic_load(&key_made) && pthread_getspecific(key) == &late_mark;
    if (atomic_load(&key_made) && !thread->late)
        pthread_setspecific(key, thread);
    return thread;
}

/* Returns a place in `more`.  Handles differ by multiples of one size, and a single multiplication
 * may map them to few places. */
static ac_submit_path_t *way_of(ac_thread_t *thread, const void *stream, unsigned way) {
    uint64_t hash = (uint64_t)(uintptr_t)stream * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 32) * 0xc4ceb9fe1a85ec53u;
    return &thread->more[((hash >> (64 - AC_SUBMIT_MORE_BITS)) + way) % AC_SUBMIT_MORE];
}

ac_submit_path_t *ac_submit_path_among_more(ac_thread_t *thread, ac_submit_path_t *path,
                                            const void *stream) {
    for (unsigned way = 0; thread->has_more && way < AC_SUBMIT_WAYS; way++) {
        ac_submit_path_t *other = way_of(thread, stream, way);
        if (other->stream == stream)
            return other;
        if (!other->stream)
            break;
    }
    return path;
}

ac_submit_path_t *ac_submit_path_place(ac_thread_t *thread, const void *stream) {
    uint64_t generation = ac_generation_now();
    ac_submit_path_t *path = ac_submit_path_first(thread, stream);
    thread->has_paths = true;
    for (unsigned way = 0; path->stream != stream && path->generation == generation; way++) {
        path = way_of(thread, stream, way % AC_SUBMIT_WAYS);
        thread->has_more = true;
        if (way == AC_SUBMIT_WAYS) /* all places are in use */
            break;
    }
    return path;
}

/* Returns true if the context is still current.  If a context was destroyed and its handle came back,
 * the generation has grown. */
static bool is_still_current(const ac_thread_t *thread) {
    CUcontext current;
    return thread->known && thread->generation == ac_generation_now() && ac_is_active() &&
           ac_driver_current(&current) == CUDA_SUCCESS && current == thread->known->cuda.handle;
}

static void forget(ac_thread_t *thread) {
    thread->known = thread->runtime = NULL;
    if (!AC_FAILPOINT(pinned_path_kept))
        thread->pinned.context = NULL;
    ac_thread_clear_fast(thread);
}

void ac_thread_forget(void) {
    ac_thread_t *thread = ac_thread_tls;
    if (thread && !is_still_current(thread))
        forget(thread);
}

void ac_thread_forget_device(int device) {
    ac_thread_t *thread = ac_thread_tls;
    if (!thread)
        return;
    const ac_context_t *context = thread->runtime;
    if (!context || context->created || context->cuda.device != device)
        forget(thread);
}

static bool asks(ac_fast_use_t use) {
    return use == AC_FAST_MALLOC || use == AC_FAST_DRIVER_MALLOC;
}

static void forget_use(ac_fast_t *fast, const ac_cache_t *cache) {
    if (fast->cache == cache)
        fast->code.generation = 0;
}

/* Modules may take turns, so it forgets the uses that ask (above) one by one, without a walk over
 * all. */
void ac_thread_ask_for(ac_thread_t *thread, ac_cache_t *cache, unsigned module) {
    if (ac_cache_asking(cache) == module)
        return;
    forget_use(&thread->fast[AC_FAST_MALLOC], cache);
    forget_use(&thread->fast[AC_FAST_DRIVER_MALLOC], cache);
    ac_cache_ask_for(cache, module);
}

static void set_use(ac_thread_t *thread, ac_fast_use_t use, ac_fast_t fast) {
    if (asks(use))
        ac_thread_ask_for(thread, fast.cache, fast.code.module);
    if (ac_thread_records(thread) || (asks(use) && ac_is_guarding()))
        fast.code.generation = ~fast.code.generation;
    thread->fast[use] = fast;
}

static ac_fast_t fast_for(const void *caller, uint64_t generation, ac_cache_t *cache) {
    ac_fast_t fast = {ac_module_code(caller), cache};
    fast.code.generation = generation;
    return fast;
}

void ac_thread_set_fast(ac_thread_t *thread, ac_fast_use_t use, const void *caller,
                        uint64_t generation, ac_cache_t *cache) {
    set_use(thread, use, fast_for(caller, generation, cache));
}

void ac_thread_set_code(ac_thread_t *thread, ac_fast_use_t use, const void *caller,
                        uint64_t generation, ac_cache_t *cache) {
    ac_fast_t fast = fast_for(caller, generation, cache);
    set_use(thread, use, fast);
    thread->before[thread->replaced++ % AC_FAST_CODES] = fast;
}

void ac_thread_set_driver(ac_thread_t *thread, uint64_t generation, ac_cache_t *cache) {
    set_use(thread, AC_FAST_DRIVER, (ac_fast_t){{.generation = generation}, cache});
}

bool ac_thread_name_caller(ac_thread_t *thread, const void *caller) {
    const ac_fast_t *driver = &thread->fast[AC_FAST_DRIVER];
    if (thread->asks_for)
        return false;
    ac_thread_set_fast(thread, AC_FAST_DRIVER_MALLOC, caller, driver->code.generation, driver->cache);
    return true;
}

bool ac_thread_recall_fast(ac_thread_t *thread, ac_fast_use_t use, const void *caller) {
    uint64_t generation = ac_generation_now();
    for (unsigned i = 0; i < AC_FAST_CODES; i++) {
        const ac_fast_t *fast = &thread->before[i];
        if (ac_code_holds(&fast->code, caller) && fast->code.generation == generation) {
            set_use(thread, use, *fast);
            return true;
        }
    }
    return false;
}

void ac_thread_clear_fast(ac_thread_t *thread) {
    memset(thread->fast, 0, sizeof thread->fast);
    memset(thread->before, 0, sizeof thread->before);
}

static void close_cache(ac_cache_t **at) {
    ac_cache_t *cache = *at;
    *at = cache->sibling;
    ac_cache_close(cache);
}

/* Closes the thread's caches of contexts that ended.  Contexts leave their caches to the threads. */
static void close_gone(ac_thread_t *thread) {
    for (ac_cache_t **at = &thread->caches; *at;)
        if (ac_cache_is_gone(*at)) {
            ac_thread_clear_fast(thread);
            close_cache(at);
        } else {
            at = &(*at)->sibling;
        }
}

/* Closes the caches of a thread that ended.  Its newest cache, emptied, stays with the record for the
 * next thread. */
static void leave_caches(ac_thread_t *thread) {
    while (thread->caches && thread->caches->sibling)
        close_cache(&thread->caches->sibling);
    if (!thread->caches)
        return;
    if (atomic_load(&handed_on) < HANDED_ON_MOST && ac_cache_hand_on(thread->caches))
        atomic_fetch_add(&handed_on, 1);
    else
        close_cache(&thread->caches);
}

static ac_cache_t *open_cache(ac_thread_t *thread, const ac_context_t *context) {
    uint64_t generation = ac_generation_now();
    if (thread->shared || thread->refused == generation)
        return NULL;
    ac_cache_t *cache = NULL;
    close_gone(thread);
    for (int i = 0; i < AC_LIVE_CACHES && !cache; i++) {
        ac_cache_tally_t *tally = &thread->row->cache[i];
        if (tally->device)
            continue;
        cache = ac_cache_open(context->arena, tally);
        if (cache)
            __atomic_store_n(&tally->device, (uint64_t)context->cuda.device + 1,
                             __ATOMIC_RELAXED);
        break;
    }
    if (cache) {
        cache->sibling = thread->caches;
        thread->caches = cache;
    } else {
        thread->refused = generation;
    }
    return cache;
}

ac_cache_t *ac_thread_cache(ac_thread_t *thread, const ac_context_t *context) {
    if (thread->late)
        return NULL;
    for (ac_cache_t *cache = thread->caches; cache; cache = cache->sibling)
        if (cache->arena == context->arena && !ac_cache_is_gone(cache))
            return cache;
    return open_cache(thread, context);
}

/* Destructor of the key.  Other destructors of the thread may still call CUDA after this one: they
 * get a new record, and this one runs once more. */
static void thread_ended(void *arg) {
    ac_thread_t *thread = ac_thread_tls;
    if (!thread && arg == &late_mark)
        return; /* no other destructor came in between: the C library need not call again */
    pthread_setspecific(key, &late_mark);
    if (thread) {
        ac_thread_tls = NULL;
        if (atomic_load(&ac_state) == AC_STATE_ACTIVE)
            leave_caches(thread);
        else
            thread->caches = NULL; /* the caches stay as they are */
        ac_timeline_t *inside = atomic_load(&thread->submitter.inside);
        if (inside) /* the thread ended inside a call, which may have submitted its work */
            ac_fence_leave_as(inside, &thread->submitter);
        ac_tell_thread_gone(thread->number);
        if (!thread->caches) {
            ac_live_row_return(thread->row);
            thread->row = NULL;
        }
        ac_trace_lane_return(thread->trace);
        ac_lock(&lock);
        thread->next = spare;
        spare = thread;
        ac_unlock(&lock);
    }
    if (arg != &late_mark)
        ac_tell_thread_ended(ac_raw_gettid() == getpid());
}

/* Called by the constructor, and again at activation if no key was free then. */
AC_START static void make_key(void) {
    if (!atomic_load(&key_made) && pthread_key_create(&key, thread_ended) == 0)
        atomic_store(&key_made, true);
}

/* Exists from glibc 2.32 on. */
extern char __libc_single_threaded __attribute__((weak));

AC_START bool ac_thread_watch_main(void) {
    make_key();
    /* A thread that is alone is the main thread: usually this saves asking the kernel. */
    bool is_main = (&__libc_single_threaded && __libc_single_threaded) || ac_raw_gettid() == getpid();
    return atomic_load(&key_made) && is_main && !pthread_setspecific(key, &main_mark);
}

void ac_thread_setup(void) {
    make_key();
}

void ac_thread_fork_child(void) {
    ac_mutex_init(&lock, AC_RANK_LEAF);
    spare = NULL; /* the list may be half changed */
    atomic_store(&handed_on, 0);
}
