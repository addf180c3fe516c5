/* The fence lines of fence.h. */
#include "allocator/order/fence.h"

#include "allocator/order/generation.h"
#include "observe/start.h"
#include "plant.h"

_Alignas(64) _Atomic uint64_t ac_fence_clock = 1; /* 0 is "before everything" */
_Alignas(64) _Atomic uint64_t ac_generation = (uint64_t)1 << AC_GENERATION_SHIFT;
AC_START_DATA _Atomic bool ac_fence_crossed;
AC_START_DATA _Atomic bool ac_fence_uncounted;

static ac_fence_line_t *_Atomic lines[AC_FENCE_LINES]; /* the live ones */
_Atomic unsigned ac_fence_line_high;
static ac_mutex_t lines_lock = AC_MUTEX(TIMELINES);

/* All that ever had a slot.  Counted before their first entry by an operation that is a full
 * barrier: who counts only itself after a store of its own misses nobody that does not see it. */
static ac_submitter_t *_Atomic submitters;
static _Atomic unsigned submitter_count;

_Atomic unsigned ac_fence_strays;

void ac_fence_break(ac_fence_line_t *line) {
    if (!atomic_exchange(&line->broken, true))
        ac_generation_grow();
}

/* The live line of entry `i`, or NULL. */
static ac_fence_line_t *line_at(unsigned i) {
    return atomic_load_explicit(&lines[i], memory_order_acquire);
}

/* The same, for walks over all lines: the work of a broken context is dead. */
static ac_fence_line_t *working_line_at(unsigned i) {
    ac_fence_line_t *line = line_at(i);
    return line && !atomic_load(&line->broken) ? line : NULL;
}

/* Within its bounds, and not to the last one. */
static void give_credit(ac_fence_line_t *line, int weight) {
    int most = AC_FENCE_FIRST * AC_FENCE_EPOCH;
    int credit = (int)atomic_load_explicit(&line->credit, memory_order_relaxed) + weight;
    credit = credit < 0 ? 0 : credit > most ? most : credit;
    atomic_store_explicit(&line->credit, (uint32_t)credit, memory_order_relaxed);
}

/* Take out of the ring what `done` has overtaken, or all of it once the context has gone; what is
 * in use stays for its last user.  Releasing is a device call: after the lock. */
static void sweep(ac_fence_line_t *line) {
    void *old[AC_FENCE_RING];
    unsigned n = 0, kept = 0, turns = 0;
    ac_lock(&line->lock);
    bool all = !atomic_load(&line->live);
    uint64_t done = atomic_load(&line->done);
    for (unsigned i = 0; i < line->count; i++)
        if ((line->ring[i].uses == 0 || AC_PLANTED(fence_released_in_use)) &&
            (all || line->ring[i].clock <= done)) {
            old[n++] = line->ring[i].fence;
        } else {
            turns += line->ring[i].turn;
            line->ring[kept++] = line->ring[i];
        }
    line->count = kept;
    line->turns = turns;
    ac_unlock(&line->lock);
    for (unsigned i = 0; i < n; i++)
        line->ops->fence_release(line->context, old[i]);
}

bool ac_fence_line_open(ac_fence_line_t *line, const ac_device_ops_t *ops, void *context) {
    unsigned i = 0;
    ac_lock(&lines_lock);
    while (i < AC_FENCE_LINES && line_at(i))
        i++;
    if (i < AC_FENCE_LINES) {
        ac_barrier_setup();
        ac_mutex_init(&line->lock, AC_RANK_TIMELINE);
        pthread_cond_init(&line->single.named, NULL);
        give_credit(line, AC_FENCE_FIRST * AC_FENCE_EPOCH);
        line->ops = ops;
        line->context = context;
        atomic_flag_clear(&line->polled);
        atomic_store(&line->live, true);
        atomic_store(&lines[i], line);
        if (i >= atomic_load(&ac_fence_line_high))
            atomic_store(&ac_fence_line_high, i + 1);
    }
    ac_unlock(&lines_lock);
    return i < AC_FENCE_LINES;
}

