/* Fences: when is memory that the program freed out of reach of the device?
 *
 * The clock.  `ac_fence_clock` counts epochs.  It grows by one (a *stamp*, which returns the
 * epoch that it ends) before each record of a device object and each synchronisation, and where
 * memory is handed out that earlier work must be told from (below).  It does not grow with
 * submissions: these only note in which epoch they were.  A *timeline* (one per live context)
 * knows
 *   last_submit  the newest epoch in which a submission to the context was seen (its *mark*),
 *   done         all that the driver had when the clock left epoch `done` is complete,
 * and the fences that are recorded and not yet known complete.  A fence carries its stamp.
 *
 * A submission marks its timeline before the driver is called and after it returned, mostly by
 * two loads that find the mark made.
 *   (1) What returned with mark m was in the driver before the clock left m: the second mark was
 *       read from the clock after the call.  So with last_submit <= done and no thread inside all
 *       is complete.  `done` comes of stamps only and stays below the clock.
 *   (2) A free at a time when the clock shows e may wait for any target >= e: it is reached by a
 *       stamp that was taken later than the free, and what may touch the memory was in the
 *       driver then, also if its call has not returned (it may run already, and have told another
 *       thread through mapped memory that the block can be freed).  A target below e,
 *       last_submit, is right while no thread is inside: by (1).  If a submission is in flight,
 *       the free itself marks the timeline: no fence recorded so far has the clock's present
 *       epoch.
 *   (3) A block is handed out with a clock that is above all marks so far, and not above the
 *       clock: where last_submit is the present epoch, that epoch is ended.  A submission that
 *       may use the block begins later and marks at least that clock before the driver sees it.
 *       So `untouched` is one comparison, whichever threads are inside.
 *       A block may also get the present mark: then it counts as touched, which is the safe side.
 *       Where each free of late waited (`rough`), and no order of a stream is relied on (sole.h), most
 *       do: to end an epoch for each would make each submission look at everything again.
 *
 * The clock also moves when a timeline gets something that its next submission has to look at:
 * frees that are due for a fence, another state of the single-stream rule, streams that are to be
 * followed.  So a thread that looked at all of it, and marked the timeline, while the clock
 * showed e has nothing to do for its next submission there as long as the clock shows e.
 *
 * Who is inside a driver call is kept per thread (ac_submitter_t), by plain stores, and looked
 * for only where it decides.  Calls within calls, and threads without a record, count in
 * `inside` of the timeline.
 *
 * Memory order.  Looks at marks and slots that follow a submission by the program's own order (or
 * by the device's: its kernel ran) need nothing: the mark and the slot were stored before the
 * driver was called, and reading the same place never goes back.  Stamps are sequentially
 * consistent.  What else is assumed is that the driver takes work, and takes a record, by atomic
 * operations of its own: a submission whose second mark was read before a stamp was taken in
 * before that stamp's record.  On x86 this holds as it stands (an atomic operation is a full
 * barrier); elsewhere a full fence comes before the second mark.  Where a thread must be seen that
 * may have stored its slot just now, and decides by what it reads next (sole.h), the two sides
 * use barrier.h.
 *
 * Invariants (ac_fence_check):
 *   ring entries are ordered by clock;
 *   done < ac_fence_clock, last_submit <= ac_fence_clock.
 *
 * A timeline lies in its arena's record and serves one context only: a thread that still uses it
 * when the context has gone finds `live` unset, and does no harm to a later context.
 *
 * All functions are thread-safe.  `lock` guards the ring and the single-stream rule, and is never
 * held over a device call.  A fence stays in the ring while the device is asked about it: `uses`
 * keeps it from being released meanwhile. */
#ifndef AC_FENCE_H
#define AC_FENCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/order/barrier.h"
#include "allocator/order/sole.h"
#include "allocator/policy.h"
#include "device/device.h"
#include "lock.h"
#include "observe/stats.h"
#include "failpoint.h"

/* Whose work counts: that of the context alone, or of all contexts.  A value for each `all`. */
typedef enum { AC_REACH_OWN, AC_REACH_ALL } ac_reach_t;

/* Of the fences in the ring, join_events are so many at the most, or each launch after a free
 * would push out one that frees wait for. */
