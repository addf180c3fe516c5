/* The single-stream rule of single.h. */
#include "allocator/single.h"

#include "allocator/fence.h"
#include "device/wait.h"
#include "plant.h"

enum { LEAST_PATIENCE = 64, MOST_PATIENCE = 1 << 20 }; /* epochs */

_Atomic bool ac_single_wanted = true;

static _Atomic unsigned closed; /* captures that are about to begin */

/* Under the lock. */
static void set_word(ac_single_t *single, ac_single_mode_t mode, uint64_t home) {
    enum { CHANGE_SHIFT = AC_SINGLE_MODE_BITS + AC_SINGLE_KEY_BITS };
    uint64_t changes = (atomic_load(&single->word) >> CHANGE_SHIFT) + 1;
    atomic_store(&single->word, changes << CHANGE_SHIFT | home << AC_SINGLE_MODE_BITS | mode);
    ac_fence_stamp(); /* submissions look at the clock first */
}

static ac_single_mode_t mode_of(const ac_single_t *single) {
    return ac_single_mode(atomic_load(&single->word));
}

static uint64_t home_of(const ac_single_t *single) {
    return ac_single_home(atomic_load(&single->word));
}

/* Whether the rule is in force in the line's context at all. */
static bool in_force(const ac_fence_line_t *line) {
    return atomic_load_explicit(&ac_single_wanted, memory_order_relaxed) &&
           atomic_load(&closed) == 0 && !atomic_load(&ac_fence_crossed) &&
           !atomic_load(&ac_fence_uncounted) && !line->ops->capturing(line->context);
}

/* All work is complete but that of `self` callers, who are inside and have not marked it yet.
 * Under the lock and after a change of `word`: whoever submits meanwhile is seen here, or sees
 * that change and waits for the lock. */
static bool is_idle(const ac_fence_line_t *line, unsigned self) {
    if (atomic_load(&line->last_submit) > atomic_load(&line->done))
        return false;
    if (ac_fence_unseen_inside(line, self) && !ac_barrier_heavy())
        return false;
    return ac_fence_inside(line, self) <= self &&
           atomic_load(&line->last_submit) <= atomic_load(&line->done);
}

/* No longer asked for: the flags that end the rule for good, and a capture that begins.  Who sets
 * them leaves every home before the work that they stand for, and no stream becomes one after. */
bool ac_single_protects(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    uint64_t word = atomic_load(&single->word);
    if (ac_single_mode(word) != AC_SINGLE_ONE ||
        !atomic_load_explicit(&ac_single_wanted, memory_order_relaxed))
        return false;
    uint64_t now = ac_fence_now();
    if (now < atomic_load_explicit(&single->since, memory_order_relaxed)) {
        ac_fence_handout(line); /* with work since the last one: a step of patience */
        return false;
    }
    /* Before the second look: whoever leaves the home after it finds the mark. */
    uint64_t seen = atomic_load(&single->leaned);
    while (seen < now && !atomic_compare_exchange_weak(&single->leaned, &seen, now))
        ;
    if (atomic_load(&single->word) != word)
        return false;
    uint64_t leans = atomic_load_explicit(&single->leans, memory_order_relaxed) + 1;
    atomic_store_explicit(&single->leans, leans, memory_order_relaxed);
    if ((leans & (leans - 1)) == 0 && atomic_load(&single->early_left)) {
        atomic_store(&single->due, true);
        ac_fence_stamp();
    }
    return true;
}

static bool is_home(const ac_fence_line_t *line, uint64_t stream) {
    uint64_t word = atomic_load(&line->single.word);
    return ac_single_mode(word) == AC_SINGLE_ONE && ac_single_home(word) == stream;
}

uint64_t ac_single_alone(const ac_fence_line_t *line, uint64_t stream) {
    if (!is_home(line, stream))
        return 0;
    uint64_t stamp = ac_fence_stamp(); /* first: a stream that comes later is not covered */
    return is_home(line, stream) ? stamp : 0;
}

static bool may_be_home(const ac_fence_line_t *line, uint64_t stream) {
    return stream && stream >> AC_SINGLE_KEY_BITS == 0 && in_force(line);
}

/* From NONE or LEAVING, under the lock: `stream` becomes the home, or with 0 none does. */
static void settle_down(ac_fence_line_t *line, uint64_t stream) {
    ac_single_t *single = &line->single;
    if (stream) {
        atomic_store(&single->since, ac_fence_now() + single->patience);
        atomic_store(&single->leaned, 0); /* before any free can see the new word */
        single->early_clock = 0;
        atomic_store(&single->leans, 0);
    }
    set_word(single, stream ? AC_SINGLE_ONE : AC_SINGLE_MANY, stream);
}

