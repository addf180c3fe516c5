/* Context records (context.h). */
#include "track/context.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "allocator/carve.h"
#include "device/driver.h"
#include "track/graphs.h"
#include "bind/hooks.h"
#include "track/running.h"
#include "observe/log.h"
#include "observe/start.h"
#include "lock.h"
#include "failpoint.h"

enum { CONTEXTS = AC_FENCE_LINES, STREAMS = 4096 };

/* How long the end of a context waits for work of others.  DOUBT_NS: if the call may not end the
 * context. */
#define END_NS   ((uint64_t)30000000000)
#define DOUBT_NS ((uint64_t)1000000000)

AC_START_DATA static ac_mutex_t lock = AC_MUTEX(CONTEXTS);
static ac_context_t *_Atomic contexts[CONTEXTS];
AC_START_DATA static _Atomic unsigned context_high;
AC_START_DATA _Atomic unsigned ac_context_live;

/* Table from stream handles to contexts, so that a submission needs no driver call.  One word holds
 * the handle and the index of its context: no reader sees a torn entry. */
static _Atomic uint64_t streams[STREAMS];

static uint64_t stream_word(CUstream stream, unsigned slot) {
    return (uint64_t)(uintptr_t)stream << 8 | slot;
}

static ac_record_mode_t record_mode(void) {
    switch (ac_process_config()->fence) {
    case AC_FENCE_STREAMS:
        return AC_RECORD_STREAMS;
    case AC_FENCE_SYNC:
        return AC_RECORD_NONE;
    default:
        return ac_driver.cuCtxRecordEvent ? AC_RECORD_CTX : AC_RECORD_STREAMS;
    }
}

/* Returns false if the driver has ids and did not tell this one.  *id is 0 if the driver has none. */
static bool id_of(CUcontext handle, unsigned long long *id) {
    *id = 0;
    return !ac_driver.cuCtxGetId || ac_driver.cuCtxGetId(handle, id) == CUDA_SUCCESS;
}

static ac_context_t *find(CUcontext handle) {
    unsigned high = atomic_load(&context_high);
    for (unsigned i = 0; i < high; i++) {
        ac_context_t *context = atomic_load(&contexts[i]);
        if (context && context->cuda.handle == handle && !atomic_load(&context->cuda.dead))
            return context;
    }
    return NULL;
}

static bool device_of(CUcontext handle, CUdevice *device) {
    CUcontext current = NULL;
    ac_driver_current(&current);
    if (current == handle)
        return ac_driver.cuCtxGetDevice(device) == CUDA_SUCCESS;
    if (ac_driver.cuCtxPushCurrent_v2(handle) != CUDA_SUCCESS)
        return false;
    bool known = ac_driver.cuCtxGetDevice(device) == CUDA_SUCCESS;
    ac_driver_pop();
    return known;
}

/* Returns true if the device has another context: two may share its memory in ways that the library
 * does not see.  `handle`: the one that is being added, which another thread may have done by now. */
static bool shares_device(CUdevice device, CUcontext handle) {
    for (unsigned i = 0; i < atomic_load(&context_high); i++) {
        ac_context_t *other = atomic_load(&contexts[i]);
        if (other && !atomic_load(&other->cuda.dead) && other->cuda.device == device &&
            other->cuda.handle != handle)
            return true;
    }
    return false;
}

/* Number of dead records of a device that rest before the oldest serves again.  A late call then
 * finds a record that has been dead for a while, whatever the program does. */
enum { RESTING = 16 };
static uint64_t ends;

/* Makes the record of the device that was dead longest serve another context.  Requires that more
 * than `resting` are dead and that nothing refers to its former context.  NULL: there is none.
 * Called under the lock. */
static ac_context_t *take_over(CUcontext handle, unsigned long long id, CUdevice device,
                               bool created, unsigned resting) {
    ac_context_t *oldest = NULL;
    unsigned count = 0;
    for (unsigned i = 0; i < atomic_load(&context_high); i++) {
        ac_context_t *context = atomic_load(&contexts[i]);
        if (!context || !atomic_load(&context->cuda.dead) || context->cuda.device != device)
            continue;
        count++;
        if ((!oldest || context->end < oldest->end) && !context->ending &&
            ac_cuda_context_is_over(&context->cuda) && ac_arena_is_over(context->arena))
            oldest = context;
    }
    if (!oldest || count <= resting || !ac_arena_again(oldest->arena))
        return NULL;
    oldest->created = created;
    ac_cuda_context_again(&oldest->cuda, handle, id, record_mode());
    return oldest;
}

/* Returns a new record in an empty place, or in the place of a dead one that cannot serve again.
 * Called under the lock. */
