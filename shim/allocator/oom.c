/* Out of memory (oom.h). */
#include "allocator/oom.h"

#include "allocator/give_back.h"
#include "allocator/supply/expand.h"
#include "failpoint.h"

/* Newest targets, over all allocators, that a wait for memory did not see reached; [1]: of patient waits.
 * Until they are reached no request waits again, or each of many would wait that long. */
static _Atomic uint64_t stuck[2];

void ac_oom_begin(ac_oom_t *oom, ac_arena_t *arena, uint64_t soon) {
    ac_allocator_t *allocator = arena->allocator;
    uint64_t now = arena->ops->now_ns();
    ac_caches_recall(allocator, NULL); /* first: what waits there waits for less */
    ac_lock(&allocator->lock);
    uint64_t wait = (uint64_t)(allocator->settings.oom_wait * 1e9);
    ac_unlock(&allocator->lock);
    *oom = (ac_oom_t){.arena = arena, .target = ac_fence_moment(NULL).clock, .end = now + wait};
    oom->soon = soon ? soon : now + AC_PATIENCE_NS;
    if (oom->soon > oom->end)
        oom->soon = oom->end;
}

/* Returns true if pending work keeps idle memory from going back.  The caller holds the lock. */
static bool is_kept(ac_arena_t *arena) {
    const ac_hole_pick_t pick = {
        .pool = AC_POOL_ALL, .pinned = true, .reached = ac_supply_reached(arena)};
    bool kept = false;
    for (const ac_segment_t *s = arena->idle.first; s && !kept; s = s->idle_next)
        kept = s->quiet > pick.reached;
    ac_expand_oldest_hole(arena, &pick, &kept);
    return kept;
}

/* Returns true if memory waits that the program freed with cudaFree, and not in the order of a stream.
 * The driver's own free would have waited for the work, even if the program holds it back. */
static bool is_patient(const ac_oom_t *oom) {
    ac_allocator_t *allocator = oom->arena->allocator;
    bool waits = false;
    ac_lock(&allocator->lock);
    for (ac_arena_t *arena = allocator->arenas; arena && !waits; arena = arena->next)
        waits = !arena->dead && (arena->retired->ledger.fence[AC_REACH_OWN].first ||
                                 arena->retired->ledger.fence[AC_REACH_ALL].first || is_kept(arena));
    ac_unlock(&allocator->lock);
    return waits;
}

uint64_t ac_oom_ends(const ac_oom_t *oom) {
    return ac_fence_holding(&oom->arena->timeline, AC_REACH_ALL) && !is_patient(oom) ? oom->soon
                                                                                      : oom->end;
}

static bool is_beside(const ac_arena_t *arena) {
    return arena->ops->beside && arena->ops->capturing(arena->context, true);
}

static void ask_fences(void *unused) {
    (void)unused;
    ac_fence_poll(NULL, AC_REACH_ALL);
}

static void give_back(void *allocator) {
    const ac_shrink_t all = {.bytes = AC_UNLIMITED, .leaving = true};
    ac_supply_shrink(allocator, &all);
}

/* Beside a capture no fence tells of work that was submitted since the capture began.  The driver's free
 * may wait for that work, so a thread of its own calls it. */
uint64_t ac_oom_give_back(const ac_oom_t *oom) {
    const ac_arena_t *arena = oom->arena;
    uint64_t before = atomic_load(&ac_given_back);
    bool beside = is_beside(arena);
    if (beside)
        arena->ops->beside(arena->context, ask_fences, NULL, 0);
    bool may = ac_give_back_begin(arena->allocator, oom->target);
    if (beside)
        arena->ops->beside(arena->context, give_back, arena->allocator, ac_oom_ends(oom));
    else if (may)
        give_back(arena->allocator);
    return atomic_load(&ac_given_back) - before;
}

static bool is_stuck(ac_timeline_t *timeline, bool patient) {
    return !ac_fence_look(timeline, AC_REACH_ALL, atomic_load(&stuck[patient]));
}

typedef struct {
    ac_timeline_t *timeline;
    uint64_t target, limit;
    ac_status_t status;
} wait_t;

static void wait_for(void *arg) {
    wait_t *wait = arg;
    wait->status = ac_fence_wait(wait->timeline, AC_REACH_ALL, wait->target, wait->limit);
}

bool ac_oom_wait(const ac_oom_t *oom) {
    const ac_arena_t *arena = oom->arena;
    ac_timeline_t *timeline = &oom->arena->timeline;
    if (AC_FAILPOINT(fence_dropped_at_oom))
        for (ac_arena_t *each = arena->allocator->arenas; each; each = each->next)
            ac_fence_synced(&each->timeline, oom->target);
    ac_fence_poll(timeline, AC_REACH_ALL);
    uint64_t end = ac_oom_ends(oom);
    bool patient = end == oom->end;
    if (ac_oom_is_over(oom) || is_stuck(timeline, patient))
        return false;
    uint64_t now = arena->ops->now_ns();
    if (now >= end) {
        ac_fence_raise(&stuck[0], oom->target);
        if (patient)
            ac_fence_raise(&stuck[1], oom->target);
        return false;
    }
    wait_t wait = {timeline, oom->target, end - now < AC_STEP_NS ? end - now : AC_STEP_NS, AC_FAILED};
    if (is_beside(arena))
        arena->ops->beside(arena->context, wait_for, &wait, 0);
    else
        wait_for(&wait);
    /* Busy before the limit: something captures, and no fence is left from before it. */
    return wait.status == AC_OK ||
           (wait.status == AC_BUSY && arena->ops->now_ns() - now >= wait.limit);
}

/* Returns true if adjacent free memory is enough together with memory that comes back, in a segment that
 * others use as well.  The caller holds the lock. */
static bool fits_in(const ac_segment_t *segment, uint64_t size) {
    uint64_t run = 0;
    bool waits = false;
    for (const ac_block_t *block = segment->first; block; block = block->next) {
        bool used = ac_block_in_use(block) || !ac_block_has_memory(block);
        run = used ? 0 : run + block->size;
        waits = !used && (waits || block->state != AC_BLOCK_FREE);
        if (run >= size && waits)
            return true;
    }
    return false;
}

static bool fits(const ac_arena_t *arena, uint64_t size) {
    bool waits = ac_retired_any(arena);
    if (size <= AC_SMALL_LIMIT && waits)
        return true;
    if (!waits && !ac_caches_hold(arena->allocator, NULL))
        return false; /* or a program that tries again and again walks all blocks each time */
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        if (!s->tainted && fits_in(s, size))
            return true;
    return false;
}

bool ac_oom_helps(const ac_oom_t *oom, uint64_t size, uint64_t need) {
    ac_arena_t *arena = oom->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t available = AC_UNLIMITED;
    if (need && arena->ops->memory_free(arena->context, &available) != AC_OK)
        available = AC_UNLIMITED;
    uint64_t room = ac_allocator_room(allocator);
    available = room < available ? room : available;
    uint64_t idle = ac_allocator_idle_bytes(allocator);
    if (idle && (need <= available || need - available <= idle))
        return true;
    ac_lock(&allocator->lock);
    bool helps = need && fits(arena, size);
    ac_unlock(&allocator->lock);
    return helps;
}
