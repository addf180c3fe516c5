/* The timelines of fence.h. */
#include "allocator/order/fence.h"

#include <sched.h>

#include "allocator/order/generation.h"
#include "observe/start.h"
#include "failpoint.h"

_Alignas(64) _Atomic uint64_t ac_fence_clock = 1; /* 0 is "before everything" */
_Alignas(64) _Atomic uint64_t ac_generation = 1;
AC_START_DATA _Atomic bool ac_fence_shared;
AC_START_DATA _Atomic bool ac_fence_untracked;

static ac_timeline_t *_Atomic lines[AC_FENCE_LINES]; /* the live ones */
_Atomic unsigned ac_timeline_high;
static ac_mutex_t timelines_lock = AC_MUTEX(TIMELINES);

/* All threads that ever had a slot.  Each counts itself before its first entry, by an operation
 * that is a full barrier.  Store, barrier, load on both sides: of two threads at least one sees
 * the other.  A thread that finds itself alone may skip the barrier. */
static ac_submitter_t *_Atomic submitters;
static _Atomic unsigned submitter_count;

_Atomic unsigned ac_fence_untracked_calls;

void ac_fence_break(ac_timeline_t *timeline) {
    if (!atomic_exchange(&timeline->broken, true))
        ac_generation_grow();
}

/* The live line of entry `i`, or NULL. */
static ac_timeline_t *line_at(unsigned i) {
    return atomic_load_explicit(&lines[i], memory_order_acquire);
}

/* Returns the live line of entry `i`, for walks over all lines; NULL if its context is broken: that work
 * is dead. */
static ac_timeline_t *working_line_at(unsigned i) {
    ac_timeline_t *timeline = line_at(i);
    return timeline && !atomic_load(&timeline->broken) ? timeline : NULL;
}

/* Takes fences out of the ring that `done` has overtaken, or all fences if the context has gone.  A fence
 * in use stays for its last user.  Returns how many it stored in `old`; the caller releases them without
 * the lock, by device calls.  The caller holds the lock. */
static unsigned take_out(ac_timeline_t *timeline, void *old[AC_FENCE_RING]) {
    uint64_t pending = 0;
    unsigned n = 0, kept = 0, join_events = 0;
    bool all = !atomic_load(&timeline->live);
    uint64_t done = atomic_load(&timeline->done);
    for (unsigned i = 0; i < timeline->count; i++)
        if ((timeline->ring[i].uses == 0 || AC_FAILPOINT(fence_released_in_use)) &&
            (all || timeline->ring[i].clock <= done)) {
            old[n++] = timeline->ring[i].fence;
        } else {
            pending += timeline->ring[i].clock > done ? timeline->ring[i].bytes : 0;
            join_events += timeline->ring[i].join;
            timeline->ring[kept++] = timeline->ring[i];
        }
    timeline->count = kept;
    timeline->join_events = join_events;
    atomic_store_explicit(&timeline->pending, pending, memory_order_relaxed);
    return n;
}

static void release(const ac_timeline_t *timeline, void *const *old, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        timeline->ops->fence_release(timeline->context, old[i]);
}

static void sweep(ac_timeline_t *timeline) {
    void *old[AC_FENCE_RING];
    ac_lock(&timeline->lock);
    unsigned n = take_out(timeline, old);
    ac_unlock(&timeline->lock);
    release(timeline, old, n);
}

bool ac_timeline_is_over(ac_timeline_t *timeline) {
    ac_lock(&timeline->lock);
    bool over = !atomic_load(&timeline->live) && !timeline->count && !timeline->single.awaiting &&
                !atomic_load(&timeline->single.naming);
    ac_unlock(&timeline->lock);
    return over && !ac_fence_inside(timeline, 0);
}

/* For a context that was given nothing so far. */
static void reopen(ac_timeline_t *timeline) {
    ac_fence_raise(&timeline->done, ac_fence_stamp());
    atomic_store(&timeline->open, 0);
    atomic_store(&timeline->pending, 0);
    atomic_store(&timeline->broken, false);
    atomic_store(&timeline->held, 0);
    atomic_store(&timeline->overdue, 0);
    ac_sole_begin(timeline);
}

