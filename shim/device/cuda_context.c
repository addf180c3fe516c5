/* The life of a context record, calls of ours inside it, and captures (cuda_device.h). */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "device/cuda_int.h"
#include "device/driver.h"
#include "device/wait.h"
#include "observe/raw.h"
#include "observe/start.h"
#include "failpoint.h"

AC_START_DATA void (*ac_cuda_count)(ac_cuda_event_t event);
AC_START_DATA uint64_t (*ac_cuda_thread)(void);
AC_START_DATA bool (*ac_cuda_unseen)(void);
AC_START_DATA _Atomic bool ac_cuda_quiet;

ac_rwlock_t ac_cuda_gate = AC_RWLOCK(GATE);
AC_START_DATA static _Atomic int captures; /* in the whole process */
static _Atomic int unplaced;               /* of them, those whose context is not known */
static _Atomic uint64_t beginnings;

/* A context that ends waits so long for calls of ours that are inside: one may wait in the driver
 * for work that goes on only after this end.  Calls of ours wait outside for longer, so that none
 * gives up before the driver was asked; then they fail, as in a context that has gone. */
#define END_NS     ((uint64_t)1000000000)
#define OUTSIDE_NS ((uint64_t)2000000000)

/* Synchronisations of ours against captures that begin: see ac_cuda_sync_begin. */
enum { GRACE_S = 1 };
static ac_mutex_t sync_lock = AC_MUTEX(LEAF);
static ac_cond_t sync_over;
static int syncing, beginning;     /* threads */
static struct timespec sync_began; /* the last of them */

void ac_cuda_count_one(ac_cuda_event_t event) {
    if (ac_cuda_count)
        ac_cuda_count(event);
}

void ac_cuda_context_init(ac_cuda_context_t *context, CUcontext handle, unsigned long long id,
                          CUdevice device, ac_record_mode_t mode) {
    memset(context, 0, sizeof *context);
    context->handle = handle;
    context->id = id;
    context->device = device;
    atomic_store(&context->mode, mode);
    ac_mutex_init(&context->lock, AC_RANK_DEVICE);
    context->named = (ac_cond_t){0, 0};
    context->returned = (ac_cond_t){0, 0};
    context->sync_over = (ac_cond_t){0, 0};
    atomic_store(&context->clock, 1);
}

void ac_cuda_context_greened(ac_cuda_context_t *context) {
    int whole = AC_RECORD_CTX;
    atomic_store(&context->green, true);
    atomic_compare_exchange_strong(&context->mode, &whole, AC_RECORD_BOTH);
}

/* A pause in a wait that began at `begin`; false: it has lasted `limit_ns`. */
static bool pause_until(uint64_t begin, uint64_t limit_ns) {
    enum { EAGER_NS = 1000000, NAP_NS = 50000 };
    uint64_t waited = (uint64_t)ac_raw_ns(CLOCK_MONOTONIC) - begin;
    if (waited >= limit_ns)
        return false;
    if (waited < EAGER_NS)
        sched_yield();
    else
        ac_nap(NAP_NS);
    return true;
}

void ac_cuda_context_dying(ac_cuda_context_t *context) {
    ac_driver_context_ends();
    atomic_fetch_add(&context->dying, 1);
    uint64_t begin = (uint64_t)ac_raw_ns(CLOCK_MONOTONIC);
    while (atomic_load(&context->users) > 0 && pause_until(begin, END_NS))
        ;
}

void ac_cuda_context_spare(ac_cuda_context_t *context) {
    atomic_fetch_sub(&context->dying, 1);
}

void ac_cuda_context_kill(ac_cuda_context_t *context) {
    ac_driver_context_ends();
    atomic_store(&context->dead, true);
    ac_lock(&context->lock);
    context->event_count = 0; /* they went with the context */
    context->stream_count = 0;
    context->keeper = context->filler = NULL;
    ac_unlock(&context->lock);
    atomic_store(&context->filler_late, 0);
    ac_cuda_fence_drop(context);
}