static ac_context_t *make(CUcontext handle, unsigned long long id, CUdevice device, bool created,
                          ac_allocator_t *allocator) {
    unsigned slot = 0;
    while (slot < CONTEXTS && contexts[slot])
        slot++;
    ac_context_t *context = take_over(handle, id, device, created, slot < CONTEXTS ? RESTING : 0);
    if (context)
        return context;
    for (unsigned i = 0; slot == CONTEXTS && i < CONTEXTS; i++)
        if (atomic_load(&contexts[i]->cuda.dead))
            slot = i;
    context = slot < CONTEXTS ? ac_carve(sizeof *context) : NULL;
    if (!context)
        return NULL;
    ac_cuda_context_init(&context->cuda, handle, id, device, record_mode());
    context->arena = ac_arena_create(allocator, &ac_cuda_ops, &context->cuda);
    if (!context->arena)
        return NULL;
    context->slot = slot;
    context->created = created;
    context->timeline = ac_arena_timeline(context->arena);
    atomic_store(&contexts[slot], context);
    if (slot >= atomic_load(&context_high))
        atomic_store(&context_high, slot + 1);
    return context;
}

/* Records the cost of the first context: memory in use before the process took any. */
static void measure(const ac_context_t *context, ac_allocator_t *allocator) {
    static _Atomic bool measured[AC_LIVE_DEVICES];
    CUdevice device = context->cuda.device;
    uint64_t total = ac_live->total_memory[device], available;
    if (ac_is_enabled() && !atomic_exchange(&measured[device], true) &&
        ac_allocator_available(allocator, &available) && available < total)
        ac_allocator_hold(allocator, offsetof(ac_device_counters_t, context_bytes),
                          (int64_t)(total - available));
}

static ac_context_t *add(CUcontext handle, unsigned long long id, CUdevice device, bool created,
                         ac_allocator_t *allocator) {
    ac_context_t *context = NULL;
    AC_WINDOW(context_unknown);
    ac_shown_device(device);
    bool shared = shares_device(device, handle);
    if (shared)
        ac_fence_share(); /* before any thread can use the new one */
    ac_lock(&lock);
    ac_context_t *other = find(handle);
    if (other) {
        context = other; /* another thread has added it */
    } else {
        shared = shares_device(device, handle);
        if (shared)
            atomic_store(&ac_fence_shared, true); /* before any thread can find it */
        context = make(handle, id, device, created, allocator);
        if (context) {
            atomic_fetch_add(&ac_context_live, 1);
            ac_tell_context_begins(context);
        }
    }
    ac_unlock(&lock);
    if (shared)
        ac_fence_share(); /* another thread added the first one meanwhile */
    if (context)
        measure(context, allocator);
    if (context && ac_process_config()->expandable_segments == AC_PAGES_ON &&
        !ac_expand_able(context->arena))
        ac_log_once(AC_LOG_WARNING,
                    "expandable_segments:true has no effect: device %d has no virtual memory "
                    "management; native segments serve",
                    (int)device);
    return context;
}

/* Forgets the context's streams: the driver may destroy them from now on, and reuse their handles in
 * other contexts. */
static void forget_streams(const ac_context_t *context) {
    for (unsigned i = 0; i < STREAMS; i++) {
        uint64_t word = atomic_load(&streams[i]);
        if (word && (word & 0xff) == context->slot)
            atomic_compare_exchange_strong(&streams[i], &word, 0);
    }
    ac_generation_grow();
}

/* Called under the lock. */
static void gone(ac_context_t *context) {
    if (atomic_load(&context->cuda.dead))
        return;
    context->end = ends++;
    ac_cuda_context_kill(&context->cuda);
    ac_arena_drop(context->arena);
    atomic_fetch_sub(&ac_context_live, 1);
    ac_tell_context_dead(context);
    forget_streams(context);
}

_Atomic int ac_contexts_ending;

bool ac_context_owns(uint64_t address) {
    enum { LIMIT_NS = 1000000000 };
    uint64_t begin = ac_cuda_ops.now_ns();
    for (;;) {
        ac_arena_t *owner = ac_block_arena(address);
        const ac_cuda_context_t *context = owner ? ac_arena_context(owner) : NULL;
        if (!context || !atomic_load(&context->dying) || ac_cuda_ops.now_ns() - begin > LIMIT_NS)
            return owner;
        sched_yield();
    }
}

static bool has_handle(const ac_context_t *context, uintptr_t handle) {
    return (uintptr_t)context->cuda.handle == handle;
}

static bool is_primary_of(const ac_context_t *context, uintptr_t device) {
    return (uintptr_t)context->cuda.device == device && !context->created;
}