enum { AC_FENCE_RING = 32, AC_FENCE_JOIN_EVENTS = 4, AC_FENCE_LINES = 256 };

/* On the way of every submission. */
#define AC_FENCE_HOT __attribute__((always_inline)) static inline

typedef struct {
    uint64_t clock;
    uint64_t bytes; /* of frees that wait for it and for no earlier one */
    void *fence;
    unsigned uses; /* threads that give it to the device now, without the lock */
    bool join;     /* of the single-stream rule: recorded for no free that waits */
} ac_fence_t;

/* A thread that submits: which timeline it is inside of.  Records are never unmapped, and stay in
 * the list of all once they are in it. */
typedef struct ac_submitter {
    _Alignas(64) _Atomic(ac_timeline_t *) inside;
    struct ac_submitter *next; /* in that list */
    bool listed;
} ac_submitter_t;

struct ac_timeline {
    /* What every submission and most frees look at: one cache line. */
    _Alignas(64) _Atomic uint64_t last_submit;
    _Atomic uint64_t inside; /* submitting calls that have not returned and have no slot */
    _Atomic uint64_t open;    /* sum of ac_fence_weight of frees that no fence covers; some may be lost */
    _Atomic uint64_t pending; /* bytes of frees that wait for fences in the ring */
    _Atomic bool live;       /* the context exists */
    _Atomic bool broken; /* a sticky error was seen: its work is dead, and so is the context */
    atomic_flag polled;  /* a thread queries: others go on without waiting */
    _Atomic int32_t rough; /* so many handouts may still be taken for older than they are */
    ac_sole_t single;    /* the single-stream rule */
    _Atomic uint32_t credit; /* weight of frees, but `open`, that no fence was taken for */
    _Atomic uint64_t done;
    _Atomic uint64_t held;    /* work that the program may hold has a clock up to this one */
    _Atomic uint64_t overdue; /* a target that was waited for and not reached in time */
    _Atomic uint64_t before_capture; /* as ac_fence_before_capture, of this context */
    const ac_device_ops_t *ops;
    void *context;
    ac_mutex_t lock;      /* rank: after the allocator's lock */
    unsigned count;       /* fences in the ring, oldest first */
    unsigned join_events; /* of them, those of the single-stream rule */
    ac_fence_t ring[AC_FENCE_RING];
    /* Of the owner of the context's memory, called without the lock, NULL: unknown.  True: no
     * early block is held, and free memory that relied on order is not handed out before `until`
     * (sole.h). */
    bool (*quarantine)(ac_timeline_t *timeline, uint64_t until);
};

extern AC_HIDDEN _Atomic uint64_t ac_fence_clock;

/* How many entries for timelines were ever used; 0: no context was served yet. */
extern _Atomic unsigned ac_timeline_high;

/* Several contexts may touch the same memory (peer access, copies across contexts): frees
 * from now on wait for all of them.  Never unset. */
extern AC_HIDDEN _Atomic bool ac_fence_shared;

/* Work may be submitted that is not counted: every free takes a fence of its own.  Never unset. */
extern AC_HIDDEN _Atomic bool ac_fence_untracked;

/* Set them, and end the single-stream rule everywhere: on return no free memory relies on the
 * order of a stream.  Blocks the first time; call before the work that they stand for. */
void ac_fence_share(void);
void ac_fence_uncount(void);

/* Work may go where no hook sees it: to any stream of any context, and to memory of all. For
 * good, and for contexts that come later: contexts cross, every free counts a submission and
 * takes a fence.  Blocks the first time, as those above do; takes no lock while no context was
 * served.  Hooks call ac_streams_unseen (retired/streams.h), which ends the order of streams as
 * well. */
void ac_fence_unseen(void);

/* Submissions under way that may go to any context: each is inside every timeline. */
extern AC_HIDDEN _Atomic unsigned ac_fence_strays;

/* Whether what is freed now has to wait for every context. */
static inline bool ac_fence_spans(void) {
    return atomic_load_explicit(&ac_fence_shared, memory_order_acquire) ||
           atomic_load(&ac_fence_strays);
}

static inline bool ac_fence_is_unseen(void) {
    return atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed) &&
           atomic_load_explicit(&ac_fence_shared, memory_order_relaxed);
}