void ac_fence_line_close(ac_fence_line_t *line) {
    ac_lock(&lines_lock);
    for (unsigned i = 0; i < AC_FENCE_LINES; i++)
        if (line_at(i) == line)
            atomic_store(&lines[i], NULL);
    ac_unlock(&lines_lock);
    ac_single_end(line);

    ac_lock(&line->lock);
    atomic_store(&line->live, false); /* under the lock: none is put in from now on */
    ac_unlock(&line->lock);
    sweep(line);
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

void ac_fence_enter(ac_fence_line_t *line) {
    atomic_fetch_add(&line->inside, 1);
}

void ac_fence_leave(ac_fence_line_t *line) {
    ac_fence_mark(line);
    atomic_fetch_sub(&line->inside,
                     1); /* last: whoever finds nobody inside has to find the mark */
}

void ac_fence_submitted(ac_fence_line_t *line) {
    if (AC_PLANTED(submitted_not_inside)) {
        ac_fence_mark(line);
        return;
    }
    ac_fence_enter(line);
    ac_fence_leave(line);
}

unsigned ac_fence_inside(const ac_fence_line_t *line, unsigned most) {
    uint64_t counted = atomic_load(&line->inside) + atomic_load(&ac_fence_strays);
    unsigned found = counted > most ? most + 1 : (unsigned)counted;
    for (const ac_submitter_t *s = atomic_load(&submitters); s && found <= most; s = s->next)
        found += atomic_load_explicit(&s->inside, memory_order_acquire) == line;
    return found;
}

bool ac_fence_unseen_inside(const ac_fence_line_t *line, unsigned self) {
    unsigned slots = atomic_load(&submitter_count);
    /* A caller that does not count in the line has the one slot there is. */
    bool own = self && slots == 1 && atomic_load(&line->inside) == 0;
    return slots && !own;
}

void ac_fence_hold(ac_fence_line_t *line, bool submitted) {
    if (!submitted) {
        ac_fence_raise(&line->held, ac_fence_now() + 1);
        return;
    }
    /* It is in the driver: the next stamp covers it, and none before. */
    ac_fence_stamp();
    ac_fence_mark(line);
    ac_fence_raise(&line->held, atomic_load(&line->last_submit));
}

static bool holds(const ac_fence_line_t *line) {
    return atomic_load(&line->held) > atomic_load(&line->done);
}

bool ac_fence_holding(const ac_fence_line_t *line, bool all) {
    bool any = holds(line);
    unsigned high = all ? atomic_load(&ac_fence_line_high) : 0;
    for (unsigned i = 0; i < high && !any; i++) {
        const ac_fence_line_t *other = working_line_at(i);
        any = other && holds(other);
    }
    return any;
}

void ac_fence_synced(ac_fence_line_t *line, uint64_t clock) {
    if (ac_fence_raise(&line->done, clock))
        sweep(line);
    ac_single_synced(line);
}

static void settle_lines(void) {
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *line = line_at(i);
        if (line)
            ac_single_settle(line, true);
    }
}

void ac_fence_cross(void) {
    static _Atomic bool settled;
    if (atomic_load_explicit(&settled, memory_order_acquire))
        return;
    atomic_store(&ac_fence_crossed, true);
    ac_generation_grow();
    settle_lines();
    atomic_store(&settled, true);
}

void ac_fence_uncount(void) {
    static _Atomic bool settled;
    if (atomic_load_explicit(&settled, memory_order_acquire))
        return;
    atomic_store(&ac_fence_uncounted, true);
    ac_generation_grow();
    settle_lines();
    atomic_store(&settled, true);
}

void ac_fence_unseen(void) {
    if (!AC_PLANTED(unseen_in_one_context))
        ac_fence_cross();
    ac_fence_uncount(); /* last: a thread that finds it set finds both (ac_fence_is_unseen) */
    ac_streams_unordered();
}

/* First `ac_fence_strays`, then the turns: no stream becomes a home from now on, frees that find the line
 * as it is now wait for all contexts.  The first mark comes last, as in ac_single_enter. */
