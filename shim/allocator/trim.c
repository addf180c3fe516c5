/* Giving idle segments back: taken out of the books under the lock, freed without it. */
#include "allocator/trim.h"

#include "allocator/expand.h"
#include "plant.h"

enum { BATCH = 32 };

/* Which of the idle segments go. */
typedef struct {
    int pool;        /* AC_POOL_ALL: both */
    bool tainted;    /* only these, or only others */
    uint32_t epochs; /* only those that were idle for that many whole ones; 0: all */
} ac_pick_t;

static bool picked(const ac_segment_t *segment, const ac_pick_t *pick) {
    return segment->tainted == pick->tainted &&
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
    for (ac_segment_t *s = arena->idle_head, *next; s && n < BATCH && *taken < bytes; s = next) {
        next = s->idle_next;
        if (!picked(s, pick))
            continue;
        leaving[n++] = (ac_leaving_t){
            .address = s->address, .size = s->size, .pool = s->pool, .tainted = s->tainted};
        *taken += s->size;
        ac_segment_remove(s, false);
        leaving[n - 1].segment = ac_record_segment(arena->allocator); /* what was just returned */
        leaving[n - 1].block = ac_record_block(arena->allocator);
    }
    arena->allocator->calls += n > 0;
    return n;
}

static void return_records(ac_allocator_t *allocator, const ac_leaving_t *leaving) {
    ac_record_segment_return(allocator, leaving->segment);
    ac_record_block_return(allocator, leaving->block);
}

/* The device would not have the segment now: it is ours as before. */
static void put_back(ac_arena_t *arena, const ac_leaving_t *leaving) {
    ac_device_stats_t *stats = arena->allocator->stats;
    ac_segment_t *segment =
        arena->dead ? NULL
                    : ac_segment_add(arena, leaving->pool, leaving->address, leaving->size);
    if (!segment)
        return;
    stats->num_device_alloc--;
    stats->num_device_free--;
    if (leaving->tainted) {
        ac_segment_taint(segment);
        arena->tainted_idle++;
    }
}

static uint64_t trim(ac_arena_t *arena, const ac_pick_t *pick, uint64_t bytes) {
    ac_allocator_t *allocator = arena->allocator;
    ac_leaving_t leaving[BATCH];
    uint64_t total = 0;
    unsigned n, refused = 0;
    do {
        pthread_mutex_lock(&allocator->lock);
        n = arena->dead ? 0 : take(arena, pick, bytes, leaving, &total);
        pthread_mutex_unlock(&allocator->lock);
        if (!n)
            break;
        uint64_t begin = arena->ops->now_ns();
        for (unsigned i = 0; i < n; i++)
            leaving[i].refused =
                arena->ops->segment_free(arena->context, leaving[i].address) == AC_BUSY;
        uint64_t spent = arena->ops->now_ns() - begin;
        pthread_mutex_lock(&allocator->lock);
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
        pthread_mutex_unlock(&allocator->lock);
    } while (n == BATCH && !refused);
    if (total) {
        pthread_mutex_lock(&allocator->lock);
        allocator->counters->trims++;
        allocator->counters->trimmed_bytes += total;
        pthread_mutex_unlock(&allocator->lock);
    }
    return total;
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

void ac_trim_garbage(ac_allocator_t *allocator, uint64_t growth) {
    uint64_t excess = 0;
    pthread_mutex_lock(&allocator->lock);
    const ac_settings_t *settings = &allocator->settings;
    if (settings->gc_threshold > 0 && settings->limit != AC_UNLIMITED) {
        uint64_t wanted =
            (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current + growth;
        uint64_t threshold = (uint64_t)(settings->gc_threshold * (double)settings->limit);
        excess = wanted > threshold ? wanted - threshold : 0;
    }
    pthread_mutex_unlock(&allocator->lock);
    const ac_pick_t large = {.pool = AC_POOL_LARGE};
    if (excess)
        ac_caches_recall(allocator, NULL);
    for (ac_arena_t *arena = allocator->arenas; arena && excess; arena = arena->next) {
        uint64_t freed = trim(arena, &large, excess);
        if (freed < excess)
            freed += ac_expand_trim(arena, AC_POOL_ALL, excess - freed);
        excess -= freed < excess ? freed : excess;
    }
}

uint64_t ac_allocator_trim(ac_allocator_t *allocator, bool wait) {
    uint64_t freed = 0;
    ac_caches_recall(allocator, NULL); /* what waits there is pending from now on */
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        pthread_mutex_lock(&allocator->lock);
        bool dead = arena->dead;
        bool pending[2];
        uint64_t oldest, target[2];
        for (int all = 0; all < 2; all++)
            pending[all] = ac_pending_targets(arena, all, &oldest, &target[all]);
        pthread_mutex_unlock(&allocator->lock);
        if (dead)
            continue;
        for (int all = 0; all < 2; all++) {
            if (!pending[all])
                continue;
            if (AC_PLANTED(fence_dropped_at_oom) && wait)
                ac_fence_synced(&arena->line, target[all]);
            if (wait)
                ac_fence_wait(&arena->line, all, target[all], 0);
            else if (ac_fence_close(&arena->line, all) != AC_FAILED)
                ac_fence_poll(&arena->line, all);
        }
        pthread_mutex_lock(&allocator->lock);
        ac_allocator_drain(allocator);
        pthread_mutex_unlock(&allocator->lock);
        freed += ac_trim_tainted(arena);
        freed += ac_trim_arena(arena, AC_UNLIMITED);
        ac_expand_complete(arena, wait);
        freed += ac_expand_trim(arena, AC_POOL_ALL, AC_UNLIMITED);
    }
    if (wait) {
        pthread_mutex_lock(&allocator->lock);
        allocator->stats->num_sync_all_streams++;
        pthread_mutex_unlock(&allocator->lock);
    }
    return freed;
}

/* Work that the program itself may hold back gets a moment only: another thread may let it go,
 * but it may as well be the caller who would, after this call. */
void ac_arena_quiesce(ac_arena_t *arena, uint64_t limit_ns) {
    const uint64_t step_ns = 50000000;
    ac_allocator_t *allocator = arena->allocator;
    pthread_mutex_lock(&allocator->lock);
    bool waits = !arena->dead && arena->pending[1].head;
    uint64_t target = waits ? arena->pending[1].tail->clock : 0;
    for (unsigned i = 0; !arena->dead && i < AC_HELD_LISTS; i++)
        if (arena->held[i] && atomic_load(&ac_fence_crossed)) {
            waits = true; /* no fence was asked for yet: one of now covers them */
            target = ac_fence_now();
        }
    pthread_mutex_unlock(&allocator->lock);
    uint64_t begin = arena->ops->now_ns(), spent = 0;
    while (waits && spent < limit_ns && !arena->ops->capturing(arena->context) &&
           !(spent >= AC_PATIENCE_NS && ac_fence_holding(&arena->line, true))) {
        waits = ac_fence_wait(&arena->line, true, target, step_ns) == AC_BUSY;
        spent = arena->ops->now_ns() - begin;
    }
}