/* Give up the turn's fence; under the lock.  Returns what the caller has to release after it. */
static void *drop_fence(ac_single_t *single) {
    void *fence = single->fence;
    single->fence = NULL;
    if (fence && single->users) {
        single->old = fence;
        return NULL;
    }
    return fence;
}

/* Once more where it fails: nothing else is left that could hold a second stream back. */
static void synchronize(ac_fence_line_t *line) {
    uint64_t stamp = ac_fence_stamp();
    if (line->ops->synchronize(line->context) == AC_OK ||
        line->ops->synchronize(line->context) == AC_OK)
        ac_fence_synced(line, stamp);
}

static void release(ac_fence_line_t *line, void *fence) {
    if (fence)
        line->ops->fence_release(line->context, fence);
}

/* Record a turn of the home.  Who destroys that stream waits in the meantime: the device may not
 * be given the name of one that is gone.  Called and returns with the lock, which is open
 * meanwhile. */
static ac_status_t name_home(ac_fence_line_t *line, void **fence) {
    ac_single_t *single = &line->single;
    uint64_t home = home_of(single);
    atomic_fetch_add(&single->naming, 1);
    pthread_mutex_unlock(&single->lock);
    ac_status_t status = line->ops->turn_record(line->context, home, fence);
    pthread_mutex_lock(&single->lock);
    if (atomic_fetch_sub(&single->naming, 1) == 1)
        pthread_cond_broadcast(&single->named);
    return status;
}

/* From LEAVING: the turn is recorded; without a fence it is over.  Under the lock. */
static void set_turn(ac_single_t *single, void *fence, uint64_t clock) {
    single->fence = fence;
    single->turn++;
    single->waited = false;
    single->clock = clock;
    set_word(single, fence ? AC_SINGLE_JOINING : AC_SINGLE_MANY, fence ? home_of(single) : 0);
}

/* In LEAVING: record the turn.  Two threads may be at it, the first to come back decides. Without
 * a fence a synchronisation stands for it; a context that allows neither is broken, and what runs
 * in it is dead.  Called and returns with the lock, which is open meanwhile. */
static void record_turn(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    uint64_t word = atomic_load(&single->word), clock = atomic_load(&single->leaned);
    bool room = !single->old;
    void *fence = NULL;
    if (!room || name_home(line, &fence) != AC_OK) {
        pthread_mutex_unlock(&single->lock);
        synchronize(line);
        pthread_mutex_lock(&single->lock);
    }
    if (atomic_load(&single->word) == word) {
        set_turn(single, fence, clock);
        fence = NULL;
    }
    pthread_mutex_unlock(&single->lock);
    release(line, fence);
    pthread_mutex_lock(&single->lock);
}

/* In ONE, before work for the home.  Called and returns with the lock, which is open meanwhile.
 */
static void record_early(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    uint64_t word = atomic_load(&single->word);
    void *fence = NULL;
    atomic_store(&single->due, false);
    if (atomic_load(&single->early_left) == 0)
        return;
    atomic_fetch_sub(&single->early_left, 1);
    uint64_t clock = ac_fence_stamp(); /* what leans from now on has a later clock */
    if (name_home(line, &fence) == AC_OK && atomic_load(&single->word) == word) {
        void *older = single->early;
        single->early = fence;
        single->early_clock = clock;
        fence = older;
    }
    pthread_mutex_unlock(&single->lock);
    release(line, fence);
    pthread_mutex_lock(&single->lock);
}

/* Somebody needs the turn that was recorded early, if that covers all.  Under the lock. */
static bool take_early(ac_single_t *single) {
    atomic_store(&single->early_left, AC_SINGLE_EARLY);
    if (!single->early || single->old || single->early_clock < atomic_load(&single->leaned))
        return false;
    set_turn(single, single->early, single->early_clock);
    single->early = NULL;
    return true;
}

/* From ONE; `heir` takes the home over where nothing is pending, 0: nobody does.  Called and
 * returns with the lock, which may be open meanwhile. */
static void leave(ac_fence_line_t *line, uint64_t heir) {
    ac_single_t *single = &line->single;
    set_word(single, AC_SINGLE_LEAVING, home_of(single));
    if (AC_PLANTED(second_stream_let_in))
        atomic_store(&single->leaned, 0);
    if (is_idle(line, heir != 0))
        settle_down(line, may_be_home(line, heir) ? heir : 0);
    else if (atomic_load(&single->leaned) <= atomic_load(&line->done))
        set_word(single, AC_SINGLE_MANY, 0);
    else if (!take_early(single))
        record_turn(line);
}

