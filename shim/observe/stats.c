/* Resets of the device statistics, and their updates from caches.  The caller holds the lock that guards the
 * statistics. */
#include "observe/stats.h"

#include "failpoint.h"

/* Returns the growth of a figure since it was last absorbed; its thread may be adding to it.  *now: its value. */
static uint64_t grown(const uint64_t *figure, uint64_t *absorbed, bool absorb, uint64_t *now) {
    *now = __atomic_load_n(figure, __ATOMIC_ACQUIRE);
    uint64_t growth = *now - __atomic_load_n(absorbed, __ATOMIC_RELAXED);
    if (absorb)
        __atomic_store_n(absorbed, *now, __ATOMIC_RELAXED);
    return growth;
}

/* Returns 0 for a negative sum.  A sum is negative if the thread had changed only some of its figures. */
static uint64_t not_negative(uint64_t n) {
    return (int64_t)n < 0 ? 0 : n;
}

/* The order of the reads is taken, waiting, given.  With it a thread that continues meanwhile never seems to hold
 * more than it did. */
void ac_cache_tally_add(ac_cache_tally_t *tally, bool absorb, ac_cache_sum_t *sum) {
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *flow = &tally->side[i].flow;
        const ac_cache_wait_t *waiting = &tally->side[i].waiting;
        ac_cache_flow_t *absorbed = &tally->absorbed[i], *to = &sum->flow[i], now;
        ac_cache_wait_t *before = &tally->waiting_absorbed[i], *wait = &sum->waiting[i], waits;
        to->taken += grown(&flow->taken, &absorbed->taken, absorb, &now.taken);
        to->taken_bytes +=
            grown(&flow->taken_bytes, &absorbed->taken_bytes, absorb, &now.taken_bytes);
        to->taken_requested += grown(&flow->taken_requested, &absorbed->taken_requested, absorb,
                                     &now.taken_requested);
        wait->blocks += grown(&waiting->blocks, &before->blocks, absorb, &waits.blocks);
        wait->bytes += grown(&waiting->bytes, &before->bytes, absorb, &waits.bytes);
        wait->requested +=
            grown(&waiting->requested, &before->requested, absorb, &waits.requested);
        to->given += grown(&flow->given, &absorbed->given, absorb, &now.given);
        to->given_bytes +=
            grown(&flow->given_bytes, &absorbed->given_bytes, absorb, &now.given_bytes);
        to->given_requested += grown(&flow->given_requested, &absorbed->given_requested, absorb,
                                     &now.given_requested);
        uint64_t blocks = now.given - now.taken - waits.blocks;
        uint64_t bytes = now.given_bytes - now.taken_bytes - waits.bytes;
        sum->held_blocks +=
            not_negative(blocks + __atomic_load_n(&tally->moved_blocks[i], __ATOMIC_RELAXED));
        sum->held_bytes +=
            not_negative(bytes + __atomic_load_n(&tally->moved_bytes[i], __ATOMIC_RELAXED));
        sum->waiting_blocks += waits.blocks;
    }
    uint64_t now;
    sum->ordered += grown(&tally->ordered, &tally->ordered_absorbed, absorb, &now);
    sum->fenced += grown(&tally->fenced, &tally->fenced_absorbed, absorb, &now);
    sum->async_taken += grown(&tally->async_taken, &tally->async_taken_absorbed, absorb, &now);
    sum->async_given += grown(&tally->async_given, &tally->async_given_absorbed, absorb, &now);
}

/* Adds the figures of all modules.  Their sum is at most that of both flows.  The rest of the flows is added to
 * `module`. */
static void add_modules(uint64_t to[AC_MODULES], const uint64_t of[AC_MODULES], uint64_t module,
                        const uint64_t *small, const uint64_t *large) {
    uint64_t sum = 0;
    for (int i = 0; i < AC_MODULES; i++) {
        uint64_t n = __atomic_load_n(&of[i], __ATOMIC_ACQUIRE);
        to[i] += n;
        sum += n;
    }
    uint64_t all =
        __atomic_load_n(small, __ATOMIC_ACQUIRE) + __atomic_load_n(large, __ATOMIC_ACQUIRE);
    /* The page may be damaged; and a cache that closes meanwhile clears its flows first. */
    if ((int64_t)(all - sum) > 0)
        to[module < AC_MODULES ? module : AC_MODULE_UNKNOWN] += all - sum;
}

/* The current modules (`frees`, `asks`) are read first, before the charges that the thread makes when it changes
 * them.  So a wrong module is charged at most with the thread's operations during the read.  Frees are
 * read before allocations, so that a module never seems to have freed more than it got. */
