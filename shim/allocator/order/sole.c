/* The single-stream rule of sole.h. */
#include "allocator/order/sole.h"

#include "allocator/order/fence.h"
#include "device/wait.h"
#include "failpoint.h"


_Atomic bool ac_sole_wanted = true;
_Atomic bool ac_sole_eager;

static _Atomic unsigned closed; /* captures that are about to begin */

/* Returns a stamp that was taken after the change.  The caller holds the lock. */
static uint64_t set_word(ac_sole_t *single, ac_sole_mode_t mode, uint64_t sole) {
    enum { CHANGE_SHIFT = AC_SOLE_MODE_BITS + AC_SOLE_KEY_BITS };
    uint64_t changes = (atomic_load(&single->word) >> CHANGE_SHIFT) + 1;
    atomic_store(&single->word, changes << CHANGE_SHIFT | sole << AC_SOLE_MODE_BITS | mode);
    if (AC_FAILPOINT(join_within_epoch))
        return ac_fence_now();
    return ac_fence_stamp(); /* submissions look at the clock first */
}

static ac_sole_mode_t mode_of(const ac_sole_t *single) {
    return ac_sole_mode(atomic_load(&single->word));
}

static uint64_t sole_of(const ac_sole_t *single) {
    return ac_sole_stream(atomic_load(&single->word));
}

/* Whether the rule is in force in the timeline's context at all. */
static bool in_force(const ac_timeline_t *timeline) {
    return atomic_load_explicit(&ac_sole_wanted, memory_order_relaxed) &&
           atomic_load(&closed) == 0 && !atomic_load(&ac_fence_shared) &&
           !atomic_load(&ac_fence_untracked) &&
           !timeline->ops->capturing(timeline->context, false);
}

/* Returns true if all work is complete except for `self` callers, which are inside and have not marked it
 * yet.  The caller holds the lock and has changed `word`: a thread that submits meanwhile is seen here,
 * or sees that change and waits for the lock. */
static bool is_idle(const ac_timeline_t *timeline, unsigned self) {
    if (atomic_load(&timeline->last_submit) > atomic_load(&timeline->done))
        return false;
    if (ac_fence_unseen_inside(timeline, self) && !AC_FAILPOINT(sole_without_barrier) &&
        !ac_barrier_heavy())
        return false;
    return ac_fence_inside(timeline, self) <= self &&
           (AC_FAILPOINT(idle_marks_read_once) ||
            atomic_load(&timeline->last_submit) <= atomic_load(&timeline->done));
}

static void rely(ac_sole_t *single, uint64_t now) {
    uint64_t seen = atomic_load(&single->relied);
    while (seen < now && !atomic_compare_exchange_weak(&single->relied, &seen, now))
        ;
}

/* Need not read the flags that end the rule permanently, nor whether a capture begins.  The thread that
 * sets these has left every sole stream before the work that they announce, and no stream becomes one
 * after that. */
bool ac_sole_protects(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    uint64_t word = atomic_load(&single->word);
    if (ac_sole_mode(word) != AC_SOLE_ONE ||
        !atomic_load_explicit(&ac_sole_wanted, memory_order_relaxed))
        return false;
    uint64_t now = ac_fence_now();
    if (now < atomic_load_explicit(&single->since, memory_order_relaxed)) {
        if (atomic_load(&timeline->last_submit) == now)
            ac_fence_end_epoch(now); /* with work since the last one: a step of backoff */
        return false;
    }
    AC_WINDOW(rely_begins);
    /* Before the second look: a thread that leaves the sole stream after it finds the mark. */
    if (!AC_FAILPOINT(rely_raised_late))
        rely(single, now);
    if (atomic_load(&single->word) != word && !AC_FAILPOINT(rely_looked_at_once))
        return false;
    AC_WINDOW(rely_decided);
    if (AC_FAILPOINT(rely_raised_late))
        rely(single, now);
    if (AC_FAILPOINT(join_not_announced))
        return true;
    if (atomic_load(&single->due) <= atomic_load(&single->covered)) {
        if (AC_FAILPOINT(due_before_epoch))
            atomic_store(&single->due, now);
        uint64_t none = 0; /* before `due`: see sole.h */
        if (!AC_FAILPOINT(early_noted_late))
            atomic_compare_exchange_strong(&single->early, &none, now + 1);
        AC_WINDOW(rely_announced);
        ac_fence_stamp(); /* the next submission looks */
        atomic_store(&single->due, now);
        AC_WINDOW(rely_due);
        if (AC_FAILPOINT(early_noted_late))
            atomic_compare_exchange_strong(&single->early, &none, ac_fence_now());
    }
    return true;
}

