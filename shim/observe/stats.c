/* Resets of the device statistics; the caller holds the lock that guards them. */
#include "observe/stats.h"

/* The growth of a figure that its thread may be adding to at this moment. */
static uint64_t grown(const uint64_t *figure, uint64_t *absorbed, bool absorb) {
    uint64_t now = __atomic_load_n(figure, __ATOMIC_RELAXED);
    uint64_t growth = now - __atomic_load_n(absorbed, __ATOMIC_RELAXED);
    if (absorb)
        __atomic_store_n(absorbed, now, __ATOMIC_RELAXED);
    return growth;
}

void ac_cache_books_add(ac_cache_books_t *books, bool absorb, ac_cache_sum_t *sum) {
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *flow = &books->side[i].flow;
        ac_cache_flow_t *absorbed = &books->absorbed[i], *to = &sum->flow[i];
        to->taken += grown(&flow->taken, &absorbed->taken, absorb);
        to->taken_bytes += grown(&flow->taken_bytes, &absorbed->taken_bytes, absorb);
        to->taken_requested += grown(&flow->taken_requested, &absorbed->taken_requested, absorb);
        to->given += grown(&flow->given, &absorbed->given, absorb);
        to->given_bytes += grown(&flow->given_bytes, &absorbed->given_bytes, absorb);
        to->given_requested += grown(&flow->given_requested, &absorbed->given_requested, absorb);
        sum->held_blocks += ac_cache_books_held(books, i);
        sum->held_bytes += __atomic_load_n(&flow->given_bytes, __ATOMIC_RELAXED) -
                           __atomic_load_n(&flow->taken_bytes, __ATOMIC_RELAXED) +
                           __atomic_load_n(&books->moved_bytes[i], __ATOMIC_RELAXED);
    }
    sum->ordered += grown(&books->ordered, &books->ordered_absorbed, absorb);
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

void ac_stats_absorb(ac_device_stats_t *s, ac_device_counters_t *counters,
                     const ac_cache_sum_t *sum) {
    ac_stat_t *const blocks[] = {s->allocation, s->active};
    ac_stat_t *const bytes[] = {s->allocated_bytes, s->active_bytes};
    uint64_t taken = 0, given = 0;
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *f = &sum->flow[i];
        int pool = AC_POOL_SMALL + i;
        for (int k = 0; k < 2; k++) {
            flow(blocks[k], pool, f->taken, f->given);
            flow(bytes[k], pool, f->taken_bytes, f->given_bytes);
        }
        flow(s->requested_bytes, pool, f->taken_requested, f->given_requested);
        taken += f->taken;
        given += f->given;
    }
    for (int k = 0; k < 2; k++) {
        raise_peaks(blocks[k]);
        raise_peaks(bytes[k]);
    }
    raise_peaks(s->requested_bytes);
    counters->cached_allocs += taken;
    counters->cached_frees += given;
    counters->ordered_frees += sum->ordered;
    counters->ready_frees += given - sum->ordered;
}

static void stat_reset_peak(ac_stat_t *s) {
    s->peak = s->current;
}

static void stat_reset_accumulated(ac_stat_t *s) {
    s->allocated = 0;
    s->freed = 0;
}

void ac_stats_reset_peak(ac_device_stats_t *s) {
#define STAT_COUNT(name, doc)
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        stat_reset_peak(&s->name[i]);
#define STAT_SINGLE(name, unit, doc) stat_reset_peak(&s->name);
#include "observe/stats.def"
#undef STAT_COUNT
#undef STAT_POOLS
#undef STAT_SINGLE
}

void ac_stats_reset_accumulated(ac_device_stats_t *s) {
    /* max_split_size is a STAT_COUNT too, but a setting: it stays. */
    s->num_alloc_retries = 0;
    s->num_ooms = 0;
    s->num_sync_all_streams = 0;
    s->num_device_alloc = 0;
    s->num_device_free = 0;
#define STAT_COUNT(name, doc)
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        stat_reset_accumulated(&s->name[i]);
#define STAT_SINGLE(name, unit, doc) stat_reset_accumulated(&s->name);
#include "observe/stats.def"
#undef STAT_COUNT
#undef STAT_POOLS
#undef STAT_SINGLE
}