/* Around a submission to `stream` (a key, 0 for a default stream) of which it is not known
 * where it goes: the driver does not tell the stream's context, or that has no timeline.  In
 * between it is inside every timeline, frees wait for all contexts, and the stream waits for the
 * join events of all. `submitted`: the call succeeded, and there is work that no timeline tells
 * of: unseen from then on. A call that the driver refuses leaves nothing behind but a mark. */
void ac_fence_stray_begin(uint64_t stream);
void ac_fence_stray_end(bool submitted);

/* A stream of the context is about to take part in a capture; NULL: of any context.  The timeline relies
 * on no stream's order from now on, until the context captures no longer.  No timeline begins to until
 * _began, by which the device knows of the capture. */
void ac_fence_capture_begin(ac_timeline_t *timeline);
void ac_fence_capture_began(void);

/* Captured work marks timelines and never completes, and no fence is recorded beside it in its context.
 * So while a context captures, `last_submit` is no target for memory that nothing was submitted beside
 * since: free memory, and what is freed untouched.  The device was done with that memory when these are
 * reached.  Of a context: its newest mark when it was about to take part.  Of all: the newest mark when
 * the first capture was about to begin.  UINT64_MAX: nothing captures, or a call was under way then,
 * or calls are not counted. */
extern _Atomic uint64_t ac_fence_before_capture;
void ac_fence_capture_opened(void);
void ac_fence_capture_closed(void);

/* Whether the timeline was closed, and no call is inside it or uses a fence of it any more. */
bool ac_timeline_is_over(ac_timeline_t *timeline);

/* Set up a timeline for a new context, in zeroed memory that stays for ever or in one that is over.
 * `context` is borrowed until _close.  False when AC_FENCE_LINES timelines are in use. */
bool ac_timeline_open(ac_timeline_t *timeline, const ac_device_ops_t *ops, void *context);

/* The context is gone, and with it all its work.  Its fences are released: the device keeps host
 * records of them. */
void ac_timeline_close(ac_timeline_t *timeline);

/* The context that the timeline was opened with. */
AC_FENCE_HOT void *ac_fence_context(const ac_timeline_t *timeline) {
    return timeline->context;
}

/* Whether a sticky error was seen: the context's work is dead, and so is the context.  _break
 * says so; on return caches of the context serve no hits. */
AC_FENCE_HOT bool ac_fence_broken(const ac_timeline_t *timeline) {
    return atomic_load(&timeline->broken);
}
void ac_fence_break(ac_timeline_t *timeline);

AC_FENCE_HOT uint64_t ac_fence_now(void) {
    return atomic_load_explicit(&ac_fence_clock, memory_order_acquire);
}

/* Whether a look at a context's own timeline tells all about its memory, so that the functions
 * `_alone` do.  What ends it makes ac_generation grow. */
static inline bool ac_fence_simple(void) {
    return !atomic_load_explicit(&ac_fence_shared, memory_order_acquire) &&
           !atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed);
}

/* End the present epoch, and say which it was: before a device object is recorded or a
 * synchronisation begun that is to set `done` to the result. */
static inline uint64_t ac_fence_stamp(void) {
    return atomic_fetch_add(&ac_fence_clock, 1);
}

/* Never let `target` fall: several threads learn of progress out of order. */
AC_FENCE_HOT bool ac_fence_raise(_Atomic uint64_t *target, uint64_t value) {
    uint64_t seen = atomic_load_explicit(target, memory_order_relaxed);
    while (seen < value)
        if (atomic_compare_exchange_weak(target, &seen, value))
            return true;
    return false;
}

/* Note that work goes to the context, or went to it. */
AC_FENCE_HOT void ac_fence_mark(ac_timeline_t *timeline) {
    uint64_t clock = ac_fence_now();
    AC_WINDOW(mark);
    ac_fence_raise(&timeline->last_submit, clock);
}

/* Work was submitted to the context in a way that no hook saw: a mark, and inside while it is
 * made, or another thread may end the epoch in between and find nothing under way. */
void ac_fence_submitted(ac_timeline_t *timeline);

/* Make the submitter known to all that look for who is inside; once, before its first entry. */
void ac_fence_list(ac_submitter_t *self);

