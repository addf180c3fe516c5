/* The single-stream rule of single.h. */
#include "allocator/order/single.h"

#include "allocator/order/fence.h"
#include "device/wait.h"
#include "plant.h"

enum { LEAST_PATIENCE = 64, MOST_PATIENCE = 1 << 20 }; /* epochs */

_Atomic bool ac_single_wanted = true;

static _Atomic unsigned closed; /* captures that are about to begin */

/* Under the lock.  Returns a stamp that was taken after the change. */
static uint64_t set_word(ac_single_t *single, ac_single_mode_t mode, uint64_t home) {
    enum { CHANGE_SHIFT = AC_SINGLE_MODE_BITS + AC_SINGLE_KEY_BITS };
    uint64_t changes = (atomic_load(&single->word) >> CHANGE_SHIFT) + 1;
    atomic_store(&single->word, changes << CHANGE_SHIFT | home << AC_SINGLE_MODE_BITS | mode);
    if (AC_PLANTED(turn_within_epoch))
        return ac_fence_now();
    return ac_fence_stamp(); /* submissions look at the clock first */
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
    if (ac_fence_unseen_inside(line, self) && !AC_PLANTED(home_without_barrier) &&
        !ac_barrier_heavy())
        return false;
    return ac_fence_inside(line, self) <= self &&
           (AC_PLANTED(idle_marks_read_once) ||
            atomic_load(&line->last_submit) <= atomic_load(&line->done));
}

static void lean(ac_single_t *single, uint64_t now) {
    uint64_t seen = atomic_load(&single->leaned);
    while (seen < now && !atomic_compare_exchange_weak(&single->leaned, &seen, now))
        ;
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
    AC_WINDOW(lean_begins);
    /* Before the second look: whoever leaves the home after it finds the mark. */
    if (!AC_PLANTED(lean_raised_late))
        lean(single, now);
    if (atomic_load(&single->word) != word && !AC_PLANTED(lean_looked_at_once))
        return false;
    AC_WINDOW(lean_decided);
    if (AC_PLANTED(lean_raised_late))
        lean(single, now);
    if (AC_PLANTED(turn_not_announced))
        return true;
    if (atomic_load(&single->due) <= atomic_load(&single->covered)) {
        if (AC_PLANTED(due_before_epoch))
            atomic_store(&single->due, now);
        uint64_t none = 0; /* before `due`: see single.h */
        if (!AC_PLANTED(early_noted_late))
            atomic_compare_exchange_strong(&single->early, &none, now + 1);
        AC_WINDOW(lean_announced);
        ac_fence_stamp(); /* the next submission looks */
        atomic_store(&single->due, now);
        AC_WINDOW(lean_due);
        if (AC_PLANTED(early_noted_late))
            atomic_compare_exchange_strong(&single->early, &none, ac_fence_now());
    }
    return true;
}

uint64_t ac_single_early(const ac_fence_line_t *line) {
    uint64_t early = atomic_load(&line->single.early), done = atomic_load(&line->done);
    return early > done ? early : done + 1;
}

static bool is_home(const ac_fence_line_t *line, uint64_t stream) {
    uint64_t word = atomic_load(&line->single.word);
    return ac_single_mode(word) == AC_SINGLE_ONE && ac_single_home(word) == stream;
}

uint64_t ac_single_alone(const ac_fence_line_t *line, uint64_t stream) {
    if (!is_home(line, stream))
        return 0;
    AC_WINDOW(alone_begins);
    uint64_t stamp = ac_fence_stamp(); /* first: a stream that comes later is not covered */
    bool alone = is_home(line, stream) || AC_PLANTED(alone_looked_at_once);
    AC_WINDOW(alone_decided);
    if (AC_PLANTED(alone_stamped_late))
        stamp = ac_fence_stamp();
    return alone ? stamp : 0;
}

static bool may_be_home(const ac_fence_line_t *line, uint64_t stream) {
    return stream && stream >> AC_SINGLE_KEY_BITS == 0 && in_force(line);
}

/* From NONE or LEAVING, under the lock, nothing is pending: `stream` becomes the home, or with 0
 * none does. */
