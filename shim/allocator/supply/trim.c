/* Giving idle segments back: taken out of the books under the lock, freed without it. */
#include "allocator/supply/trim.h"

#include "allocator/supply/brink.h"
#include "allocator/supply/expand.h"
#include "allocator/supply/expand_int.h"
#include "plant.h"

enum { BATCH = 32 };

/* Which of the idle segments go. */
typedef struct {
    int pool;        /* AC_POOL_ALL: both */
    bool tainted;    /* only these, or only others */
    uint32_t epochs; /* only those that were idle for that many whole ones; 0: all */
    uint64_t quiet;  /* up to which target the device is done */
} ac_pick_t;

static bool picked(const ac_segment_t *segment, const ac_pick_t *pick) {
    return segment->tainted == pick->tainted && segment->quiet <= pick->quiet &&
           (pick->pool == AC_POOL_ALL || segment->pool == pick->pool) &&
           (pick->epochs == 0 ||
            segment->arena->allocator->epoch - segment->idle_epoch > pick->epochs);
}

/* A segment on its way to the driver: in no book any more.  The records are out of use, and kept
 * for its return: others may have used up all that there is meanwhile. */
typedef struct {
    uint64_t address, size;
    int pool;
    bool tainted, refused;
    ac_segment_t *segment;
    ac_block_t *block;
} ac_leaving_t;

/* Take up to BATCH picked segments of the arena out of the books, longest idle first, until
 * `bytes` are reached. */
static unsigned take(ac_arena_t *arena, const ac_pick_t *pick, uint64_t bytes,
                     ac_leaving_t leaving[BATCH], uint64_t *taken) {
    unsigned n = 0;
    for (ac_segment_t *s = arena->idle.first, *next; s && n < BATCH && *taken < bytes; s = next) {
        next = s->idle_next;
        if (!picked(s, pick))
            continue;
        leaving[n++] = (ac_leaving_t){
            .address = s->address, .size = s->size, .pool = s->pool, .tainted = s->tainted};
        *taken += s->size;
        ac_segment_remove(s, false);
        leaving[n - 1].segment =
            ac_record_segment(&arena->allocator->store); /* what was just returned */
        leaving[n - 1].block = ac_record_block(&arena->allocator->store);
    }
    arena->allocator->calls += n > 0;
    return n;
}

static void return_records(ac_allocator_t *allocator, const ac_leaving_t *leaving) {
    ac_record_segment_return(&allocator->store, leaving->segment);
    ac_record_block_return(&allocator->store, leaving->block);
}

/* The device would not have the segment now: it is ours as before. */
static void put_back(ac_arena_t *arena, const ac_leaving_t *leaving) {
    ac_device_stats_t *stats = arena->allocator->stats;
    ac_segment_t *segment =
        arena->dead && !AC_PLANTED(put_back_into_dead)
            ? NULL
            : ac_arena_add(arena, leaving->pool, leaving->address, leaving->size);
    if (!segment)
        return;
    stats->num_device_alloc--;
    stats->num_device_free--;
    if (leaving->tainted) {
        ac_segment_taint(segment);
        arena->tainted_idle++;
    }
}

static uint64_t trim(ac_arena_t *arena, ac_pick_t *pick, uint64_t bytes) {
    ac_allocator_t *allocator = arena->allocator;
    ac_leaving_t leaving[BATCH];
    uint64_t total = 0;
    unsigned n, refused = 0;
    do {
        ac_lock(&allocator->lock);
        /* The work of a broken context is dead, and no fence tells of it any more. */
        pick->quiet = atomic_load(&arena->line.broken) ? UINT64_MAX : ac_expand_reached(arena);
        n = arena->dead ? 0 : take(arena, pick, bytes, leaving, &total);
        ac_unlock(&allocator->lock);
        if (!n)
            break;
        uint64_t begin = arena->ops->now_ns();
        for (unsigned i = 0; i < n; i++)
            leaving[i].refused =
                arena->ops->segment_free(arena->context, leaving[i].address) == AC_BUSY;
        uint64_t spent = arena->ops->now_ns() - begin;
        ac_lock(&allocator->lock);
        for (unsigned i = 0; i < n; i++) {
            return_records(allocator, &leaving[i]);
            if (!leaving[i].refused)
                continue;
            put_back(arena, &leaving[i]);
            total -= leaving[i].size;
            refused++;
        }
        allocator->counters->driver_frees += n;
        allocator->counters->driver_free_ns += spent;
        ac_allocator_settle(allocator, true);
        ac_unlock(&allocator->lock);
    } while (n == BATCH && !refused);
    if (total) {
        ac_lock(&allocator->lock);
        allocator->counters->trims++;
        allocator->counters->trimmed_bytes += total;
        ac_unlock(&allocator->lock);
    }
    return total;
}