void ac_fence_stray_begin(uint64_t stream) {
    ac_single_close();
    atomic_fetch_add(&ac_fence_strays, 1);
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *line = line_at(i);
        if (!line)
            continue;
        ac_single_pass(line, stream, NULL);
        ac_fence_mark(line);
    }
}

void ac_fence_stray_end(bool submitted) {
    ac_fence_given();
    if (submitted)
        ac_fence_unseen();
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *line = line_at(i);
        if (line)
            ac_fence_mark(line);
    }
    atomic_fetch_sub(&ac_fence_strays, 1); /* last: see ac_fence_leave */
    ac_single_open();
}

void ac_fence_capture_begin(void) {
    ac_single_close();
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *line = line_at(i);
        if (line)
            ac_single_leave(line);
    }
}

void ac_fence_capture_began(void) {
    ac_single_open();
}

/* Whether all that was submitted to the line is complete: first who is inside, whose mark may
 * come as the last thing. */
bool ac_fence_line_idle(const ac_fence_line_t *line) {
    uint64_t early = AC_PLANTED(mark_before_inside) ? atomic_load(&line->last_submit) : 0;
    AC_WINDOW(idle_begins);
    if (ac_fence_inside(line, 0))
        return false;
    uint64_t last = AC_PLANTED(mark_before_inside) ? early : atomic_load(&line->last_submit);
    return last <= atomic_load(&line->done);
}

bool ac_fence_idle(const ac_fence_line_t *line) {
    if (atomic_load_explicit(&ac_fence_uncounted, memory_order_relaxed))
        return false;
    if (!atomic_load_explicit(&ac_fence_crossed, memory_order_acquire))
        return ac_fence_line_idle(line);
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        const ac_fence_line_t *other = working_line_at(i);
        if (other && !ac_fence_line_idle(other))
            return false;
    }
    return true;
}

/* The newest mark of all lines. */
static uint64_t newest_mark(void) {
    uint64_t newest = 0;
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        const ac_fence_line_t *line = working_line_at(i);
        uint64_t last = line ? atomic_load(&line->last_submit) : 0;
        newest = last > newest ? last : newest;
    }
    return newest;
}

bool ac_fence_untouched_anywhere(uint64_t clock) {
    return !atomic_load_explicit(&ac_fence_uncounted, memory_order_relaxed) &&
           newest_mark() < clock;
}

uint64_t ac_fence_handout_crossed(void) {
    uint64_t clock = ac_fence_now();
    return newest_mark() < clock ? clock : ac_fence_stamp() + 1;
}

/* Apply `visit` to one line or to all live ones; the worst status wins. */
static ac_status_t for_lines(ac_fence_line_t *line, bool all,
                             ac_status_t (*visit)(ac_fence_line_t *)) {
    if (!all)
        return visit(line);
    ac_status_t worst = AC_OK;
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *other = working_line_at(i);
        ac_status_t status = other ? visit(other) : AC_OK;
        if (status > worst)
            worst = status;
    }
    return worst;
}

static ac_status_t count_unseen(ac_fence_line_t *line) {
    ac_fence_submitted(line);
    return AC_OK;
}

/* With `all` every line's `done` is compared with the clock itself, so that who is inside needs
 * no mark.  Targets never fall: the clock does not, nor does a mark. */
uint64_t ac_fence_target(ac_fence_line_t *line, bool *all) {
    bool uncounted = atomic_load_explicit(&ac_fence_uncounted, memory_order_relaxed);
    *all = ac_fence_spans();
    if (*all) {
        if (uncounted)
            for_lines(line, true, count_unseen);
        return ac_fence_now();
    }
    uint64_t last = atomic_load_explicit(&line->last_submit, memory_order_acquire);
    if (last == ac_fence_now())
        return last; /* as if marked now */
    if (uncounted)
        ac_fence_submitted(line);
    else if (ac_fence_inside(line, 0) && !AC_PLANTED(target_without_mark))
        ac_fence_mark(line);
    return atomic_load_explicit(&line->last_submit, memory_order_acquire);
}