/* Around a submitting call to the context: enter, ac_sole_enter, the call, leave. */
void ac_fence_enter(ac_timeline_t *timeline);
void ac_fence_leave(ac_timeline_t *timeline);

/* The same by a listed submitter.  False: it is inside already (a call that enters several timelines,
 * a signal handler), and ac_fence_enter is for it. */
AC_FENCE_HOT bool ac_fence_enter_as(ac_timeline_t *timeline, ac_submitter_t *self) {
    if (__builtin_expect(atomic_load_explicit(&self->inside, memory_order_relaxed) != NULL, 0))
        return false;
    atomic_store_explicit(&self->inside, timeline, memory_order_relaxed);
    ac_barrier_light(); /* before the look at `single.word` */
    return true;
}

/* After the call, before the look at the clock: what the driver was given comes first. */
AC_FENCE_HOT void ac_fence_given(void) {
#if !defined(__x86_64__) && !AC_BARRIER_TSAN
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

AC_FENCE_HOT void ac_fence_leave_as(ac_timeline_t *timeline, ac_submitter_t *self) {
    ac_fence_given();
    if (AC_FAILPOINT(left_before_mark))
        atomic_store_explicit(&self->inside, NULL, memory_order_release);
    if (!AC_FAILPOINT(marked_once))
        ac_fence_mark(timeline);
    atomic_store_explicit(&self->inside, NULL,
                          memory_order_release); /* last: see ac_timeline_idle */
}

/* Between enter and the call: the look of the single-stream rule that mostly suffices, and the
 * first mark.  Not the other way round: the rule asks whether anything was marked but `self`. */
AC_FENCE_HOT void ac_sole_enter(ac_timeline_t *timeline, uint64_t stream, ac_joins_t *joins) {
    if (__builtin_expect(!ac_sole_passes(&timeline->single, stream), 0))
        ac_sole_pass(timeline, stream, joins);
    if (!AC_FAILPOINT(marked_after_call))
        ac_fence_mark(timeline);
}

/* How many are inside, counted no further than one beyond `most`. */
unsigned ac_fence_inside(const ac_timeline_t *timeline, unsigned most);

/* Whether others than `self` callers, who are inside, may have entered unseen: the counting needs
 * ac_barrier_heavy then. */
bool ac_fence_unseen_inside(const ac_timeline_t *timeline, unsigned self);

/* Work that the program may hold back until it does something else, maybe after its next request
 * for memory: before the submission, and with `submitted` after ac_fence_leave. */
void ac_fence_hold(ac_timeline_t *timeline, bool submitted);

/* Whether such work may be pending in the context, or with `all` in any. */
bool ac_fence_holding(const ac_timeline_t *timeline, bool all);

/* A synchronisation of the whole context that began after the stamp `clock` returned success. */
void ac_fence_synced(ac_timeline_t *timeline, uint64_t clock);

/* Lets the next `n` handouts, some more or less, be taken for older than they are: of the last frees nearly
 * all waited.  No more than AC_FENCE_ROUGH, and fewer than those that were worth a fence, so that they
 * allow no more by themselves: others soon tell again whether it is so. */
enum { AC_FENCE_ROUGH = 63 };
AC_FENCE_HOT void ac_fence_allow_rough(ac_timeline_t *timeline, int32_t n) {
    atomic_store_explicit(&timeline->rough, n, memory_order_relaxed);
}

/* Returns true if this handout is one of them.  None is while free memory relies on a stream's order: the
 * quarantine reads the clocks of blocks that came out of it (sole.h).  Called after the block was taken: a
 * free that the block's memory relied on has raised `relied` by then.  If several threads ask at the same
 * time, their handouts may count as one. */
AC_FENCE_HOT bool ac_fence_takes_rough(ac_timeline_t *timeline) {
    if (ac_sole_mode(atomic_load(&timeline->single.word)) < AC_SOLE_MANY &&
        atomic_load_explicit(&timeline->single.relied, memory_order_relaxed) >
            atomic_load_explicit(&timeline->done, memory_order_relaxed))
        return false;
    int32_t left = atomic_load_explicit(&timeline->rough, memory_order_relaxed);
    if (left <= 0)
        return false;
    atomic_store_explicit(&timeline->rough, left - 1, memory_order_relaxed);
    return true;
}

/* Whether all marks so far are older.  As a relaxed load that is compared in place: in a register of its
 * own the mark would make each hit save one.  A mark that is set meanwhile may be seen or not, and a
 * load of 64 bits is never torn on the machines that we build for. */
AC_FENCE_HOT bool ac_fence_is_marked_before(const ac_timeline_t *timeline, uint64_t clock) {
#ifdef AC_TSAN
    return atomic_load_explicit(&timeline->last_submit, memory_order_relaxed) < clock;
#else
    return *(const uint64_t *)&timeline->last_submit < clock;
#endif
}

/* Ends the present epoch if it is `last`, the newest mark.  Returns the epoch that follows. */
AC_FENCE_HOT uint64_t ac_fence_end_epoch(uint64_t last) {
    uint64_t clock = last; /* where this fails another thread has ended the epoch */
    if (AC_FAILPOINT(clock_set_back))
        atomic_store(&ac_fence_clock, last + 1);
    else if (!AC_FAILPOINT(handout_within_epoch))
        atomic_compare_exchange_strong(&ac_fence_clock, &clock, last + 1);
    return last + 1;
}

/* The clock for a block that is handed out now; see (3).  _alone: whatever other contexts did. */
uint64_t ac_fence_handout_shared(void);
static inline uint64_t ac_fence_handout_alone(ac_timeline_t *timeline) {
    uint64_t clock = ac_fence_now();
    if (ac_fence_is_marked_before(timeline, clock))
        return clock;
    AC_WINDOW(handout);
    if (ac_fence_takes_rough(timeline))
        return atomic_load_explicit(&timeline->last_submit, memory_order_relaxed);
    return ac_fence_end_epoch(atomic_load_explicit(&timeline->last_submit, memory_order_relaxed));
}
static inline uint64_t ac_fence_handout(ac_timeline_t *timeline) {
    return __builtin_expect(atomic_load_explicit(&ac_fence_shared, memory_order_relaxed), 0)
               ? ac_fence_handout_shared()
               : ac_fence_handout_alone(timeline);
}

/* Whether nothing was submitted since a block got `clock` (> 0), in the timeline's context or,
 * once shared across contexts, in any. */
bool ac_fence_untouched_anywhere(uint64_t clock);
static inline bool ac_fence_untouched_alone(const ac_timeline_t *timeline, uint64_t clock) {
    return atomic_load_explicit(&timeline->last_submit, memory_order_acquire) < clock;
}
static inline bool ac_fence_untouched(const ac_timeline_t *timeline, uint64_t clock) {
    if (__builtin_expect(atomic_load_explicit(&ac_fence_shared, memory_order_relaxed) ||
                             atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed),
                         0))
        return ac_fence_untouched_anywhere(clock);
    return ac_fence_untouched_alone(timeline, clock);
}

