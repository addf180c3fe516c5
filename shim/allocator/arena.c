/* Allocators and arenas from birth to death, and what others may read of them. */
#include <sched.h>
#include <string.h>

#include "allocator/allocator_int.h"
#include "allocator/carve.h"
#include "allocator/retired/retired.h"
#include "allocator/supply/supply.h"
#include "device/wait.h"
#include "observe/history.h"

/* A record, and the parts of the rooms. */
typedef struct {
    ac_allocator_t allocator;
    ac_caches_t caches;
    ac_supply_t supply;
} whole_allocator_t;

typedef struct {
    ac_arena_t arena;
    ac_retired_t retired;
    ac_growths_t growths;
} whole_arena_t;
_Static_assert(sizeof(whole_arena_t) <= 64 << 10, "more than is carved at once");

#define COPY_HOST(field)
#define COPY_CACHE(field)
#define COPY_ALLOCATOR(field)                                                                    \
    _Static_assert(sizeof settings.field == sizeof config->field, "not the same value");         \
    memcpy(&settings.field, &config->field, sizeof settings.field);

ac_settings_t ac_settings_from(const ac_config_t *config, uint64_t total_memory) {
    ac_settings_t settings = {.limit = AC_UNLIMITED,
                              .memory = total_memory,
                              .exact = config->low_memory && !config->expandable_segments,
                              .frugal = config->low_memory};
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc)              \
    COPY_##scope(field)
#include "config/config.def"
    if (config->expandable_segments) {
        settings.page = config->low_memory ? AC_SEGMENT_ALIGN : config->page_size;
        settings.small_page = AC_SEGMENT_ALIGN;
        settings.max_split_size = AC_UNLIMITED; /* what is free can go elsewhere by pages */
    } else if (config->ipc == AC_IPC_OWN_SEGMENTS) {
        settings.max_split_size = AC_SEGMENT_ALIGN + AC_GRANULE;
        settings.large_segment_size = AC_SEGMENT_ALIGN;
    }
    if (config->per_process_memory_fraction < 1)
        settings.limit = (uint64_t)((double)total_memory * config->per_process_memory_fraction);
    if (config->memory_limit && config->memory_limit < settings.limit)
        settings.limit = config->memory_limit;
    return settings;
}

ac_allocator_t *ac_allocator_create(const ac_settings_t *settings, ac_device_stats_t *stats,
                                    ac_device_counters_t *counters) {
    whole_allocator_t *whole = ac_carve(sizeof *whole);
    if (!whole)
        return NULL;
    ac_allocator_t *allocator = &whole->allocator;
    allocator->caches = &whole->caches;
    allocator->supply = &whole->supply;
    ac_mutex_init(&allocator->lock, AC_RANK_ALLOCATOR);
    ac_mutex_init(&allocator->caches->recall_lock, AC_RANK_RECALL);
    allocator->settled = (ac_cond_t){0, 0};
    allocator->stats = stats;
    allocator->counters = counters;
    ac_allocator_configure(allocator, settings);
    return allocator;
}

void ac_allocator_record(ac_allocator_t *allocator, ac_history_t *history) {
    ac_lock(&allocator->lock);
    allocator->history = history;
    ac_unlock(&allocator->lock);
}

void ac_allocator_configure(ac_allocator_t *allocator, const ac_settings_t *settings) {
    ac_lock(&allocator->lock);
    allocator->settings = *settings;
    ac_expand_leave(allocator);
    /* Signed: "no limit" reads as -1, as it does in PyTorch. */
    allocator->stats->max_split_size = (int64_t)settings->max_split_size;
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        arena->added++; /* other blocks may fit now */
    ac_unlock(&allocator->lock);
    ac_caches_settle(allocator);
}

void ac_allocator_is_shared(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    if (allocator->settings.expandable_segments == AC_PAGES_AUTO)
        atomic_store(&ac_expand_shared, true);
    bool left = ac_expand_leave(allocator);
    ac_unlock(&allocator->lock);
    if (!left)
        return;
    ac_caches_settle(allocator); /* what threads keep may lie on pages */
    ac_supply_postpone_trim(allocator);
}

void ac_allocator_recall(ac_allocator_t *allocator) {
    ac_caches_settle(allocator);
}

