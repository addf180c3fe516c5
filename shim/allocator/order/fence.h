/* Fences: when is the device done with memory that the program freed?
 *
 * The clock.  `ac_fence_clock` counts epochs.  A *stamp* adds one to it and returns the epoch that it
 * ends.  A stamp precedes each record of a device object and each synchronisation.  A handout ends an
 * epoch as well if earlier work has to be told from later work (rule 3).  A submission does not move the
 * clock; it only notes the epoch that it finds.  A *timeline*, one for each live context, knows
 *   last_submit  the newest epoch in which a submission to the context was seen (its *mark*),
 *   done         all that the driver had when the clock left epoch `done` is complete,
 * and the fences that are recorded and not yet known to be complete.  A fence carries its stamp.
 *
 * A submission marks its timeline before it calls the driver and after the call returned.  Mostly both
 * are a load that finds the mark made.
 *   (1) A submission that returned with mark m was in the driver before the clock left m: the second
 *       mark was read from the clock after the call.  So all is complete if last_submit <= done and
 *       no thread is inside.  `done` comes from stamps only and stays below the clock.
 *   (2) A free that finds the clock at e may wait for any target >= e.  A stamp that is taken later
 *       than the free reaches it.  The work that may touch the memory is in the driver at the free,
 *       even if its call has not returned: it may run already, and may have told another thread
 *       through mapped memory that the block can be freed.  A lower target, last_submit, is right
 *       while no thread is inside, by (1).  If a submission is in flight, the free itself marks the
 *       timeline: no fence recorded so far has the present epoch.
 *   (3) A handout notes a clock above all marks so far, and not above the clock.  If last_submit is
 *       the present epoch, the handout ends that epoch.  A submission that may use the block begins
 *       later and marks at least that clock before the driver sees it.  So `untouched` is one
 *       comparison, whichever threads are inside.
 *       A block may also get the present mark.  It then counts as touched, which is the safe side.
 *       Most handouts do this (`rough`) while nearly all recent frees waited and no free relies on
 *       the order of a stream (sole.h).  If each handout ended an epoch, each submission would have
 *       to look at everything again.
 *
 * The clock also moves when the next submission to a timeline has something new to look at: frees that
 * are due for a fence, a change of the single-stream rule, streams that it has to follow.  So a thread
 * that looked at all of it, and marked the timeline, while the clock showed e has nothing to do for its
 * next submission as long as the clock shows e.
 *
 * Each thread notes by plain stores which driver call it is inside of (ac_submitter_t).  Others read that
 * only if it decides something.  Calls within calls, and threads without a record, count in `inside` of
 * the timeline.
 *
 * Memory order.  A free that follows a submission by the program's own order, or by the device's (its
 * kernel ran), needs no barrier: the mark and the slot were stored before the driver was called.  Stamps
 * are sequentially consistent.  The proof assumes that the driver takes work, and takes a record, by
 * atomic operations of its own.  Then a submission that read its second mark before a stamp is part of
 * what that stamp's record covers.  On x86 this holds as it stands, because an atomic operation is a full
 * barrier; elsewhere a full fence precedes the second mark.  A thread that has to see a slot which
 * another thread stored just now, and that decides by it (sole.h), uses barrier.h.
 *
 * Invariants (ac_fence_check):
 *   ring entries are ordered by clock;
 *   done < ac_fence_clock, last_submit <= ac_fence_clock.
 *
 * A timeline lies in its arena's record and serves one context only.  A thread that still uses it after
 * the context has gone finds `live` unset and does no harm to a later context.
 *
 * All functions are thread-safe.  `lock` guards the ring and the single-stream rule and is never held
 * over a device call.  A fence stays in the ring while the device is asked about it: `uses` keeps it from
 * being released. */
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