bool ac_timeline_open(ac_timeline_t *timeline, const ac_device_ops_t *ops, void *context) {
    unsigned i = 0;
    ac_lock(&timelines_lock);
    while (i < AC_FENCE_LINES && line_at(i))
        i++;
    if (i < AC_FENCE_LINES) {
        if (timeline->ops) {
            reopen(timeline);
        } else {
            ac_barrier_setup();
            ac_mutex_init(&timeline->lock, AC_RANK_TIMELINE);
            timeline->single.named = (ac_cond_t){0, 0};
        }
        ac_fence_credit_give(timeline, AC_FENCE_FIRST * AC_FENCE_BATCH_WEIGHT);
        atomic_store(&timeline->before_capture, UINT64_MAX);
        timeline->ops = ops;
        timeline->context = context;
        atomic_flag_clear(&timeline->polled);
        atomic_store(&timeline->live, true);
        atomic_store(&lines[i], timeline);
        if (i >= atomic_load(&ac_timeline_high))
            atomic_store(&ac_timeline_high, i + 1);
    }
    ac_unlock(&timelines_lock);
    return i < AC_FENCE_LINES;
}

void ac_timeline_close(ac_timeline_t *timeline) {
    ac_lock(&timelines_lock);
    for (unsigned i = 0; i < AC_FENCE_LINES; i++)
        if (line_at(i) == timeline)
            atomic_store(&lines[i], NULL);
    ac_unlock(&timelines_lock);
    ac_sole_end(timeline);

    ac_lock(&timeline->lock);
    atomic_store(&timeline->live, false); /* under the lock: none is put in from now on */
    ac_unlock(&timeline->lock);
    sweep(timeline);
}

void ac_fence_list(ac_submitter_t *self) {
    if (self->listed)
        return;
    self->listed = true;
    self->next = atomic_load(&submitters);
    while (!atomic_compare_exchange_weak(&submitters, &self->next, self))
        ;
    atomic_fetch_add(&submitter_count, 1);
}

void ac_fence_enter(ac_timeline_t *timeline) {
    atomic_fetch_add(&timeline->inside, 1);
}

void ac_fence_leave(ac_timeline_t *timeline) {
    ac_fence_mark(timeline);
    atomic_fetch_sub(&timeline->inside,
                     1); /* last: a thread that finds none inside has to find the mark */
}

void ac_fence_submitted(ac_timeline_t *timeline) {
    if (AC_FAILPOINT(submitted_not_inside)) {
        ac_fence_mark(timeline);
        return;
    }
    ac_fence_enter(timeline);
    ac_fence_leave(timeline);
}

unsigned ac_fence_inside(const ac_timeline_t *timeline, unsigned most) {
    uint64_t counted = atomic_load(&timeline->inside) + atomic_load(&ac_fence_untracked_calls);
    unsigned found = counted > most ? most + 1 : (unsigned)counted;
    for (const ac_submitter_t *s = atomic_load(&submitters); s && found <= most; s = s->next)
        found += atomic_load_explicit(&s->inside, memory_order_acquire) == timeline;
    return found;
}

bool ac_fence_unseen_inside(const ac_timeline_t *timeline, unsigned self) {
    unsigned slots = atomic_load(&submitter_count);
    /* A caller that does not count in the timeline has the one slot there is. */
    bool own = self && slots == 1 && atomic_load(&timeline->inside) == 0;
    return slots && !own;
}

void ac_fence_hold(ac_timeline_t *timeline, bool submitted) {
    if (!submitted) {
        ac_fence_raise(&timeline->held, ac_fence_now() + 1);
        return;
    }
    /* It is in the driver: the next stamp covers it, and none before. */
    ac_fence_stamp();
    ac_fence_mark(timeline);
    ac_fence_raise(&timeline->held, atomic_load(&timeline->last_submit));
}

static bool holds(const ac_timeline_t *timeline) {
    return atomic_load(&timeline->held) > atomic_load(&timeline->done);
}

bool ac_fence_holding(const ac_timeline_t *timeline, bool all) {
    bool any = holds(timeline);
    unsigned high = all ? atomic_load(&ac_timeline_high) : 0;
    for (unsigned i = 0; i < high && !any; i++) {
        const ac_timeline_t *other = working_line_at(i);
        any = other && holds(other);
    }
    return any;
}

/* Takes back what was counted for the next fence.  Returns it; another thread's share may be lost (ac_fence_want). */
static uint64_t take_open(ac_timeline_t *timeline) {
    uint64_t open = atomic_load_explicit(&timeline->open, memory_order_relaxed);
    ac_fence_credit_give(timeline, (int)(uint32_t)open);
    atomic_store_explicit(&timeline->open, 0, memory_order_relaxed);
    return open;
}

