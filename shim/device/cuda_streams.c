/* Fences by streams: which streams had work, and one stream of ours (the keeper) that waits for
 * them on the device, so that an event on it stands for all.  The keeper works in order: a later
 * fence covers what an earlier one covers, destroyed streams included. */
#include <sys/mman.h>

#include "device/cuda_int.h"
#include "device/driver.h"
#include "device/wait.h"
#include "observe/raw.h"
#include "observe/scratch.h"
#include "failpoint.h"

CUevent ac_cuda_event_take(ac_cuda_context_t *context) {
    CUevent event = NULL;
    ac_lock(&context->lock);
    if (context->event_count)
        event = context->event[--context->event_count];
    ac_unlock(&context->lock);
    if (!event && ac_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    return event;
}

/* Counts as a user of the context, which the program may be destroying together with the event. During
 * a destruction the driver keeps the event. */
static void destroy_event(ac_cuda_context_t *context, CUevent event) {
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* as in ac_cuda_enter */
    atomic_fetch_add(&context->users, 1);
    if (!atomic_load(&context->dead) && !atomic_load(&context->dying))
        ac_driver.cuEventDestroy_v2(event);
    atomic_fetch_sub(&context->users, 1);
    pthread_setcancelstate(cancel, NULL);
}

void ac_cuda_event_return(ac_cuda_context_t *context, CUevent event) {
    bool kept = false;
    if (!event || atomic_load(&context->dead) || atomic_load(&ac_cuda_quiet))
        return;
    ac_lock(&context->lock);
    bool gone = atomic_load(&context->dead); /* and the event with it, meanwhile */
    if (!gone && context->event_count < AC_CUDA_EVENTS) {
        context->event[context->event_count++] = event;
        kept = true;
    }
    ac_unlock(&context->lock);
    if (!kept && !gone)
        destroy_event(context, event);
}

/* The keeper waits, on the device, for all that `stream` has been given; NULL: for all that the
 * context's own event covers. */
static CUresult join(ac_cuda_context_t *context, CUstream keeper, CUstream stream) {
    CUevent event = ac_cuda_event_take(context);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (AC_FAILPOINT(event_on_wrong_stream))
        stream = keeper;
    CUresult result = stream ? ac_driver.cuEventRecord(event, stream)
                             : ac_driver.cuCtxRecordEvent(context->handle, event);
    if (result == CUDA_SUCCESS)
        result = ac_driver.cuStreamWaitEvent(keeper, event, 0);
    ac_cuda_event_return(context, event); /* the wait took its state: it may be used again */
    return result;
}

/* Made at first need; the context is current.  NULL when the driver gives no stream. */
static CUstream keeper_of(ac_cuda_context_t *context) {
    CUstream keeper;
    ac_lock(&context->lock);
    keeper = context->keeper;
    ac_unlock(&context->lock);
    if (keeper || ac_driver.cuStreamCreate(&keeper, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return keeper;
    ac_lock(&context->lock);
    if (!context->keeper)
        context->keeper = keeper;
    else
        keeper = context->keeper; /* another thread was faster: one idle stream is left over */
    ac_unlock(&context->lock);
    return keeper;
}

static uint64_t self(void) {
    return ac_cuda_thread ? ac_cuda_thread() : 0;
}

enum { KEY_PER_THREAD = 2, KEY_SHIFT = 2 }; /* handles are multiples of 4 */

uint64_t ac_cuda_stream_key(CUstream stream) {
    if (AC_FAILPOINT(per_thread_for_one) && stream == CU_STREAM_PER_THREAD)
        return KEY_PER_THREAD;
    return stream == CU_STREAM_PER_THREAD ? self() << KEY_SHIFT | KEY_PER_THREAD
                                          : (uint64_t)(uintptr_t)stream;
}

CUstream ac_cuda_stream_of_key(uint64_t key) {
    if ((key & (((uint64_t)1 << KEY_SHIFT) - 1)) != KEY_PER_THREAD)
        return (CUstream)(uintptr_t)key;
    return key >> KEY_SHIFT == self() ? CU_STREAM_PER_THREAD : NULL;
}

/* The entry of a stream, under the lock; NULL: none. */
static ac_cuda_stream_t *entry_of(ac_cuda_context_t *context, CUstream handle, uint64_t thread) {
    for (unsigned i = 0; i < context->stream_count; i++)
        if (context->stream[i].handle == handle && context->stream[i].thread == thread)
            return &context->stream[i];
    return NULL;
}

/* In a full table, one that stands for nothing: of a thread that has ended, maybe. */
static ac_cuda_stream_t *entry_spare(ac_cuda_context_t *context) {
    for (unsigned i = 0; i < context->stream_count; i++)
        if (!context->stream[i].used && !context->stream[i].inside)
            return &context->stream[i];
    return NULL;
}

/* The event of an entry becomes a spare one, if there is room and no call that goes through a
 * copy of the streams is about to name it; under the lock. */
static void spare_event(ac_cuda_context_t *context, ac_cuda_stream_t *entry) {
    if (!entry->event || context->naming || context->event_count == AC_CUDA_EVENTS)
        return;
    context->event[context->event_count++] = entry->event;
    entry->event = NULL;
}

static ac_cuda_stream_t *entry_new(ac_cuda_context_t *context, CUstream handle, uint64_t thread) {
    if (!context->stream) {
        void *table = mmap(NULL, AC_CUDA_STREAMS * sizeof *context->stream,
                           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (table == MAP_FAILED)
            return NULL;
        context->stream = table;
    }
    ac_cuda_stream_t *entry = NULL;
    if (context->stream_count < AC_CUDA_STREAMS)
        entry = &context->stream[context->stream_count++];
    else if ((entry = entry_spare(context)))
        spare_event(context, entry); /* if there is no room, the driver keeps the event */
    if (entry)
        *entry = (ac_cuda_stream_t){.handle = handle, .thread = thread};
    return entry;
}

static uint64_t owner_of(CUstream stream) {
    return stream == CU_STREAM_PER_THREAD ? self() : 0;
}

/* Marks are unique: a fence that another one overtook clears its own marks only. */
static void note_work(ac_cuda_context_t *context, ac_cuda_stream_t *entry) {
    entry->used = ++context->marks;
    entry->clock = atomic_load(&context->clock);
}

bool ac_cuda_stream_begin(ac_cuda_context_t *context, CUstream stream) {
    if (!ac_cuda_stream_marks(context))
        return false;
    ac_lock(&context->lock);
    ac_cuda_stream_t *entry = entry_of(context, stream, owner_of(stream));
    if (!entry)
        entry = entry_new(context, stream, owner_of(stream));
    if (entry) {
        note_work(context, entry);
        entry->inside++;
    } else {
        ac_cuda_lose(context);
    }
    ac_unlock(&context->lock);
    return entry != NULL;
}

/* Records the entry's event behind new work of the calling thread's own stream, for the fences of
 * other threads. Pre: the context is current and not a green one, which has per-thread streams of its
 * own. False: the event could not be recorded. */
static bool cover(ac_cuda_context_t *context, CUevent *event) {
    bool recorded = false;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* as in ac_cuda_enter */
    atomic_fetch_add(&context->users, 1);
    if (!atomic_load(&context->dead) && !atomic_load(&context->dying) &&
        !atomic_load(&ac_cuda_quiet) && (*event || (*event = ac_cuda_event_take(context)))) {
        ac_lock_shared(&ac_cuda_gate);
        recorded = !ac_cuda_is_capturing(context) &&
                   ac_driver.cuEventRecord(*event, CU_STREAM_PER_THREAD) == CUDA_SUCCESS;
        ac_release(&ac_cuda_gate);
    }
    atomic_fetch_sub(&context->users, 1);
    pthread_setcancelstate(cancel, NULL);
    return recorded;
}

/* The lock is open while the event is recorded; the entry stays, its thread being inside. */
static void end_own(ac_cuda_context_t *context, ac_cuda_stream_t *entry) {
    uint64_t thread = entry->thread, used = entry->used;
    CUevent event = entry->event;
    ac_unlock(&context->lock);
    bool recorded = cover(context, &event);
    ac_lock(&context->lock);
    entry = entry_of(context, CU_STREAM_PER_THREAD, thread);
    if (!entry)
        return; /* the context is gone, and the event with it */
    entry->event = event;
    if (recorded)
        entry->covered = used;
    entry->inside--;
}

void ac_cuda_stream_end(ac_cuda_context_t *context, CUstream stream, bool marked) {
    if (!marked && !ac_cuda_stream_begin(context, stream)) /* they may have begun to count */
        return;
    ac_lock(&context->lock);
    ac_cuda_stream_t *entry = entry_of(context, stream, owner_of(stream));
    if (entry && entry->inside > 0) {
        note_work(context, entry);
        if (entry->thread && atomic_load(&context->asked) && !atomic_load(&context->green))
            end_own(context, entry);
        else
            entry->inside--;
    }
    if (context->awaiting)
        ac_cond_broadcast(&context->returned);
    ac_unlock(&context->lock);
}

/* Returns true for a per-thread stream that the calling thread cannot name. */
static bool is_others(const ac_cuda_stream_t *entry) {
    return entry->thread && entry->thread != self();
}

/* Returns true if calls of other threads have not returned and are worth a wait; `give_up` ends that.
 * */
static bool others_inside(const ac_cuda_context_t *context, bool give_up) {
    bool any = false;
    for (unsigned i = 0; i < context->stream_count; i++) {
        ac_cuda_stream_t *entry = &context->stream[i];
        if (!entry->inside || !is_others(entry) || entry->awaited == entry->used)
            continue;
        any = true;
        if (give_up)
            entry->awaited = entry->used;
    }
    return any;
}

/* Events of other threads' streams do not cover calls that have not returned: most return at once. A
 * call that blocks may wait for this thread, so there is a limit. Pre: the lock is held. */
static void await_others(ac_cuda_context_t *context) {
    enum { MOST_NS = 1000000, SECOND_NS = 1000000000 };
    if (!others_inside(context, false))
        return;
    struct timespec until = ac_raw_time(CLOCK_MONOTONIC);
    until.tv_nsec += MOST_NS;
    if (until.tv_nsec >= SECOND_NS) {
        until.tv_nsec -= SECOND_NS;
        until.tv_sec++;
    }
    context->awaiting++;
    while (others_inside(context, false))
        if (ac_wait_until(&context->returned, &context->lock, &until) != 0)
            others_inside(context, true);
    context->awaiting--;
}

/* The streams with work, copied; the marks stay until they are joined.  Ends by unmark. If there are
 * more than `room`, nothing has begun. */
static unsigned used_streams(ac_cuda_context_t *context, bool name_others,
                             ac_cuda_stream_t *used, unsigned room) {
    unsigned n = 0;
    ac_lock(&context->lock);
    if (name_others)
        await_others(context);
    for (unsigned i = 0; i < context->stream_count && n <= room; i++)
        if (context->stream[i].used && n++ < room)
            used[n - 1] = context->stream[i];
    context->naming += n <= room;
    ac_unlock(&context->lock);
    return n;
}

/* An operation on the streams that have work; it ends by unmark. */
typedef struct {
    CUresult (*act)(ac_cuda_context_t *context, CUevent event, bool whole, ac_cuda_stream_t *used,
                    unsigned n);
    CUevent event;
    bool whole, name_others;
} with_used_t;

static CUresult with_many(ac_cuda_context_t *context, const with_used_t *with) {
    ac_cuda_stream_t *used = ac_scratch_take();
    _Static_assert(AC_CUDA_STREAMS * sizeof *used <= AC_SCRATCH, "streams have no room");
    if (!used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned n = used_streams(context, with->name_others, used, AC_CUDA_STREAMS);
    CUresult result = with->act(context, with->event, with->whole, used, n);
    ac_scratch_give(used);
    return result;
}

static CUresult with_used(ac_cuda_context_t *context, const with_used_t *with) {
    enum { FEW = 16 };
    ac_cuda_stream_t used[FEW];
    unsigned n = used_streams(context, with->name_others, used, FEW);
    return n > FEW ? with_many(context, with)
                   : with->act(context, with->event, with->whole, used, n);
}

/* All its work is joined or done.  Its thread may be gone: the event serves others. */
static void forget_work(ac_cuda_context_t *context, ac_cuda_stream_t *entry) {
    if (entry->inside)
        return;
    entry->used = entry->covered = entry->awaited = 0;
    spare_event(context, entry);
}

/* Clear the marks of the `n` streams that were joined; work that came meanwhile, or is about to
 * come, keeps its own. */
static void unmark(ac_cuda_context_t *context, const ac_cuda_stream_t *joined, unsigned n) {
    ac_lock(&context->lock);
    if (--context->naming == 0)
        ac_cond_broadcast(&context->named);
    for (unsigned i = 0; i < n; i++) {
        ac_cuda_stream_t *entry = entry_of(context, joined[i].handle, joined[i].thread);
        if (entry && entry->used == joined[i].used)
            forget_work(context, entry);
    }
    ac_unlock(&context->lock);
}

void ac_cuda_streams_synced(ac_cuda_context_t *context, uint64_t clock) {
    ac_lock(&context->lock);
    for (unsigned i = 0; i < context->stream_count; i++)
        if (context->stream[i].clock <= clock)
            forget_work(context, &context->stream[i]);
    ac_unlock(&context->lock);
}

/* Covers work of other threads' own streams that their events do not cover: by the context's event, or
 * if there is none by the legacy stream's, for which synchronising streams then wait. */
static CUresult join_uncovered(ac_cuda_context_t *context, CUstream keeper) {
    if (ac_driver.cuCtxRecordEvent && join(context, keeper, NULL) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    ac_cuda_count_one(AC_CUDA_FENCE_LEGACY);
    return join(context, keeper, CU_STREAM_LEGACY);
}

static CUresult record(ac_cuda_context_t *context, CUevent event, bool whole,
                       ac_cuda_stream_t *used, unsigned n) {
    bool uncovered = false;
    CUstream keeper = keeper_of(context);
    CUresult result = whole ? join(context, keeper, NULL) : CUDA_SUCCESS;
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
        if (!is_others(&used[i])) {
            result = join(context, keeper, used[i].handle);
        } else if (!whole) { /* per-thread streams belong to the context itself */
            atomic_store(&context->asked, true);
            if (used[i].covered == used[i].used)
                result = ac_driver.cuStreamWaitEvent(keeper, used[i].event, 0);
            else
                uncovered = true;
        }
    }
    if (uncovered && result == CUDA_SUCCESS)
        result = join_uncovered(context, keeper);
    if (result == CUDA_SUCCESS)
        result = ac_driver.cuEventRecord(event, keeper);
    unmark(context, used, result == CUDA_SUCCESS ? n : 0);
    return result;
}

CUresult ac_cuda_streams_record(ac_cuda_context_t *context, CUevent event, bool whole) {
    if (!keeper_of(context))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return with_used(context, &(with_used_t){record, event, whole, !whole});
}

static CUresult await(ac_cuda_context_t *context, CUevent event, bool whole,
                      ac_cuda_stream_t *used, unsigned n) {
    CUresult result = CUDA_SUCCESS;
    (void)event;
    (void)whole;
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (!used[i].thread) /* per-thread streams belong to the context itself */
            result = ac_driver.cuStreamSynchronize(used[i].handle);
    unmark(context, used, result == CUDA_SUCCESS ? n : 0);
    return result;
}

CUresult ac_cuda_streams_wait(ac_cuda_context_t *context) {
    return with_used(context, &(with_used_t){.act = await});
}

static CUresult retire(ac_cuda_context_t *context, CUevent event, bool whole,
                       ac_cuda_stream_t *used, unsigned n) {
    unsigned named = 0;
    (void)event;
    (void)whole;
    for (unsigned i = 0; i < n; i++)
        if (!used[i].thread)
            used[named++] = used[i];
    ac_cuda_scope_t scope;
    CUresult result = CUDA_ERROR_NOT_READY;
    if (named && ac_cuda_enter(context, &scope)) {
        CUstream keeper = keeper_of(context);
        ac_lock_shared(&ac_cuda_gate);
        if (keeper && !ac_cuda_is_capturing(context))
            result = CUDA_SUCCESS;
        for (unsigned i = 0; i < named && result == CUDA_SUCCESS; i++)
            result = join(context, keeper, used[i].handle);
        ac_release(&ac_cuda_gate);
        ac_cuda_leave(&scope);
    }
    if (named && result != CUDA_SUCCESS)
        ac_cuda_lose(context);
    unmark(context, used, named); /* an event on a stream that is gone would fail for ever */
    return result;
}

void ac_cuda_streams_retire(ac_cuda_context_t *context) {
    with_used(context, &(with_used_t){.act = retire});
}

void ac_cuda_stream_retire(ac_cuda_context_t *context, CUstream stream, bool pending) {
    ac_cuda_scope_t scope;
    CUresult result = CUDA_ERROR_NOT_READY;
    if (AC_FAILPOINT(destroyed_stream_running))
        pending = false;
    if (pending && ac_cuda_enter(context, &scope)) {
        CUstream keeper = keeper_of(context);
        ac_lock_shared(&ac_cuda_gate);
        if (keeper && !ac_cuda_is_capturing(context))
            result = join(context, keeper, stream);
        ac_release(&ac_cuda_gate);
        ac_cuda_leave(&scope);
    }
    if (pending && result != CUDA_SUCCESS)
        ac_cuda_lose(context);
    ac_lock(&context->lock);
    ac_cuda_stream_t *entry = entry_of(context, stream, 0);
    if (entry)
        *entry = context->stream[--context->stream_count];
    while (context->naming)
        ac_wait(&context->named, &context->lock);
    ac_unlock(&context->lock);
}