/* Fences in the ring; at most JOIN_EVENTS of them are join events.  Without that bound each launch after
 * a free could push out a fence that frees wait for. */
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
    /* One cache line: every submission and most frees read it. */
    _Alignas(64) _Atomic uint64_t last_submit;
    _Atomic uint64_t inside; /* submitting calls that have not returned and have no slot */
    _Atomic uint64_t open;    /* sum of ac_fence_weight of frees that no fence covers; some may be lost */
    _Atomic uint64_t pending; /* bytes of frees that wait for fences in the ring */
    _Atomic bool live;       /* the context exists */
    _Atomic bool broken; /* a sticky error was seen: its work is dead, and so is the context */
    atomic_flag polled;  /* a thread queries: others go on without waiting */
    _Atomic int32_t rough; /* number of handouts that may still get a clock older than they are */
    ac_sole_t single;    /* the single-stream rule */
    _Atomic uint32_t credit; /* weight of frees, but `open`, that no fence was taken for */
    _Atomic uint64_t done;
    _Atomic uint64_t held;    /* work that the program may hold has a clock up to this one */
    _Atomic uint64_t overdue; /* newest target that a wait did not see reached in time */
    _Atomic uint64_t before_capture; /* as ac_fence_before_capture, of this context */
    const ac_device_ops_t *ops;
    void *context;
    ac_mutex_t lock;      /* rank: after the allocator's lock */
    unsigned count;       /* fences in the ring, oldest first */
    unsigned join_events; /* number of join events in the ring */
    ac_fence_t ring[AC_FENCE_RING];
    /* Puts free memory of the context that relied on order in quarantine until `until` (sole.h).  Returns
     * true if no early block is held and no memory of that kind is handed out before `until`.  NULL: no
     * quarantine.  Called without the lock. */
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

/* Set the flags, and end the single-stream rule everywhere: on return no free memory relies on the
 * order of a stream.  Blocks the first time; call before the work that they stand for. */
void ac_fence_share(void);
void ac_fence_uncount(void);

/* Declares that work may go where no hook sees it: to any stream and memory of any context, also of later
 * ones.  Permanently, contexts reach each other, and every free counts a submission and takes a fence.
 * Blocks the first time; takes no lock while no context was served.  Hooks call ac_streams_unseen
 * (retired/streams.h), which also ends the order of streams. */
void ac_fence_unseen(void);

/* Submissions under way that may go to any context: each is inside every timeline. */
extern AC_HIDDEN _Atomic unsigned ac_fence_untracked_calls;

/* Returns true if memory that is freed now has to wait for every context. */
static inline bool ac_fence_spans(void) {
    return atomic_load_explicit(&ac_fence_shared, memory_order_acquire) ||
           atomic_load(&ac_fence_untracked_calls);
}

static inline bool ac_fence_is_unseen(void) {
    return atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed) &&
           atomic_load_explicit(&ac_fence_shared, memory_order_relaxed);
}

/* Around a submission to `stream` (a key, 0 for a default stream) if it is not known where the work goes:
 * the driver does not tell the stream's context, or the context has no timeline.  Between the two calls
 * the submission is inside every timeline, frees wait for all contexts, and the stream waits for the join
 * events of all.  `submitted`: the call succeeded, so there is work that no timeline knows; from then on
 * work counts as unseen.  A call that the driver refuses leaves only a mark. */
void ac_fence_untracked_begin(uint64_t stream);
void ac_fence_untracked_end(bool submitted);

/* Around the driver call by which a stream of the context (NULL: of any context) joins a capture.  From
 * _begin on the timeline relies on no stream's order until the context has no capture.  No timeline
 * begins to rely before _began; by then the device knows of the capture. */
void ac_fence_capture_begin(ac_timeline_t *timeline);
void ac_fence_capture_began(void);

/* Targets for memory that no work uses, while a context captures.  Captured work marks timelines and
 * never completes, and no fence is recorded in a context that captures.  So `last_submit` is no target
 * for free memory, or for memory that is freed untouched.  The device is done with it when these targets
 * are reached: of a context its newest mark when it was about to take part in a capture; of all contexts
 * the newest mark when the first capture was about to begin.  UINT64_MAX: nothing captures, a call was
 * under way then, or calls are not counted. */
extern _Atomic uint64_t ac_fence_before_capture;
void ac_fence_capture_opened(void);
void ac_fence_capture_closed(void);

/* Whether the timeline was closed, and no call is inside it or uses a fence of it any more. */
bool ac_timeline_is_over(ac_timeline_t *timeline);

/* Sets up a timeline for a new context, in zeroed memory that stays for ever or in one that is over.
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

/* Returns true if a context's own timeline tells all about its memory, so that the functions with the
 * suffix `_alone` answer for it.  An event that ends this makes ac_generation grow. */
static inline bool ac_fence_simple(void) {
    return !atomic_load_explicit(&ac_fence_shared, memory_order_acquire) &&
           !atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed);
}

