/* The tally of thread caches (thread_cache.h): peaks, and what the device statistics take over.
 *
 * Peaks.  The device statistics have what was counted under the lock, and of each cache what they
 * absorbed; what its owner did since is in its tally.  A figure may rise up to its *bar*
 * (ac_bars_t), and the owner of a cache by the *room* that it was granted, which the bar was
 * lowered by; then peaks are raised.  For each figure
 *
 *     current + sum over the caches that are awake (not absorbed yet + room)  <=  peak + E
 *
 * where E is 0 with one cache, and max(AC_CACHE_MISSED, peak / AC_CACHE_MISSED_SHARE) with
 * several: so a peak is never above the true one, and below it by no more than E, whatever threads
 * do without the lock.  Raising absorbs all caches that are awake, and puts them to rest but for
 * the caller's: they have no room any more, and ask for some before they do anything.  So what
 * raising costs depends on who did something since, not on how many caches there are.  A cache that
 * ends beside others gives its room back and leaves them theirs: where threads come and go, all would
 * ask for the lock again each time that one goes.
 *
 * A hit that another thread is in while peaks are raised shows when they are raised again, with its
 * thread's next operation, or in the next reading: a peak of just that moment may lack it.  To see
 * it at once would take a heavy barrier each time, and waiting for it.
 */
#include "allocator/budget.h"
#include "allocator/cache/cache_int.h"
#include "failpoint.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* --- bars --- */

/* How much of a peak may be missed.  With one cache nothing is: it alone knows what it adds. */
static void set_bar(int64_t bar[AC_POOL_KINDS], const ac_stat_t stat[AC_POOL_KINDS],
                    int64_t least_missed, bool exact) {
    for (int i = 0; i < AC_POOL_KINDS; i++)
        bar[i] =
            stat[i].peak + (exact ? 0 : most(least_missed, stat[i].peak / AC_CACHE_MISSED_SHARE));
}

static void set_bars(ac_allocator_t *allocator) {
    const ac_device_stats_t *s = allocator->stats;
    ac_bars_t *bars = &allocator->bars;
    bool exact = atomic_load(&allocator->caches->count) <= 1;
    const int64_t blocks = AC_CACHE_MISSED >> AC_GRANULE_BITS;
    set_bar(bars->allocation, s->allocation, blocks, exact);
    set_bar(bars->allocated_bytes, s->allocated_bytes, AC_CACHE_MISSED, exact);
    set_bar(bars->active, s->active, blocks, exact);
    set_bar(bars->active_bytes, s->active_bytes, AC_CACHE_MISSED, exact);
    set_bar(bars->requested_bytes, s->requested_bytes, AC_CACHE_MISSED, exact);
    bars->over = false;
}

/* --- rooms --- */

/* Those of a side, of two figures: allocated, and active.  In the tally is the least of the two, which a
 * hit changes together, and in `lead` how much more active has. */
typedef struct {
    int64_t allocated, active;
} pair_t;

static inline pair_t pair_of(int64_t room, int64_t lead) {
    return (pair_t){room - least(lead, 0), room + most(lead, 0)};
}

static inline void set_pair(pair_t pair, int64_t *room, int64_t *lead) {
    *room = least(pair.allocated, pair.active);
    *lead = pair.active - pair.allocated;
}

/* Room for `need` of a figure: what the other side of the cache has over, as far as the pool's own
 * peak allows for it, and then of what the bars leave.  Else peaks would be raised each time that a
 * block of one side takes the place of one of the other.  False: there is none left. */
static inline bool obtain_figure(const ac_stat_t stat[AC_POOL_KINDS], int64_t bar[AC_POOL_KINDS],
                                 int pool, int other_pool, int64_t need, int64_t *room,
                                 int64_t *other) {
    if (*room >= need)
        return true;
    int64_t left = bar[pool] - stat[pool].current, over = least(*other, left);
    if (over > 0) {
        bar[pool] -= over;
        bar[other_pool] += over;
        left -= over;
        *other -= over;
        *room += over;
    }
    left = least(left, bar[AC_POOL_ALL] - stat[AC_POOL_ALL].current);
    int64_t lacking = need - *room;
    if (lacking > left)
        return lacking <= 0;
    if (lacking > 0) {
        lacking = most(left / 2, lacking);
        bar[pool] -= lacking;
        bar[AC_POOL_ALL] -= lacking;
        *room += lacking;
    }
    return true;
}