/* Whether all that was submitted and counted is complete: in the timeline's context alone; of all
 * that may touch its memory (false where work may go untracked). */
bool ac_timeline_idle(const ac_timeline_t *timeline);
bool ac_fence_idle(const ac_timeline_t *timeline);

/* The clock that a free has to wait for; *all is set when every context counts. */
uint64_t ac_fence_target(ac_timeline_t *timeline, bool *all);

/* ac_fence_before_capture, of the timeline's context alone or of all. */
static inline uint64_t ac_fence_target_before_capture(const ac_timeline_t *timeline, bool all) {
    uint64_t before = atomic_load(all ? &ac_fence_before_capture : &timeline->before_capture);
    bool none = !all && before != UINT64_MAX && !timeline->ops->capturing(timeline->context, false);
    return none ? UINT64_MAX : before;
}

/* The same as a stamp for memory whose order a stream protects: the device is done with it when
 * the result was reached, and not before, whatever a free may wait for. */
static inline uint64_t ac_fence_quiet(ac_timeline_t *timeline) {
    bool all;
    uint64_t target = ac_fence_target(timeline, &all);
    uint64_t before = ac_fence_target_before_capture(timeline, all);
    target = target < before ? target : before;
    return AC_FAILPOINT(idle_without_stamp) ? 0 : target;
}