/* Ends the present epoch and returns it: called before a device object is recorded or a
 * synchronisation begun that is to set `done` to the result. */
static inline uint64_t ac_fence_stamp(void) {
    return atomic_fetch_add(&ac_fence_clock, 1);
}

/* Raises `target` to `value` and never lets it fall: several threads learn of progress out of order. */
AC_FENCE_HOT bool ac_fence_raise(_Atomic uint64_t *target, uint64_t value) {
    uint64_t seen = atomic_load_explicit(target, memory_order_relaxed);
    while (seen < value)
        if (atomic_compare_exchange_weak(target, &seen, value))
            return true;
    return false;
}

/* Marks the timeline: work goes to the context, or went to it. */
AC_FENCE_HOT void ac_fence_mark(ac_timeline_t *timeline) {
    uint64_t clock = ac_fence_now();
    AC_WINDOW(mark);
    ac_fence_raise(&timeline->last_submit, clock);
}

/* Work was submitted to the context in a way that no hook saw: a mark, and inside while it is
 * made, or another thread may end the epoch in between and find nothing under way. */
void ac_fence_submitted(ac_timeline_t *timeline);

/* Adds the submitter to the list of all threads that may be inside.  Call it once, before the first
 * entry. */
void ac_fence_list(ac_submitter_t *self);

/* Around a submitting call to the context: enter, ac_sole_enter, the call, leave. */
void ac_fence_enter(ac_timeline_t *timeline);
void ac_fence_leave(ac_timeline_t *timeline);

/* Enters the timeline by the submitter's own slot.  Returns false if the submitter is inside one already
 * (a call that enters several timelines, or a signal handler); the caller uses ac_fence_enter then. */
AC_FENCE_HOT bool ac_fence_enter_as(ac_timeline_t *timeline, ac_submitter_t *self) {
    if (__builtin_expect(atomic_load_explicit(&self->inside, memory_order_relaxed) != NULL, 0))
        return false;
    atomic_store_explicit(&self->inside, timeline, memory_order_relaxed);
    ac_barrier_light(); /* before the look at `single.word` */
    return true;
}

/* Called after the driver call and before the second mark: makes the driver's part visible before the
 * clock is read. */
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

/* Called between enter and the driver call: passes the single-stream rule, then makes the first mark.  In
 * this order, because the rule asks whether anything but `self` was marked. */
AC_FENCE_HOT void ac_sole_enter(ac_timeline_t *timeline, uint64_t stream, ac_joins_t *joins) {
    if (__builtin_expect(!ac_sole_passes(&timeline->single, stream), 0))
        ac_sole_pass(timeline, stream, joins);
    if (!AC_FAILPOINT(marked_after_call))
        ac_fence_mark(timeline);
}

/* Returns how many are inside, counted no further than one beyond `most`. */
unsigned ac_fence_inside(const ac_timeline_t *timeline, unsigned most);

/* Returns true if threads other than the `self` callers may have entered without a barrier.  Counting
 * them then needs ac_barrier_heavy. */
bool ac_fence_unseen_inside(const ac_timeline_t *timeline, unsigned self);

/* Called before the submission of work that the program may hold back until it does something else, maybe
 * after its next request for memory; and with `submitted` after ac_fence_leave. */
void ac_fence_hold(ac_timeline_t *timeline, bool submitted);

/* Returns true if work that the program may hold back can be pending in the context, or with `all` in any
 * context. */
bool ac_fence_holding(const ac_timeline_t *timeline, bool all);

/* Called when a synchronisation of the whole context, which began after the stamp `clock`, has returned
 * success. */
void ac_fence_synced(ac_timeline_t *timeline, uint64_t clock);

/* Lets about the next `n` handouts get a clock older than they are; called if nearly all recent frees
 * waited.  The bound stays below the number of frees that are worth a fence: so frees soon decide again
 * whether this holds. */
enum { AC_FENCE_ROUGH = 63 };
AC_FENCE_HOT void ac_fence_allow_rough(ac_timeline_t *timeline, int32_t n) {
    atomic_store_explicit(&timeline->rough, n, memory_order_relaxed);
}

/* Returns true if this handout may get an older clock.  Never while free memory relies on a stream's
 * order: the quarantine reads the clocks of blocks that came from that memory (sole.h).  Called after the
 * block was taken, so that a free on which its memory relies has raised `relied`.  If several threads ask
 * at a time, their handouts may count as one. */
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