bool ac_cuda_context_is_over(ac_cuda_context_t *context) {
    if (!atomic_load(&context->dead) || atomic_load(&context->users) > 0 ||
        atomic_load(&context->dying) > 0 || atomic_load(&context->fences) > 0)
        return false;
    ac_lock(&context->lock);
    bool over = !context->syncing && !context->naming && !context->awaiting;
    ac_unlock(&context->lock);
    return over;
}

void ac_cuda_context_again(ac_cuda_context_t *context, CUcontext handle, unsigned long long id,
                           ac_record_mode_t mode) {
    context->handle = handle;
    context->id = id;
    ac_lock(&context->lock);
    context->event_count = 0; /* what came after ac_cuda_context_kill */
    context->stream_count = 0;
    context->keeper = context->filler = NULL;
    ac_unlock(&context->lock);
    atomic_store(&context->filler_late, 0);
    atomic_store(&context->mode, mode);
    atomic_store(&context->green, false);
    atomic_store(&context->lost, 0);
    atomic_store(&context->asked, false);
    atomic_store(&context->dead, false); /* last: calls of ours go in from now on */
}

static bool may_enter(const ac_cuda_context_t *context) {
    return !atomic_load(&context->dead) && !atomic_load(&ac_cuda_quiet);
}

/* The driver has not said yet whether the context goes; mostly it stays (a primary context that
 * others retain), and what orders its work cannot be left out. */
static bool is_in_suspense(const ac_cuda_context_t *context) {
    return may_enter(context) && atomic_load(&context->dying) > 0;
}

/* The caller is one of the users, but while it waits.  False: the driver does not come back. */
static bool await_answer(ac_cuda_context_t *context) {
    bool waits = true;
    if (!is_in_suspense(context)) /* mostly: the clock takes longer than all else here */
        return true;
    uint64_t begin = (uint64_t)ac_raw_ns(CLOCK_MONOTONIC);
    while (waits && is_in_suspense(context)) {
        atomic_fetch_sub(&context->users, 1);
        waits = pause_until(begin, OUTSIDE_NS);
        atomic_fetch_add(&context->users, 1);
    }
    return waits;
}

bool ac_cuda_enter_as(ac_cuda_context_t *context, ac_cuda_scope_t *scope, bool own_mode) {
    CUcontext current = NULL;
    *scope = (ac_cuda_scope_t){.context = context, .mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &scope->cancel);
    if (!AC_FAILPOINT(entered_after_look))
        atomic_fetch_add(&context->users, 1);
    bool may = await_answer(context) && may_enter(context);
    AC_WINDOW(context_seen);
    if (AC_FAILPOINT(entered_after_look))
        atomic_fetch_add(&context->users, 1);
    if (may) {
        ac_driver_current(&current);
        if (current != context->handle)
            scope->pushed = ac_driver.cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS;
        if (scope->pushed || current == context->handle) {
            /* Always, not only while a capture is known: another thread may begin one. */
            scope->relaxed =
                !own_mode && ac_driver.cuThreadExchangeStreamCaptureMode &&
                ac_driver.cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
            return true;
        }
    }
    atomic_fetch_sub(&context->users, 1);
    pthread_setcancelstate(scope->cancel, NULL);
    return false;
}

bool ac_cuda_enter(ac_cuda_context_t *context, ac_cuda_scope_t *scope) {
    return ac_cuda_enter_as(context, scope, false);
}

void ac_cuda_leave(ac_cuda_scope_t *scope) {
    /* Once more: the program's own captures would not be guarded any longer. */
    if (scope->relaxed &&
        ac_driver.cuThreadExchangeStreamCaptureMode(&scope->mode) != CUDA_SUCCESS)
        ac_driver.cuThreadExchangeStreamCaptureMode(&scope->mode);
    if (scope->pushed)
        ac_driver_pop();
    atomic_fetch_sub(&scope->context->users, 1);
    pthread_setcancelstate(scope->cancel, NULL);
}