uint64_t ac_fence_reached(const ac_fence_line_t *line, bool all) {
    if (!all)
        return atomic_load_explicit(&line->done, memory_order_acquire);
    uint64_t reached = UINT64_MAX;
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        const ac_fence_line_t *other = working_line_at(i);
        if (!other)
            continue;
        uint64_t done = atomic_load_explicit(&other->done, memory_order_acquire);
        if (done < reached && !ac_fence_line_idle(other))
            reached = done;
    }
    return reached;
}

uint64_t ac_fence_target_all(void) {
    if (atomic_load_explicit(&ac_fence_uncounted, memory_order_relaxed))
        for_lines(NULL, true, count_unseen);
    return ac_fence_now();
}

static ac_status_t is_under_way(ac_fence_line_t *line) {
    bool any = false;
    ac_lock(&line->lock);
    uint64_t done = atomic_load(&line->done);
    for (unsigned i = 0; i < line->count && !any; i++)
        any = !line->ring[i].turn && line->ring[i].clock > done; /* not swept yet: over */
    ac_unlock(&line->lock);
    return any ? AC_BUSY : AC_OK;
}

bool ac_fence_under_way(ac_fence_line_t *line, bool all) {
    return for_lines(line, all, is_under_way) != AC_OK;
}

static bool covered(ac_fence_line_t *line, uint64_t clock) {
    ac_lock(&line->lock);
    bool yes = line->count && line->ring[line->count - 1].clock >= clock;
    ac_unlock(&line->lock);
    return yes;
}

/* Take one out of the ring, or a turn: a later fence covers what an earlier one covers, so the
 * second oldest.  Not the newest turn: what comes later may never end (single.h).  NULL: none can
 * be spared.  Under the lock. */
static void *drop_one(ac_fence_line_t *line, bool turn) {
    uint64_t newest = atomic_load(&line->single.covered);
    unsigned at = 1;
    while (at < line->count && ((line->ring[at].uses && !AC_PLANTED(fence_dropped_in_use)) ||
                                line->ring[at].clock == newest || (turn && !line->ring[at].turn)))
        at++;
    if (at >= line->count)
        return NULL;
    void *fence = line->ring[at].fence;
    line->turns -= line->ring[at].turn;
    line->count--;
    for (; at < line->count; at++)
        line->ring[at] = line->ring[at + 1];
    return fence;
}

bool ac_fence_insert(ac_fence_line_t *line, ac_fence_t fence, void **spare) {
    *spare = fence.fence;
    if (!atomic_load(&line->live) && !AC_PLANTED(fence_kept_after_context))
        return false;
    void *dropped = NULL;
    if (fence.turn && line->turns >= AC_FENCE_TURNS)
        dropped = drop_one(line, true);
    if (line->count == AC_FENCE_RING && !(dropped = drop_one(line, false)))
        return false;
    *spare = dropped;
    unsigned at = line->count++;
    for (; at > 0 && line->ring[at - 1].clock > fence.clock; at--)
        line->ring[at] = line->ring[at - 1];
    line->ring[at] = fence;
    line->turns += fence.turn;
    return true;
}

void ac_fence_let_go(ac_fence_line_t *line, void *spare) {
    if (spare)
        line->ops->fence_release(line->context, spare);
}

static void push(ac_fence_line_t *line, ac_fence_t fence) {
    void *spare;
    ac_lock(&line->lock);
    ac_fence_insert(line, fence, &spare);
    ac_unlock(&line->lock);
    ac_fence_let_go(line, spare);
}

static void want(ac_fence_line_t *line, uint32_t weight) {
    give_credit(line, (int)weight);
    uint32_t before = atomic_fetch_add(&line->open, weight);
    if (before < AC_FENCE_EPOCH && before + weight >= AC_FENCE_EPOCH)
        ac_fence_stamp(); /* the next submission looks */
}