/* The driver's free waits for work of other contexts, so a context that ends takes no memory from
 * under it.  The library's free did not wait: this function does, while it still lets calls into the
 * context.  It waits for at most `limit_ns` (0: the context has ended).  The driver would wait
 * without a limit, but in the free.  Here the program may hold back newer work until after this call:
 * a wait without a limit might never end. */
static ac_ending_t ending(bool (*matches)(const ac_context_t *, uintptr_t), uintptr_t what,
                          uint64_t limit_ns) {
    ac_ending_t found = {.count = 0};
    ac_lock(&lock);
    for (unsigned i = 0; i < atomic_load(&context_high) && found.count < AC_ENDING; i++) {
        ac_context_t *context = atomic_load(&contexts[i]);
        if (context && !atomic_load(&context->cuda.dead) && matches(context, what)) {
            context->ending++;
            found.context[found.count++] = context;
        }
    }
    ac_unlock(&lock);
    AC_WINDOW(contexts_found);
    if (AC_FAILPOINT(context_ends_at_once))
        limit_ns = 0;
    for (unsigned i = 0; limit_ns && i < found.count; i++) {
        ac_arena_quiesce(found.context[i]->arena, limit_ns);
        ac_tell_context_ends(found.context[i], limit_ns);
    }
    atomic_fetch_add(&ac_contexts_ending, (int)found.count);
    for (unsigned i = 0; i < found.count; i++) {
        ac_cuda_context_dying(&found.context[i]->cuda);
        forget_streams(found.context[i]); /* before the driver drops them, not after */
    }
    return found;
}

ac_ending_t ac_context_ending(CUcontext handle) {
    return ending(has_handle, (uintptr_t)handle, END_NS);
}

ac_ending_t ac_context_primary_ending(CUdevice device, bool sure) {
    return ending(is_primary_of, (uintptr_t)device, sure ? END_NS : DOUBT_NS);
}

ac_ending_t ac_context_primary_gone(CUdevice device) {
    return ending(is_primary_of, (uintptr_t)device, 0);
}

/* --- retains of a primary context ---
 *
 * Runtimes and libraries retain it, by calls that the library hooks.  A retain before the library was
 * loaded is unseen, and a reset does not change the driver's own count.  If more than one retain was
 * seen, a release is not the last one.  If exactly one was seen, the release is probably the last
 * one. */

static struct {
    _Atomic unsigned count;
    _Atomic bool unsure; /* there may be more */
} retains[AC_LIVE_DEVICES];

static bool has_retains(CUdevice device) {
    return device >= 0 && device < AC_LIVE_DEVICES;
}

void ac_context_retained(CUdevice device) {
    if (has_retains(device))
        atomic_fetch_add(&retains[device].count, 1);
}

void ac_context_reset(CUdevice device) {
    if (!has_retains(device))
        return;
    atomic_store(&retains[device].unsure, true);
    atomic_store(&retains[device].count, 0);
}

ac_last_t ac_context_releasing(CUdevice device) {
    if (!has_retains(device))
        return AC_LAST_UNSEEN;
    unsigned count = atomic_load(&retains[device].count);
    while (count && !atomic_compare_exchange_weak(&retains[device].count, &count, count - 1))
        ;
    if (count > 1)
        return AC_LAST_NOT;
    if (!count)
        return AC_LAST_UNSEEN;
    return atomic_load(&retains[device].unsure) ? AC_LAST_MAYBE : AC_LAST_SURE;
}

/* Ends this thread's use of the records. */
static void let_go(const ac_ending_t *ending) {
    ac_lock(&lock);
    for (unsigned i = 0; i < ending->count; i++)
        ending->context[i]->ending--;
    ac_unlock(&lock);
}

void ac_context_bury(const ac_context_t *context) {
    ac_expand_bury(context->arena);
}

void ac_context_ended(const ac_ending_t *ending, bool destroyed) {
    if (!destroyed) {
        for (unsigned i = 0; i < ending->count; i++)
            ac_cuda_context_spare(&ending->context[i]->cuda);
        let_go(ending);
        atomic_fetch_sub(&ac_contexts_ending, (int)ending->count);
        return;
    }
    for (unsigned i = 0; i < ending->count; i++)
        ac_tell_context_leaves(ending->context[i]);
    ac_lock(&lock);
    for (unsigned i = 0; i < ending->count; i++)
        gone(ending->context[i]);
    ac_unlock(&lock);
    for (unsigned i = 0; i < ending->count; i++) {
        ac_tell_context_gone(ending->context[i]);
        ac_cuda_context_spare(&ending->context[i]->cuda);
    }
    let_go(ending); /* last: now they may serve again */
    atomic_fetch_sub(&ac_contexts_ending, (int)ending->count);
    ac_graphs_prune();
}