/* Frees with a target <= the result are ready.  _own: those that wait for the timeline's own context. */
uint64_t ac_fence_reached(const ac_timeline_t *timeline, bool all);
static inline uint64_t ac_fence_reached_own(const ac_timeline_t *timeline) {
    return atomic_load_explicit(&timeline->done, memory_order_acquire);
}

/* A moment: all work that may use the memory of a context and was submitted until then. */
typedef struct {
    uint64_t clock; /* the target of a free at that moment; 0: no moment */
    bool all;       /* the work of all contexts counts */
} ac_moment_t;

/* Returns the present moment of the timeline's context; NULL: of all contexts. */
ac_moment_t ac_fence_moment(ac_timeline_t *timeline);

/* Returns true if all work of the moment is known to be complete.  Does not ask the device. */
static inline bool ac_fence_is_over(const ac_timeline_t *timeline, ac_moment_t moment) {
    return ac_fence_reached(timeline, moment.all) >= moment.clock;
}

/* Asks the device whether all work of the moment is complete.  Waits for at most `limit_ns`; 0: does not wait. */
bool ac_fence_await(ac_timeline_t *timeline, ac_moment_t moment, uint64_t limit_ns);

/* Returns true if all that any context was given up to `target` is complete (0: so far).  Asks the device,
 * without waiting, if that is not known; with `true` a call that waits for the device returns at once. */
bool ac_fence_calm(uint64_t target);

/* Waits until the device is done with all that may use the memory of the timeline's context and was submitted
 * so far, for at most `limit_ns` (> 0).  Returns true if it is done. */
static inline bool ac_fence_settle(ac_timeline_t *timeline, uint64_t limit_ns) {
    return ac_fence_await(timeline, ac_fence_moment(timeline), limit_ns);
}

/* See that a fence covers all that was submitted so far (record one where needed), for one
 * timeline or for all.  AC_OK, AC_BUSY (capture), AC_UNSUPPORTED, AC_FAILED. */
ac_status_t ac_fence_close(ac_timeline_t *timeline, bool all);

/* For sole.c.  Put a join event into the ring; under the lock.  False: there is no room.  Either
 * way the caller gives what is in *spare to ac_fence_let_go, without the lock. */
bool ac_fence_insert(ac_timeline_t *timeline, ac_fence_t fence, void **spare);
void ac_fence_let_go(ac_timeline_t *timeline, void *spare);

/* The fence in the ring that was recorded with the stamp `clock`, which stays until _unuse; NULL:
 * it is over.  Under the lock. */
void *ac_fence_use(ac_timeline_t *timeline, uint64_t clock);
/* Without the lock: it is not needed any more; with `over` it is complete. */
void ac_fence_unuse(ac_timeline_t *timeline, void *fence, bool over);

/* The join event that was recorded with that stamp, if it is in the ring: freed memory waits for
 * it from now on.  Under the lock. */
void ac_fence_is_awaited(ac_timeline_t *timeline, uint64_t clock);

/* Whether a fence is recorded for frees and not known complete, of one timeline or of any. */
bool ac_fence_under_way(ac_timeline_t *timeline, bool all);

/* Frees that wait have a weight: AC_FENCE_BATCH_WEIGHT of it is worth a fence.  A timeline's credit is
 * the weight that no fence was taken for, within its bounds, and not to the last one. */
enum { AC_FENCE_UNIT_BITS = 9 };
AC_FENCE_HOT void ac_fence_credit_give(ac_timeline_t *timeline, int weight) {
    const int most = AC_FENCE_FIRST * AC_FENCE_BATCH_WEIGHT;
    int credit = (int)atomic_load_explicit(&timeline->credit, memory_order_relaxed) + weight;
    credit = credit < 0 ? 0 : credit > most ? most : credit;
    atomic_store_explicit(&timeline->credit, (uint32_t)credit, memory_order_relaxed);
}

/* Bytes in `open`; bytes of all frees that wait for the context's fences, as far as is known. */
static inline uint64_t ac_fence_bytes_of(uint64_t open) {
    return open >> 32 << AC_FENCE_UNIT_BITS;
}
static inline uint64_t ac_fence_waiting_bytes(const ac_timeline_t *timeline) {
    return ac_fence_bytes_of(atomic_load(&timeline->open)) + atomic_load(&timeline->pending);
}