void ac_sole_set_bound(ac_timeline_t *timeline, uint64_t live, uint64_t reserved, uint64_t left) {
    uint64_t bound = ac_budget_sole(live, reserved, left);
    atomic_store_explicit(&timeline->single.bound, atomic_load(&ac_sole_eager) ? 0 : bound,
                          memory_order_relaxed);
}

bool ac_sole_waits(ac_timeline_t *timeline, uint64_t bytes) {
    uint64_t open = atomic_load_explicit(&timeline->open, memory_order_relaxed);
    uint64_t bound = atomic_load_explicit(&timeline->single.bound, memory_order_relaxed);
    bytes += ac_fence_bytes_of(open);
    if (bytes + atomic_load_explicit(&timeline->pending, memory_order_relaxed) > bound ||
        ac_fence_now() < atomic_load_explicit(&timeline->single.tight, memory_order_relaxed))
        return false;
    if (bytes > bound / 2 && (uint32_t)open < AC_FENCE_BATCH_WEIGHT)
        ac_fence_want_own(timeline, AC_FENCE_BATCH_WEIGHT);
    return true;
}

bool ac_sole_may_begin(const ac_timeline_t *timeline) {
    return mode_of(&timeline->single) <= AC_SOLE_ONE;
}

static void tighten(ac_timeline_t *timeline, uint64_t epochs) {
    ac_fence_raise(&timeline->single.tight, ac_fence_now() + epochs);
}

bool ac_sole_lacks(const ac_timeline_t *timeline) {
    const ac_sole_t *single = &timeline->single;
    return mode_of(single) == AC_SOLE_ONE && ac_fence_now() >= atomic_load(&single->since) &&
           ac_fence_waiting_bytes(timeline);
}

void ac_sole_lacked(ac_timeline_t *timeline) {
    if (ac_sole_lacks(timeline))
        tighten(timeline, AC_SOLE_LACK);
}

/* A free relied on order, maybe because of others that wait: asks the device, now and then, whether their
 * fences are over. */
static void look_at_pending(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    if (!atomic_load(&timeline->pending) || ac_fence_now() < atomic_load(&single->tight))
        return;
    ac_fence_poll(timeline, false);
    if (atomic_load(&timeline->pending) > atomic_load(&single->bound) / 2)
        tighten(timeline, AC_SOLE_LAG);
}

uint64_t ac_sole_early(const ac_timeline_t *timeline) {
    uint64_t early = atomic_load(&timeline->single.early), done = atomic_load(&timeline->done);
    return early > done ? early : done + 1;
}

static bool is_sole(const ac_timeline_t *timeline, uint64_t stream) {
    uint64_t word = atomic_load(&timeline->single.word);
    return ac_sole_mode(word) == AC_SOLE_ONE && ac_sole_stream(word) == stream;
}

uint64_t ac_sole_alone(const ac_timeline_t *timeline, uint64_t stream) {
    if (!is_sole(timeline, stream))
        return 0;
    AC_WINDOW(alone_begins);
    uint64_t stamp = ac_fence_stamp(); /* first: a stream that comes later is not covered */
    bool alone = is_sole(timeline, stream) || AC_FAILPOINT(alone_looked_at_once);
    AC_WINDOW(alone_decided);
    if (AC_FAILPOINT(alone_stamped_late))
        stamp = ac_fence_stamp();
    return alone ? stamp : 0;
}

static bool may_be_sole(const ac_timeline_t *timeline, uint64_t stream) {
    return stream && stream >> AC_SOLE_KEY_BITS == 0 && in_force(timeline);
}