static void settle_down(ac_fence_line_t *line, uint64_t stream) {
    ac_single_t *single = &line->single;
    if (stream && AC_PLANTED(home_before_its_marks)) {
        set_word(single, AC_SINGLE_ONE, stream);
        AC_WINDOW(home_made);
    }
    if (stream) {
        bool may_lean = !line->ops->turns || line->ops->turns(line->context);
        atomic_store(&single->since, may_lean ? ac_fence_now() + single->patience : UINT64_MAX);
        atomic_store(&single->leaned, 0); /* before any free can see the new word */
        atomic_store(&single->early, 0);
        single->waited = false;
        atomic_store(&single->covered, ac_fence_stamp());
    }
    set_word(single, stream ? AC_SINGLE_ONE : AC_SINGLE_MANY, stream);
    AC_WINDOW(home_made);
}

/* Once more where it fails: nothing else is left that could hold a second stream back. */
static void synchronize(ac_fence_line_t *line) {
    uint64_t stamp = ac_fence_stamp();
    if (line->ops->synchronize(line->context, 0) == AC_OK ||
        line->ops->synchronize(line->context, 0) == AC_OK)
        ac_fence_synced(line, stamp);
}

/* Under the lock. */
static void named(ac_fence_line_t *line) {
    if (atomic_fetch_sub(&line->single.naming, 1) == 1 && line->single.awaiting)
        pthread_cond_broadcast(&line->single.named);
}

/* Record a turn of the home.  A thread that destroys that stream waits in the meantime: the
 * device may not be given the name of one that is gone.  Called and returns with the lock, which
 * is open meanwhile. */
static ac_status_t name_home(ac_fence_line_t *line, void **fence) {
    ac_single_t *single = &line->single;
    uint64_t home = home_of(single);
    if (!AC_PLANTED(home_not_pinned))
        atomic_fetch_add(&single->naming, 1);
    ac_unlock(&line->lock);
    ac_status_t status = line->ops->turn_record(line->context, home, fence);
    ac_lock(&line->lock);
    if (!AC_PLANTED(home_not_pinned))
        named(line);
    return status;
}

/* From LEAVING or ONE: what `covered` is the stamp of is the turn.  Under the lock. */
static void set_turn(ac_single_t *single) {
    single->turn++;
    set_word(single, AC_SINGLE_JOINING, home_of(single));
}

/* In LEAVING: record the turn.  Two threads may be at it, the first to come back decides. Without
 * a fence a synchronisation stands for it; a context that allows neither is broken, and what runs
 * in it is dead.  Called and returns with the lock, which is open meanwhile. */
static void record_turn(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    uint64_t word = atomic_load(&single->word);
    ac_fence_t turn = {.clock = single->left, .turn = true};
    void *spare = NULL;
    ac_status_t status = name_home(line, &turn.fence);
    bool mine = atomic_load(&single->word) == word || AC_PLANTED(second_turn_taken);
    bool awaited = mode_of(single) == AC_SINGLE_MANY; /* by memory in quarantine */
    if (status == AC_OK && mine && ac_fence_insert(line, turn, &spare)) {
        atomic_store(&single->covered, turn.clock);
        set_turn(single);
    } else if (status == AC_OK && awaited) {
        turn.turn = false;
        ac_fence_insert(line, turn, &spare);
    } else if (status == AC_OK && !mine) {
        spare = turn.fence;
    } else {
        ac_unlock(&line->lock);
        synchronize(line);
        ac_lock(&line->lock);
        if (atomic_load(&single->word) == word)
            set_word(single, AC_SINGLE_MANY, 0);
    }
    ac_unlock(&line->lock);
    ac_fence_let_go(line, spare);
    ac_lock(&line->lock);
}

/* From ONE; `heir` takes the home over where nothing is pending, 0: none does.  Called and
 * returns with the lock, which may be open meanwhile. */
static void leave(ac_fence_line_t *line, uint64_t heir) {
    ac_single_t *single = &line->single;
    uint64_t leaned = AC_PLANTED(leaned_read_first) ? atomic_load(&single->leaned) : 0;
    AC_WINDOW(home_left);
    single->left = set_word(single, AC_SINGLE_LEAVING, home_of(single));
    if (AC_PLANTED(second_stream_let_in) || AC_PLANTED(leaned_read_first))
        atomic_store(&single->leaned, leaned);
    if (is_idle(line, heir != 0))
        settle_down(line, may_be_home(line, heir) ? heir : 0);
    else if (atomic_load(&single->leaned) <= atomic_load(&line->done))
        set_word(single, AC_SINGLE_MANY, 0);
    else if (!ac_single_due(single))
        set_turn(single);
    else
        record_turn(line);
}