/* In JOINING: the turn's fence, which stays until done_with; called with the lock, returns
 * without it. */
static void *use_fence(ac_single_t *single) {
    void *fence = single->fence;
    single->users++;
    pthread_mutex_unlock(&single->lock);
    return fence;
}

static void done_with(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    void *old = NULL;
    pthread_mutex_lock(&single->lock);
    if (--single->users == 0) {
        old = single->old;
        single->old = NULL;
    }
    pthread_mutex_unlock(&single->lock);
    release(line, old);
}

/* The turn `turn` is over: every stream may work.  Without the lock. */
static void end_turn(ac_fence_line_t *line, uint64_t turn) {
    ac_single_t *single = &line->single;
    void *fence = NULL;
    pthread_mutex_lock(&single->lock);
    if (mode_of(single) == AC_SINGLE_JOINING && single->turn == turn) {
        set_word(single, AC_SINGLE_MANY, 0);
        fence = drop_fence(single);
    }
    pthread_mutex_unlock(&single->lock);
    release(line, fence);
}

/* The host waits for the turn; called in JOINING with the lock, returns without it. */
static void wait_turn(ac_fence_line_t *line) {
    uint64_t turn = line->single.turn;
    void *fence = use_fence(&line->single);
    ac_status_t status = line->ops->turn_wait(line->context, fence, 0);
    if (status != AC_OK)
        synchronize(line);
    done_with(line);
    end_turn(line, turn);
}

/* A stream has to wait for the turn: it might have run beside the home.  Under the lock. */
static void lose_patience(ac_single_t *single) {
    if (!single->waited && single->patience < MOST_PATIENCE)
        single->patience = single->patience ? single->patience * 4 : LEAST_PATIENCE;
    single->waited = true;
}

static unsigned slot_of(uint64_t stream) {
    return (unsigned)(stream * 0x9e3779b97f4a7c15u >> 60) % AC_SINGLE_JOINS;
}

/* In JOINING: make `stream` wait for the turn; called with the lock, returns without it. */
static void join_turn(ac_fence_line_t *line, uint64_t stream, ac_joins_t *joins) {
    uint64_t turn = line->single.turn;
    unsigned slot = slot_of(stream);
    if (atomic_load(&line->done) >= line->single.clock) {
        pthread_mutex_unlock(&line->single.lock);
        end_turn(line, turn);
        return;
    }
    if (joins && joins->slot[slot].line == line && joins->slot[slot].stream == stream &&
        joins->slot[slot].turn == turn) {
        pthread_mutex_unlock(&line->single.lock);
        return;
    }
    lose_patience(&line->single);
    void *fence = use_fence(&line->single);
    ac_status_t status = line->ops->turn_wait(line->context, fence, stream);
    done_with(line);
    if (status == AC_OK && joins) {
        joins->slot[slot].line = line;
        joins->slot[slot].stream = stream;
        joins->slot[slot].turn = turn;
    } else if (status != AC_OK && status != AC_BUSY) {
        pthread_mutex_lock(&line->single.lock);
        if (mode_of(&line->single) == AC_SINGLE_JOINING)
            wait_turn(line);
        else
            pthread_mutex_unlock(&line->single.lock);
    }
}

/* In LEAVING by another thread, whose device call must not be waited for: it might wait for what
 * this one is about to submit.  False: a capture has begun, before which the turn was recorded:
 * look again.  Called and returns with the lock, which is open meanwhile. */
static bool join_home(ac_fence_line_t *line, uint64_t stream) {
    void *fence = NULL;
    if (home_of(&line->single) == stream)
        return true;
    ac_status_t status = name_home(line, &fence);
    bool again = status == AC_BUSY;
    pthread_mutex_unlock(&line->single.lock);
    if (status == AC_OK) {
        status = line->ops->turn_wait(line->context, fence, stream);
        release(line, fence);
    }
    if (status != AC_OK && status != AC_BUSY)
        synchronize(line);
    pthread_mutex_lock(&line->single.lock);
    return !again;
}

void ac_single_pass(ac_fence_line_t *line, uint64_t stream, ac_joins_t *joins) {
    ac_single_t *single = &line->single;
    pthread_mutex_lock(&single->lock);
    if (mode_of(single) != AC_SINGLE_ONE)
        atomic_store(&single->due, false); /* of a home that was left */
    for (;;) {
        switch (mode_of(single)) {
        case AC_SINGLE_NONE: /* all that others submitted since goes through here as well */
            settle_down(line, may_be_home(line, stream) && is_idle(line, 1) ? stream : 0);
            continue;
        case AC_SINGLE_ONE:
            if (home_of(single) != stream)
                leave(line, stream);
            else if (atomic_load(&single->due))
                record_early(line);
            else
                break;
            continue;
        case AC_SINGLE_LEAVING:
            if (join_home(line, stream))
                break;
            continue;
        case AC_SINGLE_JOINING:
            if (home_of(single) == stream)
                break;
            join_turn(line, stream, joins);
            return;
        default:
            break;
        }
        break;
    }
    pthread_mutex_unlock(&single->lock);
}