/* From NONE or LEAVING, under the lock, nothing is pending: `stream` becomes the sole stream, or
 * with 0 none does. */
static void settle_down(ac_timeline_t *timeline, uint64_t stream) {
    ac_sole_t *single = &timeline->single;
    if (stream && AC_FAILPOINT(sole_before_its_marks)) {
        set_word(single, AC_SOLE_ONE, stream);
        AC_WINDOW(sole_made);
    }
    if (stream) {
        bool may_rely =
            !timeline->ops->join_events || timeline->ops->join_events(timeline->context);
        atomic_store(&single->since, may_rely ? ac_fence_now() + single->backoff : UINT64_MAX);
        atomic_store(&single->relied, 0); /* before any free can see the new word */
        atomic_store(&single->early, 0);
        single->waited = false;
        atomic_store(&single->covered, ac_fence_stamp());
    }
    set_word(single, stream ? AC_SOLE_ONE : AC_SOLE_MANY, stream);
    AC_WINDOW(sole_made);
}

/* A second try if it fails: nothing else is left that could hold a second stream back. */
static void synchronize(ac_timeline_t *timeline) {
    uint64_t stamp = ac_fence_stamp();
    if (timeline->ops->synchronize(timeline->context, 0) == AC_OK ||
        timeline->ops->synchronize(timeline->context, 0) == AC_OK)
        ac_fence_synced(timeline, stamp);
}

/* The caller holds the lock. */
static void named(ac_timeline_t *timeline) {
    if (atomic_fetch_sub(&timeline->single.naming, 1) == 1 && timeline->single.awaiting)
        ac_cond_broadcast(&timeline->single.named);
}

/* Records a join event of the sole stream.  A thread that destroys that stream waits in the
 * meantime: the device may not be given the name of one that is gone.  Called and returns with
 * the lock, which is open meanwhile. */
static ac_status_t name_sole(ac_timeline_t *timeline, void **fence) {
    ac_sole_t *single = &timeline->single;
    uint64_t sole = sole_of(single);
    if (!AC_FAILPOINT(sole_not_pinned))
        atomic_fetch_add(&single->naming, 1);
    ac_unlock(&timeline->lock);
    ac_status_t status = timeline->ops->join_record(timeline->context, sole, fence);
    ac_lock(&timeline->lock);
    if (!AC_FAILPOINT(sole_not_pinned))
        named(timeline);
    return status;
}

/* From LEAVING or ONE: makes the event with the stamp `covered` the join event.  The caller holds the
 * lock. */
static void set_join(ac_sole_t *single) {
    single->join++;
    set_word(single, AC_SOLE_JOINING, sole_of(single));
}

/* In LEAVING: records the join event.  If two threads record one, the first to come back decides.
 * Without a fence a synchronisation replaces it.  A context that allows neither is broken, and its work
 * is dead.  Called and returns with the lock, which is open meanwhile. */
static void record_join(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    uint64_t word = atomic_load(&single->word);
    ac_fence_t join = {.clock = single->left, .join = true};
    void *spare = NULL;
    ac_status_t status = name_sole(timeline, &join.fence);
    bool mine = atomic_load(&single->word) == word || AC_FAILPOINT(second_join_taken);
    bool awaited = mode_of(single) == AC_SOLE_MANY; /* by memory in quarantine */
    if (status == AC_OK && mine && ac_fence_insert(timeline, join, &spare)) {
        atomic_store(&single->covered, join.clock);
        set_join(single);
    } else if (status == AC_OK && awaited) {
        join.join = false;
        ac_fence_insert(timeline, join, &spare);
    } else if (status == AC_OK && !mine) {
        spare = join.fence;
    } else {
        ac_unlock(&timeline->lock);
        synchronize(timeline);
        ac_lock(&timeline->lock);
        if (atomic_load(&single->word) == word)
            set_word(single, AC_SOLE_MANY, 0);
    }
    ac_unlock(&timeline->lock);
    ac_fence_let_go(timeline, spare);
    ac_lock(&timeline->lock);
}

/* Leaves ONE.  If nothing is pending, `heir` becomes the sole stream; 0: none.  Called and returns with
 * the lock, which may be open meanwhile. */