/* Returns true if all marks so far are older than `clock`.  A relaxed load that is compared in place: a
 * register for the mark would make each hit save another one.  A mark that is set meanwhile may be seen
 * or not; a load of 64 bits is never torn on the supported machines. */
AC_FENCE_HOT bool ac_fence_is_marked_before(const ac_timeline_t *timeline, uint64_t clock) {
#ifdef AC_TSAN
    return atomic_load_explicit(&timeline->last_submit, memory_order_relaxed) < clock;
#else
    return *(const uint64_t *)&timeline->last_submit < clock;
#endif
}

/* Ends the present epoch if it is `last`, the newest mark.  Returns the epoch that follows. */
AC_FENCE_HOT uint64_t ac_fence_end_epoch(uint64_t last) {
    uint64_t clock = last; /* if the exchange fails, another thread has ended the epoch */
    if (AC_FAILPOINT(clock_set_back))
        atomic_store(&ac_fence_clock, last + 1);
    else if (!AC_FAILPOINT(handout_within_epoch))
        atomic_compare_exchange_strong(&ac_fence_clock, &clock, last + 1);
    return last + 1;
}

/* Returns the clock for a block that is handed out now (rule 3).  _alone: whatever other contexts did. */
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

/* Returns true if nothing was submitted since a block got `clock` (> 0): in the timeline's context, or in
 * any context once contexts share memory. */
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

/* Returns true if all work that was submitted and counted is complete: ac_timeline_idle asks for the
 * timeline's context, ac_fence_idle for all contexts that may touch its memory.  ac_fence_idle is false
 * if work may be untracked. */
bool ac_timeline_idle(const ac_timeline_t *timeline);
bool ac_fence_idle(const ac_timeline_t *timeline);

/* Returns the clock that a free has to wait for; *all is set if every context counts. */
uint64_t ac_fence_target(ac_timeline_t *timeline, bool *all);

/* Returns ac_fence_before_capture, of the timeline's context alone or of all. */
static inline uint64_t ac_fence_target_before_capture(const ac_timeline_t *timeline, bool all) {
    uint64_t before = atomic_load(all ? &ac_fence_before_capture : &timeline->before_capture);
    bool none = !all && before != UINT64_MAX && !timeline->ops->capturing(timeline->context, false);
    return none ? UINT64_MAX : before;
}

/* Returns the stamp for free memory: the device is done with the memory once this target is reached, also
 * if the order of a stream lets requests have it earlier. */
static inline uint64_t ac_fence_quiet(ac_timeline_t *timeline) {
    bool all;
    uint64_t target = ac_fence_target(timeline, &all);
    uint64_t before = ac_fence_target_before_capture(timeline, all);
    target = target < before ? target : before;
    return AC_FAILPOINT(idle_without_stamp) ? 0 : target;
}

/* Returns the newest clock that was reached: frees with a target up to it are ready.  _own: frees that
 * wait for the timeline's own context. */
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

/* Makes sure that a fence covers all that was submitted so far, of one timeline or of all; records one if
 * needed.  Returns AC_OK, AC_BUSY (capture), AC_UNSUPPORTED or AC_FAILED. */
ac_status_t ac_fence_close(ac_timeline_t *timeline, bool all);

/* Puts a join event into the ring, for sole.c; the caller holds the lock.  Returns false if there is no
 * room.  In any case the caller gives *spare to ac_fence_let_go, without the lock. */
bool ac_fence_insert(ac_timeline_t *timeline, ac_fence_t fence, void **spare);
void ac_fence_let_go(ac_timeline_t *timeline, void *spare);

/* Returns the fence in the ring with the stamp `clock`, and keeps it there until ac_fence_unuse; NULL if
 * it is over.  The caller holds the lock. */
void *ac_fence_use(ac_timeline_t *timeline, uint64_t clock);
/* Ends a use of the fence, without the lock; with `over` the fence is complete. */
void ac_fence_unuse(ac_timeline_t *timeline, void *fence, bool over);

/* Notes that freed memory waits for the join event with that stamp, if it is in the ring.  The caller
 * holds the lock. */
void ac_fence_is_awaited(ac_timeline_t *timeline, uint64_t clock);

/* Returns true if a fence is recorded for frees and not known to be complete, of one timeline or of any. */
bool ac_fence_under_way(ac_timeline_t *timeline, bool all);