/* Before work for the home: see that what leaned has a turn.  Returns with the lock, and a fence
 * that the caller lets go without it; NULL: none. */
static void *record_due(ac_fence_line_t *line, uint64_t stream) {
    ac_single_t *single = &line->single;
    if (!AC_PLANTED(home_pinned_late))
        atomic_fetch_add(&single->naming, 1); /* before the look: see ac_single_stream_gone */
    uint64_t word = atomic_load(&single->word);
    bool home = ac_single_mode(word) == AC_SINGLE_ONE && ac_single_home(word) == stream;
    ac_fence_t turn = {.turn = true};
    void *spare = NULL;
    ac_status_t status = AC_OK;
    uint64_t leaned = atomic_load(&single->leaned);
    bool over = leaned <= atomic_load(&line->done);
    bool due = home && !over && ac_single_due(single);
    AC_WINDOW(turn_due);
    if (AC_PLANTED(home_pinned_late))
        atomic_fetch_add(&single->naming, 1);
    if (due) {
        turn.clock = ac_fence_stamp(); /* what leans from now on has a later clock */
        status = line->ops->turn_record(line->context, stream, &turn.fence);
        if (AC_PLANTED(turn_stamped_late))
            turn.clock = ac_fence_stamp();
    }
    bool failed = status != AC_OK;
    ac_lock(&line->lock);
    bool same = atomic_load(&single->word) == word;
    /* The first turn that covers all is taken: a later one may have been recorded behind work
     * that came after the free. */
    bool first = ac_single_due(single) && turn.clock > atomic_load(&single->covered);
    if (turn.fence && same && (first || AC_PLANTED(late_turn_taken)))
        failed = !ac_fence_insert(line, turn, &spare);
    else
        spare = turn.fence;
    if (turn.fence && spare != turn.fence)
        atomic_store(&single->covered, turn.clock);
    if (over && home && same)
        ac_fence_raise(&single->covered, leaned); /* it needs no turn */
    if (failed && same)
        single->left = set_word(single, AC_SINGLE_LEAVING, stream); /* frees lean no more */
    named(line);
    return spare;
}

/* The turn `turn` is over: every stream may work.  Under the lock. */
static void end_turn(ac_single_t *single, uint64_t turn) {
    if (mode_of(single) == AC_SINGLE_JOINING && single->turn == turn)
        set_word(single, AC_SINGLE_MANY, 0);
}

/* In JOINING: the turn's fence, which stays until ac_fence_unuse; NULL: the turn is over. Called
 * with the lock, returns without it. */
static void *use_turn(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    uint64_t covered = atomic_load(&single->covered);
    void *fence = atomic_load(&line->done) < covered ? ac_fence_use(line, covered) : NULL;
    if (!fence)
        end_turn(single, single->turn);
    ac_unlock(&line->lock);
    return fence;
}

/* The turn is not needed any more, and over if `status` is AC_OK.  Without the lock. */
static void unuse_turn(ac_fence_line_t *line, void *fence, uint64_t turn, ac_status_t status) {
    ac_fence_unuse(line, fence, status == AC_OK);
    if (status != AC_OK)
        return;
    ac_lock(&line->lock);
    end_turn(&line->single, turn);
    ac_unlock(&line->lock);
}

/* The host waits for the turn; called in JOINING with the lock, returns without it. */
static void wait_turn(ac_fence_line_t *line) {
    uint64_t turn = line->single.turn;
    void *fence = use_turn(line);
    if (!fence)
        return;
    ac_status_t status = line->ops->turn_wait(line->context, fence, 0);
    if (status != AC_OK)
        synchronize(line);
    ac_fence_unuse(line, fence, status == AC_OK);
    ac_lock(&line->lock);
    end_turn(&line->single, turn);
    ac_unlock(&line->lock);
}

/* A stream has to wait for the turn: it might have run beside the home.  Under the lock. */
static void lose_patience(ac_single_t *single) {
    if (!single->waited && single->patience < MOST_PATIENCE)
        single->patience = single->patience ? single->patience * 4 : LEAST_PATIENCE;
    single->waited = true;
}

