/* The oracle's thread caches (thread_cache.h), and its figures of the program's blocks. Any request
 * and any free may go through one of a few caches, which open and close at random and outlive their
 * contexts.
 *
 * The peak of bytes in all pools is exact while at most one cache was open. Otherwise it may miss a
 * bounded amount, and other peaks always may (cache_tally.c). */
#include <string.h>

#include "oracle.h"

static unsigned open_caches(void) {
    unsigned n = 0;
    for (int i = 0; i < ORACLE_CACHES; i++)
        n += oracle.cache[i].cache != NULL;
    return n;
}

static void close_cache(oracle_cache_t *entry) {
    const ac_cache_tally_t none = {.device = 0};
    ac_cache_close(entry->cache);
    entry->cache = NULL;
    if (memcmp(&entry->tally, &none, sizeof none) != 0)
        oracle_wrong("step %u: the tally of a closed cache", oracle.step);
}

void oracle_cache(void) {
    oracle_cache_t *entry = &oracle.cache[oracle_draw(oracle.most_caches)];
    if (entry->cache) {
        if (!oracle.steady || entry->gone)
            close_cache(entry);
        return;
    }
    entry->slot = (int)oracle_draw(ORACLE_CONTEXTS);
    entry->gone = false;
    entry->cache = ac_cache_open(oracle.arena[entry->slot], &entry->tally);
    if (!entry->cache && oracle.settings.thread_cache)
        oracle_wrong("step %u: no cache", oracle.step);
    oracle.crowded |= open_caches() > 1;
}

void oracle_caches_gone(int slot) {
    for (int i = 0; i < ORACLE_CACHES; i++)
        oracle.cache[i].gone |= oracle.cache[i].cache && oracle.cache[i].slot == slot;
    oracle.unsure = true; /* its blocks leave the figures at an unspecified time */
}

void oracle_caches_end(void) {
    for (int i = 0; i < ORACLE_CACHES; i++)
        if (oracle.cache[i].cache)
            close_cache(&oracle.cache[i]);
}

ac_cache_t *oracle_cache_for(int slot) {
    if (!open_caches())
        return NULL;
    const oracle_cache_t *entry = &oracle.cache[oracle_draw(oracle.most_caches)];
    bool serves = slot < 0 || (entry->slot == slot && !entry->gone);
    return serves ? entry->cache : NULL;
}

/* Prefers repeated sizes, because hits need them. */
uint64_t oracle_size_for(const ac_cache_t *cache, uint64_t fresh) {
    if (!cache)
        return fresh;
    uint64_t *size = &oracle.size[oracle_draw(oracle.steady ? 2 : ORACLE_SIZES)];
    if (!*size || oracle_draw(oracle.steady ? 200 : 8) == 0)
        *size = oracle.steady ? fresh % (8 << 20) + 1 : fresh;
    return *size;
}

uint64_t oracle_waiting(const ac_cache_t *cache) {
    return cache ? cache->tally->side[0].waiting.blocks + cache->tally->side[1].waiting.blocks
                 : 0;
}

bool oracle_caches_rest(void) {
    return open_caches() == 0 || oracle.step % 8 == 0;
}

/* --- figures --- */

static void add(oracle_figure_t figure[AC_POOL_KINDS], int pool, int64_t n) {
    oracle_figure_t *const both[] = {&figure[AC_POOL_ALL], &figure[pool]};
    for (int i = 0; i < 2; i++) {
        both[i]->now += n;
        if (both[i]->now > both[i]->peak)
            both[i]->peak = both[i]->now;
    }
}

void oracle_count(const oracle_live_t *live, int sign) {
    add(oracle.blocks, live->pool, sign);
    add(oracle.bytes, live->pool, sign * (int64_t)live->size);
}

void oracle_peaks_reset(void) {
    for (int i = 0; i < AC_POOL_KINDS; i++) {
        oracle.blocks[i].peak = oracle.blocks[i].now;
        oracle.bytes[i].peak = oracle.bytes[i].now;
    }
    oracle.crowded = open_caches() > 1;
    oracle.unsure = false;
    oracle.failed_before = oracle.device.failed;
}

/* Compares figures. `unseen`: the most that a peak may miss; `missed`: this limit for the peak of all
 * pools. */
static void compare(const oracle_figure_t *want, const ac_stat_t *have, int64_t unseen,
                    int64_t missed) {
    for (int i = 0; i < AC_POOL_KINDS; i++) {
        int64_t least = want[i].peak - (i == AC_POOL_ALL ? missed : unseen);
        if (have[i].current != want[i].now)
            oracle_wrong("step %u: %lld is shown for %lld", oracle.step,
                         (long long)have[i].current, (long long)want[i].now);
        if (have[i].peak > want[i].peak || have[i].peak < least)
            oracle_wrong("step %u: a peak of %lld is shown as %lld", oracle.step,
                         (long long)want[i].peak, (long long)have[i].peak);
    }
}

/* A request may have shown in a peak although it failed on its way, or could not use a block that a
 * stream has to wait for. */
void oracle_peaks_check(const ac_device_stats_t *stats) {
    for (int c = 0; c < ORACLE_CONTEXTS; c++)
        oracle.unsure |= atomic_load(&oracle.context[c]->capturing);
    if (oracle.unsure || oracle.device.no_fences || oracle.device.failed != oracle.failed_before)
        return;
    int64_t share = stats->allocated_bytes[AC_POOL_ALL].peak / AC_CACHE_MISSED_SHARE;
    int64_t missed = share > AC_CACHE_MISSED ? share : AC_CACHE_MISSED;
    const int64_t each = 2 * AC_FLOWS * ORACLE_CACHES; /* unseen growth of one cache */
    int64_t blocks = AC_STAT_UNSEEN_BLOCKS + each * AC_CACHE_UNSEEN_BLOCKS;
    int64_t most = stats->allocated_bytes[AC_POOL_ALL].peak / AC_CACHE_UNSEEN_SHARE;
    most = most > AC_CACHE_UNSEEN ? most : AC_CACHE_UNSEEN;
    compare(oracle.bytes, stats->allocated_bytes, AC_STAT_UNSEEN_BYTES + each * most,
            oracle.crowded ? missed : 0);
    compare(oracle.blocks, stats->allocation, blocks, blocks);
}