void ac_fence_synced(ac_timeline_t *timeline, uint64_t clock) {
    if (ac_fence_raise(&timeline->done, clock))
        sweep(timeline);
    if (atomic_load(&timeline->last_submit) <= atomic_load(&timeline->done))
        take_open(timeline); /* every free that was counted is ready */
    ac_sole_synced(timeline);
}

static void set_forever(_Atomic bool *flag, _Atomic bool *settled) {
    if (atomic_load_explicit(settled, memory_order_acquire))
        return;
    atomic_store(flag, true);
    ac_generation_grow();
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *timeline = line_at(i);
        if (timeline)
            ac_sole_settle(timeline, true);
    }
    atomic_store(settled, true);
}

void ac_fence_share(void) {
    static _Atomic bool settled;
    set_forever(&ac_fence_shared, &settled);
}

void ac_fence_uncount(void) {
    static _Atomic bool settled;
    set_forever(&ac_fence_untracked, &settled);
}

void ac_fence_unseen(void) {
    if (!AC_FAILPOINT(unseen_in_one_context))
        ac_fence_share();
    ac_fence_uncount(); /* last: a thread that finds it set finds both (ac_fence_is_unseen) */
}

/* First `ac_fence_untracked_calls`, then the join events: no stream becomes a sole stream from now on,
 * frees that find the timeline as it is now wait for all contexts.  The first mark comes last, as
 * in ac_sole_enter. */
void ac_fence_untracked_begin(uint64_t stream) {
    ac_sole_close();
    atomic_fetch_add(&ac_fence_untracked_calls, 1);
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *timeline = line_at(i);
        if (!timeline)
            continue;
        ac_sole_pass(timeline, stream, NULL);
        ac_fence_mark(timeline);
    }
}

void ac_fence_untracked_end(bool submitted) {
    ac_fence_given();
    if (submitted)
        ac_fence_unseen();
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *timeline = line_at(i);
        if (timeline)
            ac_fence_mark(timeline);
    }
    atomic_fetch_sub(&ac_fence_untracked_calls, 1); /* last: see ac_fence_leave */
    ac_sole_open();
}

/* The newest mark while no call is inside; one that is under way may be given a moment. */
static uint64_t settled_mark(const ac_timeline_t *timeline) {
    enum { LOOKS = 100 };
    for (int i = 0; i < LOOKS; i++) {
        if (!ac_fence_inside(timeline, 0))
            return atomic_load(&timeline->last_submit);
        sched_yield();
    }
    return UINT64_MAX;
}

static void begin_capture(ac_timeline_t *timeline) {
    ac_sole_leave(timeline);
    ac_fence_allow_rough(timeline, 0); /* the capture would hold what it never named */
    if (timeline->ops->capturing(timeline->context, false))
        return; /* what came since the first one may be captured */
    bool counted = !atomic_load(&ac_fence_untracked);
    atomic_store(&timeline->before_capture, counted ? settled_mark(timeline) : UINT64_MAX);
}

void ac_fence_capture_begin(ac_timeline_t *timeline) {
    ac_sole_close();
    unsigned high = timeline ? 0 : atomic_load(&ac_timeline_high);
    if (timeline)
        begin_capture(timeline);
    for (unsigned i = 0; i < high; i++)
        if (line_at(i))
            begin_capture(line_at(i));
}

void ac_fence_capture_began(void) {
    ac_sole_open();
}

_Atomic uint64_t ac_fence_before_capture = UINT64_MAX;

void ac_fence_capture_opened(void) {
    uint64_t newest = 0;
    unsigned high = atomic_load(&ac_timeline_high);
    if (atomic_load(&ac_fence_untracked))
        return;
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *timeline = working_line_at(i);
        uint64_t mark = timeline ? settled_mark(timeline) : 0;
        newest = mark > newest ? mark : newest;
    }
    atomic_store(&ac_fence_before_capture, newest);
}

void ac_fence_capture_closed(void) {
    unsigned high = atomic_load(&ac_timeline_high);
    atomic_store(&ac_fence_before_capture, UINT64_MAX);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *timeline = line_at(i);
        if (timeline)
            atomic_store(&timeline->before_capture, UINT64_MAX);
    }
}