/* In LEAVING or JOINING, by who is inside: try to do without the turn.  True: that is done, and
 * every stream may work.  Called and returns with the lock, which is open meanwhile. */
static bool quarantine(ac_fence_line_t *line, uint64_t until) {
    ac_single_t *single = &line->single;
    if (!line->quarantine || line->ops->capturing(line->context))
        return false;
    bool first = AC_PLANTED(rule_ended_before_walk);
    if (first)
        set_word(single, AC_SINGLE_MANY, 0);
    ac_unlock(&line->lock);
    ac_fence_poll(line, false); /* what is over is not early */
    bool done = line->quarantine(line, until);
    ac_lock(&line->lock);
    ac_single_mode_t mode = mode_of(single);
    if (done && mode >= AC_SINGLE_LEAVING && mode < AC_SINGLE_MANY) {
        lose_patience(single);
        set_word(single, AC_SINGLE_MANY, 0);
        ac_fence_is_awaited(line, until);
    }
    return done;
}

static unsigned slot_of(uint64_t stream) {
    return (unsigned)(stream * 0x9e3779b97f4a7c15u >> 60) % AC_SINGLE_JOINS;
}

/* In JOINING: make `stream` wait for the turn, if that is not over; called with the lock, returns
 * without it. */
static void join_turn(ac_fence_line_t *line, uint64_t stream, ac_joins_t *joins) {
    uint64_t turn = line->single.turn, until = atomic_load(&line->single.covered);
    unsigned slot = slot_of(stream);
    bool joined = joins && joins->slot[slot].line == line && joins->slot[slot].stream == stream &&
                  joins->slot[slot].turn == turn;
    if (joined && atomic_load(&line->done) < atomic_load(&line->single.covered)) {
        ac_unlock(&line->lock);
        return;
    }
    void *fence = use_turn(line);
    if (!fence)
        return;
    ac_status_t status = line->ops->fence_query(line->context, fence);
    if (status == AC_OK) {
        unuse_turn(line, fence, turn, AC_OK);
        return;
    }
    ac_lock(&line->lock);
    bool free = quarantine(line, until);
    ac_unlock(&line->lock);
    if (free) {
        ac_fence_unuse(line, fence, false);
        return;
    }
    status = line->ops->turn_wait(line->context, fence, stream);
    ac_fence_unuse(line, fence, false);
    ac_lock(&line->lock);
    if (line->single.turn == turn)
        lose_patience(&line->single);
    if (status != AC_OK && status != AC_BUSY && mode_of(&line->single) == AC_SINGLE_JOINING)
        wait_turn(line);
    else
        ac_unlock(&line->lock);
    if (status == AC_OK && joins) {
        joins->slot[slot].line = line;
        joins->slot[slot].stream = stream;
        joins->slot[slot].turn = turn;
    }
}

/* In LEAVING by another thread, whose device call must not be waited for: it might wait for what
 * this one is about to submit.  False: look again, the turn was recorded meanwhile, or a capture
 * has begun, before which it was.  Called and returns with the lock, which is open meanwhile. */
static bool join_home(ac_fence_line_t *line, uint64_t stream) {
    void *fence = NULL;
    uint64_t word = atomic_load(&line->single.word);
    if (home_of(&line->single) == stream || quarantine(line, line->single.left))
        return true;
    if (atomic_load(&line->single.word) != word)
        return false;
    ac_status_t status = name_home(line, &fence);
    bool again = status == AC_BUSY;
    ac_unlock(&line->lock);
    if (status == AC_OK) {
        status = line->ops->turn_wait(line->context, fence, stream);
        ac_fence_let_go(line, fence);
    }
    if (status != AC_OK && status != AC_BUSY)
        synchronize(line);
    ac_lock(&line->lock);
    return !again;
}