static inline int64_t left_of(const ac_stat_t stat[AC_POOL_KINDS],
                              const int64_t bar[AC_POOL_KINDS], int pool) {
    return bar[pool] - stat[pool].current;
}

/* So much goes from one bar of each of the two figures, which may be one, into the room. */
static inline void move_room(int64_t n, int64_t *room, int64_t bar[AC_POOL_KINDS],
                             int64_t bar_of_other[AC_POOL_KINDS], int pool) {
    *room += n;
    bar[pool] -= n;
    if (bar_of_other != bar)
        bar_of_other[pool] -= n;
}

/* As obtain_figure for two figures at a time, allocated and active, where both have the room that
 * is lacking: they change alike, and `lead` stays.  Half of what the other side has over stays
 * there, whose turn is next.  False: something else is to be done. */
__attribute__((always_inline)) static inline bool
obtain_alike(const ac_stat_t stat[AC_POOL_KINDS], int64_t bar[AC_POOL_KINDS],
             const ac_stat_t stat2[AC_POOL_KINDS], int64_t bar2[AC_POOL_KINDS], int flow,
             int64_t need, int64_t *room, int64_t *other) {
    int64_t lacking = need - *room;
    if (lacking <= 0)
        return true;
    int pool = AC_POOL_SMALL + flow;
    int64_t left = least(left_of(stat, bar, pool), left_of(stat2, bar2, pool));
    int64_t over = least(*other, left);
    if (over >= lacking) {
        over -= (over - lacking) / 2;
        move_room(-over, other, bar, bar2, AC_POOL_SMALL + !flow);
        move_room(over, room, bar, bar2, pool);
        return true;
    }
    left = least(left, least(left_of(stat, bar, AC_POOL_ALL), left_of(stat2, bar2, AC_POOL_ALL)));
    if (left < lacking)
        return false;
    lacking = most(left / 2, lacking);
    move_room(lacking, room, bar, bar2, pool);
    bar[AC_POOL_ALL] -= lacking;
    if (bar2 != bar)
        bar2[AC_POOL_ALL] -= lacking;
    return true;
}

/* --- the pools take turns ---
 *
 * Where the program replaces blocks the number of all stays at its peak: a side has the one block that
 * the other one lacks.  What the other one's own bars lack then stays *pledged*, so that they can have
 * it back without the lock: bars are a block lower than they need be, and peaks follow earlier. */

/* The side lacks one block of so many, which the other one has over. */
static inline bool is_its_turn(const ac_cache_t *cache, int flow, int64_t want) {
    const ac_cache_side_t *side = cache->tally->side;
    return side[flow].room.blocks == want - 1 && side[!flow].room.blocks == 1;
}

static inline void take_turn(ac_cache_t *cache, int flow, int64_t want) {
    cache->pledged[flow] = false;
    cache->pledged[!flow] = true;
    cache->tally->side[!flow].room.blocks = 0;
    cache->tally->side[flow].room.blocks = want;
}

static inline void move_block(ac_bars_t *bars, int flow, int n) {
    bars->allocation[AC_POOL_SMALL + flow] += n;
    bars->active[AC_POOL_SMALL + flow] += n;
}

/* Before bars are looked at for more. */
static inline void redeem(ac_cache_t *cache) {
    for (int flow = 0; flow < AC_FLOWS; flow++) {
        move_block(&cache->arena->allocator->bars, flow, cache->pledged[flow]);
        cache->pledged[flow] = false;
    }
}

/* False: something else is to be done. */
static inline bool obtain_block(ac_cache_t *cache, int flow, int64_t want) {
    const ac_device_stats_t *s = cache->arena->allocator->stats;
    ac_bars_t *bars = &cache->arena->allocator->bars;
    int pool = AC_POOL_SMALL + flow;
    if (!is_its_turn(cache, flow, want))
        return false;
    if (!cache->pledged[flow]) {
        if (left_of(s->allocation, bars->allocation, pool) < 1 ||
            left_of(s->active, bars->active, pool) < 1)
            return false;
        move_block(bars, flow, -1);
    }
    if (cache->pledged[!flow])
        move_block(bars, !flow, 1);
    take_turn(cache, flow, want);
    return true;
}

static inline bool may_turn(const ac_cache_t *cache, int flow) {
    const ac_cache_room_t *room = &cache->tally->side[flow].room;
    return cache->pledged[flow] && !cache->pledged[!flow] && is_its_turn(cache, flow, 0) &&
           room->bytes >= 0 && room->requested >= 0 && !ac_lanes_lack(cache);
}