static ac_status_t close_line(ac_fence_line_t *line) {
    if (!atomic_load(&line->live))
        return AC_OK;
    if (atomic_load(&line->broken))
        return AC_FAILED;
    atomic_store(&line->open, 0);
    uint64_t wanted = AC_PLANTED(wanted_before_inside) ? atomic_load(&line->last_submit) : 0;
    AC_WINDOW(close_begins);
    bool inside = ac_fence_inside(line, 0);
    if (!AC_PLANTED(wanted_before_inside))
        wanted = atomic_load(&line->last_submit);
    if (!inside && wanted > atomic_load(&line->done) && covered(line, wanted))
        return AC_OK;
    ac_fence_t fence = {.clock = ac_fence_stamp()};
    if (ac_fence_line_idle(line)) {
        AC_WINDOW(close_idle);
        if (AC_PLANTED(idle_stamped_late))
            fence.clock = ac_fence_stamp();
        /* Or frees of now would wait for work that comes later. */
        ac_fence_raise(&line->done, fence.clock);
        ac_single_synced(line);
        return AC_OK;
    }
    if (inside)
        wanted = fence.clock;
    if (wanted <= atomic_load(&line->done) || covered(line, wanted))
        return AC_OK;
    if (AC_PLANTED(fence_after_publishing))
        ac_fence_raise(&line->done, fence.clock);
    ac_status_t status =
        line->ops->fence_record(line->context, atomic_load(&ac_fence_uncounted), &fence.fence);
    if (AC_PLANTED(fence_stamped_late))
        fence.clock = ac_fence_stamp();
    if (AC_PLANTED(fence_dropped_at_oom) && status == AC_UNSUPPORTED)
        ac_fence_raise(&line->done, fence.clock);
    give_credit(line, -AC_FENCE_EPOCH);
    if (status == AC_OK)
        push(line, fence);
    else if (status == AC_BUSY)
        want(line, AC_FENCE_EPOCH); /* try again at the next submission */
    else if (status == AC_FAILED)
        ac_fence_break(line);
    return status;
}

ac_status_t ac_fence_close(ac_fence_line_t *line, bool all) {
    return for_lines(line, all, close_line);
}

void ac_fence_earn(ac_fence_line_t *line, uint32_t weight) {
    give_credit(line, (int)weight);
}

void ac_fence_want(ac_fence_line_t *line, bool all, uint32_t weight) {
    if (!all) {
        want(line, weight);
        return;
    }
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *other = working_line_at(i);
        if (other)
            want(other, weight);
    }
}

void *ac_fence_use(ac_fence_line_t *line, uint64_t clock) {
    unsigned i = 0;
    while (i < line->count && line->ring[i].clock != clock)
        i++;
    if (i == line->count)
        return NULL;
    line->ring[i].uses++;
    return line->ring[i].fence;
}

void ac_fence_is_awaited(ac_fence_line_t *line, uint64_t clock) {
    for (unsigned i = 0; i < line->count; i++)
        if (line->ring[i].clock == clock && line->ring[i].turn) {
            line->ring[i].turn = false;
            line->turns--;
        }
}

/* The oldest that is not known complete, in use from now on. */
static void *use_oldest(ac_fence_line_t *line) {
    unsigned i = 0;
    ac_lock(&line->lock);
    uint64_t done = atomic_load(&line->done);
    while (i < line->count && line->ring[i].clock <= done)
        i++;
    void *fence = i < line->count ? ac_fence_use(line, line->ring[i].clock) : NULL;
    ac_unlock(&line->lock);
    return fence;
}

void ac_fence_unuse(ac_fence_line_t *line, void *fence, bool over) {
    unsigned i = 0;
    ac_lock(&line->lock);
    while (line->ring[i].fence != fence)
        i++;
    line->ring[i].uses--;
    if (over)
        ac_fence_raise(&line->done, line->ring[i].clock);
    bool gone = line->ring[0].clock <= atomic_load(&line->done) || !atomic_load(&line->live);
    ac_unlock(&line->lock);
    if (gone)
        sweep(line);
}

static ac_status_t poll_line(ac_fence_line_t *line) {
    ac_status_t moved = AC_BUSY, status = AC_OK;
    void *fence;
    if (atomic_load(&line->broken) || atomic_flag_test_and_set(&line->polled))
        return moved;
    while (status == AC_OK && (fence = use_oldest(line))) {
        status = line->ops->fence_query(line->context, fence);
        if (status == AC_OK)
            moved = AC_OK;
        if (status == AC_FAILED)
            ac_fence_break(line);
        ac_fence_unuse(line, fence, status == AC_OK);
    }
    atomic_flag_clear(&line->polled);
    return moved;
}