/* Frees of this weight wait that no fence covers yet.  Where they add up to
 * AC_FENCE_BATCH_WEIGHT, the next submission to any of the timelines closes: frees share a fence, and
 * later work delays them little.  _own: of this timeline alone; true: they did.  Without an atomic
 * addition, which would be most of what such a free takes: of threads that add at a time one may be
 * lost, a whole BATCH_WEIGHT as well, and the fence comes that much later, or, where another thread
 * closes meanwhile, earlier: no wait may depend on it. */
void ac_fence_want(ac_timeline_t *timeline, bool all, uint64_t weight);
AC_FENCE_HOT bool ac_fence_want_own(ac_timeline_t *timeline, uint64_t weight) {
    uint64_t before = atomic_load_explicit(&timeline->open, memory_order_relaxed);
    uint64_t after = before + weight;
    atomic_store_explicit(&timeline->open, after, memory_order_relaxed);
    if (__builtin_expect((uint32_t)before >= AC_FENCE_BATCH_WEIGHT ||
                             (uint32_t)after < AC_FENCE_BATCH_WEIGHT, 1))
        return false;
    ac_fence_stamp(); /* the next submission looks */
    return true;
}

/* Returns the weight of a free of `bytes` if frees of `share` bytes are worth a fence, with the bytes above
 * it.  Sizes are multiples of 512. */
static inline uint64_t ac_fence_weight(uint64_t share, uint64_t bytes) {
    uint64_t weight = bytes * AC_FENCE_BATCH_WEIGHT, upper = bytes << (32 - AC_FENCE_UNIT_BITS);
    if (weight < share)
        return upper + 1;
    return upper + (weight / share < AC_FENCE_BATCH_WEIGHT ? weight / share : AC_FENCE_BATCH_WEIGHT);
}

/* For a free that needs none as long as nothing is short. */
static inline void ac_fence_earn(ac_timeline_t *timeline, uint64_t weight) {
    ac_fence_credit_give(timeline, (int)(uint32_t)weight);
}

/* Whether there were few fences so far: fewer than one for AC_FENCE_BATCH_WEIGHT of weight, and
 * the first AC_FENCE_FIRST.  Then one may be taken for less. */
static inline bool ac_fence_credit(const ac_timeline_t *timeline) {
    return atomic_load_explicit(&timeline->credit, memory_order_relaxed) +
               (uint32_t)atomic_load_explicit(&timeline->open, memory_order_relaxed) >=
           AC_FENCE_BATCH_WEIGHT;
}

/* Before a submission: close what is full. */
static inline bool ac_fence_full(const ac_timeline_t *timeline) {
    return (uint32_t)atomic_load_explicit(&timeline->open, memory_order_relaxed) >=
           AC_FENCE_BATCH_WEIGHT;
}

/* Ask the device about the oldest fences; never blocks. True if `done` moved. */
bool ac_fence_poll(ac_timeline_t *timeline, bool all);

/* Block until frees with target `clock` are ready, for about `limit_ns` at the most (0: for
 * ever).  AC_OK; AC_BUSY: not in time, or a capture; AC_FAILED: the context is broken. */
ac_status_t ac_fence_wait(ac_timeline_t *timeline, bool all, uint64_t clock, uint64_t limit_ns);

/* Whether frees with target `clock`, which an earlier wait did not see reached, are ready by now.
 * Where no fence can be recorded polls learn nothing, and only a synchronisation tells: it gets
 * two milliseconds, enough for a device that is idle. */
bool ac_fence_look(ac_timeline_t *timeline, bool all, uint64_t clock);

/* Whether such a wait may end in time: not while a target is to come that a wait did not see
 * reached, since fences complete in order, and the work before it may not end before the program goes on.
 * Else each request would be kept for as long. */
static inline bool ac_fence_hopeful(const ac_timeline_t *timeline, bool all) {
    return ac_fence_reached(timeline, all) >= atomic_load(&timeline->overdue) ||
           ac_fence_idle(timeline);
}

/* The target was waited for, and not reached in time. */
static inline void ac_fence_missed(ac_timeline_t *timeline, uint64_t target) {
    ac_fence_raise(&timeline->overdue, target);
}

/* Nonzero if an invariant does not hold. */
int ac_fence_check(ac_timeline_t *timeline);

#endif