ac_arena_t *ac_arena_create(ac_allocator_t *allocator, const ac_device_ops_t *ops,
                            void *context) {
    whole_arena_t *whole = ac_carve(sizeof *whole);
    if (!whole)
        return NULL;
    ac_arena_t *arena = &whole->arena;
    arena->retired = &whole->retired;
    arena->space.waiting = whole->retired.index;
    arena->growths = &whole->growths;
    for (int i = 0; i < AC_INDICES; i++)
        if (!(arena->index[i].bin = ac_carve_table(AC_BINS_BYTES)))
            return NULL;
    static _Atomic unsigned numbers;
    unsigned number = atomic_fetch_add(&numbers, 1) + 1;
    arena->number = number <= UINT16_MAX ? (uint16_t)number : 0;
    arena->allocator = allocator;
    arena->space.store = &allocator->store;
    arena->space.arena = arena;
    arena->ops = ops;
    arena->context = context;
    arena->timeline.quarantine = ac_arena_quarantine;
    if (!ac_timeline_open(&arena->timeline, ops, context))
        return NULL;
    ac_lock(&allocator->lock);
    arena->next = allocator->arenas;
    atomic_store(&allocator->arenas, arena); /* read without the lock: records never go away */
    ac_unlock(&allocator->lock);
    return arena;
}

void ac_arena_drop(ac_arena_t *arena) {
    ac_lock(&arena->allocator->lock);
    arena->dead = true; /* before: no cache is opened from now on */
    ac_unlock(&arena->allocator->lock);
    ac_caches_drop(arena);
    ac_lock(&arena->allocator->lock);
    while (arena->segments)
        ac_arena_lose(arena->segments);
    ac_ordered_close(arena);
    ac_unlock(&arena->allocator->lock);
    ac_timeline_close(&arena->timeline);
}

bool ac_arena_is_over(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    ac_lock(&allocator->lock);
    bool over = arena->dead && !arena->segments && !arena->lost_ranges && !allocator->calls;
    ac_unlock(&allocator->lock);
    return over && ac_timeline_is_over(&arena->timeline);
}

bool ac_arena_again(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    if (!ac_timeline_open(&arena->timeline, arena->ops, arena->context))
        return false;
    ac_lock(&allocator->lock);
    atomic_store(&arena->retired->unordered, 0);
    memset(arena->growths->coming, 0, sizeof arena->growths->coming);
    arena->hole_age = 0;
    arena->added++; /* a search that was under way when the context ended looks again */
    arena->dead = false;
    ac_unlock(&allocator->lock);
    return true;
}

ac_timeline_t *ac_arena_timeline(ac_arena_t *arena) {
    return &arena->timeline;
}

ac_allocator_t *ac_arena_allocator(ac_arena_t *arena) {
    return arena->allocator;
}

void *ac_arena_context(ac_arena_t *arena) {
    return arena->context;
}

bool ac_allocator_available(ac_allocator_t *allocator, uint64_t *bytes) {
    for (ac_arena_t *arena = atomic_load(&allocator->arenas); arena; arena = arena->next)
        if (arena->ops->memory_free(arena->context, bytes) == AC_OK)
            return true;
    return false;
}

uint64_t ac_allocator_limit(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    uint64_t limit = allocator->settings.limit;
    ac_unlock(&allocator->lock);
    return limit;
}

void ac_allocator_count_oom(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    allocator->stats->num_ooms++;
    ac_unlock(&allocator->lock);
}

uint64_t ac_allocator_room(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    uint64_t limit = ac_supply_limit(allocator);
    ac_unlock(&allocator->lock);
    if (limit == AC_UNLIMITED)
        return limit;
    return reserved < limit ? limit - reserved : 0;
}

/* Waits for other calls under way: the driver may refuse them, and their bytes are then free again. */
bool ac_allocator_claim(ac_allocator_t *allocator, uint64_t bytes) {
    ac_arena_t *any = atomic_load(&allocator->arenas);
    uint64_t end = any ? any->ops->now_ns() + AC_OTHERS_NS : 0;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    int late = !any;
    bool fits;
    ac_lock(&allocator->lock);
    for (;;) {
        uint64_t limit = ac_supply_limit(allocator), taken = ac_supply_taken(allocator);
        fits = bytes <= limit && taken <= limit - bytes;
        if (fits || late || bytes > allocator->settings.limit || !allocator->calls)
            break;
        late = ac_wait_until(&allocator->settled, &allocator->lock, &until);
    }
    if (fits) {
        allocator->supply->claimed += bytes;
        allocator->calls++;
    }
    ac_unlock(&allocator->lock);
    return fits;
}