void ac_single_pass(ac_fence_line_t *line, uint64_t stream, ac_joins_t *joins) {
    ac_single_t *single = &line->single;
    void *spare = NULL;
    bool due = is_home(line, stream) && ac_single_due(single) && !AC_PLANTED(turn_after_work);
    if (due)
        spare = record_due(line, stream);
    else
        ac_lock(&line->lock);
    for (;;) {
        switch (mode_of(single)) {
        case AC_SINGLE_NONE: /* all that others submitted since goes through here as well */
            settle_down(line, may_be_home(line, stream) && is_idle(line, 1) ? stream : 0);
            continue;
        case AC_SINGLE_ONE:
            if (home_of(single) != stream)
                leave(line, stream);
            else if (ac_single_due(single) && !AC_PLANTED(turn_after_work)) {
                ac_unlock(&line->lock);
                ac_fence_let_go(line, spare);
                spare = record_due(line, stream);
            } else
                break;
            continue;
        case AC_SINGLE_LEAVING:
            if (AC_PLANTED(leaving_passes))
                break;
            if (join_home(line, stream))
                break;
            continue;
        case AC_SINGLE_JOINING:
            if (home_of(single) == stream)
                break;
            join_turn(line, stream, joins);
            ac_fence_let_go(line, spare);
            return;
        default:
            break;
        }
        break;
    }
    ac_unlock(&line->lock);
    ac_fence_let_go(line, spare);
}

/* Leave the home, whoever began it; returns with the lock and neither in ONE nor in LEAVING. */
static void leave_home(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    ac_lock(&line->lock);
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
    ac_unlock(&line->lock);
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
    ac_lock(&line->lock);
    while (mode_of(single) == AC_SINGLE_ONE && home_of(single) == stream)
        leave(line, 0);
    while (mode_of(single) == AC_SINGLE_LEAVING && home_of(single) == stream)
        record_turn(line); /* another thread is at it, and may come too late */
    if (mode_of(single) == AC_SINGLE_JOINING) {
        single->turn++; /* what threads remember of this stream is void */
        if (home_of(single) == stream)
            set_word(single, AC_SINGLE_JOINING, 0);
    }
    single->awaiting++;
    while (atomic_load(&single->naming))
        ac_wait(&single->named, &line->lock);
    single->awaiting--;
    ac_unlock(&line->lock);
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
    ac_unlock(&line->lock);
}

bool ac_single_unorder(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    if (ac_single_mode(atomic_load(&single->word)) == AC_SINGLE_NEVER)
        return true;
    leave_home(line);
    if (mode_of(single) == AC_SINGLE_JOINING) {
        uint64_t turn = single->turn;
        void *fence = use_turn(line);
        if (fence)
            unuse_turn(line, fence, turn, line->ops->fence_query(line->context, fence));
        ac_lock(&line->lock);
    }
    bool over = mode_of(single) == AC_SINGLE_MANY || mode_of(single) == AC_SINGLE_NEVER;
    if (over)
        set_word(single, AC_SINGLE_NEVER, 0);
    ac_unlock(&line->lock);
    return over;
}

void ac_single_synced(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    ac_single_mode_t mode = ac_single_mode(atomic_load(&single->word));
    if (mode < AC_SINGLE_LEAVING || mode == AC_SINGLE_NEVER)
        return;
    ac_lock(&line->lock);
    mode = mode_of(single);
    uint64_t last = mode == AC_SINGLE_JOINING ? atomic_load(&single->covered) : single->left;
    if (mode == AC_SINGLE_MANY ||
        (mode >= AC_SINGLE_LEAVING && mode < AC_SINGLE_MANY && atomic_load(&line->done) >= last))
        set_word(single, AC_SINGLE_NONE, 0);
    ac_unlock(&line->lock);
}

void ac_single_close(void) {
    atomic_fetch_add(&closed, 1);
}

void ac_single_open(void) {
    atomic_fetch_sub(&closed, 1);
}

void ac_single_end(ac_fence_line_t *line) {
    ac_lock(&line->lock);
    set_word(&line->single, AC_SINGLE_NEVER, 0);
    ac_unlock(&line->lock);
}

int ac_single_check(ac_fence_line_t *line) {
    ac_single_t *single = &line->single;
    ac_lock(&line->lock);
    ac_single_mode_t mode = mode_of(single);
    uint64_t covered = atomic_load(&single->covered);
    unsigned i = 0;
    while (i < line->count && line->ring[i].clock != covered)
        i++;
    int wrong =
        mode == AC_SINGLE_JOINING && i == line->count && atomic_load(&line->done) < covered;
    wrong |= (home_of(single) != 0) > (mode >= AC_SINGLE_ONE && mode <= AC_SINGLE_JOINING);
    wrong |= mode == AC_SINGLE_ONE && home_of(single) == 0;
    wrong |= covered >= ac_fence_now();
    ac_unlock(&line->lock);
    return wrong;
}
