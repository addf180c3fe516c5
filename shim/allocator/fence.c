/* The fence lines of fence.h. */
#include "allocator/fence.h"

#include "allocator/generation.h"
#include "plant.h"

_Atomic uint64_t ac_fence_clock = 1; /* 0 is "before everything" */
_Atomic uint64_t ac_generation = (uint64_t)1 << AC_GENERATION_SHIFT;
_Atomic bool ac_fence_crossed;
_Atomic bool ac_fence_uncounted;

static ac_fence_line_t *_Atomic lines[AC_FENCE_LINES]; /* the live ones */
_Atomic unsigned ac_fence_line_high;
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;

/* Never let `target` fall: several threads learn of progress out of order. */
static bool raise_to(_Atomic uint64_t *target, uint64_t value) {
    uint64_t seen = atomic_load_explicit(target, memory_order_relaxed);
    while (seen < value)
        if (atomic_compare_exchange_weak_explicit(target, &seen, value, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* A sticky error was seen: hits of the context's caches end as well. */
static void break_line(ac_fence_line_t *line) {
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

bool ac_fence_line_open(ac_fence_line_t *line, const ac_device_ops_t *ops, void *context) {
    unsigned i = 0;
    pthread_mutex_lock(&lines_lock);
    while (i < AC_FENCE_LINES && line_at(i))
        i++;
    if (i < AC_FENCE_LINES) {
        pthread_mutex_init(&line->lock, NULL);
        pthread_mutex_init(&line->single.lock, NULL);
        pthread_cond_init(&line->single.named, NULL);
        atomic_store(&line->single.early_left, AC_SINGLE_EARLY);
        line->ops = ops;
        line->context = context;
        atomic_flag_clear(&line->polled);
        atomic_store(&line->live, true);
        atomic_store(&lines[i], line);
        if (i >= atomic_load(&ac_fence_line_high))
            atomic_store(&ac_fence_line_high, i + 1);
    }
    pthread_mutex_unlock(&lines_lock);
    return i < AC_FENCE_LINES;
}

void ac_fence_line_close(ac_fence_line_t *line) {
    pthread_mutex_lock(&lines_lock);
    for (unsigned i = 0; i < AC_FENCE_LINES; i++)
        if (line_at(i) == line)
            atomic_store(&lines[i], NULL);
    pthread_mutex_unlock(&lines_lock);
    ac_single_end(line);

    pthread_mutex_lock(&line->lock);
    atomic_store(&line->live, false); /* under the lock: nobody pushes from now on */
    unsigned count = line->count;
    line->count = 0;
    pthread_mutex_unlock(&line->lock);
    for (unsigned i = 0; i < count; i++)
        line->ops->fence_release(line->context, line->ring[i].fence);
}

void ac_fence_enter(ac_fence_line_t *line) {
    atomic_fetch_add(&line->inside, 1);
}

void ac_fence_leave(ac_fence_line_t *line) {
    uint64_t clock = atomic_fetch_add_explicit(&ac_fence_clock, 1, memory_order_acq_rel) + 1;
    raise_to(&line->last_submit, clock);
    atomic_fetch_sub(&line->inside, 1); /* last: whoever finds nobody inside has to find both */
}

/* Inside: or another thread may find the new clock, and nothing submitted at it. */
void ac_fence_submitted(ac_fence_line_t *line) {
    ac_fence_enter(line);
    ac_fence_leave(line);
}

void ac_fence_hold(ac_fence_line_t *line, bool submitted) {
    raise_to(&line->held, submitted ? atomic_load(&line->last_submit) : ac_fence_now() + 1);
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

/* Remove the fences that `done` has overtaken; their release is a device call, so they are
 * collected under the lock and released after it. */
static void retire(ac_fence_line_t *line) {
    void *old[AC_FENCE_RING];
    unsigned n = 0;
    pthread_mutex_lock(&line->lock);
    uint64_t done = atomic_load(&line->done);
    while (n < line->count && line->ring[n].clock <= done) {
        old[n] = line->ring[n].fence;
        n++;
    }
    for (unsigned i = n; i < line->count; i++)
        line->ring[i - n] = line->ring[i];
    line->count -= n;
    pthread_mutex_unlock(&line->lock);
    for (unsigned i = 0; i < n; i++)
        line->ops->fence_release(line->context, old[i]);
}

void ac_fence_synced(ac_fence_line_t *line, uint64_t clock) {
    if (raise_to(&line->done, clock))
        retire(line);
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

static bool idle_since(const ac_fence_line_t *line, uint64_t clock) {
    return atomic_load(&line->inside) == 0 &&
           atomic_load_explicit(&line->last_submit, memory_order_acquire) <= clock;
}

bool ac_fence_untouched(const ac_fence_line_t *line, uint64_t clock) {
    if (atomic_load_explicit(&ac_fence_uncounted, memory_order_relaxed))
        return false;
    if (!atomic_load_explicit(&ac_fence_crossed, memory_order_acquire))
        return idle_since(line, clock);
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        const ac_fence_line_t *other = working_line_at(i);
        if (other && !idle_since(other, clock))
            return false;
    }
    return true;
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

/* Work may run that no clock tells of: give it one. */
static ac_status_t count_unclocked(ac_fence_line_t *line) {
    if (atomic_load(&line->inside) || atomic_load(&ac_fence_uncounted))
        ac_fence_submitted(line);
    return AC_OK;
}

uint64_t ac_fence_target(ac_fence_line_t *line, bool *all) {
    *all = atomic_load_explicit(&ac_fence_crossed, memory_order_acquire);
    for_lines(line, *all, count_unclocked);
    return *all ? ac_fence_now() : atomic_load_explicit(&line->last_submit, memory_order_acquire);
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
        if (!idle_since(other, done) && done < reached)
            reached = done;
    }
    return reached;
}

static bool covered(ac_fence_line_t *line, uint64_t clock) {
    pthread_mutex_lock(&line->lock);
    bool yes = line->count && line->ring[line->count - 1].clock >= clock;
    pthread_mutex_unlock(&line->lock);
    return yes;
}

static void push(ac_fence_line_t *line, ac_fence_t fence) {
    void *spare = NULL;
    pthread_mutex_lock(&line->lock);
    if (!atomic_load(&line->live)) {
        pthread_mutex_unlock(&line->lock);
        line->ops->fence_release(line->context, fence.fence);
        return;
    }
    if (line->count == AC_FENCE_RING) {
        /* A later fence covers what an earlier one covers: drop the second oldest. */
        spare = line->ring[1].fence;
        for (unsigned i = 2; i < line->count; i++)
            line->ring[i - 1] = line->ring[i];
        line->count--;
    }
    unsigned at = line->count++;
    for (; at > 0 && line->ring[at - 1].clock > fence.clock; at--)
        line->ring[at] = line->ring[at - 1];
    line->ring[at] = fence;
    pthread_mutex_unlock(&line->lock);
    if (spare)
        line->ops->fence_release(line->context, spare);
}

static ac_status_t close_line(ac_fence_line_t *line) {
    if (!atomic_load(&line->live))
        return AC_OK;
    if (atomic_load(&line->broken))
        return AC_FAILED;
    atomic_store(&line->open, 0);
    ac_fence_t fence = {.clock = ac_fence_now()};
    if (idle_since(line, atomic_load(&line->done))) {
        /* Or frees of now would wait for work that comes later. */
        raise_to(&line->done, fence.clock);
        ac_single_synced(line);
        return AC_OK;
    }
    uint64_t wanted = atomic_load(&line->inside) ? fence.clock : atomic_load(&line->last_submit);
    if (wanted <= atomic_load(&line->done) || covered(line, wanted))
        return AC_OK;
    if (AC_PLANTED(fence_after_publishing))
        raise_to(&line->done, fence.clock);
    ac_status_t status =
        line->ops->fence_record(line->context, atomic_load(&ac_fence_uncounted), &fence.fence);
    if (AC_PLANTED(fence_dropped_at_oom) && status == AC_UNSUPPORTED)
        raise_to(&line->done, fence.clock);
    if (status == AC_OK)
        push(line, fence);
    else if (status == AC_BUSY)
        atomic_store(&line->open, AC_FENCE_EPOCH); /* try again at the next submission */
    else if (status == AC_FAILED)
        break_line(line);
    return status;
}

ac_status_t ac_fence_close(ac_fence_line_t *line, bool all) {
    return for_lines(line, all, close_line);
}

void ac_fence_want(ac_fence_line_t *line, bool all, uint32_t weight) {
    if (!all) {
        atomic_fetch_add_explicit(&line->open, weight, memory_order_release);
        return;
    }
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *other = working_line_at(i);
        if (other)
            atomic_fetch_add_explicit(&other->open, weight, memory_order_release);
    }
}

static bool take_oldest(ac_fence_line_t *line, ac_fence_t *fence) {
    pthread_mutex_lock(&line->lock);
    bool any = line->count > 0;
    if (any) {
        *fence = line->ring[0];
        line->count--;
        for (unsigned i = 0; i < line->count; i++)
            line->ring[i] = line->ring[i + 1];
    }
    pthread_mutex_unlock(&line->lock);
    return any;
}

static void completed(ac_fence_line_t *line, ac_fence_t fence) {
    raise_to(&line->done, fence.clock);
    line->ops->fence_release(line->context, fence.fence);
}

static ac_status_t poll_line(ac_fence_line_t *line) {
    ac_status_t moved = AC_BUSY;
    ac_fence_t fence;
    if (atomic_load(&line->broken) || atomic_flag_test_and_set(&line->polled))
        return moved;
    while (take_oldest(line, &fence)) {
        ac_status_t status = line->ops->fence_query(line->context, fence.fence);
        if (status == AC_OK) {
            completed(line, fence);
            moved = AC_OK;
            continue;
        }
        if (status == AC_FAILED)
            break_line(line);
        push(line, fence);
        break;
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

static ac_status_t wait_line(ac_fence_line_t *line, uint64_t clock, uint64_t limit_ns) {
    while (!atomic_load(&line->broken)) {
        uint64_t done = atomic_load_explicit(&line->done, memory_order_acquire);
        if (done >= clock || idle_since(line, done) || !atomic_load(&line->live))
            return AC_OK;
        ac_fence_t fence;
        if (take_oldest(line, &fence)) {
            ac_status_t status = line->ops->fence_wait(line->context, fence.fence, limit_ns);
            if (status == AC_OK) {
                completed(line, fence);
                continue;
            }
            push(line, fence);
            if (status == AC_FAILED)
                break_line(line);
            return status;
        }
        ac_status_t status = close_line(line);
        if (status == AC_OK)
            continue;
        if (status != AC_UNSUPPORTED)
            return status;
        uint64_t now = ac_fence_now();
        status = line->ops->synchronize(line->context);
        if (status != AC_OK)
            return status;
        ac_fence_synced(line, now);
    }
    return AC_FAILED;
}

ac_status_t ac_fence_wait(ac_fence_line_t *line, bool all, uint64_t clock, uint64_t limit_ns) {
    if (!all)
        return wait_line(line, clock, limit_ns);
    ac_status_t worst = AC_OK;
    unsigned high = atomic_load(&ac_fence_line_high);
    for (unsigned i = 0; i < high; i++) {
        ac_fence_line_t *other = working_line_at(i);
        ac_status_t status = other ? wait_line(other, clock, limit_ns) : AC_OK;
        if (status > worst)
            worst = status;
    }
    return worst;
}

int ac_fence_check(ac_fence_line_t *line) {
    int wrong = 0;
    pthread_mutex_lock(&line->lock);
    for (unsigned i = 1; i < line->count; i++)
        wrong |= line->ring[i - 1].clock > line->ring[i].clock;
    wrong |= atomic_load(&line->done) > ac_fence_now();
    wrong |= atomic_load(&line->last_submit) > ac_fence_now();
    pthread_mutex_unlock(&line->lock);
    return wrong | ac_single_check(line);
}