bool ac_fence_poll(ac_fence_line_t *line, bool all) {
    if (!all)
        return poll_line(line) == AC_OK;
    bool moved = false;
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *other = working_line_at(i);
        if (other && poll_line(other) == AC_OK)
            moved = true;
    }
    return moved;
}

bool ac_fence_calm(void) {
    uint64_t target = ac_fence_target_all();
    if (ac_fence_reached_all(target))
        return true;
    ac_fence_close(NULL, true);
    ac_fence_poll(NULL, true);
    /* The event of an idle device takes some microseconds.  Where work may go unseen the next call
     * would ask for a new one, and never find it complete. */
    const int asks = atomic_load_explicit(&ac_fence_uncounted, memory_order_relaxed) ? 32 : 0;
    for (int i = 0; i < asks && !ac_fence_reached_all(target); i++)
        ac_fence_poll(NULL, true);
    return ac_fence_reached_all(target);
}

/* What is left until `end` (0: no end); waits take 0 for no limit. */
static uint64_t time_left(const ac_fence_line_t *line, uint64_t end) {
    uint64_t now = end ? line->ops->now_ns() : 0;
    return end > now ? end - now : end != 0;
}

static ac_status_t wait_line(ac_fence_line_t *line, uint64_t clock, uint64_t end) {
    while (!atomic_load(&line->broken)) {
        uint64_t done = atomic_load_explicit(&line->done, memory_order_acquire);
        if (done >= clock || ac_fence_line_idle(line) || !atomic_load(&line->live))
            return AC_OK;
        void *fence = use_oldest(line);
        if (fence) {
            ac_status_t status =
                line->ops->fence_wait(line->context, fence, time_left(line, end));
            if (status == AC_FAILED)
                ac_fence_break(line);
            ac_fence_unuse(line, fence, status == AC_OK);
            if (status == AC_OK)
                continue;
            return status;
        }
        ac_status_t status = close_line(line);
        if (status == AC_OK)
            continue;
        if (status != AC_UNSUPPORTED)
            return status;
        uint64_t stamp = ac_fence_stamp();
        status = line->ops->synchronize(line->context, time_left(line, end));
        if (status == AC_FAILED) /* once more: nothing else is left that could tell */
            status = line->ops->synchronize(line->context, time_left(line, end));
        if (status != AC_OK)
            return status;
        ac_fence_synced(line, stamp);
    }
    return AC_FAILED;
}

ac_status_t ac_fence_wait(ac_fence_line_t *line, bool all, uint64_t clock, uint64_t limit_ns) {
    uint64_t end = limit_ns ? line->ops->now_ns() + limit_ns : 0;
    if (!all)
        return wait_line(line, clock, end);
    ac_status_t worst = AC_OK;
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *other = working_line_at(i);
        ac_status_t status = other ? wait_line(other, clock, end) : AC_OK;
        if (status > worst)
            worst = status;
    }
    return worst;
}

bool ac_fence_look(ac_fence_line_t *line, bool all, uint64_t clock) {
    enum { MOMENT_NS = 2000000 };
    if (ac_fence_reached(line, all) >= clock)
        return true;
    if (ac_fence_close(line, all) == AC_UNSUPPORTED)
        ac_fence_wait(line, all, clock, MOMENT_NS);
    else
        ac_fence_poll(line, all);
    return ac_fence_reached(line, all) >= clock;
}

int ac_fence_check(ac_fence_line_t *line) {
    int wrong = 0;
    ac_lock(&line->lock);
    for (unsigned i = 1; i < line->count; i++)
        wrong |= line->ring[i - 1].clock > line->ring[i].clock;
    wrong |= atomic_load(&line->done) >= ac_fence_now();
    wrong |= atomic_load(&line->last_submit) > ac_fence_now();
    ac_unlock(&line->lock);
    return wrong | ac_single_check(line);
}