static void leave(ac_timeline_t *timeline, uint64_t heir) {
    ac_sole_t *single = &timeline->single;
    uint64_t relied = AC_FAILPOINT(relied_read_first) ? atomic_load(&single->relied) : 0;
    AC_WINDOW(sole_left);
    single->left = set_word(single, AC_SOLE_LEAVING, sole_of(single));
    if (AC_FAILPOINT(second_stream_let_in) || AC_FAILPOINT(relied_read_first))
        atomic_store(&single->relied, relied);
    if (is_idle(timeline, heir != 0))
        settle_down(timeline, may_be_sole(timeline, heir) ? heir : 0);
    else if (atomic_load(&single->relied) <= atomic_load(&timeline->done))
        set_word(single, AC_SOLE_MANY, 0);
    else if (!ac_sole_due(single))
        set_join(single);
    else
        record_join(timeline);
}

/* Called before work for the sole stream: makes sure that all that relied on order has a join event.
 * Returns with the lock, and a fence that the caller lets go without it; NULL: none. */
static void *record_due(ac_timeline_t *timeline, uint64_t stream) {
    ac_sole_t *single = &timeline->single;
    look_at_pending(timeline);
    if (!AC_FAILPOINT(sole_pinned_late))
        atomic_fetch_add(&single->naming, 1); /* before the look: see ac_sole_stream_gone */
    uint64_t word = atomic_load(&single->word);
    bool sole = ac_sole_mode(word) == AC_SOLE_ONE && ac_sole_stream(word) == stream;
    ac_fence_t join = {.join = true};
    void *spare = NULL;
    ac_status_t status = AC_OK;
    uint64_t relied = atomic_load(&single->relied);
    bool over = relied <= atomic_load(&timeline->done);
    bool due = sole && !over && ac_sole_due(single);
    AC_WINDOW(join_due);
    if (AC_FAILPOINT(sole_pinned_late))
        atomic_fetch_add(&single->naming, 1);
    if (due) {
        join.clock = ac_fence_stamp(); /* a free that relies on order from now on has a later clock */
        status = timeline->ops->join_record(timeline->context, stream, &join.fence);
        if (AC_FAILPOINT(join_stamped_late))
            join.clock = ac_fence_stamp();
    }
    bool failed = status != AC_OK;
    ac_lock(&timeline->lock);
    bool same = atomic_load(&single->word) == word;
    /* The first join event that covers all is taken: a later one may have been recorded behind
     * work that came after the free. */
    bool first = ac_sole_due(single) && join.clock > atomic_load(&single->covered);
    if (join.fence && same && (first || AC_FAILPOINT(late_join_taken)))
        failed = !ac_fence_insert(timeline, join, &spare);
    else
        spare = join.fence;
    if (join.fence && spare != join.fence)
        atomic_store(&single->covered, join.clock);
    if (over && sole && same)
        ac_fence_raise(&single->covered, relied); /* it needs no join event */
    if (failed && same)
        single->left = set_word(single, AC_SOLE_LEAVING, stream); /* frees no longer rely */
    named(timeline);
    return spare;
}

/* Ends the wait for the join event `join`, which is over: every stream may work.  The caller holds the
 * lock. */
static void end_join(ac_sole_t *single, uint64_t join) {
    if (mode_of(single) == AC_SOLE_JOINING && single->join == join)
        set_word(single, AC_SOLE_MANY, 0);
}

/* In JOINING: the join event's fence, which stays until ac_fence_unuse; NULL: the join event is
 * over. Called with the lock, returns without it. */
static void *use_join(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    uint64_t covered = atomic_load(&single->covered);
    void *fence = atomic_load(&timeline->done) < covered ? ac_fence_use(timeline, covered) : NULL;
    if (!fence)
        end_join(single, single->join);
    ac_unlock(&timeline->lock);
    return fence;
}

/* The join event is not needed any more, and over if `status` is AC_OK.  Without the lock. */
static void unuse_join(ac_timeline_t *timeline, void *fence, uint64_t join, ac_status_t status) {
    ac_fence_unuse(timeline, fence, status == AC_OK);
    if (status != AC_OK)
        return;
    ac_lock(&timeline->lock);
    end_join(&timeline->single, join);
    ac_unlock(&timeline->lock);
}