/* First the look for threads inside: their mark may be the last thing that they do. */
bool ac_timeline_idle(const ac_timeline_t *timeline) {
    uint64_t early = AC_FAILPOINT(mark_before_inside) ? atomic_load(&timeline->last_submit) : 0;
    AC_WINDOW(idle_begins);
    if (ac_fence_inside(timeline, 0))
        return false;
    uint64_t last =
        AC_FAILPOINT(mark_before_inside) ? early : atomic_load(&timeline->last_submit);
    return last <= atomic_load(&timeline->done);
}

bool ac_fence_idle(const ac_timeline_t *timeline) {
    if (atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed))
        return false;
    if (!atomic_load_explicit(&ac_fence_shared, memory_order_acquire))
        return ac_timeline_idle(timeline);
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        const ac_timeline_t *other = working_line_at(i);
        if (other && !ac_timeline_idle(other))
            return false;
    }
    return true;
}

/* The newest mark of all lines. */
static uint64_t newest_mark(void) {
    uint64_t newest = 0;
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        const ac_timeline_t *timeline = working_line_at(i);
        uint64_t last = timeline ? atomic_load(&timeline->last_submit) : 0;
        newest = last > newest ? last : newest;
    }
    return newest;
}

bool ac_fence_untouched_anywhere(uint64_t clock) {
    return !atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed) &&
           newest_mark() < clock;
}

uint64_t ac_fence_handout_shared(void) {
    uint64_t clock = ac_fence_now();
    return newest_mark() < clock ? clock : ac_fence_stamp() + 1;
}

/* Applies `visit` to one timeline or to all live ones; the worst status wins. */
static ac_status_t for_lines(ac_timeline_t *timeline, bool all,
                             ac_status_t (*visit)(ac_timeline_t *)) {
    if (!all)
        return visit(timeline);
    ac_status_t worst = AC_OK;
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *other = working_line_at(i);
        ac_status_t status = other ? visit(other) : AC_OK;
        if (status > worst)
            worst = status;
    }
    return worst;
}

static ac_status_t count_unseen(ac_timeline_t *timeline) {
    ac_fence_submitted(timeline);
    return AC_OK;
}

/* With `all` every timeline's `done` is compared with the clock itself, so threads inside need no mark.
 * Targets never fall: neither the clock nor a mark does. */
uint64_t ac_fence_target(ac_timeline_t *timeline, bool *all) {
    bool untracked = atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed);
    *all = !timeline || ac_fence_spans();
    if (*all) {
        if (untracked)
            for_lines(timeline, true, count_unseen);
        return ac_fence_now();
    }
    uint64_t last = atomic_load_explicit(&timeline->last_submit, memory_order_acquire);
    if (last == ac_fence_now())
        return last; /* as if marked now */
    if (untracked)
        ac_fence_submitted(timeline);
    else if (ac_fence_inside(timeline, 0) && !AC_FAILPOINT(target_without_mark))
        ac_fence_mark(timeline);
    return atomic_load_explicit(&timeline->last_submit, memory_order_acquire);
}

uint64_t ac_fence_reached(const ac_timeline_t *timeline, bool all) {
    if (!all)
        return ac_fence_reached_own(timeline);
    uint64_t reached = UINT64_MAX;
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        const ac_timeline_t *other = working_line_at(i);
        if (!other)
            continue;
        uint64_t done = atomic_load_explicit(&other->done, memory_order_acquire);
        if (done < reached && !ac_timeline_idle(other))
            reached = done;
    }
    return reached;
}

ac_moment_t ac_fence_moment(ac_timeline_t *timeline) {
    ac_moment_t moment;
    moment.clock = ac_fence_target(timeline, &moment.all);
    return moment;
}

static ac_status_t is_under_way(ac_timeline_t *timeline) {
    bool any = false;
    ac_lock(&timeline->lock);
    uint64_t done = atomic_load(&timeline->done);
    for (unsigned i = 0; i < timeline->count && !any; i++)
        any = !timeline->ring[i].join && timeline->ring[i].clock > done; /* not swept yet: over */
    ac_unlock(&timeline->lock);
    return any ? AC_BUSY : AC_OK;
}

bool ac_fence_under_way(ac_timeline_t *timeline, bool all) {
    return for_lines(timeline, all, is_under_way) != AC_OK;
}

static void add_bytes(ac_timeline_t *timeline, unsigned at, uint64_t bytes) {
    timeline->ring[at].bytes += bytes;
    atomic_fetch_add_explicit(&timeline->pending, bytes, memory_order_relaxed);
}

