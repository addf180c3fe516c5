/* The generated bodies: CU_SUBMIT (work for a stream) and CU_RETRY (may need memory). */
#include "hooks/body.h"

#include "device/driver.h"
#include "hooks/attributes.h"
#include "hooks/copies.h"
#include "track/graphs.h"
#include "hooks/direct_hooks.h"
#include "track/observers.h"
#include "track/pinned.h"
#include "track/reach.h"
#include "hooks/submit_hooks.h"
#include "failpoint.h"

typedef struct {
    bool wait;
    uint64_t need, freed; /* freed: by this thread */
} ac_trim_t;

static void trim_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    ac_trim_t *trim = arg;
    /* A lower bound does not tell how much would be enough. */
    uint64_t enough = trim->need & AC_NEED_LEAST ? 0 : ac_cuda_host_left(device);
    trim->freed += trim->wait
                       ? ac_allocator_trim_for(allocator, trim->need & ~AC_NEED_LEAST, enough)
                       : ac_allocator_trim(allocator, false);
}

static void trim_addresses(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)device;
    *(uint64_t *)arg += ac_allocator_trim_addresses(allocator);
}

bool ac_trim_for_driver(ac_thread_t *thread, bool wait, uint64_t need) {
    ac_trim_t trim = {.wait = wait, .need = need};
    AC_WINDOW(driver_is_full);
    if (need == AC_NEED_ADDRESSES) { /* programs probe with huge sizes: idle memory is kept */
        if (!wait)
            ac_device_each(trim_addresses, &trim.freed);
        return trim.freed;
    }
    ac_observe_late();
    ac_device_each(trim_device, &trim);
    trim.freed += ac_pinned_trim(false);
    if (trim.freed)
        ac_count(thread, AC_COUNT_oom_trims);
    return ac_thread_given_back(thread);
}

/* --- free_sync:auto --- */

static bool kernels_show(void) {
    return __builtin_expect(atomic_load_explicit(&ac_holds_shown, memory_order_relaxed), 0) &&
           atomic_load_explicit(&ac_shows, memory_order_relaxed);
}

/* Records visible work after its call succeeded.  AC_SHOW_AWAITED: the host has already seen its result. */
static void show(const ac_submit_t *submit, ac_show_t what) {
    if (what == AC_SHOW_COPY)
        ac_shown_copy(submit->context, submit->stream);
    else if (what == AC_SHOW_KERNEL)
        ac_shown_kernel(submit->context, submit->stream);
    else
        ac_shown_awaited_stream(submit->context, submit->stream);
}

/* Returns true if the memory at the address belongs to the context of the submission. */
static bool owns(const ac_submit_t *submit, uint64_t address) {
    const ac_arena_t *arena = ac_block_arena(address);
    return arena && submit->context && arena == submit->context->arena;
}

/* The kind of visible work that the call of `symbol` is. */
#define SHOWN(symbol)                                                                            \
    (atomic_load_explicit(&ac_shows, memory_order_relaxed) ? AC_SHOWS(LONG_, symbol)             \
                                                           : AC_SHOW_NOTHING)

/* Returns true if kernels are visible work and the record of the stream has none yet. */
static bool is_new(const ac_timeline_t *timeline, CUstream stream) {
    return kernels_show() && !ac_shown_knows(ac_context_of_timeline(timeline), stream);
}

/* Remembers the stream's timeline for the short way of the next submission. */
static void remember(ac_thread_t *thread, const ac_context_t *context, CUstream stream,
                     uint64_t generation) {
    if (is_new(context->timeline, stream))
        return;
    if (thread->shared || ac_cuda_stream_marks(&context->cuda) || !ac_barrier_is_free())
        return;
    *ac_submit_path_place(thread, stream) = (ac_submit_path_t){
        .stream = (void *)stream, .generation = generation, .timeline = context->timeline};
}

/* Begins a submission to an unknown context: the driver does not tell it, or refuses the stream. */
static bool stray_begin(ac_submit_t *submit, CUstream stream) {
    *submit = (ac_submit_t){.stream = stream, .stray = !ac_fence_is_unseen()};
    if (submit->stray)
        ac_fence_untracked_begin((uintptr_t)stream <= 2 ? 0 : ac_cuda_stream_key(stream));
    return true;
}

static void stray_end(const ac_submit_t *submit, ac_thread_t *thread, CUresult result) {
    if (result == CUDA_SUCCESS)
        ac_context_unseen();
    if (submit->stray)
        ac_fence_untracked_end(result == CUDA_SUCCESS);
    ac_count(thread, AC_COUNT_submissions);
}