/* The host waits for the join event; called in JOINING with the lock, returns without it. */
static void wait_join(ac_timeline_t *timeline) {
    uint64_t join = timeline->single.join;
    void *fence = use_join(timeline);
    if (!fence)
        return;
    ac_status_t status = timeline->ops->join_wait(timeline->context, fence, 0);
    if (status != AC_OK)
        synchronize(timeline);
    ac_fence_unuse(timeline, fence, status == AC_OK);
    ac_lock(&timeline->lock);
    end_join(&timeline->single, join);
    ac_unlock(&timeline->lock);
}

/* Lengthens the backoff: a stream that could have run in parallel has to wait for the join event.  The
 * caller holds the lock. */
static void lose_backoff(ac_sole_t *single) {
    if (!single->waited && single->backoff < AC_SOLE_AWAY_MOST)
        single->backoff = single->backoff ? single->backoff * 4 : AC_SOLE_AWAY;
    single->waited = true;
}

/* In LEAVING or JOINING, called by a thread that is inside: tries to do without the join event.  Returns
 * true if every stream may work.  Called and returns with the lock, which is open meanwhile. */
static bool quarantine(ac_timeline_t *timeline, uint64_t until) {
    ac_sole_t *single = &timeline->single;
    if (!timeline->quarantine || timeline->ops->capturing(timeline->context, false))
        return false;
    bool first = AC_FAILPOINT(rule_ended_before_walk);
    if (first)
        set_word(single, AC_SOLE_MANY, 0);
    ac_unlock(&timeline->lock);
    ac_fence_poll(timeline, false); /* memory is not early any more if its work is over */
    bool done = timeline->quarantine(timeline, until);
    ac_lock(&timeline->lock);
    ac_sole_mode_t mode = mode_of(single);
    if (done && mode >= AC_SOLE_LEAVING && mode < AC_SOLE_MANY) {
        lose_backoff(single);
        set_word(single, AC_SOLE_MANY, 0);
        ac_fence_is_awaited(timeline, until);
    }
    return done;
}

static unsigned slot_of(uint64_t stream) {
    return (unsigned)(stream * 0x9e3779b97f4a7c15u >> 60) % AC_SOLE_JOINS;
}

/* In JOINING: make `stream` wait for the join event, if that is not over; called with the lock,
 * returns without it. */
static void join_join(ac_timeline_t *timeline, uint64_t stream, ac_joins_t *joins) {
    uint64_t join = timeline->single.join, until = atomic_load(&timeline->single.covered);
    unsigned slot = slot_of(stream);
    bool joined = joins && joins->slot[slot].timeline == timeline &&
                  joins->slot[slot].stream == stream && joins->slot[slot].join == join;
    if (joined && atomic_load(&timeline->done) < atomic_load(&timeline->single.covered)) {
        ac_unlock(&timeline->lock);
        return;
    }
    void *fence = use_join(timeline);
    if (!fence)
        return;
    ac_status_t status = timeline->ops->fence_query(timeline->context, fence);
    if (status == AC_OK) {
        unuse_join(timeline, fence, join, AC_OK);
        return;
    }
    ac_lock(&timeline->lock);
    bool free = quarantine(timeline, until);
    ac_unlock(&timeline->lock);
    if (free) {
        ac_fence_unuse(timeline, fence, false);
        return;
    }
    status = timeline->ops->join_wait(timeline->context, fence, stream);
    ac_fence_unuse(timeline, fence, false);
    ac_lock(&timeline->lock);
    if (timeline->single.join == join)
        lose_backoff(&timeline->single);
    if (status != AC_OK && status != AC_BUSY && mode_of(&timeline->single) == AC_SOLE_JOINING)
        wait_join(timeline);
    else
        ac_unlock(&timeline->lock);
    if (status == AC_OK && joins) {
        joins->slot[slot].timeline = timeline;
        joins->slot[slot].stream = stream;
        joins->slot[slot].join = join;
    }
}