/* Returns whether the newest fence in the ring covers `clock`; then frees of `bytes` wait for it. */
static bool covered(ac_timeline_t *timeline, uint64_t clock, uint64_t bytes) {
    ac_lock(&timeline->lock);
    bool yes = timeline->count && timeline->ring[timeline->count - 1].clock >= clock;
    if (yes)
        add_bytes(timeline, timeline->count - 1, bytes);
    ac_unlock(&timeline->lock);
    return yes;
}

/* Takes a fence, or with `join` a join event, out of the ring: the second oldest, because a later fence
 * covers what an earlier one covers.  The newest join event stays: work behind it may never end (sole.h).
 * Returns NULL if none can go.  The caller holds the lock. */
static void *drop_one(ac_timeline_t *timeline, bool join) {
    uint64_t newest = atomic_load(&timeline->single.covered);
    unsigned at = 1;
    while (at < timeline->count &&
           ((timeline->ring[at].uses && !AC_FAILPOINT(fence_dropped_in_use)) ||
            timeline->ring[at].clock == newest || (join && !timeline->ring[at].join)))
        at++;
    if (at >= timeline->count)
        return NULL;
    void *fence = timeline->ring[at].fence;
    timeline->join_events -= timeline->ring[at].join;
    timeline->count--;
    if (at < timeline->count)
        timeline->ring[at + 1].bytes += timeline->ring[at].bytes;
    for (; at < timeline->count; at++)
        timeline->ring[at] = timeline->ring[at + 1];
    return fence;
}

bool ac_fence_insert(ac_timeline_t *timeline, ac_fence_t fence, void **spare) {
    *spare = fence.fence;
    if (!atomic_load(&timeline->live) && !AC_FAILPOINT(fence_kept_after_context))
        return false;
    void *dropped = NULL;
    if (fence.join && timeline->join_events >= AC_FENCE_JOIN_EVENTS)
        dropped = drop_one(timeline, true);
    if (timeline->count == AC_FENCE_RING && !(dropped = drop_one(timeline, false)))
        return false;
    *spare = dropped;
    unsigned at = timeline->count++;
    for (; at > 0 && timeline->ring[at - 1].clock > fence.clock; at--)
        timeline->ring[at] = timeline->ring[at - 1];
    timeline->ring[at] = fence;
    timeline->join_events += fence.join;
    atomic_fetch_add_explicit(&timeline->pending, fence.bytes, memory_order_relaxed);
    return true;
}

void ac_fence_let_go(ac_timeline_t *timeline, void *spare) {
    if (spare)
        timeline->ops->fence_release(timeline->context, spare);
}

static void push(ac_timeline_t *timeline, ac_fence_t fence) {
    void *spare;
    ac_lock(&timeline->lock);
    ac_fence_insert(timeline, fence, &spare);
    ac_unlock(&timeline->lock);
    ac_fence_let_go(timeline, spare);
}

static ac_status_t close_line(ac_timeline_t *timeline) {
    if (!atomic_load(&timeline->live))
        return AC_OK;
    if (atomic_load(&timeline->broken))
        return AC_FAILED;
    uint64_t open = take_open(timeline), bytes = ac_fence_bytes_of(open);
    uint64_t wanted =
        AC_FAILPOINT(wanted_before_inside) ? atomic_load(&timeline->last_submit) : 0;
    AC_WINDOW(close_begins);
    bool inside = ac_fence_inside(timeline, 0);
    if (!AC_FAILPOINT(wanted_before_inside))
        wanted = atomic_load(&timeline->last_submit);
    if (!inside && wanted > atomic_load(&timeline->done) && covered(timeline, wanted, bytes))
        return AC_OK;
    ac_fence_t fence = {.clock = ac_fence_stamp(), .bytes = bytes};
    if (ac_timeline_idle(timeline)) {
        AC_WINDOW(close_idle);
        if (AC_FAILPOINT(idle_stamped_late))
            fence.clock = ac_fence_stamp();
        /* or later frees would wait for work that comes after them */
        ac_fence_synced(timeline, fence.clock);
        return AC_OK;
    }
    if (inside)
        wanted = fence.clock;
    if (wanted <= atomic_load(&timeline->done) || (inside && covered(timeline, wanted, bytes)))
        return AC_OK;
    if (AC_FAILPOINT(fence_after_publishing))
        ac_fence_raise(&timeline->done, fence.clock);
    ac_status_t status = timeline->ops->fence_record(
        timeline->context, atomic_load(&ac_fence_untracked), &fence.fence);
    if (AC_FAILPOINT(fence_stamped_late))
        fence.clock = ac_fence_stamp();
    if (AC_FAILPOINT(fence_dropped_at_oom) && status == AC_UNSUPPORTED)
        ac_fence_raise(&timeline->done, fence.clock);
    ac_fence_credit_give(timeline, -AC_FENCE_BATCH_WEIGHT);
    if (status == AC_OK)
        push(timeline, fence);
    else /* they go on waiting; if AC_BUSY, the next submission tries again */
        ac_fence_want_own(timeline, open - (uint32_t)open +
                                        (status == AC_BUSY ? AC_FENCE_BATCH_WEIGHT : 0));
    if (status == AC_FAILED)
        ac_fence_break(timeline);
    return status;
}