bool ac_submit_begin(ac_submit_t *submit, ac_thread_t *thread, CUstream stream, bool per_thread) {
    uint64_t generation = ac_generation_now(); /* first: the next submission sees a later change */
    if (!thread)
        return false; /* not active, in a host function, or host memory is short */
    ac_context_t *context = ac_context_of_stream(thread, stream);
    if (!context)
        return stray_begin(submit, stream);
    if (!stream)
        stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    submit->context = context;
    submit->stream = stream;
    submit->holds = false;
    /* Frees that wait for a fence get it now: a fence behind later work would take longer. */
    if (ac_fence_full(context->timeline))
        ac_fence_close(context->timeline, atomic_load(&ac_fence_shared));
    submit->marked = ac_cuda_stream_begin(&context->cuda, stream);
    ac_fence_list(&thread->submitter);
    submit->slotted = ac_fence_enter_as(context->timeline, &thread->submitter);
    if (submit->slotted)
        remember(thread, context, stream, generation);
    else
        ac_fence_enter(context->timeline);
    ac_sole_enter(context->timeline, ac_cuda_stream_key(stream), &thread->joins);
    return true;
}

void ac_submit_reach(const ac_submit_t *submit, uint64_t address) {
    if (ac_context_count() < 2 || atomic_load_explicit(&ac_fence_shared, memory_order_relaxed))
        return;
    ac_arena_t *owner = ac_block_arena(address);
    if (owner && submit->context && owner != submit->context->arena)
        ac_context_cross();
}

/* Work that may hold its stream was captured or made a node: any graph may contain it. */
static _Atomic bool graphs_hold;

void ac_graphs_hold(void) {
    ac_thread_expect_guests();
    atomic_store(&graphs_hold, true);
}

static void launch_graph(ac_submit_t *submit) {
    if (atomic_load_explicit(&graphs_hold, memory_order_relaxed))
        ac_submit_hold(submit);
}

void ac_submit_hold(ac_submit_t *submit) {
    ac_thread_expect_guests(); /* it may be a host function */
    if (ac_cuda_is_capturing(NULL))
        ac_graphs_hold();
    if (!submit->context)
        return;
    submit->holds = true;
    ac_fence_hold(submit->context->timeline, false);
    ac_sole_hold(submit->context->timeline);
}

/* --- the short way: for streams of the thread's last submissions --- */

#define LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define NOINLINE            __attribute__((noinline))
#define COLD                __attribute__((cold)) NOINLINE
#define INLINE              __attribute__((always_inline)) static inline

/* Returns true if the fast path's record of its stream is still valid. */
INLINE bool is_of_now(const ac_submit_path_t *path) {
    return AC_FAILPOINT(path_generation_ignored) || path->generation == ac_generation_now();
}

/* Returns true if the timeline's context is current: a default stream belongs to the current context. */
INLINE bool is_current(const ac_thread_t *thread, const ac_timeline_t *timeline) {
    return AC_FAILPOINT(path_context_ignored) ||
           (ac_context_of_timeline(timeline) == thread->known &&
            !atomic_load(&ac_current_unseen));
}

/* Checks the fast path again, after the clock moved or if the path belongs to another stream.  The thread
 * is inside the path's timeline.  Returns false if the path does not serve; the thread has left then. */
NOINLINE static bool refresh(ac_thread_t *thread, ac_submit_path_t *path, CUstream stream) {
    ac_timeline_t *timeline = path->timeline;
    uint64_t clock = ac_fence_now(); /* first: any later change moves the clock */
    if (LIKELY(path->stream == (void *)stream && is_of_now(path)) &&
        ((uintptr_t)stream > 2 || is_current(thread, timeline)) && !ac_fence_full(timeline) &&
        !is_new(timeline, stream)) {
        bool many = ac_sole_mode(atomic_load(&timeline->single.word)) >= AC_SOLE_MANY;
        uint64_t key = many ? 0 : ac_cuda_stream_key(stream); /* queried only if it matters */
        if (LIKELY(many || ac_sole_passes(&timeline->single, key))) {
            AC_WINDOW(lane_passes);
            if (AC_FAILPOINT(path_clock_late))
                clock = ac_fence_now();
            bool more = atomic_load_explicit(&ac_streams_tracked, memory_order_acquire);
            path->clock = more ? 0 : clock;
            if (many && !more && !kernels_show())
                thread->looked = (ac_looked_t){timeline, clock};
        } else {
            path->clock = 0;
            ac_sole_pass(timeline, key, &thread->joins);
        }
        ac_fence_mark(timeline);
        return true;
    }
    atomic_store_explicit(&thread->submitter.inside, NULL, memory_order_release);
    return false;
}