/* In LEAVING by another thread: makes `stream` wait by a join event of its own.  It must not wait for the
 * other thread's device call, which might wait for the work that this thread is about to submit.  Returns
 * false if the caller has to look again: the join event was recorded meanwhile, or before a capture that
 * has begun.  Called and returns with the lock, which is open meanwhile. */
static bool join_sole(ac_timeline_t *timeline, uint64_t stream) {
    void *fence = NULL;
    uint64_t word = atomic_load(&timeline->single.word);
    if (sole_of(&timeline->single) == stream || quarantine(timeline, timeline->single.left))
        return true;
    if (atomic_load(&timeline->single.word) != word)
        return false;
    ac_status_t status = name_sole(timeline, &fence);
    bool again = status == AC_BUSY;
    ac_unlock(&timeline->lock);
    if (status == AC_OK) {
        status = timeline->ops->join_wait(timeline->context, fence, stream);
        ac_fence_let_go(timeline, fence);
    }
    if (status != AC_OK && status != AC_BUSY)
        synchronize(timeline);
    ac_lock(&timeline->lock);
    return !again;
}

void ac_sole_pass(ac_timeline_t *timeline, uint64_t stream, ac_joins_t *joins) {
    ac_sole_t *single = &timeline->single;
    void *spare = NULL;
    bool due = is_sole(timeline, stream) && ac_sole_due(single) && !AC_FAILPOINT(join_after_work);
    if (due)
        spare = record_due(timeline, stream);
    else
        ac_lock(&timeline->lock);
    for (;;) {
        switch (mode_of(single)) {
        case AC_SOLE_NONE: /* all later submissions of others come through here, too */
            settle_down(timeline,
                        may_be_sole(timeline, stream) && is_idle(timeline, 1) ? stream : 0);
            continue;
        case AC_SOLE_ONE:
            if (sole_of(single) != stream)
                leave(timeline, stream);
            else if (ac_sole_due(single) && !AC_FAILPOINT(join_after_work)) {
                ac_unlock(&timeline->lock);
                ac_fence_let_go(timeline, spare);
                spare = record_due(timeline, stream);
            } else
                break;
            continue;
        case AC_SOLE_LEAVING:
            if (AC_FAILPOINT(leaving_passes))
                break;
            if (join_sole(timeline, stream))
                break;
            continue;
        case AC_SOLE_JOINING:
            if (sole_of(single) == stream)
                break;
            join_join(timeline, stream, joins);
            ac_fence_let_go(timeline, spare);
            return;
        default:
            break;
        }
        break;
    }
    ac_unlock(&timeline->lock);
    ac_fence_let_go(timeline, spare);
}

/* Leaves the sole stream, also if another thread began to.  Returns with the lock, and neither in ONE nor
 * in LEAVING. */
static void leave_sole(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    ac_lock(&timeline->lock);
    for (;;) {
        ac_sole_mode_t mode = mode_of(single);
        if (mode == AC_SOLE_ONE)
            leave(timeline, 0);
        else if (mode == AC_SOLE_LEAVING)
            record_join(timeline);
        else
            return;
    }
}

void ac_sole_leave(ac_timeline_t *timeline) {
    leave_sole(timeline);
    ac_unlock(&timeline->lock);
}

void ac_sole_hold(ac_timeline_t *timeline) {
    ac_sole_mode_t mode = ac_sole_mode(atomic_load(&timeline->single.word));
    if (mode == AC_SOLE_ONE || mode == AC_SOLE_LEAVING)
        ac_sole_leave(timeline);
}

void ac_sole_stream_gone(ac_timeline_t *timeline, uint64_t stream) {
    ac_sole_t *single = &timeline->single;
    if (ac_sole_mode(atomic_load(&single->word)) >= AC_SOLE_MANY &&
        atomic_load(&single->naming) == 0)
        return;
    ac_lock(&timeline->lock);
    while (mode_of(single) == AC_SOLE_ONE && sole_of(single) == stream)
        leave(timeline, 0);
    while (mode_of(single) == AC_SOLE_LEAVING && sole_of(single) == stream)
        record_join(timeline); /* another thread is at it, and may come too late */
    if (mode_of(single) == AC_SOLE_JOINING) {
        single->join++; /* voids what threads remember of this stream */
        if (sole_of(single) == stream)
            set_word(single, AC_SOLE_JOINING, 0);
    }
    single->awaiting++;
    while (atomic_load(&single->naming))
        ac_wait(&single->named, &timeline->lock);
    single->awaiting--;
    ac_unlock(&timeline->lock);
}