ac_status_t ac_fence_close(ac_timeline_t *timeline, bool all) {
    return for_lines(timeline, all, close_line);
}

void ac_fence_want(ac_timeline_t *timeline, bool all, uint64_t weight) {
    if (!all) {
        ac_fence_want_own(timeline, weight);
        return;
    }
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *other = working_line_at(i);
        if (other)
            ac_fence_want_own(other, weight);
    }
}

void *ac_fence_use(ac_timeline_t *timeline, uint64_t clock) {
    unsigned i = 0;
    while (i < timeline->count && timeline->ring[i].clock != clock)
        i++;
    if (i == timeline->count)
        return NULL;
    timeline->ring[i].uses++;
    return timeline->ring[i].fence;
}

void ac_fence_is_awaited(ac_timeline_t *timeline, uint64_t clock) {
    for (unsigned i = 0; i < timeline->count; i++)
        if (timeline->ring[i].clock == clock && timeline->ring[i].join) {
            timeline->ring[i].join = false;
            timeline->join_events--;
        }
}

/* Returns the oldest fence that is not known to be complete, and puts it in use; NULL: none.  The caller
 * holds the lock. */
static void *oldest(ac_timeline_t *timeline) {
    unsigned i = 0;
    uint64_t done = atomic_load(&timeline->done);
    while (i < timeline->count && timeline->ring[i].clock <= done)
        i++;
    return i < timeline->count ? ac_fence_use(timeline, timeline->ring[i].clock) : NULL;
}

static void *use_oldest(ac_timeline_t *timeline) {
    ac_lock(&timeline->lock);
    void *fence = oldest(timeline);
    ac_unlock(&timeline->lock);
    return fence;
}

/* As ac_fence_unuse; with `more` the oldest that is left is in use from now on, NULL: there is none. */
static void *unuse(ac_timeline_t *timeline, void *fence, bool over, bool more) {
    void *old[AC_FENCE_RING];
    unsigned i = 0, n = 0;
    ac_lock(&timeline->lock);
    while (timeline->ring[i].fence != fence)
        i++;
    timeline->ring[i].uses--;
    if (over)
        ac_fence_raise(&timeline->done, timeline->ring[i].clock);
    if (timeline->ring[0].clock <= atomic_load(&timeline->done) || !atomic_load(&timeline->live))
        n = take_out(timeline, old);
    void *next = more ? oldest(timeline) : NULL;
    ac_unlock(&timeline->lock);
    release(timeline, old, n);
    return next;
}

void ac_fence_unuse(ac_timeline_t *timeline, void *fence, bool over) {
    unuse(timeline, fence, over, false);
}

static ac_status_t poll_line(ac_timeline_t *timeline) {
    ac_status_t moved = AC_BUSY, status = AC_OK;
    if (atomic_load(&timeline->broken) || atomic_flag_test_and_set(&timeline->polled))
        return moved;
    for (void *fence = use_oldest(timeline); fence; fence = unuse(timeline, fence, status == AC_OK, status == AC_OK)) {
        status = timeline->ops->fence_query(timeline->context, fence);
        if (status == AC_OK)
            moved = AC_OK;
        if (status == AC_FAILED)
            ac_fence_break(timeline);
    }
    atomic_flag_clear(&timeline->polled);
    return moved;
}

bool ac_fence_poll(ac_timeline_t *timeline, bool all) {
    if (!all)
        return poll_line(timeline) == AC_OK;
    bool moved = false;
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *other = working_line_at(i);
        if (other && poll_line(other) == AC_OK)
            moved = true;
    }
    return moved;
}