/* The same without the lock, for what was taken by a hit and is all that is lacking.  By the owner, who
 * is not inside. */
static inline bool obtain_turn(ac_cache_t *cache) {
    const uint32_t never = AC_GATE_RECALLED | AC_GATE_GONE | AC_GATE_RESTS;
    bool turns = false;
    atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
    ac_barrier_light();
    if (!(atomic_load(&cache->gate) & never)) {
        int flow = cache->tally->side[1].room.blocks < 0;
        turns = may_turn(cache, flow);
        if (turns)
            take_turn(cache, flow, 0);
    }
    ac_cache_leave(cache);
    return turns;
}

/* Room for `need` of two figures, allocated and active, as obtain_alike, or else each by itself. */
__attribute__((always_inline)) static inline bool
obtain_both(const ac_stat_t stat[AC_POOL_KINDS], int64_t bar[AC_POOL_KINDS],
            const ac_stat_t stat2[AC_POOL_KINDS], int64_t bar2[AC_POOL_KINDS], int flow,
            int64_t need, int64_t *room, int64_t *lead, int64_t *other, int64_t *other_lead) {
    if (*room >= need ||
        obtain_alike(stat, bar, stat2, bar2, flow, need, room, other))
        return true;
    int pool = AC_POOL_SMALL + flow, other_pool = AC_POOL_SMALL + !flow;
    pair_t mine = pair_of(*room, *lead), theirs = pair_of(*other, *other_lead);
    bool all = obtain_figure(stat, bar, pool, other_pool, need, &mine.allocated,
                             &theirs.allocated) &&
               obtain_figure(stat2, bar2, pool, other_pool, need, &mine.active, &theirs.active);
    set_pair(mine, room, lead);
    set_pair(theirs, other, other_lead);
    return all;
}

/* Room for a request on that side, which lacks some. */
__attribute__((noinline)) static bool obtain_some(ac_cache_t *cache, int flow,
                                                  ac_cache_room_t want) {
    const ac_device_stats_t *s = cache->arena->allocator->stats;
    ac_bars_t *bars = &cache->arena->allocator->bars;
    ac_cache_room_t *room = &cache->tally->side[flow].room, *lead = &cache->lead[flow];
    ac_cache_room_t *other = &cache->tally->side[!flow].room, *other_lead = &cache->lead[!flow];
    if (cache->pledged[0] || cache->pledged[1])
        redeem(cache);
    return obtain_both(s->allocation, bars->allocation, s->active, bars->active, flow, want.blocks,
                       &room->blocks, &lead->blocks, &other->blocks, &other_lead->blocks) &&
           obtain_both(s->allocated_bytes, bars->allocated_bytes, s->active_bytes,
                       bars->active_bytes, flow, want.bytes, &room->bytes, &lead->bytes,
                       &other->bytes, &other_lead->bytes) &&
           (obtain_alike(s->requested_bytes, bars->requested_bytes, s->requested_bytes,
                         bars->requested_bytes, flow, want.requested, &room->requested,
                         &other->requested) ||
            obtain_figure(s->requested_bytes, bars->requested_bytes, AC_POOL_SMALL + flow,
                          AC_POOL_SMALL + !flow, want.requested, &room->requested,
                          &other->requested));
}

/* Room for a request on that side.  False: there is none left.  The cache is awake. */
static inline bool obtain(ac_cache_t *cache, int flow, ac_cache_room_t want) {
    const ac_cache_room_t *room = &cache->tally->side[flow].room;
    return (room->bytes >= want.bytes && room->requested >= want.requested &&
            (room->blocks >= want.blocks || obtain_block(cache, flow, want.blocks))) ||
           obtain_some(cache, flow, want);
}

/* No room is left. */
static void clear_rooms(ac_cache_t *cache) {
    const ac_cache_room_t none = {0, 0, 0};
    for (int i = 0; i < AC_FLOWS; i++)
        cache->tally->side[i].room = cache->lead[i] = none;
    cache->pledged[0] = cache->pledged[1] = false;
    ac_lanes_clear_room(cache);
}

static bool is_awake(const ac_cache_t *cache) {
    return !(atomic_load(&cache->gate) & (AC_GATE_RESTS | AC_GATE_GONE));
}

/* All that are awake rest from now on, but for `own`, which only loses its room.  Before any tally
 * is looked at: what one thread gave and another took is never seen in both. */