void ac_cache_tally_modules(const ac_cache_tally_t *tally, ac_modules_t *to) {
    const ac_cache_flow_t *small = &tally->side[0].flow, *large = &tally->side[1].flow;
    uint64_t frees = __atomic_load_n(&tally->frees, __ATOMIC_ACQUIRE);
    uint64_t asks = __atomic_load_n(&tally->asks, __ATOMIC_ACQUIRE);
    add_modules(to->free_bytes, tally->modules.free_bytes, frees, &small->given_bytes,
                &large->given_bytes);
    add_modules(to->allocs, tally->modules.allocs, asks, &small->taken, &large->taken);
    add_modules(to->alloc_bytes, tally->modules.alloc_bytes, asks, &small->taken_bytes,
                &large->taken_bytes);
}

/* Charges the growth since *named to the module, and updates *named. */
static void name(uint64_t *figure, uint64_t *named, uint64_t now) {
    ac_tally_add(figure, now - *named);
    *named = now;
}

void ac_cache_tally_ask_for(ac_cache_tally_t *tally, ac_modules_named_t *named, unsigned module) {
    const ac_cache_flow_t *small = &tally->side[0].flow, *large = &tally->side[1].flow;
    uint64_t asks = tally->asks;
    if (AC_FAILPOINT(asked_before_named))
        __atomic_store_n(&tally->asks, module, __ATOMIC_RELEASE);
    AC_WINDOW(module_changes);
    name(&tally->modules.allocs[asks], &named->allocs, small->taken + large->taken);
    name(&tally->modules.alloc_bytes[asks], &named->alloc_bytes,
         small->taken_bytes + large->taken_bytes);
    __atomic_store_n(&tally->asks, module, __ATOMIC_RELEASE);
}

void ac_cache_tally_free_for(ac_cache_tally_t *tally, ac_modules_named_t *named,
                             unsigned module) {
    name(&tally->modules.free_bytes[tally->frees], &named->free_bytes,
         tally->side[0].flow.given_bytes + tally->side[1].flow.given_bytes);
    __atomic_store_n(&tally->frees, module, __ATOMIC_RELEASE);
}

int64_t ac_modules_bytes(const ac_modules_t *modules) {
    uint64_t bytes = 0;
    for (int i = 0; i < AC_MODULES; i++)
        bytes += modules->alloc_bytes[i] - modules->free_bytes[i];
    return (int64_t)bytes;
}

static void flow(ac_stat_t s[AC_POOL_KINDS], int pool, uint64_t up, uint64_t down) {
    const int kinds[] = {AC_POOL_ALL, pool};
    for (int i = 0; i < 2; i++) {
        ac_stat_t *stat = &s[kinds[i]];
        stat->current += (int64_t)(up - down);
        stat->allocated += (int64_t)up;
        stat->freed += (int64_t)down;
    }
}

static void raise_peaks(ac_stat_t s[AC_POOL_KINDS]) {
    for (int i = 0; i < AC_POOL_KINDS; i++)
        if (s[i].peak < s[i].current)
            s[i].peak = s[i].current;
}

void ac_stats_raise(ac_device_stats_t *s) {
#define RAISE(name) raise_peaks(s->name);
    AC_TALLIED(RAISE)
#undef RAISE
}

void ac_stats_absorb(ac_device_stats_t *s, ac_device_counters_t *counters,
                     const ac_cache_sum_t *sum) {
    uint64_t taken = 0, given = 0;
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *f = &sum->flow[i];
        const ac_cache_wait_t *w = &sum->waiting[i];
        int pool = AC_POOL_SMALL + i;
        flow(s->allocation, pool, f->taken, f->given);
        flow(s->allocated_bytes, pool, f->taken_bytes, f->given_bytes);
        flow(s->active, pool, f->taken, f->given - w->blocks);
        flow(s->active_bytes, pool, f->taken_bytes, f->given_bytes - w->bytes);
        flow(s->requested_bytes, pool, f->taken_requested, f->given_requested - w->requested);
        taken += f->taken;
        given += f->given;
    }
    counters->cached_allocs += taken;
    counters->cached_frees += given;
    counters->ordered_frees += sum->ordered;
    counters->fenced_frees += sum->fenced;
    counters->ready_frees += given - sum->ordered - sum->fenced - sum->async_given;
    counters->async_allocs += sum->async_taken;
    counters->async_same_stream += sum->async_taken;
    counters->async_frees += sum->async_given;
}

static void stat_reset_peak(ac_stat_t *s) {
    s->peak = s->current;
}

static void stat_reset_accumulated(ac_stat_t *s) {
    s->allocated = 0;
    s->freed = 0;
}

void ac_stats_reset_peak(ac_device_stats_t *s) {
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        stat_reset_peak(&s->name[i]);
#define STAT_SINGLE(name, unit, doc) stat_reset_peak(&s->name);
#include "observe/stats.def"
}

void ac_stats_reset_accumulated(ac_device_stats_t *s) {
#define STAT_COUNT(name, doc) s->name = 0;
#define STAT_SETTING(name, doc)
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        stat_reset_accumulated(&s->name[i]);
#define STAT_SINGLE(name, unit, doc) stat_reset_accumulated(&s->name);
#include "observe/stats.def"
}