bool ac_fence_calm(uint64_t target) {
    if (target && ac_fence_is_over(NULL, (ac_moment_t){target, true}))
        return true;
    const ac_moment_t now = {ac_fence_moment(NULL).clock, true};
    ac_fence_await(NULL, now, 0);
    /* The event of an idle device takes some microseconds.  If work may go unseen, the next call would
     * ask for a new event and never find it complete. */
    const int asks = atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed) ? 32 : 0;
    for (int i = 0; i < asks && !ac_fence_is_over(NULL, now); i++)
        ac_fence_poll(NULL, true);
    return ac_fence_is_over(NULL, now);
}

/* Returns the time until `end` (0: no end); waits take 0 for no limit. */
static uint64_t time_left(const ac_timeline_t *timeline, uint64_t end) {
    uint64_t now = end ? timeline->ops->now_ns() : 0;
    return end > now ? end - now : end != 0;
}

static ac_status_t wait_line(ac_timeline_t *timeline, uint64_t clock, uint64_t end) {
    while (!atomic_load(&timeline->broken)) {
        uint64_t done = atomic_load_explicit(&timeline->done, memory_order_acquire);
        if (done >= clock || ac_timeline_idle(timeline) || !atomic_load(&timeline->live))
            return AC_OK;
        void *fence = use_oldest(timeline);
        if (fence) {
            ac_status_t status =
                timeline->ops->fence_wait(timeline->context, fence, time_left(timeline, end));
            if (status == AC_FAILED)
                ac_fence_break(timeline);
            ac_fence_unuse(timeline, fence, status == AC_OK);
            if (status == AC_OK)
                continue;
            return status;
        }
        ac_status_t status = close_line(timeline);
        if (status == AC_OK)
            continue;
        if (status != AC_UNSUPPORTED)
            return status;
        uint64_t stamp = ac_fence_stamp();
        status = timeline->ops->synchronize(timeline->context, time_left(timeline, end));
        if (status == AC_FAILED) /* once more: nothing else is left that could tell */
            status = timeline->ops->synchronize(timeline->context, time_left(timeline, end));
        if (status != AC_OK)
            return status;
        ac_fence_synced(timeline, stamp);
    }
    return AC_FAILED;
}

ac_status_t ac_fence_wait(ac_timeline_t *timeline, bool all, uint64_t clock, uint64_t limit_ns) {
    uint64_t end = limit_ns ? timeline->ops->now_ns() + limit_ns : 0;
    if (!all)
        return wait_line(timeline, clock, end);
    ac_status_t worst = AC_OK;
    unsigned high = atomic_load(&ac_timeline_high);
    for (unsigned i = 0; i < high; i++) {
        ac_timeline_t *other = working_line_at(i);
        ac_status_t status = other ? wait_line(other, clock, end) : AC_OK;
        if (status > worst)
            worst = status;
    }
    return worst;
}

bool ac_fence_await(ac_timeline_t *timeline, ac_moment_t moment, uint64_t limit_ns) {
    if (ac_fence_is_over(timeline, moment))
        return true;
    if (limit_ns)
        ac_fence_wait(timeline, moment.all, moment.clock, limit_ns);
    else if (!ac_fence_poll(timeline, moment.all) || !ac_fence_is_over(timeline, moment)) {
        ac_fence_close(timeline, moment.all);
        ac_fence_poll(timeline, moment.all);
    }
    return ac_fence_is_over(timeline, moment);
}

bool ac_fence_look(ac_timeline_t *timeline, bool all, uint64_t clock) {
    if (ac_fence_reached(timeline, all) >= clock)
        return true;
    if (ac_fence_close(timeline, all) == AC_UNSUPPORTED)
        ac_fence_wait(timeline, all, clock, AC_MOMENT_NS);
    else
        ac_fence_poll(timeline, all);
    return ac_fence_reached(timeline, all) >= clock;
}

int ac_fence_check(ac_timeline_t *timeline) {
    int wrong = 0;
    ac_lock(&timeline->lock);
    for (unsigned i = 1; i < timeline->count; i++)
        wrong |= timeline->ring[i - 1].clock > timeline->ring[i].clock;
    wrong |= atomic_load(&timeline->done) >= ac_fence_now();
    wrong |= atomic_load(&timeline->last_submit) > ac_fence_now();
    ac_unlock(&timeline->lock);
    return wrong | ac_sole_check(timeline);
}