static void put_to_rest(ac_caches_t *caches, ac_cache_t *own) {
    for (ac_cache_t *cache = caches->awake; cache; cache = cache->awake_next) {
        cache->had_room = is_awake(cache);
        if (cache == own)
            clear_rooms(cache);
        else if (cache->had_room && !AC_FAILPOINT(room_kept))
            atomic_fetch_or(&cache->gate, AC_GATE_RESTS);
    }
}

/* The owner may be in a hit that does not show yet. */
static bool is_in_hit(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->busy, memory_order_acquire) ||
           !ac_cache_tally_absorbed(cache->tally);
}

static uint64_t share_of(const ac_allocator_t *allocator) {
    return ac_budget_fence(&allocator->settings, allocator->high_water);
}

/* The device statistics have the tallies: peaks follow.  Who was put to rest just now is looked at
 * once more by the next raise, for a hit that did not show yet. */
static void raise_peaks(ac_allocator_t *allocator, ac_cache_t *own) {
    ac_caches_t *caches = allocator->caches;
    /* What is in chains brings no room any more: bars are set as if there were none. */
    caches->raised = (caches->raised + 1) | 1;
    ac_stats_raise(allocator->stats);
    uint64_t live = (uint64_t)allocator->stats->allocated_bytes[AC_POOL_ALL].current;
    if (live > allocator->high_water)
        allocator->high_water = live;
    set_bars(allocator);
    if (own) {
        own->live_share = share_of(allocator);
        own->raised = allocator->caches->raised;
    }
    if (caches->mempool)
        ac_mempool_raise(&allocator->store, caches->mempool);
    for (ac_cache_t **at = &caches->awake, *cache; (cache = *at);)
        if (cache == own || cache->had_room || is_in_hit(cache)) {
            at = &cache->awake_next;
        } else {
            *at = cache->awake_next;
            cache->listed = false;
        }
}

void ac_caches_raise(ac_allocator_t *allocator, ac_cache_t *own) {
    ac_cache_sum_t sum = {.ordered = 0};
    bool any = false;
    put_to_rest(allocator->caches, own);
    /* The caller's in any case: what was absorbed in the midst of a hit may lack some of it, and the
     * tally ends with the cache. */
    for (ac_cache_t *cache = allocator->caches->awake; cache; cache = cache->awake_next)
        if (cache == own || !ac_cache_tally_absorbed(cache->tally)) {
            ac_cache_tally_add(cache->tally, true, &sum);
            ac_lanes_absorb(cache);
            any = true;
        }
    if (any)
        ac_stats_absorb(allocator->stats, allocator->counters, &sum);
    raise_peaks(allocator, own);
}

/* --- the end of a cache --- */

/* So much of a figure more may come to its bar. */
static void raise_bar(int64_t bar[AC_POOL_KINDS], int pool, int64_t n) {
    bar[AC_POOL_ALL] += n;
    bar[pool] += n;
}

/* The room goes back to what the bars leave. */
static void return_room(ac_cache_t *cache, ac_bars_t *bars) {
    redeem(cache);
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_room_t *room = &cache->tally->side[i].room, *lead = &cache->lead[i];
        pair_t blocks = pair_of(room->blocks, lead->blocks);
        pair_t bytes = pair_of(room->bytes, lead->bytes);
        int pool = AC_POOL_SMALL + i;
        raise_bar(bars->allocation, pool, blocks.allocated);
        raise_bar(bars->active, pool, blocks.active);
        raise_bar(bars->allocated_bytes, pool, bytes.allocated);
        raise_bar(bars->active_bytes, pool, bytes.active);
        raise_bar(bars->requested_bytes, pool, room->requested);
    }
    clear_rooms(cache);
}

void ac_caches_drop_room(ac_allocator_t *allocator, const ac_cache_brought_t *brought) {
    ac_bars_t *bars = &allocator->bars;
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_room_t *room = &brought->side[i];
        int pool = AC_POOL_SMALL + i;
        raise_bar(bars->allocation, pool, room->blocks);
        raise_bar(bars->active, pool, room->blocks);
        raise_bar(bars->allocated_bytes, pool, room->bytes);
        raise_bar(bars->active_bytes, pool, room->bytes);
        raise_bar(bars->requested_bytes, pool, room->requested);
    }
}

/* What the bars leave beyond the figures, in place of the bars; and back. */
static void set_bars_apart(ac_allocator_t *allocator, int64_t sign) {
    const ac_device_stats_t *s = allocator->stats;
    ac_bars_t *bars = &allocator->bars;
    for (int i = 0; i < AC_POOL_KINDS; i++) {
#define APART(name) bars->name[i] -= sign * s->name[i].current;
        AC_BARRED(APART)
#undef APART
    }
}