/* --- primary contexts --- */

/* Returns the device's primary context if it is active, retained until release_primary; NULL if it is
 * not. */
static CUcontext retain_active(CUdevice device) {
    CUcontext handle = NULL;
    unsigned flags;
    int active = 0;
    if (!AC_REAL(cuDevicePrimaryCtxRelease_v2) ||
        ac_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
        !active || ac_driver.cuDevicePrimaryCtxRetain(&handle, device) != CUDA_SUCCESS)
        return NULL;
    return handle;
}

static void release_primary(CUcontext handle, CUdevice device) {
    cuDevicePrimaryCtxRelease_v2_fn *release = AC_REAL(cuDevicePrimaryCtxRelease_v2);
    if (handle && release)
        release(device);
}

/* --- green contexts: views of the primary context that share its memory --- */

enum { GREENS = 64 };
static struct {
    _Atomic(CUcontext) view;
    ac_context_t *_Atomic primary;
} greens[GREENS];
AC_START_DATA static _Atomic bool any_green;

static ac_context_t *find_green(CUcontext view) {
    for (int i = 0; atomic_load(&any_green) && i < GREENS; i++) {
        ac_context_t *primary = atomic_load(&greens[i].primary);
        if (atomic_load(&greens[i].view) == view && primary && !atomic_load(&primary->cuda.dead))
            return primary;
    }
    return NULL;
}

bool ac_context_green(CUcontext view) {
    CUdevice device = 0;
    CUcontext handle = device_of(view, &device) ? retain_active(device) : NULL;
    ac_context_t *primary = handle ? ac_context_of(handle) : NULL;
    release_primary(handle, device); /* the green context keeps it alive */
    if (!primary)
        return false;
    ac_cuda_context_greened(&primary->cuda);
    /* Submissions mark their streams from now on, and submissions under way when they end. */
    atomic_store(&ac_streams_tracked, true);
    ac_fence_stamp();
    ac_generation_grow();
    /* Its default streams have the handles of the primary context's, but are different streams. */
    ac_sole_settle(primary->timeline, true);
    ac_arena_unordered(primary->arena, true);
    ac_lock(&lock);
    int i = 0;
    while (i < GREENS && atomic_load(&greens[i].view) && atomic_load(&greens[i].view) != view)
        i++;
    if (i < GREENS) {
        atomic_store(&greens[i].primary, primary);
        atomic_store(&greens[i].view, view);
        atomic_store(&any_green, true);
    }
    ac_unlock(&lock);
    return i < GREENS;
}

void ac_context_green_ending(ac_context_t *primary) {
    ac_cuda_streams_retire(&primary->cuda); /* they are useless afterwards */
    forget_streams(primary);
}

void ac_context_green_gone(CUcontext view) {
    ac_lock(&lock);
    for (int i = 0; i < GREENS; i++)
        if (atomic_load(&greens[i].view) == view)
            atomic_store(&greens[i].view, NULL);
    ac_unlock(&lock);
    ac_generation_grow();
}

bool ac_context_is_view(CUcontext view, CUcontext primary) {
    const ac_context_t *of = find_green(view);
    return of && of->cuda.handle == primary;
}

bool ac_context_any_green(void) {
    return atomic_load(&any_green);
}

/* --- look-ups --- */

static ac_context_t *context_of(CUcontext handle, bool created) {
    CUdevice device;
    unsigned long long id;
    ac_context_t *context = find_green(handle);
    if (context)
        return context;
    bool known = id_of(handle, &id);
    context = find(handle);
    /* Without an answer a known handle keeps its record, because its memory is in use. */
    if (context && (!known || context->cuda.id == id))
        return context;
    if (!known)
        return NULL;
    if (context) {
        /* The handle now names another context: the end of the old one was unseen. */
        ac_ending_t unseen = ending(has_handle, (uintptr_t)handle, 0);
        ac_context_ended(&unseen, true);
    }
    if (!device_of(handle, &device))
        return NULL;
    ac_allocator_t *allocator = ac_device_allocator(device);
    context = allocator ? add(handle, id, device, created, allocator) : NULL;
    if (!context) {
        ac_count(ac_thread_tls, AC_COUNT_internal_failures);
        ac_process_give_up(
            "a CUDA context cannot be kept account of (there are too many, or host "
            "memory is short)");
    }
    return context;
}

ac_context_t *ac_context_of(CUcontext handle) {
    return context_of(handle, false);
}