/* Returns true if the thread checked the timeline for another stream since the clock moved, and the
 * result holds for all streams. */
INLINE bool looked(const ac_thread_t *thread, ac_submit_path_t *path) {
    if (thread->looked.clock != ac_fence_now() ||
        (thread->looked.timeline != path->timeline && !AC_FAILPOINT(looked_in_another_context)))
        return false;
    path->clock = thread->looked.clock;
    return true;
}

/* Enters the fast path's timeline if the path belongs to the stream and is still valid.  Takes the slot
 * first.  A submission of a signal handler before that may change the fast path; one after that does not. */
INLINE bool enter_path(ac_thread_t *thread, ac_submit_path_t *path, CUstream stream) {
    ac_submitter_t *self = &thread->submitter;
    if (UNLIKELY(atomic_load_explicit(&self->inside, memory_order_relaxed) != NULL))
        return false;
    atomic_store_explicit(&self->inside, path->timeline, memory_order_relaxed);
    ac_barrier_light_free(); /* `remember` stores a fast path only if ac_barrier_is_free */
    if (LIKELY(path->stream == (void *)stream) &&
        (LIKELY(path->clock == ac_fence_now()) || looked(thread, path)) &&
        LIKELY(is_of_now(path)) &&
        LIKELY((uintptr_t)stream > 2 || is_current(thread, path->timeline)))
        return true;
    return refresh(thread, path, stream);
}

/* Does the work after the call that is rarely due.  The clock moved during the call: streams may have to
 * be marked, or the order of streams followed.  Or the result may show that the context is broken. */
NOINLINE static void settle(const ac_submit_path_t *path, CUresult result) {
    ac_context_t *context = ac_context_of_timeline(path->timeline);
    CUstream stream = path->stream;
    ac_cuda_stream_used(&context->cuda, stream);
    if (atomic_load_explicit(&ac_streams_tracked, memory_order_acquire))
        ac_arena_submitted(context->arena, stream == CU_STREAM_LEGACY);
    ac_context_note(context, result);
}

/* For the tests' library (failpoint.h). */
#define SPOILT_LONG(symbol)  (AC_FAILPOINT(long_way_unseen) || AC_ROW_FAILPOINT(symbol, long))
#define SPOILT_SHORT(symbol) (AC_FAILPOINT(short_way_unseen) || AC_ROW_FAILPOINT(symbol, short))
#define MARKED(symbol, stream, per_thread)                                                       \
    (AC_ROW_FAILPOINT(symbol, elsewhere) ? elsewhere(stream, per_thread) : (stream))

#define RETRIED(symbol, result, need, call)                                                      \
    do {                                                                                         \
        if (AC_ROW_FAILPOINT(symbol, once))                                                      \
            (result) = (call);                                                                   \
        else                                                                                     \
            AC_RETRY(result, need, call);                                                        \
    } while (0)
#define HEARD(symbol, result) (AC_ROW_FAILPOINT(symbol, deaf) ? CUDA_SUCCESS : (result))