void ac_allocator_claimed(ac_allocator_t *allocator, uint64_t bytes) {
    ac_lock(&allocator->lock);
    allocator->supply->claimed -= bytes;
    ac_supply_end_call(allocator, true);
    ac_unlock(&allocator->lock);
}

/* The caller holds the lock. */
static void hold(ac_allocator_t *allocator, size_t figure, int64_t change) {
    *(uint64_t *)((char *)allocator->counters + figure) += (uint64_t)change;
    allocator->changes += change < 0;
    if (change < 0)
        ac_cond_broadcast(&allocator->settled);
}

void ac_allocator_hold(ac_allocator_t *allocator, size_t figure, int64_t change) {
    ac_lock(&allocator->lock);
    hold(allocator, figure, change);
    ac_unlock(&allocator->lock);
}

void ac_allocator_hold_now(ac_allocator_t *allocator, size_t figure, ac_allocator_sum_t *part,
                           uint64_t look, uint64_t bytes) {
    ac_lock(&allocator->lock);
    if (look > part->look) {
        hold(allocator, figure, (int64_t)(bytes - part->bytes));
        *part = (ac_allocator_sum_t){bytes, look};
    }
    ac_unlock(&allocator->lock);
}

void ac_allocator_settle(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    ac_retired_drain_all(allocator);
    ac_unlock(&allocator->lock);
}

void ac_allocator_reset_peak(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    ac_retired_drain_all(allocator);
    ac_caches_reset_peak(allocator);
    ac_unlock(&allocator->lock);
}

void ac_allocator_reset_accumulated(ac_allocator_t *allocator) {
    ac_cache_sum_t sum;
    ac_lock(&allocator->lock);
    ac_caches_absorb(allocator, &sum);
    allocator->supply->expand.toll.requests -=
        (uint64_t)allocator->stats->allocation[AC_POOL_ALL].allocated;
    ac_stats_reset_accumulated(allocator->stats);
    ac_unlock(&allocator->lock);
}

void ac_allocator_stats(ac_allocator_t *allocator, ac_device_stats_t *stats) {
    ac_cache_sum_t sum;
    ac_lock(&allocator->lock);
    ac_retired_drain_all(allocator);
    ac_caches_absorb(allocator, &sum);
    *stats = *allocator->stats;
    ac_unlock(&allocator->lock);
}

/* The caller holds the lock. */
static bool is_idle(const ac_allocator_t *allocator) {
    for (const ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        if (!ac_fence_idle(&arena->timeline))
            return false;
    return true;
}

void ac_allocator_stats_settled(ac_allocator_t *allocator, ac_device_stats_t *stats) {
    ac_allocator_stats(allocator, stats);
    if (stats->active[AC_POOL_ALL].current == stats->allocation[AC_POOL_ALL].current)
        return;
    ac_lock(&allocator->lock);
    bool idle = is_idle(allocator);
    ac_unlock(&allocator->lock);
    if (!idle)
        return;
    ac_caches_recall(allocator, NULL);
    ac_allocator_stats(allocator, stats);
}

bool ac_allocator_figures(ac_allocator_t *allocator, const struct timespec *deadline,
                          ac_device_stats_t *stats, ac_device_counters_t *counters) {
    enum { TRIES = 1000 };
    ac_cache_sum_t sum;
    for (int i = 0;; i++) {
        if (!ac_lock_until(&allocator->lock, deadline))
            return false;
        ac_retired_drain_all(allocator);
        ac_caches_absorb(allocator, &sum);
        *stats = *allocator->stats;
        ac_caches_modules(allocator, &stats->modules);
        if (ac_modules_bytes(&stats->modules) == stats->allocated_bytes[AC_POOL_ALL].current ||
            i == TRIES)
            break;
        /* A hit is under way that shows in one of the two: its thread may have to be let run. */
        ac_unlock(&allocator->lock);
        sched_yield();
    }
    *counters = *allocator->counters;
    counters->thread_cache_blocks = sum.held_blocks;
    counters->thread_cache_bytes = sum.held_bytes;
    ac_unlock(&allocator->lock);
    return true;
}