void ac_sole_settle(ac_timeline_t *timeline, bool forever) {
    ac_sole_t *single = &timeline->single;
    if (atomic_load(&single->word) % (1u << AC_SOLE_MODE_BITS) == AC_SOLE_NEVER)
        return;
    for (;;) {
        leave_sole(timeline);
        if (mode_of(single) != AC_SOLE_JOINING)
            break;
        wait_join(timeline);
    }
    if (forever)
        set_word(single, AC_SOLE_NEVER, 0);
    ac_unlock(&timeline->lock);
}

bool ac_sole_unorder(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    if (ac_sole_mode(atomic_load(&single->word)) == AC_SOLE_NEVER)
        return true;
    leave_sole(timeline);
    if (mode_of(single) == AC_SOLE_JOINING) {
        uint64_t join = single->join;
        void *fence = use_join(timeline);
        if (fence)
            unuse_join(timeline, fence, join,
                       timeline->ops->fence_query(timeline->context, fence));
        ac_lock(&timeline->lock);
    }
    bool over = mode_of(single) == AC_SOLE_MANY || mode_of(single) == AC_SOLE_NEVER;
    if (over)
        set_word(single, AC_SOLE_NEVER, 0);
    ac_unlock(&timeline->lock);
    return over;
}

void ac_sole_synced(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    ac_sole_mode_t mode = ac_sole_mode(atomic_load(&single->word));
    if (mode < AC_SOLE_LEAVING || mode == AC_SOLE_NEVER)
        return;
    ac_lock(&timeline->lock);
    mode = mode_of(single);
    uint64_t last = mode == AC_SOLE_JOINING ? atomic_load(&single->covered) : single->left;
    if (mode == AC_SOLE_MANY ||
        (mode >= AC_SOLE_LEAVING && mode < AC_SOLE_MANY && atomic_load(&timeline->done) >= last))
        set_word(single, AC_SOLE_NONE, 0);
    ac_unlock(&timeline->lock);
}

void ac_sole_close(void) {
    atomic_fetch_add(&closed, 1);
}

void ac_sole_open(void) {
    atomic_fetch_sub(&closed, 1);
}

/* `join` goes on counting: threads remember which ones their streams wait for. */
void ac_sole_begin(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    ac_lock(&timeline->lock);
    atomic_store(&single->relied, 0);
    atomic_store(&single->covered, 0);
    atomic_store(&single->due, 0);
    atomic_store(&single->since, 0);
    atomic_store(&single->early, 0);
    atomic_store(&single->tight, 0);
    atomic_store(&single->bound, 0);
    single->left = single->backoff = 0;
    single->waited = false;
    set_word(single, AC_SOLE_NONE, 0);
    ac_unlock(&timeline->lock);
}

void ac_sole_end(ac_timeline_t *timeline) {
    ac_lock(&timeline->lock);
    set_word(&timeline->single, AC_SOLE_NEVER, 0);
    ac_unlock(&timeline->lock);
}

int ac_sole_check(ac_timeline_t *timeline) {
    ac_sole_t *single = &timeline->single;
    ac_lock(&timeline->lock);
    ac_sole_mode_t mode = mode_of(single);
    uint64_t covered = atomic_load(&single->covered);
    unsigned i = 0;
    while (i < timeline->count && timeline->ring[i].clock != covered)
        i++;
    int wrong =
        mode == AC_SOLE_JOINING && i == timeline->count && atomic_load(&timeline->done) < covered;
    wrong |= (sole_of(single) != 0) > (mode >= AC_SOLE_ONE && mode <= AC_SOLE_JOINING);
    wrong |= mode == AC_SOLE_ONE && sole_of(single) == 0;
    wrong |= covered >= ac_fence_now();
    ac_unlock(&timeline->lock);
    return wrong;
}