ac_context_t *ac_context_created(CUcontext handle) {
    return context_of(handle, true);
}

/* --- work that the library does not see --- */

ac_context_t *ac_context_primary(CUdevice device) {
    CUcontext handle = retain_active(device);
    ac_context_t *context = handle ? ac_context_of(handle) : NULL;
    release_primary(handle, device);
    return context;
}

static _Atomic bool adopted;

/* Makes records for the primary contexts that exist.  Fences cover only contexts with a record.  If
 * work goes unseen, a context needs one even if the program submits only unseen work to it.  Later
 * contexts get theirs when they are made. */
static void adopt(void) {
    int devices = 0;
    if (!ac_fence_is_unseen() || atomic_load(&adopted) || atomic_exchange(&adopted, true))
        return;
    if (ac_driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        atomic_store(&adopted, false); /* fails in a host function, for example: try again next time */
    for (CUdevice device = 0; device < devices; device++)
        ac_context_primary(device);
}

void ac_context_unseen(void) {
    ac_count(ac_thread_tls, AC_COUNT_untracked_submissions);
    ac_streams_unseen();
    adopt();
}

ac_context_t *ac_context_current(ac_thread_t *thread) {
    uint64_t generation = ac_generation_now();
    if (thread->known && thread->generation == generation && !atomic_load(&ac_current_unseen))
        return thread->known;
    CUcontext handle = NULL;
    adopt();
    thread->known = thread->runtime = NULL;
    ac_thread_clear_fast(thread);
    if (ac_driver_current(&handle) != CUDA_SUCCESS || !handle)
        return NULL;
    thread->known = ac_context_of(handle);
    thread->generation = generation; /* read before: a change meanwhile is seen next time */
    thread->records = ac_thread_records(thread);
    return thread->known;
}

void ac_context_each(void (*visit)(ac_context_t *context, void *arg), void *arg) {
    unsigned high = atomic_load(&context_high);
    for (unsigned i = 0; i < high; i++) {
        ac_context_t *context = atomic_load(&contexts[i]);
        if (context && !atomic_load(&context->cuda.dead))
            visit(context, arg);
    }
}

static _Atomic uint64_t *stream_entry(CUstream stream) {
    uint64_t hash = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15u;
    return &streams[hash >> 52];
}

static ac_context_t *look_up_stream(CUstream stream) {
    uint64_t word = atomic_load_explicit(stream_entry(stream), memory_order_acquire);
    if (word >> 8 != (uint64_t)(uintptr_t)stream)
        return NULL;
    ac_context_t *context = atomic_load(&contexts[word & 0xff]);
    return context && !atomic_load(&context->cuda.dead) ? context : NULL;
}

ac_context_t *ac_context_of_stream(ac_thread_t *thread, CUstream stream) {
    if ((uintptr_t)stream <= 2)
        return ac_context_current(thread);
    uint64_t generation = ac_generation_now();
    if (thread->stream == (void *)stream && thread->stream_generation == generation)
        return thread->stream_context;
    adopt();
    CUcontext handle = NULL;
    ac_context_t *context = look_up_stream(stream);
    if (!context) {
        if (!ac_driver.cuStreamGetCtx ||
            ac_driver.cuStreamGetCtx(stream, &handle) != CUDA_SUCCESS || !handle)
            return AC_FAILPOINT(stream_of_current_context) ? ac_context_current(thread) : NULL;
        context = ac_context_of(handle);
        if (!context)
            return NULL; /* not remembered: it may be found next time */
        atomic_store(stream_entry(stream), stream_word(stream, context->slot));
    }
    thread->stream = (void *)stream;
    thread->stream_context = context;
    thread->stream_generation = generation;
    return context;
}

void ac_context_stream_gone(CUstream stream) {
    if (AC_FAILPOINT(stream_handle_reused))
        return;
    _Atomic uint64_t *entry = stream_entry(stream);
    if (atomic_load(entry) >> 8 == (uint64_t)(uintptr_t)stream)
        atomic_store(entry, 0);
    ac_generation_grow();
}

void ac_context_note(ac_context_t *context, CUresult result) {
    if (!context || !ac_driver_sticky(result) || atomic_load(&context->cuda.dead))
        return;
    ac_fence_break(context->timeline);
}

void ac_context_note_current(ac_thread_t *thread, CUresult result) {
    if (thread && ac_driver_sticky(result))
        ac_context_note(ac_context_current(thread), result);
}

void ac_context_cross(void) {
    if (AC_FAILPOINT(peer_copy_elsewhere))
        return;
    if (ac_context_count() > 1)
        ac_fence_share();
}