static void raise_to(_Atomic uint64_t *value, uint64_t to) {
    uint64_t before = atomic_load(value);
    while (before < to && !atomic_compare_exchange_weak(value, &before, to))
        ;
}

void ac_cuda_lose(ac_cuda_context_t *context) {
    raise_to(&context->lost, atomic_load(&context->clock));
}

uint64_t ac_cuda_lost(ac_cuda_context_t *context) {
    return atomic_fetch_add(&context->clock, 1);
}

void ac_cuda_synced(ac_cuda_context_t *context, uint64_t lost) {
    raise_to(&context->recovered, lost);
    if (ac_cuda_stream_marks(context))
        ac_cuda_streams_synced(context, lost);
}

bool ac_cuda_is_capturing(const ac_cuda_context_t *context) {
    if (atomic_load(&captures) == 0)
        return false;
    return !context || atomic_load(&context->captures) > 0 || atomic_load(&unplaced) > 0 ||
           (ac_cuda_unseen && ac_cuda_unseen());
}

static void count(ac_cuda_context_t *context, int more) {
    atomic_fetch_add(context ? &context->captures : &unplaced, more);
    atomic_fetch_add(&captures, more);
}

bool ac_cuda_is_relaxed(const ac_cuda_scope_t *scope) {
    return scope->relaxed && scope->mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

bool ac_cuda_is_barred(const ac_cuda_scope_t *scope) {
    return ac_cuda_is_capturing(scope->context) && !ac_cuda_is_relaxed(scope);
}

uint64_t ac_cuda_capture_mark(void) {
    uint64_t mark = atomic_load(&beginnings) + 1;
    bool any = ac_cuda_is_capturing(NULL);
    AC_WINDOW(capture_looked);
    if (AC_FAILPOINT(capture_mark_late))
        mark = atomic_load(&beginnings) + 1;
    return any ? 0 : mark;
}

bool ac_cuda_capture_none_since(uint64_t mark) {
    return mark && mark == atomic_load(&beginnings) + 1;
}

bool ac_cuda_sync_begin(const ac_cuda_context_t *context) {
    ac_lock(&sync_lock);
    bool may = (beginning == 0 || AC_FAILPOINT(sync_beside_beginning)) &&
               !ac_cuda_is_capturing(context);
    syncing += may;
    if (may)
        sync_began = ac_raw_time(CLOCK_MONOTONIC);
    ac_unlock(&sync_lock);
    return may;
}

void ac_cuda_sync_end(void) {
    ac_lock(&sync_lock);
    if (--syncing == 0)
        ac_cond_broadcast(&sync_over);
    ac_unlock(&sync_lock);
}

void ac_cuda_capture_begin(ac_cuda_context_t *context) {
    ac_lock(&sync_lock);
    beginning++;
    struct timespec until = sync_began; /* one that lasts is not waited for again and again */
    until.tv_sec += GRACE_S;
    while (syncing && ac_wait_until(&sync_over, &sync_lock, &until) == 0)
        ;
    ac_unlock(&sync_lock);
    AC_WINDOW(capture_at_gate);
    ac_lock_exclusive(&ac_cuda_gate);
    if (!AC_FAILPOINT(capture_counted_late))
        count(context, 1);
    atomic_fetch_add(&beginnings, 1);
}

void ac_cuda_capture_began(ac_cuda_context_t *context, bool began) {
    AC_WINDOW(capture_begun);
    if (AC_FAILPOINT(capture_counted_late))
        count(context, 1);
    if (!began)
        ac_cuda_capture_ended(context);
    ac_release(&ac_cuda_gate);
    ac_lock(&sync_lock);
    beginning--;
    ac_unlock(&sync_lock);
}

void ac_cuda_capture_unplace(ac_cuda_context_t *context) {
    count(NULL, 1);
    count(context, -1);
}

void ac_cuda_capture_ended(ac_cuda_context_t *context) {
    count(context, -1);
}