/* Returns a default stream other than `stream`. */
INLINE CUstream elsewhere(CUstream stream, bool per_thread) {
    CUstream meant = ac_stream_resolved(stream, per_thread);
    return meant == CU_STREAM_LEGACY ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* Defines the hook of a submission: the short way if `plain` is true, else long_`symbol`.  The short way
 * has the same effect without an atomic read-modify-write and without a taken branch.  It reads the clock
 * twice and adds to two counters. */
#define SUBMISSION(symbol, params, args, stream_of, per_thread, plain)                           \
    CUresult symbol params {                                                                     \
        ac_thread_t *thread = ac_thread_tls;                                                     \
        symbol##_fn *real = AC_REAL_KNOWN(symbol);                                               \
        CUstream stream = ac_stream_resolved(stream_of, per_thread);                             \
        if (UNLIKELY(!thread))                                                                   \
            return long_##symbol args;                                                           \
        if (UNLIKELY(!real))                                                                     \
            return long_##symbol args;                                                           \
        if (UNLIKELY(!(plain)))                                                                  \
            return long_##symbol args;                                                           \
        if (SPOILT_SHORT(symbol) && ac_submit_path_of(thread, stream)->stream == stream)         \
            return real args;                                                                    \
        ac_submit_path_t *path = ac_submit_path_of(thread, stream);                              \
        if (UNLIKELY(!enter_path(thread, path, stream)))                                         \
            return long_##symbol args;                                                           \
        uint64_t *counter = thread->row->counter;                                                \
        ac_count_row(&counter[AC_COUNT_HOOKS + AC_HOOK_##symbol]);                               \
        ac_count_row(&counter[AC_COUNT_submissions]);                                            \
        CUresult result = real args;                                                             \
        if (UNLIKELY(result != CUDA_SUCCESS) && !AC_ROW_FAILPOINT(symbol, once))                 \
            AC_RETRY_AFTER(result, AC_NEED_UNKNOWN, real args);                                  \
        leave_path(thread, path, HEARD(symbol, result));                                         \
        return result;                                                                           \
    }

INLINE void leave_path(ac_thread_t *thread, const ac_submit_path_t *path, CUresult result) {
    ac_fence_given();
    if (UNLIKELY(path->clock != ac_fence_now()) || UNLIKELY(result != CUDA_SUCCESS)) {
        settle(path, result);
        ac_fence_mark(path->timeline);
    }
    atomic_store_explicit(&thread->submitter.inside, NULL, memory_order_release);
}

enum { ATTRIBUTES = 32 };
typedef struct {
    CUlaunchConfig config;
    CUlaunchAttribute attrs[ATTRIBUTES];
} launch_t;

/* Returns a copy of the launch that keeps its stream's order, which is always correct but slower.  Returns
 * `config` itself if the copy has no room for its attributes. */
static const CUlaunchConfig *in_order(const CUlaunchConfig *config, launch_t *copy) {
    if (config->numAttrs > ATTRIBUTES)
        return config;
    copy->config = *config;
    copy->config.attrs = copy->attrs;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        copy->attrs[i] = config->attrs[i];
        if (copy->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            copy->attrs[i].value.programmaticStreamSerializationAllowed = 0;
    }
    return &copy->config;
}

/* Returns the launch to give to the driver.  It keeps the stream's order until no memory is known to rely
 * on that order.  The thread does not wait for that moment, because it may need more launches of the
 * program.  Captured launches are not work yet; the launch of their graph is ordered as a whole. */
static const CUlaunchConfig *ordered(ac_submit_t *submit, const CUlaunchConfig *config,
                                     launch_t *copy) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned means = ac_launch_seen(config);
    if (means & AC_LAUNCH_HOLDS)
        ac_submit_hold(submit);
    if (!(means & AC_LAUNCH_EARLY))
        return config;
    if (!submit->context)
        return in_order(config, copy);
    if (ac_cuda_is_capturing(NULL) && ac_driver.cuStreamIsCapturing &&
        ac_driver.cuStreamIsCapturing(submit->stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return config;
    /* An unknown attribute cannot be removed.  If the copy has no room, no attribute can be removed. */
    bool wait = (means & AC_LAUNCH_UNKNOWN) || config->numAttrs > ATTRIBUTES;
    if (wait)
        ac_sole_settle(submit->context->timeline, true);
    bool ready = ac_sole_unorder(submit->context->timeline) &&
                 ac_arena_unordered(submit->context->arena, wait);
    return ready || wait ? config : in_order(config, copy);
}

/* Returns true if all attributes are harmless. */
static bool is_plain(const CUlaunchConfig *config) {
    for (unsigned i = 0; config->attrs && i < config->numAttrs; i++)
        if (!ac_attribute_is_harmless(config->attrs[i].id))
            return false;
    return true;
}

#define LAUNCH_CONFIGURED(symbol, per_thread)                                                    \
    COLD static CUresult long_##symbol(const CUlaunchConfig *config, CUfunction function,        \
                                       void **params, void **extra) {                            \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (AC_FAILPOINT(body_unseen))                                                           \
            return real(config, function, params, extra);                                        \
        if (SPOILT_LONG(symbol))                                                                 \
            return real(config, function, params, extra);                                        \
        ac_submit_t submit;                                                                      \
        launch_t copy;                                                                           \
        CUresult result;                                                                         \
        bool kept = ac_submit_begin(&submit, thread,                                             \
                                    MARKED(symbol, config ? config->hStream : NULL, per_thread), \
                                    per_thread);                                                 \
        if (kept)                                                                                \
            config = ordered(&submit, config, &copy);                                            \
        RETRIED(symbol, result, AC_NEED_UNKNOWN, real(config, function, params, extra));         \
        if (kept)                                                                                \
            ac_submit_end(&submit, thread, HEARD(symbol, result));                               \
        if (kept && kernels_show() && result == CUDA_SUCCESS)                                    \
            show(&submit, AC_SHOW_KERNEL);                                                       \
        return result;                                                                           \
    }                                                                                            \
    SUBMISSION(symbol,                                                                           \
               (const CUlaunchConfig *config, CUfunction function, void **params, void **extra), \
               (config, function, params, extra), config ? config->hStream : NULL, per_thread,   \
               config != NULL && is_plain(config))
LAUNCH_CONFIGURED(cuLaunchKernelEx, false)
LAUNCH_CONFIGURED(cuLaunchKernelEx_ptsz, true)

void ac_submit_end(const ac_submit_t *submit, ac_thread_t *thread, CUresult result) {
    if (!submit->context) {
        stray_end(submit, thread, result);
        return;
    }
    ac_cuda_stream_end(&submit->context->cuda, submit->stream, submit->marked);
    if (submit->slotted)
        ac_fence_leave_as(submit->context->timeline, &thread->submitter);
    else
        ac_fence_leave(submit->context->timeline);
    if (submit->holds)
        ac_fence_hold(submit->context->timeline, true);
    if (atomic_load_explicit(&ac_streams_tracked, memory_order_acquire))
        ac_arena_submitted(submit->context->arena, submit->stream == CU_STREAM_LEGACY);
    ac_count(thread, AC_COUNT_submissions);
    ac_context_note(submit->context, result);
}

/* One launch on several devices, with a stream on each. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count,
                                              unsigned flags) {
    AC_ENTER_OR_RETURN(cuLaunchCooperativeKernelMultiDevice);
    if (SPOILT_LONG(cuLaunchCooperativeKernelMultiDevice))
        return real(launches, count, flags);
    enum { MOST = 64 };
    ac_submit_t submit[MOST];
    bool kept[MOST] = {false};
    CUresult result;
    if (ac_is_guest(thread))
        return real(launches, count, flags);
    if (count > MOST && thread)
        ac_context_unseen();
    for (unsigned i = 0; launches && i < count && i < MOST; i++) {
        kept[i] = ac_submit_begin(
            &submit[i], thread,
            MARKED(cuLaunchCooperativeKernelMultiDevice, launches[i].hStream, false), false);
        if (kept[i])
            ac_submit_hold(&submit[i]); /* like any cooperative launch */
    }
    if (!AC_ROW_FAILPOINT(cuLaunchCooperativeKernelMultiDevice, blind))
        ac_context_cross();
    RETRIED(cuLaunchCooperativeKernelMultiDevice, result, AC_NEED_UNKNOWN,
            real(launches, count, flags));
    for (unsigned i = 0; i < count && i < MOST; i++)
        if (kept[i])
            ac_submit_end(&submit[i], thread,
                          HEARD(cuLaunchCooperativeKernelMultiDevice, result));
    for (unsigned i = 0; result == CUDA_SUCCESS && kernels_show() && i < count && i < MOST; i++)
        if (kept[i])
            show(&submit[i], AC_SHOW_KERNEL);
    return result;
}

#define REACH_NONE    ((void)0)
#define REACH_1(p)    ac_submit_reach(&submit, (uint64_t)(p))
#define REACH_2(p, q) (REACH_1(p), AC_FAILPOINT(second_address_ignored) ? (void)0 : REACH_1(q))
#define REACH_MANY    ac_context_cross()
#define REACH_GRAPH(exec)                                                                        \
    (launch_graph(&submit), ac_context_cross(), ac_graphs_launched(AC_EXEC(exec)))
#define REACH_HOLDS      ac_submit_hold(&submit)
#define REACH_HOLDS_1(p) (REACH_HOLDS, REACH_1(p))
#define REACH_HOLDS_MANY (REACH_HOLDS, REACH_MANY)
#define REACH_BYTES(p, count, size)            REACH_1(p)
#define REACH_COPY(p, q, bytes)                REACH_2(p, q)
#define REACH_ROWS(p, pitch, width, size, n)   REACH_1(p)
#define REACH_PEERS(p, q, bytes)               REACH_MANY
#define REACH_2D(copy)                         REACH_MANY
#define REACH_3D(copy)                         REACH_MANY
#define REACH_3D_PEER(copy)                    REACH_MANY
#define REACH_BATCH(to, from, bytes, n, bad)   REACH_MANY
#define REACH_3D_BATCH(copies, n, bad)         REACH_MANY
enum { MODE_LEGACY, MODE_PTDS };

/* Returns true if submissions to the stream need no check for visible work. */
INLINE bool shows_nothing(ac_thread_t *thread, CUstream stream) {
    if (LIKELY(!atomic_load_explicit(&ac_shows, memory_order_relaxed)))
        return true;
    const ac_submit_path_t *path = ac_submit_path_of(thread, stream);
    return path->stream == (void *)stream && path->timeline &&
           atomic_load(&ac_context_of_timeline(path->timeline)->shown.awaited);
}

/* SHORT_`reach`: true if `reach` has nothing to do.  A call that may hold its stream takes the long way.
 * A call takes it, too, if it names memory that may belong to a context that no fence covers. */
#define SHORT_REACH_NONE       true
#define SHORT_REACH_1(p)       reaches_no_other()
#define SHORT_REACH_2(p, q)    reaches_no_other()
#define SHORT_REACH_MANY       reaches_no_other()
#define SHORT_REACH_GRAPH(e)   false
#define SHORT_REACH_HOLDS      false
#define SHORT_REACH_HOLDS_1(p) false
#define SHORT_REACH_HOLDS_MANY false
#define SHORT_REACH_BYTES(...)     (reaches_no_other() && HELD_REACH_BYTES(__VA_ARGS__))
#define SHORT_REACH_COPY(...)      (reaches_no_other() && HELD_REACH_COPY(__VA_ARGS__))
#define SHORT_REACH_ROWS(...)      (reaches_no_other() && HELD_REACH_ROWS(__VA_ARGS__))
#define SHORT_REACH_PEERS(...)     (reaches_no_other() && HELD_REACH_COPY(__VA_ARGS__))
#define SHORT_REACH_2D(copy)       (reaches_no_other() && ac_reach_2d(thread, copy))
#define SHORT_REACH_3D(copy)       (reaches_no_other() && ac_reach_3d(thread, copy))
#define SHORT_REACH_3D_PEER(copy)  (reaches_no_other() && ac_reach_3d_peer(thread, copy))
#define SHORT_REACH_BATCH(...)     (reaches_no_other() && HELD_REACH_BATCH(__VA_ARGS__))
#define SHORT_REACH_3D_BATCH(...)  (reaches_no_other() && HELD_REACH_3D_BATCH(__VA_ARGS__))

/* HELD_`reach`: true if the program may use the bytes that the call names (reach.h). */
#define HELD_REACH_NONE               true
#define HELD_REACH_1(p)               true
#define HELD_REACH_2(p, q)            true
#define HELD_REACH_MANY               true
#define HELD_REACH_GRAPH(e)           true
#define HELD_REACH_HOLDS              true
#define HELD_REACH_HOLDS_1(p)         true
#define HELD_REACH_HOLDS_MANY         true
#define HELD_REACH_BYTES(p, count, size) \
    ac_reach_ok(thread, AC_NAMED_TO, p, ac_reach_bytes(count, size))
#define HELD_REACH_COPY(p, q, bytes)                                                             \
    (ac_reach_ok(thread, AC_NAMED_TO, p, bytes) && ac_reach_ok(thread, AC_NAMED_FROM, q, bytes))
#define HELD_REACH_ROWS(p, pitch, width, size, n) ac_reach_rows(thread, p, pitch, width, size, n)
#define HELD_REACH_PEERS              HELD_REACH_COPY
#define HELD_REACH_2D(copy)           ac_reach_2d(thread, copy)
#define HELD_REACH_3D(copy)           ac_reach_3d(thread, copy)
#define HELD_REACH_3D_PEER(copy)      ac_reach_3d_peer(thread, copy)
#define HELD_REACH_BATCH(to, from, bytes, n, bad) ac_reach_batch(thread, to, from, bytes, n, bad)
#define HELD_REACH_3D_BATCH(copies, n, bad)       ac_reach_3d_batch(thread, copies, n, bad)

/* EMPTY_`reach`: makes the call copy or fill nothing.  The driver then refuses it for any reason except
 * its memory. */
#define EMPTY_REACH_NONE               (void)0
#define EMPTY_REACH_1(p)               (void)0
#define EMPTY_REACH_2(p, q)            (void)0
#define EMPTY_REACH_MANY               (void)0
#define EMPTY_REACH_GRAPH(e)           (void)0
#define EMPTY_REACH_HOLDS              (void)0
#define EMPTY_REACH_HOLDS_1(p)         (void)0
#define EMPTY_REACH_HOLDS_MANY         (void)0
#define EMPTY_REACH_BYTES(p, count, size) (count) = 0
#define EMPTY_REACH_COPY(p, q, bytes)     (bytes) = 0
#define EMPTY_REACH_ROWS(p, pitch, width, size, n) (n) = 0
#define EMPTY_REACH_PEERS              EMPTY_REACH_COPY
#define EMPTY_REACH_2D(copy) (copy) = &(CUDA_MEMCPY2D){.Height = 0}
#define EMPTY_REACH_3D(copy) (copy) = &(CUDA_MEMCPY3D){.Height = 0}
#define EMPTY_REACH_3D_PEER(copy) (copy) = &(CUDA_MEMCPY3D_PEER){.Height = 0}
#define EMPTY_REACH_BATCH(to, from, bytes, n, bad) (void)0
#define EMPTY_REACH_3D_BATCH(copies, n, bad)       (void)0

/* Returns true if a call for `stream` has no other reason to be refused than the memory that it names. */
static bool refuses(ac_thread_t *thread, CUstream stream) {
    const ac_context_t *context = ac_context_of_stream(thread, stream);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool captures = ac_cuda_is_capturing(NULL) && ac_driver.cuStreamIsCapturing;
    return context && !ac_fence_broken(context->timeline) &&
           (!captures || (!ac_driver.cuStreamIsCapturing(stream, &status) &&
                          status != CU_STREAM_CAPTURE_STATUS_INVALIDATED));
}

/* Answers a call that names memory which the program may not use.  For a call without a stream, the driver
 * first gets the empty call and may report another error.  With a stream, an empty call would be queued. */
#define REFUSE(args, stream_of, synchronous, empty)                                              \
    do {                                                                                         \
        if (synchronous) {                                                                       \
            empty;                                                                               \
            CUresult result = real args;                                                         \
            return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;                   \
        }                                                                                        \
        if (refuses(thread, stream_of))                                                          \
            return CUDA_ERROR_INVALID_VALUE;                                                     \
    } while (0)

INLINE bool reaches_no_other(void) {
    return ac_context_count() < 2 || atomic_load_explicit(&ac_fence_shared, memory_order_relaxed);
}

#define CU_FN(symbol, ...)
#define CU_HOOK(symbol, ...)
#define CU_SUBMIT(symbol, name, since, mode, params, args, stream_of, reach)                     \
    COLD static CUresult long_##symbol params {                                                  \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (thread && UNLIKELY(!(HELD_##reach)))                                                 \
            REFUSE(args, stream_of, sizeof #stream_of == sizeof "NULL", EMPTY_##reach);          \
        if (SPOILT_LONG(symbol))                                                                 \
            return real args;                                                                    \
        ac_submit_t submit;                                                                      \
        bool kept = ac_submit_begin(&submit, thread, MARKED(symbol, stream_of, MODE_##mode),     \
                                    MODE_##mode);                                                \
        if (kept && !AC_ROW_FAILPOINT(symbol, blind))                                            \
            reach;                                                                               \
        ac_show_t shown = kept ? SHOWN(symbol) : AC_SHOW_NOTHING;                                \
        CUresult result;                                                                         \
        RETRIED(symbol, result, AC_NEED_UNKNOWN, real args);                                     \
        if (kept)                                                                                \
            ac_submit_end(&submit, thread, HEARD(symbol, result));                               \
        if (shown && result == CUDA_SUCCESS)                                                     \
            show(&submit, shown);                                                                \
        return result;                                                                           \
    }                                                                                            \
    SUBMISSION(symbol, params, args, stream_of, MODE_##mode,                                     \
               SHORT_##reach && AC_SHOWS(SHORT_, symbol))
/* TOLD_`need`: records a call that succeeded.  The call's first parameter is `a`. */
#define TOLD_AC_NEED_MEMORY(bytes, what)                                                         \
    ac_direct_physical(thread, *a, (bytes), &(what)->location, __builtin_return_address(0))
#define TOLD_AC_NEED_MAPPING(address, bytes, memory) ac_direct_mapped(thread, address, bytes, memory)
#define TOLD_ARRAY(bytes)                                                                        \
    ac_direct_array(thread, (uintptr_t)*a, (bytes), __builtin_return_address(0))
#define TOLD_AC_NEED_PLANE(b)                                                                    \
    TOLD_ARRAY(ac_array_bytes((b)->Width, (b)->Height, 0, (b)->Format, (b)->NumChannels, 0))
#define TOLD_AC_NEED_SPACE(b)                                                                    \
    TOLD_ARRAY(ac_array_bytes((b)->Width, (b)->Height, (b)->Depth, (b)->Format, (b)->NumChannels, (b)->Flags))
#define TOLD_AC_NEED_ACCESS(address, bytes) (void)0
#define TOLD_AC_NEED_REGISTERED(address, bytes, flags)                                           \
    if (thread && ((flags)&CU_MEMHOSTREGISTER_DEVICEMAP))                                        \
    ac_shown_memory((uintptr_t)(address))
#define TOLD_AC_NEED_FOUND(address)                                                              \
    if (thread && (address))                                                                     \
    ac_shown_found(*(address))
#define TOLD_AC_NEED_IMPORTED(memory)                                                            \
    if (thread)                                                                                  \
    ac_shown_physical(memory)
#define TOLD_AC_NEED_HOST(bytes) (void)0
#define TOLD_AC_NEED_LITTLE      (void)0
#define TOLD_AC_NEED_ADDRESSES   (void)0
#define TOLD_AC_NEED_UNKNOWN     (void)0

/* ASKED_`need`: corrects a call's arguments before the call. */
#define ASKED_AC_NEED_MEMORY(bytes, what) (void)0
#define ASKED_AC_NEED_MAPPING(address, bytes, memory) (address) = ac_direct_address(address, bytes)
#define ASKED_AC_NEED_ACCESS(address, bytes)          (address) = ac_direct_address(address, bytes)
#define ASKED_AC_NEED_PLANE(b)    (void)0
#define ASKED_AC_NEED_SPACE(b)    (void)0
#define ASKED_AC_NEED_HOST(bytes) (void)0
#define ASKED_AC_NEED_LITTLE      (void)0
#define ASKED_AC_NEED_UNKNOWN     (void)0
#define ASKED_AC_NEED_ADDRESSES   (void)0
#define ASKED_AC_NEED_REGISTERED(address, bytes, flags) (void)0
#define ASKED_AC_NEED_FOUND(address)    (void)0
#define ASKED_AC_NEED_IMPORTED(memory)  (void)0

/* CLAIM_`need`: the bytes of the call that a limit counts. */
#define CLAIM_AC_NEED_MEMORY(bytes, what) ac_claim_physical(a ? thread : NULL, (bytes), (what), d)
#define CLAIM_ARRAY(b, depth, flags)                                                             \
    a && (b) ? ac_claim_here(thread, ac_array_bytes((b)->Width, (b)->Height, (depth),            \
                                                    (b)->Format, (b)->NumChannels, (flags)))     \
             : (ac_claim_t) {                                                                    \
        .bytes = 0                                                                               \
    }
#define CLAIM_AC_NEED_PLANE(b) CLAIM_ARRAY(b, 0, 0)
#define CLAIM_AC_NEED_SPACE(b) CLAIM_ARRAY(b, (b)->Depth, (b)->Flags)
#define CLAIM_NONE                                                                               \
    { .bytes = 0 }
#define CLAIM_AC_NEED_MAPPING(address, bytes, memory) CLAIM_NONE
#define CLAIM_AC_NEED_HOST(bytes)                     CLAIM_NONE
#define CLAIM_AC_NEED_LITTLE                          CLAIM_NONE
#define CLAIM_AC_NEED_ADDRESSES                       CLAIM_NONE
#define CLAIM_AC_NEED_UNKNOWN                         CLAIM_NONE
#define CLAIM_AC_NEED_ACCESS(address, bytes)            CLAIM_NONE
#define CLAIM_AC_NEED_REGISTERED(address, bytes, flags) CLAIM_NONE
#define CLAIM_AC_NEED_FOUND(address)                    CLAIM_NONE
#define CLAIM_AC_NEED_IMPORTED(memory)                  CLAIM_NONE

#define CU_RETRY(symbol, name, since, mode, params, args, need)                                  \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        ASKED_##need;                                                                            \
        ac_claim_t claim = CLAIM_##need;                                                         \
        RETRIED(symbol, result, need, AC_CLAIMED(&claim, real args));                            \
        ac_context_note_current(thread, HEARD(symbol, result));                                  \
        if (result == CUDA_SUCCESS)                                                              \
            TOLD_##need;                                                                         \
        ac_claim_end(&claim);                                                                    \
        return result;                                                                           \
    }
#include "device/cuda_functions.def"