/* Leave the home, whoever began it; returns with the lock and neither in ONE nor in LEAVING. */
static void leave_home(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    pthread_mutex_lock(&single->lock);
    for (;;) {
        ac_single_mode_t mode = mode_of(single);
        if (mode == AC_SINGLE_ONE)
            leave(line, 0);
        else if (mode == AC_SINGLE_LEAVING)
            record_turn(line);
        else
            return;
    }
}

void ac_single_leave(ac_fence_line_t *line) {
    leave_home(line);
    pthread_mutex_unlock(&line->single.lock);
}

void ac_single_hold(ac_fence_line_t *line) {
    ac_single_mode_t mode = ac_single_mode(atomic_load(&line->single.word));
    if (mode == AC_SINGLE_ONE || mode == AC_SINGLE_LEAVING)
        ac_single_leave(line);
}

void ac_single_stream_gone(ac_fence_line_t *line, uint64_t stream) {
    ac_single_t *single = &line->single;
    if (ac_single_mode(atomic_load(&single->word)) >= AC_SINGLE_MANY &&
        atomic_load(&single->naming) == 0)
        return;
    pthread_mutex_lock(&single->lock);
    while (mode_of(single) == AC_SINGLE_ONE && home_of(single) == stream)
        leave(line, 0);
    while (mode_of(single) == AC_SINGLE_LEAVING && home_of(single) == stream)
        record_turn(line); /* another thread is at it, and may come too late */
    if (mode_of(single) == AC_SINGLE_JOINING) {
        single->turn++; /* what threads remember of this stream is void */
        if (home_of(single) == stream)
            set_word(single, AC_SINGLE_JOINING, 0);
    }
    while (atomic_load(&single->naming))
        ac_wait(&single->named, &single->lock);
    pthread_mutex_unlock(&single->lock);
}

void ac_single_settle(ac_fence_line_t *line, bool forever) {
    ac_single_t *single = &line->single;
    if (atomic_load(&single->word) % (1u << AC_SINGLE_MODE_BITS) == AC_SINGLE_NEVER)
        return;
    for (;;) {
        leave_home(line);
        if (mode_of(single) != AC_SINGLE_JOINING)
            break;
        wait_turn(line);
    }
    if (forever)
        set_word(single, AC_SINGLE_NEVER, 0);
    pthread_mutex_unlock(&single->lock);
}

void ac_single_synced(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    ac_single_mode_t mode = ac_single_mode(atomic_load(&single->word));
    atomic_store_explicit(&single->leans, 0, memory_order_relaxed);
    if (mode != AC_SINGLE_MANY && mode != AC_SINGLE_JOINING)
        return;
    void *fence = NULL;
    pthread_mutex_lock(&single->lock);
    mode = mode_of(single);
    if (mode == AC_SINGLE_MANY ||
        (mode == AC_SINGLE_JOINING && atomic_load(&line->done) >= single->clock)) {
        set_word(single, AC_SINGLE_NONE, 0);
        fence = drop_fence(single);
    }
    pthread_mutex_unlock(&single->lock);
    release(line, fence);
}

void ac_single_close(void) {
    atomic_fetch_add(&closed, 1);
}

void ac_single_open(void) {
    atomic_fetch_sub(&closed, 1);
}

void ac_single_end(ac_fence_line_t *line) {
    pthread_mutex_lock(&line->single.lock);
    set_word(&line->single, AC_SINGLE_NEVER, 0);
    void *fence = drop_fence(&line->single), *early = line->single.early;
    line->single.early = NULL;
    pthread_mutex_unlock(&line->single.lock);
    release(line, fence);
    release(line, early);
}

int ac_single_check(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    pthread_mutex_lock(&single->lock);
    ac_single_mode_t mode = mode_of(single);
    int wrong = (single->fence != NULL) != (mode == AC_SINGLE_JOINING);
    wrong |= (home_of(single) != 0) > (mode >= AC_SINGLE_ONE && mode <= AC_SINGLE_JOINING);
    wrong |= mode == AC_SINGLE_ONE && home_of(single) == 0;
    wrong |= single->old && !single->users;
    pthread_mutex_unlock(&single->lock);
    return wrong;
}