/* Weights of frees that wait: AC_FENCE_BATCH_WEIGHT of it is worth a fence.  A timeline's credit is the
 * weight for which no fence was recorded, within bounds and about. */
enum { AC_FENCE_UNIT_BITS = 9 };
AC_FENCE_HOT void ac_fence_credit_give(ac_timeline_t *timeline, int weight) {
    const int most = AC_FENCE_FIRST * AC_FENCE_BATCH_WEIGHT;
    int credit = (int)atomic_load_explicit(&timeline->credit, memory_order_relaxed) + weight;
    credit = credit < 0 ? 0 : credit > most ? most : credit;
    atomic_store_explicit(&timeline->credit, (uint32_t)credit, memory_order_relaxed);
}

/* Returns the bytes counted in `open`; ac_fence_waiting_bytes: of all frees that wait for the context's
 * fences, as far as is known. */
static inline uint64_t ac_fence_bytes_of(uint64_t open) {
    return open >> 32 << AC_FENCE_UNIT_BITS;
}
static inline uint64_t ac_fence_waiting_bytes(const ac_timeline_t *timeline) {
    return ac_fence_bytes_of(atomic_load(&timeline->open)) + atomic_load(&timeline->pending);
}

/* Adds the weight of frees that no fence covers yet.  When AC_FENCE_BATCH_WEIGHT is reached, the next
 * submission to the timeline records a fence, so frees share fences and later work delays them little.
 * _own: for this timeline alone; returns true if the weight was reached.  The addition is not atomic,
 * because an atomic one would be most of the cost of a free.  If two threads add at a time, one weight
 * may be lost, even a whole batch: the fence comes later.  If another thread closes meanwhile, it comes
 * earlier.  No wait may depend on it. */
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

/* Credits a free that needs no fence as long as memory is not short. */
static inline void ac_fence_earn(ac_timeline_t *timeline, uint64_t weight) {
    ac_fence_credit_give(timeline, (int)(uint32_t)weight);
}

/* Returns true if fewer fences were recorded than one for each AC_FENCE_BATCH_WEIGHT, after the first
 * AC_FENCE_FIRST. Then a fence may be recorded for less weight. */
static inline bool ac_fence_credit(const ac_timeline_t *timeline) {
    return atomic_load_explicit(&timeline->credit, memory_order_relaxed) +
               (uint32_t)atomic_load_explicit(&timeline->open, memory_order_relaxed) >=
           AC_FENCE_BATCH_WEIGHT;
}

/* Returns true if the next submission should record a fence first. */
static inline bool ac_fence_full(const ac_timeline_t *timeline) {
    return (uint32_t)atomic_load_explicit(&timeline->open, memory_order_relaxed) >=
           AC_FENCE_BATCH_WEIGHT;
}

/* Asks the device about the oldest fences; never blocks.  Returns true if `done` moved. */
bool ac_fence_poll(ac_timeline_t *timeline, bool all);

/* Waits until frees with target `clock` are ready, for about `limit_ns` (0: no limit).  Returns AC_OK;
 * AC_BUSY if the limit passed or a stream captures; AC_FAILED if the context is broken. */
ac_status_t ac_fence_wait(ac_timeline_t *timeline, bool all, uint64_t clock, uint64_t limit_ns);

/* Asks the device whether frees with target `clock` are ready, after a wait that did not see it reached.
 * If no fence can be recorded, only a synchronisation tells: it gets two milliseconds, enough for an idle
 * device. */
bool ac_fence_look(ac_timeline_t *timeline, bool all, uint64_t clock);

/* Returns true if a wait may end in time.  It may not while an earlier wait's target is not reached:
 * fences complete in order, and the work before it may need the program to go on.  Else each request
 * would wait that long. */
static inline bool ac_fence_hopeful(const ac_timeline_t *timeline, bool all) {
    return ac_fence_reached(timeline, all) >= atomic_load(&timeline->overdue) ||
           ac_fence_idle(timeline);
}

/* Notes that a wait did not see the target reached in time. */
static inline void ac_fence_missed(ac_timeline_t *timeline, uint64_t target) {
    ac_fence_raise(&timeline->overdue, target);
}

/* Returns nonzero if an invariant does not hold. */
int ac_fence_check(ac_timeline_t *timeline);

#endif