/* The figures of the cache, which is awake, become the device's while the others keep their room: what
 * a figure may rise by beyond all of it is what it was, and the cache's room. */
static void settle(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_cache_sum_t sum = {.ordered = 0};
    ac_cache_tally_add(cache->tally, true, &sum);
    set_bars_apart(allocator, 1);
    ac_stats_absorb(allocator->stats, allocator->counters, &sum);
    return_room(cache, &allocator->bars);
    set_bars_apart(allocator, -1);
}

void ac_cache_tally_end(ac_cache_t *cache) {
    const ac_cache_t *awake = cache->arena->allocator->caches->awake;
    ac_cache_wake(cache); /* now it shows what it did */
    if (cache->lanes || !awake || (awake == cache && !cache->awake_next))
        ac_caches_raise(cache->arena->allocator, cache);
    else
        settle(cache);
}

void ac_caches_absorb(ac_allocator_t *allocator, ac_cache_sum_t *sum) {
    *sum = (ac_cache_sum_t){.ordered = 0};
    put_to_rest(allocator->caches, NULL);
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next) {
        ac_cache_tally_add(cache->tally, true, sum);
        ac_lanes_absorb(cache);
    }
    ac_stats_absorb(allocator->stats, allocator->counters, sum);
    raise_peaks(allocator, NULL);
}

void ac_caches_modules(const ac_allocator_t *allocator, ac_modules_t *modules) {
    const ac_cache_t *lists[] = {allocator->caches->first, allocator->caches->gone};
    for (int i = 0; i < 2; i++)
        for (const ac_cache_t *cache = lists[i]; cache; cache = cache->next)
            ac_cache_tally_modules(cache->tally, modules);
}

void ac_caches_reset_peak(ac_allocator_t *allocator) {
    ac_cache_sum_t sum;
    ac_caches_absorb(allocator, &sum);
    ac_stats_reset_peak(allocator->stats);
    set_bars(allocator);
}

void ac_cache_wake(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    if (is_awake(cache) || ac_cache_is_gone(cache))
        return;
    clear_rooms(cache);
    cache->raised = allocator->caches->raised;
    cache->share = cache->live_share = share_of(cache->arena->allocator);
    if (!cache->listed) {
        cache->awake_next = allocator->caches->awake;
        allocator->caches->awake = cache;
        cache->listed = true;
    }
    atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_RESTS);
    if (!ac_cache_tally_absorbed(cache->tally)) /* a hit that was under way */
        ac_caches_raise(allocator, cache);
}

/* --- what waits --- */

/* A block that waited is ready: as ac_room_freed. */
static void active_falls(int64_t *room, int64_t *lead, int64_t n) {
    *room += *lead > 0 ? 0 : least(-*lead, n);
    *lead += n;
}

void ac_cache_count_ready(ac_cache_t *cache, int flow, const ac_cache_wait_t *ready) {
    ac_cache_side_t *side = &cache->tally->side[flow];
    ac_tally_add(&side->waiting.blocks, -ready->blocks);
    ac_tally_add(&side->waiting.bytes, -ready->bytes);
    ac_tally_add(&side->waiting.requested, -ready->requested);
    active_falls(&side->room.blocks, &cache->lead[flow].blocks, (int64_t)ready->blocks);
    active_falls(&side->room.bytes, &cache->lead[flow].bytes, (int64_t)ready->bytes);
    side->room.requested += (int64_t)ready->requested;
}

bool ac_cache_obtain(ac_cache_t *cache, uint64_t size, uint64_t bytes) {
    if (!ac_cache_usable(cache))
        return false;
    if (!is_awake(cache))
        ac_cache_wake(cache);
    return obtain(cache, ac_cache_flow(size),
                  (ac_cache_room_t){1, (int64_t)size, (int64_t)bytes});
}

__attribute__((noinline)) static bool raise_with_lock(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    const ac_cache_room_t none = {0, 0, 0};
    ac_lock(&allocator->lock);
    ac_cache_wake(cache); /* another thread may have raised the peaks just now */
    if (!ac_cache_is_gone(cache) &&
        !(obtain(cache, 0, none) && obtain(cache, 1, none) && ac_lanes_grant(cache)))
        ac_caches_raise(allocator, cache);
    ac_unlock(&allocator->lock);
    return true;
}

/* Apart from the other, so that it saves no registers. */
bool ac_cache_raise(ac_cache_t *cache) {
    return obtain_turn(cache) || raise_with_lock(cache);
}