uint64_t ac_trim_budget(const ac_allocator_t *allocator, uint64_t live) {
    uint64_t least = 2 * allocator->settings.large_segment_size, budget = live + live * 2 / 25;
    return budget > least ? budget : least;
}

uint64_t ac_trim_arena(ac_arena_t *arena, uint64_t bytes) {
    ac_caches_recall(arena->allocator, NULL);
    return trim(arena, &(ac_pick_t){.pool = AC_POOL_ALL}, bytes);
}

uint64_t ac_trim_aged(ac_arena_t *arena, uint32_t epochs) {
    ac_caches_recall(arena->allocator, NULL);
    return trim(arena, &(ac_pick_t){.pool = AC_POOL_ALL, .epochs = epochs}, AC_UNLIMITED);
}

uint64_t ac_trim_tainted(ac_arena_t *arena) {
    return trim(arena, &(ac_pick_t){.pool = AC_POOL_ALL, .tainted = true}, AC_UNLIMITED);
}

uint64_t ac_trim_garbage_due(ac_allocator_t *allocator, uint64_t growth) {
    uint64_t excess = 0;
    ac_lock(&allocator->lock);
    const ac_settings_t *settings = &allocator->settings;
    if (settings->gc_threshold > 0 && settings->limit != AC_UNLIMITED) {
        uint64_t wanted =
            (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current + growth;
        uint64_t threshold = (uint64_t)(settings->gc_threshold * (double)settings->limit);
        excess = wanted > threshold ? wanted - threshold : 0;
    }
    ac_unlock(&allocator->lock);
    return excess;
}

void ac_trim_garbage(ac_allocator_t *allocator, uint64_t growth) {
    uint64_t excess = ac_trim_garbage_due(allocator, growth);
    ac_pick_t large = {.pool = AC_POOL_LARGE};
    if (excess)
        ac_caches_recall(allocator, NULL);
    for (ac_arena_t *arena = allocator->arenas; arena && excess; arena = arena->next) {
        uint64_t freed = trim(arena, &large, excess);
        if (freed < excess)
            freed += ac_expand_trim(arena, AC_POOL_ALL, excess - freed);
        excess -= freed < excess ? freed : excess;
    }
}

/* The first arena that lives, NULL: none does. */
static ac_arena_t *any_arena(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    ac_arena_t *arena = allocator->arenas;
    while (arena && arena->dead)
        arena = arena->next;
    ac_unlock(&allocator->lock);
    return arena;
}

uint64_t ac_allocator_trim(ac_allocator_t *allocator, bool wait) {
    ac_arena_t *arena = any_arena(allocator);
    ac_brink_t brink;
    if (!arena)
        return 0;
    ac_brink_begin(&brink, arena, 0);
    uint64_t freed = ac_brink_give_back(&brink);
    while (wait && ac_brink_helps(&brink, 0, 0) && ac_brink_wait(&brink))
        freed += ac_brink_is_over(&brink) ? ac_brink_give_back(&brink) : 0;
    if (wait) {
        ac_lock(&allocator->lock);
        allocator->stats->num_sync_all_streams++;
        ac_unlock(&allocator->lock);
    }
    return freed;
}

/* Whether what comes back after a wait could be why the call succeeds then: it lacks memory of
 * this device, and idle memory is enough.  The last sixteenth counts as used up: drivers round,
 * and keep some to themselves. */
static bool may_help(const ac_arena_t *arena, uint64_t need) {
    uint64_t available;
    if (!need || arena->ops->memory_free(arena->context, &available) != AC_OK)
        return true;
    return need > available - available / 16 &&
           need <= available + ac_allocator_idle_bytes(arena->allocator);
}

uint64_t ac_allocator_trim_for(ac_allocator_t *allocator, uint64_t need) {
    const ac_arena_t *arena = any_arena(allocator);
    return arena && may_help(arena, need) ? ac_allocator_trim(allocator, true) : 0;
}

/* --- what is owed --- */

_Atomic bool ac_trim_owed;
void (*ac_trim_notify)(void);

void ac_trim_owe(ac_allocator_t *allocator) {
    if (atomic_exchange(&allocator->owes, true))
        return;
    atomic_store(&ac_trim_owed, true);
    if (ac_trim_notify)
        ac_trim_notify();
}

void ac_trim_leaving(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    ac_trim_tainted(arena);
    ac_lock(&allocator->lock);
    bool left = arena->tainted_idle;
    ac_unlock(&allocator->lock);
    if (left)
        ac_trim_owe(allocator);
}

static bool has_idle(ac_allocator_t *allocator) {
    bool any = false;
    ac_lock(&allocator->lock);
    for (const ac_arena_t *arena = allocator->arenas; arena && !any; arena = arena->next)
        any = arena->idle.first || arena->holes.first;
    ac_unlock(&allocator->lock);
    return any;
}

bool ac_trim_may(ac_allocator_t *allocator) {
    if (ac_fence_reached_all(ac_fence_target_all()))
        return true;
    if (!has_idle(allocator))
        return false;
    bool may = ac_fence_calm();
    if (!may)
        ac_trim_owe(allocator);
    return may;
}

/* Bytes that are reserved beyond what growing stays within.  Under the lock. */
static uint64_t excess_of(const ac_allocator_t *allocator) {
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    uint64_t live = allocator->high_water, budget = ac_trim_budget(allocator, live);
    if (allocator->settings.expandable_segments) { /* expand.h */
        double share = allocator->settings.page_budget;
        uint64_t most = (uint64_t)((double)live * (1 + (share > 0 ? share : 0.1)));
        budget = most > budget ? most : budget;
    }
    return reserved > budget ? reserved - budget : 0;
}

bool ac_allocator_settle_debt(ac_allocator_t *allocator) {
    if (!atomic_load(&allocator->owes))
        return true;
    ac_caches_recall(allocator, NULL);
    if (!ac_fence_calm())
        return false;
    atomic_store(&allocator->owes, false);
    ac_lock(&allocator->lock);
    ac_allocator_drain(allocator);
    uint64_t excess = excess_of(allocator);
    uint32_t epochs = allocator->owed_epochs;
    allocator->owed_epochs = 0;
    ac_unlock(&allocator->lock);
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        ac_trim_tainted(arena);
        uint64_t freed = excess ? ac_trim_arena(arena, excess) : 0;
        if (freed < excess)
            freed += ac_expand_trim(arena, AC_POOL_ALL, excess - freed);
        excess -= freed < excess ? freed : excess;
        if (epochs) {
            ac_trim_aged(arena, epochs);
            ac_expand_trim_aged(arena, epochs);
        }
    }
    ac_trim_garbage(allocator, 0);
    return true;
}

/* Work that the program itself may hold back gets a moment only: another thread may let it go,
 * but it may as well be the caller who would, after this call. */
void ac_arena_quiesce(ac_arena_t *arena, uint64_t limit_ns) {
    const uint64_t step_ns = 50000000;
    ac_allocator_t *allocator = arena->allocator;
    ac_lock(&allocator->lock);
    bool waits = !arena->dead && arena->pending[1].head;
    uint64_t target = waits ? arena->pending[1].tail->ticket.epoch : 0;
    for (unsigned i = 0; !arena->dead && i < AC_HELD_LISTS; i++)
        if (arena->held[i] && atomic_load(&ac_fence_crossed)) {
            waits = true; /* no fence was asked for yet: one of now covers them */
            target = ac_fence_now();
        }
    ac_unlock(&allocator->lock);
    uint64_t begin = arena->ops->now_ns(), spent = 0;
    while (waits && spent < limit_ns && !arena->ops->capturing(arena->context) &&
           !(spent >= AC_PATIENCE_NS && ac_fence_holding(&arena->line, true))) {
        waits = ac_fence_wait(&arena->line, true, target, step_ns) == AC_BUSY;
        spent = arena->ops->now_ns() - begin;
    }
}
